"""Diversity guidance around ComfyUI's samplers.

A wrapper of `sampler.sample` splits the sampler's run at the noise level of the rounds. The sampler
runs down to that level, the rounds replace its latents, and the sampler runs on from there, like
the second of two `KSampler (Advanced)` nodes. So every sampler works unchanged, whatever its order
or noise.

If several runs generate one image, only one of them makes the rounds. The full schedule, from which
the runs' sigmas were sliced, determines which one.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.adapter.patching import Patch
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Level, Perturb, Step, where_finite
from vendi_guidance.guidance.timing import is_distilled

from .memory import MemoryStore, digest
from .perturbed import has_tokens, perturbed
from .schedule import KEY, whole_schedule
from .undistilled import model_swapped

SCALES = ("cfg", "cfg1", "cfg2")
"""Attributes of ComfyUI's guiders that hold a scale of classifier-free guidance (CFG)."""


ALWAYS = "disable_cfg1_optimization"
"""The model option that evaluates negative prompts at CFG 1 too."""


ALONE = "one image, with nothing to differ from: as without this node\n"


class DiverseSampling:
    """A wrapper of `sampler.sample` (`WrappersMP.SAMPLER_SAMPLE`).

    Args:
        settings: settings of the rounds.
        store: keeps finished samples between runs.
        undistilled: model that predicts in the rounds; None for the sampler's own.
        show: called with what the node should say.
    """

    def __init__(
        self,
        settings: Rounds,
        store: MemoryStore,
        undistilled: Any = None,
        show: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._settings = settings
        self._store = store
        self._undistilled = undistilled
        self._show = show

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
        """Run the sampler with guidance; returns (b, ...) samples in the model's units.

        Raises:
            ValueError: the sampler has no `sampler_function` that can be split, or the memory
                cannot be read.
        """
        sampler = executor.class_obj
        if not hasattr(sampler, "sampler_function"):
            raise ValueError(
                f"Diverse Batch cannot guide a {type(sampler).__name__}: "
                "use one of the samplers that KSampler lists"
            )
        if sigmas[0] < sigmas[-1]:  # an inversion must reproduce its image
            return executor(guider, sigmas, extra_args, callback, noise, *others, **named)
        is_finished = bool(sigmas[-1] == 0)  # read now: uni_pc modifies the sigmas in place
        prompts = prompt_features(guider.conds, noise)
        shape = "x".join(map(str, noise.shape[1:]))
        kind = f"{type(guider.inner_model).__name__} {shape} {prompts.shape[1]}"
        of = digest(guider.inner_model, prompts if self._settings.is_conditional else prompts[:0])
        memory = self._store.load(kind, of)
        engine = Engine(self._settings, memory)
        args = guider, sigmas, extra_args, callback, noise, *others
        if len(noise) == 1 and len(memory.window) == 0:  # nothing to differ from
            text, samples = ALONE, executor(*args, **named)
        else:
            text, samples = "", self._guided(executor, engine, prompts, *args, **named)
        if is_finished and self._store.is_lasting:
            engine.remember(Step(0, 1, samples, prompts=prompts))
            self._store.save(memory, kind)
            text += f"{len(memory.window)} remembered"
        self._show(text)
        return samples

    def _guided(
        self,
        executor: Any,
        engine: Engine,
        prompts: Tensor,
        guider: Any,
        sigmas: Tensor,
        extra_args: dict[str, Any],
        callback: Any,
        noise: Tensor,
        *others: Any,
        **named: Any,
    ) -> Tensor:
        """Run the sampler with rounds."""
        sampler = executor.class_obj
        own_sigmas = extra_args.get("model_options", {}).get(KEY, sigmas)
        schedule = whole_schedule(own_sigmas, is_continued=not noise.any())
        progress = _Progress(callback)
        run = _Run(engine, guider, prompts, noise, *schedule, progress, self._undistilled)
        patch = Patch(sampler, "sampler_function", lambda inner: partial(run.sample, inner))
        patch.apply()
        try:
            reported = callback and progress
            return executor(guider, sigmas, extra_args, reported, noise, *others, **named)
        finally:
            patch.remove()


class _Progress:
    """A sampler's callback (step, x0, x, steps) that counts evaluations of the rounds as steps.

    Attributes:
        rounds: number of evaluations that the rounds take.
        done: number of them made so far.
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
        engine: guides this run.
        guider: evaluates the model.
        prompts: (b, m) prompt embeddings.
        noise: (b, ...) of the samples; zero where the latents contain noise already.
        schedule, first: see `whole_schedule`.
        progress: counts the evaluations of the rounds.
        undistilled: see `DiverseSampling`.
    """

    engine: Engine
    guider: Any
    prompts: Tensor
    noise: Tensor
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
        """Run a sampler's function, with rounds where they are due; returns (b, ...) latents."""
        guided = _Model(model, self.engine, self.guider)
        run = partial(function, guided, **options)
        levels = [guided.level(sigma) for sigma in self.schedule.to(sigmas)]
        count = len(levels) - (1 if self.schedule[-1] == 0 else 0)  # the last step ends at 0
        always = extra_args.get("model_options", {}).get(ALWAYS, False)
        guided.count_conditions(x[:1], self.schedule[:count].to(sigmas), **{ALWAYS: always})
        # with few steps the rounds follow the step that is due; otherwise they precede it
        follows = is_distilled(Step(0, count, x, network=_SamplerStep((levels[0],) * 2, guided)))
        split = self._step_of_rounds(guided, x, levels, count, follows)
        guided.rounds_are_made = split < 0
        if not 0 <= split < len(sigmas) - 1:
            return run(x, sigmas, extra_args=extra_args, callback=callback)
        index = split + self.first
        before_and_after = levels[index - follows], levels[index]
        ahead = levels[index + 1 : count]
        network = _SamplerStep(before_and_after, guided, self.undistilled, index, ahead)
        step = Step(index - follows, count, x, prompts=self.prompts, network=network)
        self.progress.rounds = self.engine.evaluations(step)
        noise = self._initial_noise(x, self._follows_a_run(guided, levels), extra_args.get("seed"))
        if split > 0:
            own_args = {**extra_args}  # samplers add to it
            x = run(x, sigmas[: split + 1], extra_args=own_args, callback=callback)

        def predict(
            latents: Tensor, level: Level | None = None, perturb: Perturb | None = None
        ) -> Tensor:
            level = level or network.levels[0]
            sigma = sigmas[split] if level == network.levels[1] else sigmas.new_tensor(level.noise)
            sigma = sigma.expand(len(latents))
            with perturbed(self.guider, len(latents), perturb):
                return guided.evaluate(latents, sigma, share_of_cfg=0.0, **extra_args)

        def denoise(
            latents: Tensor, level: Level | None = None, perturb: Perturb | None = None
        ) -> Tensor:
            if len(latents) > len(x):
                parts = latents.split(len(x))
                return torch.cat([denoise(part, level, perturb) for part in parts])
            clean = predict(latents, level, perturb)
            network.is_inserted = (level or network.levels[0]) != network.levels[1]
            self.progress.done += 1
            if callback:  # raises if the user interrupts the run
                state = {"i": split - 1, "x": latents, "denoised": clean, "sigma": sigmas[split]}
                callback(state)
            return clean

        network.denoise, network.denoised = denoise, predict(x, network.levels[1])
        step = replace(step, latents=x, first=noise)
        with model_swapped(self.guider, self.undistilled, x):
            x = self.engine.modify(step).latents
        if self.undistilled is None and not network.is_inserted:  # the sampler's own prediction
            guided.expect(x, extra_args.get("model_options"), network.clean)
        # with the same seed, the sampler would repeat the noise of its first steps
        own_args = {**extra_args, "seed": _seed_after_rounds(extra_args.get("seed"))}
        shifted = callback and (lambda state: callback({**state, "i": state["i"] + split}))
        return run(x, sigmas[split:], extra_args=own_args, callback=shifted)

    def _follows_a_run(self, model: "_Model", levels: Sequence[Level]) -> bool:
        """Whether the latents contain noise left by an earlier run. At the highest level there was
        none: the latents came with their own noise."""
        is_lower = levels[0].ratio < 0.99 * model.at(math.inf).ratio
        return (is_lower or self.first > 0) and not self.noise.any()

    def _initial_noise(self, x: Tensor, follows_a_run: bool, seed: int | None) -> Tensor:
        """The (b, ...) noise with which the image began. ComfyUI draws it from the seed alone, so
        that a later run with the same seed can draw it again."""
        if follows_a_run:
            return torch.randn(x.shape, generator=torch.Generator().manual_seed(seed or 0))
        return self.noise if self.noise.any() else x

    def _step_of_rounds(
        self, model: "_Model", x: Tensor, levels: Sequence[Level], count: int, follows: bool
    ) -> int:
        """Index of the step of this run before which rounds are due: negative if an earlier run
        made them, past the last step if a later run will."""

        def is_due(index: int, before: Level, after: Level) -> bool:
            network = _SamplerStep((before, after), model, self.undistilled)
            return self.engine.is_due(Step(index, count, x, network=network))

        # if the steps of an earlier run are unknown, it made the rounds if it reached their level
        is_unknown = self.first == 0 and self._follows_a_run(model, levels)
        if is_unknown and is_due(-1, levels[0], levels[0]):
            return -1
        for index, (before, after) in enumerate(pairwise(levels)):
            if is_due(index, before, after):
                return index - self.first + follows
        last = len(levels) - 2
        is_passed = levels[last].signal > 0 and is_due(-1, levels[-1], levels[-1])
        return last if is_passed else len(levels)


class _SamplerStep:
    """A step of the sampler, which the rounds can repeat: a `Denoiser`.

    Args:
        levels: before and after the step.
        model: gives the noise levels, the prompts and whether the sampler uses CFG.
        undistilled: see `DiverseSampling`.
        done: number of earlier steps.
        ahead: levels at which later steps begin.

    Attributes:
        denoise: predicts clean latents from other latents, at any level.
        denoised: (b, ...) the step's own prediction.
        clean: (b, ...) the latest prediction of the rounds; `denoised` where that is not finite.
        is_inserted: whether `denoise` was last called at a level other than `levels[1]`.
    """

    denoise: Any = None
    denoised: Any = None
    clean: Any = None
    is_inserted = False
    cfg_every = 1
    has_blocks = False  # no moves inside the network here
    denoise_moved: Any = None
    move_inside: Any = None

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
        self.evaluations_per_step = model.evaluations_per_step

    def without_prompts(self) -> None:
        """See `Denoiser`."""

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        self.clean = where_finite(clean, self.denoised)


class _Model:
    """The model as samplers call it, with CFG scaled as the rounds require at each noise level.

    Attributes:
        rounds_are_made: whether an earlier run made the rounds.
        evaluations_per_step: how many times as much is evaluated with CFG as without it.
        guider: evaluates the model.
    """

    rounds_are_made = False
    evaluations_per_step = 1.0

    def __init__(self, model: Any, engine: Engine, guider: Any) -> None:
        self._model = model
        self._engine = engine
        self.guider = guider
        self._expected: tuple[Tensor, Any, Tensor] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)  # samplers read the model's attributes

    def __call__(self, x: Tensor, sigma: Tensor, **options: Any) -> Tensor:
        """Predict (b, ...) clean latents from (b, ...) latents at (b,) sigmas."""
        expected, self._expected = self._expected, None
        if expected is not None:
            latents, model_options, prediction = expected
            # other options: the sampler added hooks of its own, which must be called
            if options.get("model_options") is model_options and torch.equal(x, latents):
                return prediction
        share = self._engine.share_of_cfg(self.level(sigma[0]), self.rounds_are_made)
        return self.evaluate(x, sigma, share, **options)

    def evaluate(self, x: Tensor, sigma: Tensor, share_of_cfg: float, **options: Any) -> Tensor:
        """Predict with this share of CFG."""
        with _cfg_scaled(self.guider, share_of_cfg):
            return self._model(x, sigma, **options)

    def count_conditions(self, x: Tensor, sigmas: Tensor, **options: Any) -> None:
        """Find `evaluations_per_step` by asking the guider at each sigma for a prediction, in which
        only conditions are counted: wrappers may change CFG from step to step."""

        def count(executor: Any, model: Any, conds: Sequence[Any], x: Tensor, *_: Any) -> Any:
            found.append(sum(cond is not None for cond in conds))
            return [torch.zeros_like(x) for _ in conds]

        options["transformer_options"] = {"wrappers": {"calc_cond_batch": {KEY: [count]}}}
        counts = []
        for share in (1.0, 0.0):
            counts.append(0)
            for sigma in sigmas:
                found: list[int] = []
                # a wrapper may need options of its own, and a guider may evaluate in another way
                with _cfg_scaled(self.guider, share), suppress(Exception):
                    self.guider(x, sigma.expand(len(x)), model_options=options, seed=None)
                has_cfg = share > 0 and any(w != 1 for w in _cfg_scales(self.guider).values())
                counts[-1] += sum(found) or 1 + has_cfg
        self.evaluations_per_step = counts[0] / counts[1]

    def expect(self, x: Tensor, model_options: Any, prediction: Tensor) -> None:
        """Reuse a known prediction if the next evaluation is of these latents."""
        self._expected = x, model_options, prediction

    def level(self, sigma: Tensor) -> Level:
        """The noise level of a sigma: how this model mixes noise and latents there."""
        mix = self.guider.inner_model.model_sampling.noise_scaling
        one, none = sigma.new_ones(1), sigma.new_zeros(1)
        return Level(
            signal=float(mix(sigma, none.clone(), one)), noise=float(mix(sigma, one.clone(), none))
        )

    def at(self, ratio: float) -> Level:
        """The level of a noise-to-signal ratio, at most the highest that the model was trained at.

        Raises:
            ValueError: the model's sigmas are neither noise-to-signal ratios nor shares of noise.
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
    """(b, m) prompt embeddings: pooled ones, or else the mean over tokens.

    Args:
        conds: conditionings of the guider; the mean of those under "positive" is taken.
        noise: (b, ...) noise of the samples.
    """
    rows = []
    for cond in conds.get("positive") or ():
        pooled, tokens = cond.get("pooled_output"), cond.get("cross_attn")
        if pooled is not None:
            rows.append(pooled.float().flatten(1))
        elif tokens is not None:
            rows.append(tokens.float().flatten(2).mean(dim=1))
    if not rows:
        return noise.new_ones(len(noise), 1)  # all prompts count as the same
    alike = [row for row in rows if row.shape[1] == rows[0].shape[1]]
    each = [row.repeat(-(-len(noise) // len(row)), 1)[: len(noise)] for row in alike]
    return torch.stack(each).mean(dim=0).to(noise.device)


def _cfg_scales(guider: Any) -> dict[str, float]:
    return {name: getattr(guider, name) for name in SCALES if hasattr(guider, name)}


@contextmanager
def _cfg_scaled(guider: Any, share: float) -> Iterator[None]:
    """While the context lasts, a guider predicts with CFG scales 1 + share (w - 1), where w are its
    own or those that a wrapper such as *CFGOverride* sets at this sigma."""

    def scaled(predict: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def predict_scaled(*args: Any, **named: Any) -> Tensor:
            before = _cfg_scales(guider)
            try:
                vars(guider).update({name: 1 + share * (w - 1) for name, w in before.items()})
                return predict(*args, **named)
            finally:
                vars(guider).update(before)

        return predict_scaled

    patch = Patch(guider, "predict_noise", scaled)
    patch.apply()
    try:
        yield
    finally:
        patch.remove()


def _seed_after_rounds(seed: int | None) -> int:
    """A deterministic function of a seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}".encode()).digest()[:7], "big")
