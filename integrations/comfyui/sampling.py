"""Diversity guidance around ComfyUI's samplers.

A wrapper of `sampler.sample` splits the sampler's run at the noise level of the rounds. The sampler
runs down to that level, the rounds replace its latents, and the sampler runs on from there, like
the second of two `KSampler (Advanced)` nodes. So every sampler works unchanged, whatever its order
or noise. Where rounds would lose the prompt, it is split after each step at high noise, and samples
are moved there (`guidance.ways.own_steps`).

If several runs generate one image, only one of them makes the rounds. The full schedule, from which
the runs' sigmas were sliced, determines which one. Moves at the sampler's own steps begin in the
first run and go on in later ones.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.adapter.patching import patched
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Level, Prediction, Step

from .memory import MemoryStore, digest
from .model import Model, SamplerStep, model_swapped
from .schedule import KEY, whole_schedule

UNFINISHED = 8
"""Number of images of which later runs may finish what a first run began at its own steps: those of
the last first runs."""

NO_LONE_STEPS = "unipc"
"""Part of the names of sampler functions that return their latents as they are after one step."""

ALONE = "one image, with nothing to differ from: as without this node\n"


@dataclass(eq=False)
class DiverseSampling:
    """A wrapper of `sampler.sample` (`WrappersMP.SAMPLER_SAMPLE`)."""

    settings: Rounds
    store: MemoryStore
    undistilled: Any = None  # model that predicts in the rounds; None for the sampler's own
    show: Callable[[str], None] = lambda text: None  # called with what the node should say
    # by image: the sigma at which its first run began, and what guides it
    _unfinished: dict[str, tuple[float, Engine]] = field(default_factory=dict, init=False)

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
            ValueError: the sampler has no `sampler_function` that can be split, the model has a
                cache between steps, or the memory cannot be read.
        """
        sampler = executor.class_obj
        if not hasattr(sampler, "sampler_function"):
            raise ValueError(
                f"Diverse Batch cannot guide a {type(sampler).__name__}: "
                "use one of the samplers that KSampler lists"
            )
        if sigmas[0] <= sigmas[-1]:  # an inversion must reproduce its image; or there is no step
            return executor(guider, sigmas, extra_args, callback, noise, *others, **named)
        is_finished = bool(sigmas[-1] == 0)  # read now: uni_pc modifies the sigmas in place
        prompts = features_of_conds(guider.conds, noise)
        shape = "x".join(map(str, noise.shape[1:]))
        kind = f"{type(guider.inner_model).__name__} {shape} {prompts.shape[1]}"
        of = digest(guider.inner_model, prompts if self.settings.is_conditional else prompts[:0])
        memory, start = self.store.load(kind, of), float(sigmas[0])
        image = f"{len(noise)} {kind} {of}"
        began, engine = self._unfinished.get(image, (0.0, None))
        if engine is None or noise.any() or start >= began:
            began, engine = start, Engine(self.settings, memory)
        if len(noise) == 1 and len(memory.window) == 0:  # nothing to differ from
            samples = executor(guider, sigmas, extra_args, callback, noise, *others, **named)
            text = ALONE
        else:
            _check_caches(extra_args)
            whole = extra_args.get("model_options", {}).get(KEY, sigmas)
            schedule = whole_schedule(whole, is_continued=not noise.any())
            told = _Progress(callback)

            def sample(*given: Any, extra_args: Any, callback: Any = None, **how: Any) -> Tensor:
                own = engine, guider, prompts, noise, *schedule, told, self.undistilled
                run = _Run(*own, *given, extra_args=extra_args, callback=callback, options=how)
                return run.samples()

            with patched(sampler, "sampler_function", partial(partial, sample)):
                reported = callback and told
                samples = executor(guider, sigmas, extra_args, reported, noise, *others, **named)
            text = ""
        if engine.guides_own_steps and (start < began or not is_finished):
            kept = {**self._unfinished, image: (began, engine)}
            self._unfinished = dict([*kept.items()][-UNFINISHED:])
        if is_finished and self.store.is_lasting:
            with memory.holding() as finished:
                memory.add(samples, prompts)
            self.store.add(finished, kind, of)
            memory.commit(finished)
            text += f"{len(memory.window)} remembered"
        self.show(text)
        return samples


@dataclass
class _Progress:
    """A sampler's callback (step, x0, x, steps) that counts evaluations of the rounds as steps."""

    callback: Callable[..., None]
    rounds: int = 0  # evaluations that the rounds take
    done: int = 0  # of them, so far

    def __call__(self, index: int, denoised: Tensor, x: Tensor, steps: int) -> None:
        self.callback(index + self.done, denoised, x, steps + self.rounds)


@dataclass
class _Run:
    """One run of a sampler, from noise to samples or from one noise level to another."""

    engine: Engine
    guider: Any
    prompts: Tensor  # (b, m) embeddings
    noise: Tensor  # (b, ...) of the samples; zero where the latents contain noise already
    schedule: Tensor  # this and the next: see `whole_schedule`
    first: int
    progress: _Progress  # counts the evaluations of the rounds
    undistilled: Any  # see `DiverseSampling`
    function: Callable[..., Tensor]  # the sampler's, which is called with the others
    own_model: InitVar[Any]
    x: Tensor
    sigmas: Tensor
    _: KW_ONLY
    extra_args: dict[str, Any]
    callback: Callable[[dict[str, Any]], None] | None
    options: dict[str, Any]

    def __post_init__(self, own_model: Any) -> None:
        self._model = Model(own_model, self.engine, self.guider)
        self.schedule = self.schedule.to(self.sigmas)
        self._levels = [self._model.level(sigma) for sigma in self.schedule]
        # the last step ends at 0
        self._count = len(self.schedule) - (1 if self.schedule[-1] == 0 else 0)
        if self._count == 1:  # no step would sharpen what the undistilled model predicts
            self.undistilled = None
        # whether the latents contain noise left by an earlier run; at the highest level there was
        # none: the latents came with their own noise
        is_lower = self.first > 0 or self._levels[0].ratio < 0.99 * self._model.at(math.inf).ratio
        self._is_continued = is_lower and not self.noise.any()
        self._noise = self.noise if self.noise.any() else self.x
        if self._is_continued:
            # ComfyUI draws it from the seed alone, so that it can be drawn again
            generator = torch.Generator().manual_seed(self.extra_args.get("seed") or 0)
            self._noise = torch.randn(self.x.shape, generator=generator)

    def samples(self) -> Tensor:
        """(b, ...) latents, guided."""
        x, engine, model = self.x, self.engine, self._model
        options = self.extra_args.get("model_options", {})
        model.find_cfg(x[:1], self.schedule[: self._count], model_options=options)
        known = self._decide() if engine.way is None else None
        if engine.guides_own_steps:
            return self._with_own_steps()
        # with few steps the rounds follow the step that is due; otherwise they precede it
        follows = engine.facts is not None and engine.facts.is_distilled
        split = self._step_of_rounds(follows)
        model.rounds_are_made = split < 0
        steps, at, before = len(self.sigmas) - 1, split + self.first, split + self.first - follows
        # rounds that follow this run's last step are a later run's, if there is one
        is_last_run = self.first + steps == len(self.schedule) - 1
        if engine.way is None or not 0 <= split < steps + is_last_run:
            return self._part(x)
        place = at, (self._levels[before], self._levels[at]), before
        self.progress.rounds = engine.way.evaluations()
        if split > 0:
            x, known = self._part(x, end=split), None
        if not self._levels[at].noise:
            known = x  # what the last step predicts is the sampler's result
        x = self._after_rounds(self._step(x, *place), split, known)
        return x if split == steps else self._part(x, split, seeds=1)

    def _part(
        self, x: Tensor, begin: int = 0, end: int | None = None, seeds: int = 0, **how: Any
    ) -> Tensor:
        """Run the sampler from one of the run's sigmas to another. With the same seed it would
        repeat the noise of its first step: after `seeds` earlier parts it has another one."""
        own_args, tell = {**self.extra_args}, self.callback  # samplers add to the arguments
        for _ in range(seeds):
            hashed = hashlib.sha256(f"{own_args.get('seed')}".encode()).digest()
            own_args["seed"] = int.from_bytes(hashed[:7], "big")
        told = tell and (lambda state: tell({**state, "i": state["i"] + begin}))
        sigmas, how = self.sigmas[begin : None if end is None else end + 1], self.options | how
        return self.function(self._model, x, sigmas, extra_args=own_args, callback=told, **how)

    def _step(
        self,
        x: Tensor,
        at: int,
        levels: tuple[Level, Level] | None = None,
        index: int | None = None,
    ) -> Step:
        """The step from the schedule's sigma `at`, whose latents are x; or one of another index,
        between other levels."""
        # the undistilled model makes the first step with CFG, where an image begins
        is_first = at == 0 and not self._is_continued and self._model.evaluations_per_step > 1
        network = SamplerStep(
            self._model,
            x,
            self.schedule[at],
            levels or (self._levels[at], self._levels[at + 1]),
            self.extra_args,
            is_undistilled=self.undistilled is not None,
            made_by=self.undistilled if is_first else None,
        )
        index, count = at if index is None else index, self._count
        return Step(index, count, x, prompts=self.prompts, network=network, first=self._noise)

    def _decide(self) -> Tensor | None:
        """Decide at the first step that is seen, before it is made, how the image is guided.
        Returns what the sampler's own model predicts there without CFG, if that was found."""
        step = self._step(self.x, self.first)
        network: Any = step.network
        network.swapped = partial(model_swapped, self.guider, network.made_by, self.x)
        self.engine.observe(step, self._is_continued)
        known = vars(network).get("denoised")
        if network.made_by_undistilled or known is None:
            return None
        if self._model.cfg == 1 or self._model.share_at(network.levels[0]) == 0:
            self._expect(self.x, known)
        return known

    def _expect(self, x: Tensor, prediction: Tensor) -> None:
        self._model.expect(x, self.extra_args.get("model_options"), prediction)

    def _with_own_steps(self) -> Tensor:
        """Run the sampler for one step at a time, and move the samples after it, as long as that is
        due; then for all that are left."""
        x = self.x
        for done in range(len(self.sigmas) - 1):
            step = self._step(x, self.first + done)
            if not self.engine.is_due(step):
                return self._part(x, done, seeds=done)
            network: Any = step.network
            self._model.own_step = network
            with model_swapped(self.guider, network.made_by, x):
                # without a bar in the console for each step
                x = self._part(x, done, done + 1, seeds=done, disable=True)
            (start, end), clean = network.levels, network.with_cfg
            if NO_LONE_STEPS in getattr(self.function, "__name__", ""):  # as Euler's method does
                x = end.mix(clean, start.noise_in(step.latents, clean))
            step = replace(step, latents=x, prediction=Prediction(clean, *end))
            x = self.engine.modify(step).latents
        return x

    def _after_rounds(self, step: Step, split: int, known: Tensor | None) -> Tensor:
        """The latents of a step after rounds. `known` is what is predicted for them before, if it
        was found."""
        network: Any = step.network

        def told(latents: Tensor, clean: Tensor) -> None:
            self.progress.done += 1
            if self.callback:  # raises if the user interrupts the run
                state = {"x": latents, "denoised": clean, "sigma": self.sigmas[split]}
                self.callback({"i": split - 1, **state})

        # before another model is evaluated
        network.denoised = network.denoised if known is None else known
        share = self._model.share_at(network.levels[0])
        if share and self._model.evaluations_per_step > 1:
            step = replace(step, prediction=network.predicted_with(share))
        network.told = told
        with model_swapped(self.guider, self.undistilled, step.latents):
            x = self.engine.modify(step).latents
        if self.undistilled is None and network.asked == network.levels[1]:
            self._expect(x, network.clean)  # the sampler's own prediction
        return x

    def _step_of_rounds(self, follows: bool) -> int:
        """Index of the step of this run before which rounds are due: negative if an earlier run
        made them, past the last step if they follow it or a later run will make them."""
        levels, last = self._levels, len(self._levels) - 2

        def is_passed(at: int) -> bool:
            return self.engine.is_due(self._step(self.x, at, (levels[at], levels[at]), -1))

        # if the steps of an earlier run are unknown, it made the rounds if it reached their level
        if self.first == 0 and self._is_continued and is_passed(0):
            return -1
        for index in range(last + 1):
            if self.engine.is_due(self._step(self.x, index)):
                return index - self.first + follows
        return last if levels[last].signal > 0 and is_passed(-1) else len(levels)


def _check_caches(extra_args: Mapping[str, Any]) -> None:
    """Raise ValueError if the model reuses what it returned at earlier steps."""
    network = extra_args.get("model_options", {}).get("transformer_options", {})
    if (cache := network.get("easycache")) is not None:
        raise ValueError(
            f"{cache.name} would answer Diverse Batch with the outputs of other latents: bypass "
            f"the node {cache.name}, or set diversity to 0"
        )


def features_of_conds(conds: Mapping[str, Sequence[Mapping[str, Any]]], noise: Tensor) -> Tensor:
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
