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
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.adapter.patching import patched
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Level, Perturb, Prediction, Step

from .memory import MemoryStore, digest
from .model import Model, OwnStep, SamplerStep
from .perturbed import perturbed
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
        engine.memory = memory
        args = guider, sigmas, extra_args, callback, noise, *others
        if len(noise) == 1 and len(memory.window) == 0:  # nothing to differ from
            samples, text = executor(*args, **named), ALONE
        else:
            samples, text = self._guided(executor, engine, prompts, *args, **named), ""
        if engine.guides_own_steps and (start < began or not is_finished):
            kept = {**self._unfinished, image: (began, engine)}
            self._unfinished = dict([*kept.items()][-UNFINISHED:])
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
        """Run the sampler with rounds, or with moves at its own steps."""
        sampler = executor.class_obj
        own_sigmas = extra_args.get("model_options", {}).get(KEY, sigmas)
        schedule = whole_schedule(own_sigmas, is_continued=not noise.any())
        progress = _Progress(callback)
        run = _Run(engine, guider, prompts, noise, *schedule, progress, self._undistilled)
        with patched(sampler, "sampler_function", lambda inner: partial(run.sample, inner)):
            reported = callback and progress
            return executor(guider, sigmas, extra_args, reported, noise, *others, **named)


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
        """Run a sampler's function with guidance; returns (b, ...) latents."""
        guided = Model(model, self.engine, self.guider)
        run = partial(function, guided, **options)
        schedule = self.schedule.to(sigmas)
        levels = [guided.level(sigma) for sigma in schedule]
        count = len(levels) - (1 if self.schedule[-1] == 0 else 0)  # the last step ends at 0
        always = extra_args.get("model_options", {}).get(ALWAYS, False)
        guided.count_conditions(x[:1], schedule[:count], **{ALWAYS: always})
        follows_a_run = self._follows_a_run(guided, levels)
        noise = self._initial_noise(x, follows_a_run, extra_args.get("seed"))

        def own_step(index: int, x: Tensor) -> Step:
            """The step of this index in the schedule, from these latents."""
            given = guided, self.undistilled, index, levels[index + 1 : count]
            before_and_after = levels[index], levels[index + 1]
            network = OwnStep(x, schedule[index], extra_args, before_and_after, *given)
            return Step(index, count, x, prompts=self.prompts, network=network, first=noise)

        known = None
        if self.engine.way is None:
            known = self._decide(own_step(self.first, x), guided, extra_args, follows_a_run)
        if self.engine.guides_own_steps:
            return self._with_own_steps(guided, run, own_step, x, sigmas, extra_args, callback)
        # with few steps the rounds follow the step that is due; otherwise they precede it
        facts, way = self.engine.facts, self.engine.way
        follows = facts is not None and facts.is_distilled
        split = self._step_of_rounds(guided, x, levels, count, follows)
        guided.rounds_are_made = split < 0
        if way is None or not 0 <= split < len(sigmas) - 1:
            return run(x, sigmas, extra_args=extra_args, callback=callback)
        index = split + self.first
        before_and_after = levels[index - follows], levels[index]
        ahead = levels[index + 1 : count]
        network = SamplerStep(before_and_after, guided, self.undistilled, index, ahead)
        step = Step(index - follows, count, x, prompts=self.prompts, network=network, first=noise)
        self.progress.rounds = way.evaluations(step)
        if split > 0:
            own_args, known = {**extra_args}, None  # samplers add to it
            x = run(x, sigmas[: split + 1], extra_args=own_args, callback=callback)
        step = replace(step, latents=x)
        return self._with_rounds(guided, run, step, split, known, sigmas, extra_args, callback)

    def _decide(
        self, step: Step, model: Model, extra_args: dict[str, Any], is_continued: bool
    ) -> Tensor | None:
        """Decide at the first step that is seen, before it is made, how the image is guided.
        Returns what is predicted there without CFG, if that was found on the way."""
        self.engine.observe(step, is_continued)
        known = vars(step.network).get("denoised")
        if known is not None and not (self.engine.guides_own_steps and model.cfg != 1):
            model.expect(step.latents, extra_args.get("model_options"), known)
        return known

    def _with_own_steps(
        self,
        guided: Model,
        run: partial[Tensor],
        own_step: Callable[[int, Tensor], Step],
        x: Tensor,
        sigmas: Tensor,
        extra_args: dict[str, Any],
        callback: Callable[[dict[str, Any]], None] | None,
    ) -> Tensor:
        """Run the sampler for one step at a time, and move the samples after it, as long as that is
        due; then for all that are left."""
        done, last, own_args = 0, len(sigmas) - 1, {**extra_args}
        while done < last and self.engine.is_due(step := own_step(self.first + done, x)):
            network: Any = step.network
            guided.own_step = network
            told = _counted_from(done, callback)
            lone = sigmas[done : done + 2]
            # without a bar in the console for each step
            x = run(x, lone, extra_args={**own_args}, callback=told, disable=True)
            if NO_LONE_STEPS in getattr(run.func, "__name__", ""):
                x = network.made_at_first_order()
            prediction = Prediction(network.with_cfg, *network.levels[1])
            x = self.engine.modify(replace(step, latents=x, prediction=prediction)).latents
            # with the same seed, the sampler would repeat the noise of its first step
            done, own_args["seed"] = done + 1, _next_seed(own_args.get("seed"))
        if done == last:
            return x
        told = _counted_from(done, callback)
        return run(x, sigmas[done:], extra_args=own_args, callback=told)

    def _with_rounds(
        self,
        guided: Model,
        run: Callable[..., Tensor],
        step: Step,
        split: int,
        known: Tensor | None,
        sigmas: Tensor,
        extra_args: dict[str, Any],
        callback: Callable[[dict[str, Any]], None] | None,
    ) -> Tensor:
        """Make rounds with a step's latents, and run the sampler on from the sigma at `split`.
        `known` is what is predicted for these latents, if it was found before."""
        network: Any = step.network
        x = step.latents

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

        network.denoise = denoise
        network.denoised = predict(x, network.levels[1]) if known is None else known
        with model_swapped(self.guider, self.undistilled, x):
            x = self.engine.modify(step).latents
        if self.undistilled is None and not network.is_inserted:  # the sampler's own prediction
            guided.expect(x, extra_args.get("model_options"), network.clean)
        # with the same seed, the sampler would repeat the noise of its first steps
        own_args = {**extra_args, "seed": _next_seed(extra_args.get("seed"))}
        told = _counted_from(split, callback)
        return run(x, sigmas[split:], extra_args=own_args, callback=told)

    def _follows_a_run(self, model: Model, levels: Sequence[Level]) -> bool:
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
        self, model: Model, x: Tensor, levels: Sequence[Level], count: int, follows: bool
    ) -> int:
        """Index of the step of this run before which rounds are due: negative if an earlier run
        made them, past the last step if a later run will."""

        def is_due(index: int, before: Level, after: Level) -> bool:
            network = SamplerStep((before, after), model, self.undistilled)
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


def _counted_from(
    done: int, callback: Callable[[dict[str, Any]], None] | None
) -> Callable[[dict[str, Any]], None] | None:
    """The callback of a sampler that goes on after this number of steps."""
    return callback and (lambda state: callback({**state, "i": state["i"] + done}))


def _next_seed(seed: int | None) -> int:
    """A deterministic function of a seed."""
    return int.from_bytes(hashlib.sha256(f"{seed}".encode()).digest()[:7], "big")
