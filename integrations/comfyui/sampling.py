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
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.adapter.patching import patched
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Level, Prediction, Step

from .memory import MemoryStore, digest
from .model import Model, SamplerStep
from .schedule import KEY, whole_schedule
from .undistilled import model_swapped

ALWAYS = "disable_cfg1_optimization"
"""The model option that evaluates negative prompts at CFG 1 too."""

UNFINISHED = 8
"""Number of images of which later runs may finish what a first run began at its own steps: those of
the last first runs."""

NO_LONE_STEPS = "unipc"
"""Part of the names of sampler functions that return their latents as they are after one step."""

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
        self._unfinished: dict[str, tuple[float, Engine]] = {}  # the sigma of the first run first

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
        if sigmas[0] <= sigmas[-1]:  # an inversion must reproduce its image; or there is no step
            return executor(guider, sigmas, extra_args, callback, noise, *others, **named)
        is_finished = bool(sigmas[-1] == 0)  # read now: uni_pc modifies the sigmas in place
        prompts = features_of_conds(guider.conds, noise)
        shape = "x".join(map(str, noise.shape[1:]))
        kind = f"{type(guider.inner_model).__name__} {shape} {prompts.shape[1]}"
        of = digest(guider.inner_model, prompts if self._settings.is_conditional else prompts[:0])
        memory, start = self._store.load(kind, of), float(sigmas[0])
        image = f"{len(noise)} {kind} {of}"
        began, engine = self._unfinished.get(image, (0.0, None))
        if engine is None or noise.any() or start >= began:
            began, engine = start, Engine(self._settings, memory)
        if len(noise) == 1 and len(memory.window) == 0:  # nothing to differ from
            samples = executor(guider, sigmas, extra_args, callback, noise, *others, **named)
            text = ALONE
        else:
            whole = extra_args.get("model_options", {}).get(KEY, sigmas)
            schedule = whole_schedule(whole, is_continued=not noise.any())
            told = _Progress(callback)

            def sample(function: Callable[..., Tensor], *given: Any, **options: Any) -> Tensor:
                own = engine, guider, prompts, noise, *schedule, told, self._undistilled
                return _Run(*own, function, *given, **options).samples()

            with patched(sampler, "sampler_function", partial(partial, sample)):
                reported = callback and told
                samples = executor(guider, sigmas, extra_args, reported, noise, *others, **named)
            text = ""
        if engine.guides_own_steps and (start < began or not is_finished):
            kept = {**self._unfinished, image: (began, engine)}
            self._unfinished = dict([*kept.items()][-UNFINISHED:])
        if is_finished and self._store.is_lasting:
            with memory.holding() as finished:
                memory.add(samples, prompts)
            self._store.add(finished, kind, of)
            memory.commit(finished)
            text += f"{len(memory.window)} remembered"
        self._show(text)
        return samples


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


class _Run:
    """One run of a sampler, from noise to samples or from one noise level to another.

    Args:
        engine: guides this run.
        guider: evaluates the model.
        prompts: (b, m) prompt embeddings.
        noise: (b, ...) of the samples; zero where the latents contain noise already.
        schedule, first: see `whole_schedule`.
        progress: counts the evaluations of the rounds.
        undistilled: see `DiverseSampling`.
        function: the sampler's, which is called with the others.
    """

    def __init__(
        self,
        engine: Engine,
        guider: Any,
        prompts: Tensor,
        noise: Tensor,
        schedule: Tensor,
        first: int,
        progress: _Progress,
        undistilled: Any,
        function: Callable[..., Tensor],
        model: Any,
        x: Tensor,
        sigmas: Tensor,
        extra_args: dict[str, Any],
        callback: Callable[[dict[str, Any]], None] | None = None,
        **options: Any,
    ) -> None:
        self._engine, self._prompts, self._first = engine, prompts, first
        self._progress, self._undistilled = progress, undistilled
        self._function, self._options = function, options
        self._x, self._sigmas, self._extra_args, self._callback = x, sigmas, extra_args, callback
        self._model = Model(model, engine, guider)
        self._schedule = schedule.to(sigmas)
        self._levels = [self._model.level(sigma) for sigma in self._schedule]
        # the last step ends at 0
        self._count = len(schedule) - (1 if schedule[-1] == 0 else 0)
        # whether the latents contain noise left by an earlier run; at the highest level there was
        # none: the latents came with their own noise
        is_lower = first > 0 or self._levels[0].ratio < 0.99 * self._model.at(math.inf).ratio
        self._is_continued = is_lower and not noise.any()
        self._noise = noise if noise.any() else x
        if self._is_continued:
            # ComfyUI draws it from the seed alone, so that it can be drawn again
            generator = torch.Generator().manual_seed(extra_args.get("seed") or 0)
            self._noise = torch.randn(x.shape, generator=generator)

    def samples(self) -> Tensor:
        """(b, ...) latents, guided."""
        x, engine, model = self._x, self._engine, self._model
        always = self._extra_args.get("model_options", {}).get(ALWAYS, False)
        model.count_conditions(x[:1], self._schedule[: self._count], **{ALWAYS: always})
        known = self._decide() if engine.way is None else None
        if engine.guides_own_steps:
            return self._with_own_steps()
        # with few steps the rounds follow the step that is due; otherwise they precede it
        follows = engine.facts is not None and engine.facts.is_distilled
        split = self._step_of_rounds(follows)
        model.rounds_are_made = split < 0
        if engine.way is None or not 0 <= split < len(self._sigmas) - 1:
            return self._part(x)
        self._progress.rounds = engine.way.evaluations(self._due(x, split, follows))
        if split > 0:
            x, known = self._part(x, end=split), None
        step = self._due(x, split, follows)
        return self._part(self._after_rounds(step, split, known), split, seeds=1)

    def _part(
        self, x: Tensor, begin: int = 0, end: int | None = None, seeds: int = 0, **how: Any
    ) -> Tensor:
        """Run the sampler from one of the run's sigmas to another. With the same seed it would
        repeat the noise of its first step: after `seeds` earlier parts it has another one."""
        own_args, tell = {**self._extra_args}, self._callback  # samplers add to the arguments
        for _ in range(seeds):
            own_args["seed"] = _next_seed(own_args.get("seed"))
        told = tell and (lambda state: tell({**state, "i": state["i"] + begin}))
        sigmas, how = self._sigmas[begin : None if end is None else end + 1], self._options | how
        return self._function(self._model, x, sigmas, extra_args=own_args, callback=told, **how)

    def _step(self, index: int, before: Level, after: Level, x: Tensor, at: int) -> Step:
        """A step between two levels, with latents at the sigma `at` of the schedule."""
        given = self._model, x, self._schedule[at], (before, after), self._extra_args, at
        network = SamplerStep(
            *given,
            ahead=self._levels[at + 1 : self._count],
            is_undistilled=self._undistilled is not None,
            made_by_undistilled=at == 0 and self._is_begun_by_undistilled,
        )
        return Step(
            index, self._count, x, prompts=self._prompts, network=network, first=self._noise
        )

    def _own_step(self, index: int, x: Tensor) -> Step:
        """The step of this index in the schedule, from these latents."""
        return self._step(index, self._levels[index], self._levels[index + 1], x, index)

    def _decide(self) -> Tensor | None:
        """Decide at the first step that is seen, before it is made, how the image is guided.
        Returns what is predicted there without CFG, if that was found on the way."""
        step = self._own_step(self._first, self._x)
        network: Any = step.network
        made_by = self._undistilled if network.made_by_undistilled else None
        network.swapped = partial(model_swapped, self._model.guider, made_by, self._x)
        self._engine.observe(step, self._is_continued)
        if made_by is not None:  # the sampler's own has not predicted yet
            return None
        known = vars(network).get("denoised")
        if known is not None and (self._share_of(step) == 0 or self._model.cfg == 1):
            self._expect(self._x, known)
        return known

    def _share_of(self, step: Step) -> float:
        """The share of CFG at a step before rounds."""
        network: Any = step.network
        return (
            0.0 if (way := self._engine.way) is None else way.share_of_cfg(network.levels[0].ratio)
        )

    def _expect(self, x: Tensor, prediction: Tensor) -> None:
        self._model.expect(x, self._extra_args.get("model_options"), prediction)

    @property
    def _is_begun_by_undistilled(self) -> bool:
        """Whether the undistilled model, if one was given, makes the first step: with CFG, where an
        image begins."""
        is_first = self._first == 0 and not self._is_continued
        return self._undistilled is not None and is_first and self._model.evaluations_per_step > 1

    def _with_own_steps(self) -> Tensor:
        """Run the sampler for one step at a time, and move the samples after it, as long as that is
        due; then for all that are left."""
        x, done, last = self._x, 0, len(self._sigmas) - 1
        while done < last:
            step = self._own_step(self._first + done, x)
            if not self._engine.is_due(step):
                return self._part(x, done, seeds=done)
            network: Any = step.network
            self._model.own_step = network
            made_by = self._undistilled if network.made_by_undistilled else None
            with model_swapped(self._model.guider, made_by, x):
                # without a bar in the console for each step
                x = self._part(x, done, done + 1, seeds=done, disable=True)
            if NO_LONE_STEPS in getattr(self._function, "__name__", ""):
                x = network.made_at_first_order()
            prediction = Prediction(network.with_cfg, *network.levels[1])
            x = self._engine.modify(replace(step, latents=x, prediction=prediction)).latents
            done += 1
        return x

    def _due(self, x: Tensor, split: int, follows: bool) -> Step:
        """The step at whose latents rounds are made, before the sigma at `split`."""
        index = split + self._first
        before = index - follows
        return self._step(before, self._levels[before], self._levels[index], x, index)

    def _after_rounds(self, step: Step, split: int, known: Tensor | None) -> Tensor:
        """The latents of a step after rounds. `known` is what is predicted for them before, if it
        was found."""
        network: Any = step.network

        def told(latents: Tensor, clean: Tensor) -> None:
            self._progress.done += 1
            if self._callback:  # raises if the user interrupts the run
                state = {"x": latents, "denoised": clean, "sigma": self._sigmas[split]}
                self._callback({"i": split - 1, **state})

        # before another model is evaluated
        network.denoised = network.denoised if known is None else known
        if (share := self._share_of(step)) and self._model.evaluations_per_step > 1:
            step = replace(step, prediction=network.predicted_with(share))
        network.told = told
        with model_swapped(self._model.guider, self._undistilled, step.latents):
            x = self._engine.modify(step).latents
        if self._undistilled is None and network.asked == network.levels[1]:
            self._expect(x, network.clean)  # the sampler's own prediction
        return x

    def _step_of_rounds(self, follows: bool) -> int:
        """Index of the step of this run before which rounds are due: negative if an earlier run
        made them, past the last step if a later run will."""
        levels = self._levels

        def is_due(index: int, before: Level, after: Level) -> bool:
            return self._engine.is_due(self._step(index, before, after, self._x, index))

        # if the steps of an earlier run are unknown, it made the rounds if it reached their level
        is_unknown = self._first == 0 and self._is_continued
        if is_unknown and is_due(-1, levels[0], levels[0]):
            return -1
        for index, (before, after) in enumerate(pairwise(levels)):
            if is_due(index, before, after):
                return index - self._first + follows
        last = len(levels) - 2
        is_passed = levels[last].signal > 0 and is_due(-1, levels[-1], levels[-1])
        return last if is_passed else len(levels)


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


def _next_seed(seed: int | None) -> int:
    """A deterministic function of a seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}".encode()).digest()[:7], "big")
