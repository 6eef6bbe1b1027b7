"""Diversity guidance around ComfyUI's samplers.

A wrapper of `sampler.sample` cuts the sampler's run at the noise level of the rounds. The sampler
runs down to it; rounds replace its latents; and it runs on from there, as for the next of two
`KSampler (Advanced)`. So each sampler keeps its own steps, of any order and with any noise.

An image that several runs generate has the rounds of one run: where they are due, and how many
there are, is read from the schedule that the runs' sigmas were cut from.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.rounds import is_distilled
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Generator, Level, Step, where_finite
from vendi_guidance.patching import Patch

from .nearby import has_tokens, perturbed
from .remembering import Remembering
from .schedule import KEY, whole_schedule
from .undistilled import predicting

SCALES = ("cfg", "cfg1", "cfg2")
"""What ComfyUI's guiders call the scales of classifier-free guidance."""


class DiverseSampling:
    """A wrapper of `sampler.sample` (`WrappersMP.SAMPLER_SAMPLE`).

    Args:
        settings: of the rounds.
        remembering: where finished samples are kept.
        undistilled: the model that predicts in the rounds, or None for the sampler's.
    """

    def __init__(self, settings: Rounds, remembering: Remembering, undistilled: Any = None) -> None:
        self._settings = settings
        self._remembering = remembering
        self._undistilled = undistilled

    def __call__(
        self,
        executor: Any,
        guider: Any,
        sigmas: Tensor,
        extra_args: dict[str, Any],
        callback: Any,
        noise: Tensor,
        *others: Any,
        **named: Any,
    ) -> Tensor:
        """The samples, (b, ...) in the model's units.

        Raises:
            ValueError: the sampler has no function of its own that could be cut, or the memory
                cannot be read.
        """
        sampler = executor.class_obj
        if not hasattr(sampler, "sampler_function"):
            raise ValueError(
                f"Diverse Batch cannot guide a {type(sampler).__name__}: "
                "use one of the samplers that KSampler lists"
            )
        if sigmas[0] < sigmas[-1]:  # inverts an image, which is to stay itself
            return executor(guider, sigmas, extra_args, callback, noise, *others, **named)
        is_finished = bool(sigmas[-1] == 0)  # asked now: uni_pc writes into the sigmas it is given
        prompts = prompt_features(guider.conds, noise)
        shape = "x".join(map(str, noise.shape[1:]))
        sample = f"{type(guider.inner_model).__name__} {shape} {prompts.shape[1]}"
        memory = self._remembering.open(sample)
        engine = Engine(self._settings, memory)
        goes_on = not noise.any()
        given = extra_args.get("model_options", {}).get(KEY, sigmas)
        schedule = whole_schedule(given, goes_on)
        progress = _Progress(callback)
        run = _Run(engine, guider, prompts, goes_on, *schedule, progress, self._undistilled)
        patch = Patch(sampler, "sampler_function", lambda inner: partial(run.sample, inner))
        patch.apply()
        try:
            told = callback and progress
            samples = executor(guider, sigmas, extra_args, told, noise, *others, **named)
        finally:
            patch.remove()
        if is_finished and self._remembering.is_lasting:
            engine.remember(Step(0, 1, samples, prompts=prompts))
            self._remembering.keep(memory, sample)
        return samples


class _Progress:
    """A sampler's callback (step, x0, x, steps) that counts evaluations of the rounds as steps.

    Attributes:
        rounds: how many evaluations the rounds take.
        done: how many of them are made.
    """

    rounds = done = 0

    def __init__(self, callback: Callable[..., None]) -> None:
        self._callback = callback

    def __call__(self, index: int, denoised: Tensor, x: Tensor, steps: int) -> None:
        self._callback(index + self.done, denoised, x, steps + self.rounds)


@dataclass(frozen=True)
class _Run:
    """One run of a sampler, from noise to samples or from one noise level to another.

    Attributes:
        engine: of this run.
        guider: which evaluates the model.
        prompts: (b, m) embeddings.
        goes_on: whether an earlier run has left its noise in the latents.
        schedule, first: see `whole_schedule`.
        progress: to be told of each evaluation in the rounds.
        undistilled: see `DiverseSampling`.
    """

    engine: Engine
    guider: Any
    prompts: Tensor
    goes_on: bool
    schedule: Tensor
    first: int
    progress: _Progress
    undistilled: Any

    def sample(
        self,
        function: Callable[..., Tensor],
        model: Any,
        x: Tensor,
        sigmas: Tensor,
        extra_args: dict[str, Any],
        callback: Callable[[dict[str, Any]], None] | None = None,
        **options: Any,
    ) -> Tensor:
        """What a sampler's function does, with rounds where they are due: (b, ...) latents."""
        guided = _Model(model, self.engine, self.guider)
        levels = [guided.level(sigma) for sigma in self.schedule.to(sigmas)]
        count = len(levels) - (1 if self.schedule[-1] == 0 else 0)  # the last step ends at 0
        # in calls of few steps rounds follow a step; in others the sampler makes it after them
        follows = is_distilled(Step(0, count, x, network=_Here((levels[0],) * 2, guided)))
        at = self._where(guided, x, levels, count, follows)
        guided.are_made = at < 0
        if not 0 <= at < len(sigmas) - 1:
            return function(guided, x, sigmas, extra_args=extra_args, callback=callback, **options)
        index = at + self.first
        between = levels[index - follows], levels[index]
        ahead = levels[index + 1 : count]
        here = _Here(between, guided, self.undistilled, done=index, ahead=ahead)
        step = Step(index - follows, count, x, prompts=self.prompts, network=here)
        self.progress.rounds = self.engine.evaluations(step)
        if at > 0:
            given = {"extra_args": {**extra_args}, "callback": callback}  # samplers add to it
            x = function(guided, x, sigmas[: at + 1], **given, **options)

        def denoise(
            latents: Tensor,
            level: Level | None = None,
            *,
            prompt_noise: float = 0.0,
            generator: Generator = None,
        ) -> Tensor:
            level = level or here.levels[0]
            sigma = sigmas[at] if level == here.levels[1] else sigmas.new_tensor(level.noise)
            sigma = sigma.expand(len(latents))
            with perturbed(self.guider, len(latents), prompt_noise, generator):
                return guided.evaluate(latents, sigma, share_of_cfg=0.0, **extra_args)

        def tell(latents: Tensor, level: Level | None = None, **noise: Any) -> Tensor:
            if len(latents) > len(x):
                return torch.cat([tell(part, level, **noise) for part in latents.split(len(x))])
            found = denoise(latents, level, **noise)
            here.is_inserted = (level or here.levels[0]) != here.levels[1]
            self.progress.done += 1
            if callback:  # which also raises what interrupts the run
                callback({"i": at - 1, "x": latents, "denoised": found, "sigma": sigmas[at]})
            return found

        here.denoise, here.denoised = tell, denoise(x, here.levels[1])
        generator = torch.Generator().manual_seed(_derived(extra_args.get("seed"), "rounds"))
        step = replace(step, latents=x, generator=generator)
        with predicting(self.guider, self.undistilled, x):
            x = self.engine.modify(step).latents
        if self.undistilled is None and not here.is_inserted:  # the sampler's own prediction
            guided.expect(x, extra_args.get("model_options"), here.found)
        # from the same seed, the sampler would draw the noise of its first steps again
        seed = _derived(extra_args.get("seed"), "from the rounds on")
        later = callback and (lambda told: callback({**told, "i": told["i"] + at}))
        return function(
            guided,
            x,
            sigmas[at:],
            extra_args={**extra_args, "seed": seed},
            callback=later,
            **options,
        )

    def _where(
        self, model: "_Model", x: Tensor, levels: Sequence[Level], count: int, follows: bool
    ) -> int:
        """The step of this run before which rounds are due; a negative number if an earlier run has
        made them, and one beyond the run's steps if that is left to a later one."""

        def is_due(index: int, before: Level, after: Level) -> bool:
            here = _Here((before, after), model, self.undistilled)
            return self.engine.is_due(Step(index, count, x, network=here))

        # an earlier run whose steps are not known has repeated one if it has reached the level;
        # at the highest there was none, and the latents have come with noise of their own
        goes_on = self.goes_on and levels[0].ratio < 0.99 * model.at(math.inf).ratio
        if goes_on and self.first == 0 and is_due(-1, levels[0], levels[0]):
            return -1
        for index, (before, after) in enumerate(pairwise(levels)):
            if is_due(index, before, after):
                return index - self.first + follows
        last = len(levels) - 2
        is_passed = levels[last].signal > 0 and is_due(-1, levels[-1], levels[-1])
        return last if is_passed else len(levels)


class _Here:
    """A step of the sampler, which rounds can repeat: see `Denoiser`.

    Args:
        model: says which levels there are, what the prompts are, and whether the sampler evaluates
            it with CFG.
        done: how many steps were made before.
        ahead: the levels at which later steps begin.

    Attributes:
        denoise: the prediction for other latents, at any level.
        denoised: the step's own, (b, ...).
        found: what the rounds predicted last; where that is not finite, `denoised`.
        is_inserted: whether that was at another level than the step's.
    """

    denoise: Any = None
    denoised: Any = None
    found: Any = None
    is_inserted = False
    cfg_every = 1

    def __init__(
        self,
        levels: tuple[Level, Level],
        model: "_Model",
        undistilled: Any = None,
        done: int = 0,
        ahead: Sequence[Level] = (),
    ) -> None:
        self.levels = levels
        self.spent = 1 + done
        self.ahead = [level.ratio for level in ahead]
        self.has_prompt = has_tokens(model.guider)
        self.is_undistilled = undistilled is not None
        self.at = model.at
        self.evaluations_per_step = 1 if {*_scales(model.guider).values()} <= {1.0} else 2

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        self.found = where_finite(clean, self.denoised)


class _Model:
    """The model as samplers call it, with the share of CFG that is due at each noise level.

    Attributes:
        are_made: whether an earlier run has made the rounds.
        guider: which evaluates the model.
    """

    are_made = False

    def __init__(self, model: Any, engine: Engine, guider: Any) -> None:
        self._model = model
        self._engine = engine
        self.guider = guider
        self._expected: tuple[Tensor, Any, Tensor] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)  # samplers look at its parts

    def __call__(self, x: Tensor, sigma: Tensor, **options: Any) -> Tensor:
        """(b, ...) prediction of clean latents for (b, ...) latents at (b,) sigmas."""
        expected, self._expected = self._expected, None
        if expected is not None:
            latents, model_options, prediction = expected
            # a sampler that has put hooks of its own into the model must see them called
            if options.get("model_options") is model_options and torch.equal(x, latents):
                return prediction
        share = self._engine.share_of_cfg(self.level(sigma[0]), self.are_made)
        return self.evaluate(x, sigma, share, **options)

    def evaluate(self, x: Tensor, sigma: Tensor, share_of_cfg: float, **options: Any) -> Tensor:
        """The same with another share of CFG."""
        with _scaled(self.guider, share_of_cfg):
            return self._model(x, sigma, **options)

    def expect(self, x: Tensor, model_options: Any, prediction: Tensor) -> None:
        """The next evaluation will be for these latents, whose prediction is known."""
        self._expected = x, model_options, prediction

    def level(self, sigma: Tensor) -> Level:
        """Of a sigma, as this model mixes noise and latents."""
        mix = self.guider.inner_model.model_sampling.noise_scaling
        one, none = sigma.new_ones(1), sigma.new_zeros(1)
        return Level(
            signal=float(mix(sigma, none.clone(), one)), noise=float(mix(sigma, one.clone(), none))
        )

    def at(self, ratio: float) -> Level:
        """The level of a noise-to-signal ratio, or the highest that the model was trained at.

        Raises:
            ValueError: the model's sigmas are neither such ratios nor shares of noise.
        """
        highest = self.level(
            torch.as_tensor(float(self.guider.inner_model.model_sampling.sigma_max))
        )
        if ratio >= highest.ratio:
            return highest
        for sigma in (ratio, ratio / (1 + ratio)):
            level = self.level(torch.tensor(sigma, dtype=torch.float64))
            if math.isclose(level.ratio, ratio, rel_tol=1e-6) and math.isclose(level.noise, sigma):
                return level
        raise ValueError(
            f"no sigma is known for a noise-to-signal ratio of {ratio:.3g} with "
            f"{type(self.guider.inner_model.model_sampling).__name__}: disconnect Diverse Batch"
        )


def prompt_features(conds: Mapping[str, Sequence[Mapping[str, Any]]], noise: Tensor) -> Tensor:
    """(b, m) one row for each sample, the same for the same prompt: pooled embeddings, or the mean
    over tokens; of several conditionings that are combined, their mean.

    Args:
        conds: the guider's; those of "positive" are the prompt's.
        noise: (b, ...) of the samples.
    """
    rows = []
    for cond in conds.get("positive") or ():
        pooled, tokens = cond.get("pooled_output"), cond.get("cross_attn")
        if pooled is not None:
            rows.append(pooled.float().flatten(1))
        elif tokens is not None:
            rows.append(tokens.float().flatten(2).mean(dim=1))
    if not rows:
        return noise.new_ones(len(noise), 1)  # nothing tells the prompts apart
    alike = [row for row in rows if row.shape[1] == rows[0].shape[1]]
    each = [row.repeat(-(-len(noise) // len(row)), 1)[: len(noise)] for row in alike]
    return torch.stack(each).mean(dim=0).to(noise.device)


def _scales(guider: Any) -> dict[str, float]:
    return {name: getattr(guider, name) for name in SCALES if hasattr(guider, name)}


@contextmanager
def _scaled(guider: Any, share: float) -> Iterator[None]:
    """Meanwhile a guider's CFG scale w is 1 + share (w - 1)."""
    before = _scales(guider)
    try:
        for name, scale in before.items():
            setattr(guider, name, 1 + share * (scale - 1))
        yield
    finally:
        for name, scale in before.items():
            setattr(guider, name, scale)


def _derived(seed: int | None, name: str) -> int:
    """Another seed for the purpose named, the same for the same seed."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7], "big")
