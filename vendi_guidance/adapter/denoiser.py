"""The denoising network of a pipeline, which can repeat a step of a call.

A `Network` wraps `forward` in one call. It keeps the arguments of the last step, to predict clean
latents from other latents with the same prompts, and passes each evaluation to a `ScaledCFG`.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from math import inf
from threading import get_ident
from typing import Any

from torch import Tensor, nn

from vendi_guidance.adapter.arguments import (
    by_name,
    convention_of,
    in_form_of,
    input_of,
    tensor_of,
    timestep_in,
    with_input,
    with_timestep,
)
from vendi_guidance.adapter.cfg import (
    Evaluation,
    ScaledCFG,
    has_own_processors,
    no_rounds,
    repeated_rows,
)
from vendi_guidance.adapter.families import check_caches, family_of
from vendi_guidance.adapter.joint import is_joint
from vendi_guidance.adapter.patching import entry_of, patched
from vendi_guidance.adapter.schedule import Watch
from vendi_guidance.adapter.tokens import has_tokens, with_tokens, without_cache
from vendi_guidance.adapter.undistilled import (
    ADAPTERS,
    AUTO,
    BLURRED,
    Undistilled,
    answer,
    check_fits,
    has_adapters,
)
from vendi_guidance.guidance.step import Level, Perturb

NETWORKS = ("unet", "transformer", "transformer_2")
"""Pipeline components that denoise; some pipelines have two, for different noise levels."""

TOLERANCE = 0.05
"""Largest relative error, in norm, with which the network's inputs and outputs must match the
scheduler's sample and model output."""


class Network:
    """A pipeline's network as a `Denoiser`, while its context lasts.

    Args:
        watch: watches the pipeline's scheduler; enter its context first.
        undistilled: see `VendiGuidance`; "auto" is decided by `settle`.

    Attributes:
        cfg: evaluates the network; its `share` may be set after each step.
    """

    def __init__(self, pipeline: Any, watch: Watch, undistilled: Undistilled = None) -> None:
        components = (getattr(pipeline, name, None) for name in NETWORKS)
        modules = [module for module in components if isinstance(module, nn.Module)]
        keeps_rows = any(map(has_own_processors, modules))
        self.cfg = ScaledCFG(pipeline, watch, keeps_rows)
        self._pipeline = pipeline
        self._part = partial(_part, is_last=family_of(pipeline).latents_last)
        self._watch = watch
        self._asked: dict[object, Any] = {}
        self.made_by_undistilled = False
        self.at, self.restart = watch.at, watch.restart
        check_caches(pipeline, modules)
        check_fits(undistilled, pipeline, modules)
        if undistilled == AUTO and not has_adapters(pipeline, modules):
            undistilled = None
        self._undistilled = undistilled
        self._modules = modules
        self.is_joint = any(map(is_joint, modules))
        self._undo = ExitStack()

    def __enter__(self) -> "Network":
        for module in self._modules:
            wrap = partial(self._wrap, module)
            self._undo.enter_context(patched(module, entry_of(module), wrap))
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the network's `forward` and release the tensors of the last step."""
        self._undo.close()
        self.cfg.forget()

    def settle(self, may_be_off: bool) -> bool:
        """See `Denoiser`. With undistilled="auto", LoRAs are taken to have distilled the network if
        its first prediction without them is blurred."""
        if self._undistilled == AUTO and may_be_off and self._contrast_without_loras() < BLURRED:
            self._undistilled = ADAPTERS
        return self._undistilled not in (None, AUTO)

    def _contrast_without_loras(self) -> float:
        """The standard deviation of the first sample's prediction without LoRAs, as a share of the
        one with them; infinite if the network cannot be evaluated without them."""
        evaluation = next(iter(self.cfg.evaluations), None)
        if evaluation is None or without_cache(evaluation.module, evaluation.given) is None:
            return inf
        row = self.cfg.prompt_rows(evaluation).start
        asked, own = self.cfg.of_rows(evaluation, slice(row, row + 1))
        output = tensor_of(answer(ADAPTERS, *asked[:3]))[own]
        without = self._clean(output, self._watch.step.sample[:1])
        return float(without.std() / self.denoised[:1].std())

    def _clean(self, output: Tensor, sample: Tensor) -> Tensor:
        """Clean latents from the network's output for samples at the level before the last step."""
        output = self._part(output, sample) * self._sign  # as the scheduler sees it
        return self._watch.denoise(sample, output, self.levels[0])

    @property
    def levels(self) -> tuple[Level, Level]:
        return self._watch.levels

    @property
    def evaluations_per_step(self) -> int:
        rows = sum(evaluation.rows for evaluation in self.cfg.evaluations)
        return max(1, rows // len(self._watch.step.sample))

    @property
    def denoised(self) -> Tensor:
        if self.cfg.is_off or self.evaluations_per_step == 1:
            return self._watch.prediction.denoised
        # the scheduler's prediction has CFG, which spreads predictions several times as far apart
        # as those of the rounds
        return self._clean(self.cfg.prompt_output, self._watch.step.sample)

    @property
    def has_prompt(self) -> bool:
        return any(has_tokens(it.module, it.given) for it in self.cfg.evaluations[:1])

    def denoise(
        self, latents: Tensor, level: Level | None = None, perturb: Perturb | None = None
    ) -> Tensor:
        """See `Denoiser.denoise`. ValueError also if the pipeline uses its network in an unknown
        way."""
        if not self.cfg.evaluations:
            raise no_rounds(self._pipeline, "its network is not evaluated between two steps")
        sample, first = self._watch.step.sample, self.cfg.evaluations[0]
        prompts = self.cfg.prompt_rows(first)
        network_input = self._part(tensor_of(input_of(first.given))[prompts], sample)
        factor = self._once(lambda: self._factor(network_input, sample), "factor", self._watch.key)
        sign = self._sign
        asked, own = self.cfg.of_rows(first, prompts)
        given = asked.given
        level = level or self.levels[0]
        if level != self.levels[0]:
            scale = self._watch.input_scale
            factor *= scale(level) / scale(self.levels[0])
            timestep = _timestep_at(
                self._pipeline, self._watch, level, timestep_in(given), sign < 0
            )
            given = with_timestep(given, timestep)
        old = input_of(given)
        repeated = repeated_rows(factor * latents, asked.rows)
        new = tensor_of(old).clone()  # appended channels stay
        self._part(new, repeated).copy_(repeated)
        given = with_input(given, in_form_of(old, new))
        if perturb is not None:
            rows = range(own.start, own.stop)
            given = with_tokens(first.module, given, rows, asked.rows, perturb)
        # what a perturbed prompt changes is a property of the sampler's own network
        undistilled = None if perturb else self._undistilled
        raw = answer(undistilled, asked.module, asked.forward, given)
        return self._watch.denoise(latents, self._part(tensor_of(raw)[own], latents) * sign, level)

    def _once(self, compute: Callable[[], Any], *key: object) -> Any:
        """Numbers of what a key identifies, for which the device is asked once."""
        if key not in self._asked:
            self._asked[key] = compute()
        return self._asked[key]

    def _factor(self, network_input: Tensor, sample: Tensor) -> float:
        """The factor of the scheduler's sample in the network's input."""
        factor = _inner(network_input, sample) / (_inner(sample, sample) or 1.0)
        self._check(network_input, factor * sample, "scales its latents")
        return factor

    @property
    def _sign(self) -> float:
        """-1 if the pipeline negates the network's output before the scheduler sees it (flow models
        that reverse time), else 1: seen once in a call, and checked once where CFG is off."""
        is_stock = self.cfg.is_off or self.evaluations_per_step == 1

        def seen() -> float:
            given = self._watch.step.output
            output = self._part(self.cfg.prompt_output, given).to(given)
            sign = -1.0 if _inner(output, given) < 0 else 1.0
            if is_stock:
                self._check(given, sign * output, "changes its network's output")
            return sign

        return self._once(seen, "sign", is_stock)

    def _check(self, actual: Tensor, expected: Tensor, what: str) -> None:
        difference = actual - expected
        if _inner(difference, difference) > TOLERANCE**2 * _inner(expected, expected):
            raise no_rounds(self._pipeline, f"it {what} in a way that is not known")

    def _wrap(self, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def undistilled(**given: Any) -> Any:
            return answer(self._undistilled, module, forward, given)

        def evaluate(*args: Any, **kwargs: Any) -> Any:
            given, watch = by_name(module, args, kwargs), self._watch
            # the first step with CFG, where a network tuned on a taste would narrow what it shows
            is_first = not (watch.steps or getattr(watch.scheduler, "begin_index", None))
            has_cfg = getattr(self._pipeline, "do_classifier_free_guidance", False)
            is_given = self._undistilled not in (None, AUTO)
            self.made_by_undistilled = is_given and is_first and has_cfg
            own = undistilled if self.made_by_undistilled else forward
            with self._watch.ending():
                return self.cfg.evaluate(Evaluation(module, own, given))

        if self._watch.is_here:
            return evaluate
        if self._undistilled in (ADAPTERS, AUTO) and self._watch.thread != get_ident():
            raise RuntimeError(
                "a guided call in another thread switches this network's LoRAs off: give each "
                "thread a network of its own, or undistilled=None"
            )
        return forward


def _part(x: Tensor, like: Tensor, is_last: bool) -> Tensor:
    """A view of the latents in a network's input or output, in the shape of `like`. Pipelines
    append or prepend (`is_last`) channels or tokens to latents, and networks predict variances."""
    if x.numel() == like.numel():
        return x.view(like.shape)
    for dimension, size in enumerate(like.shape):
        last = x.shape[dimension] - size
        x = x.narrow(dimension, last if is_last else 0, size)
    return x


def _timestep_at(
    pipeline: Any, watch: Watch, level: Level, timestep: float | None, backwards: bool
) -> float:
    """The network's timestep at another level, from the one of the last step."""
    count = watch.scheduler.config.num_train_timesteps
    if timestep is None:
        raise no_rounds(pipeline, "whose network is not given one timestep for a batch")
    convention = convention_of(timestep, watch.timestep, count, backwards)
    if convention is None or not watch.is_timed:
        raise no_rounds(
            pipeline,
            f"which gives its network the timestep {timestep:g} where the scheduler's is "
            f"{watch.timestep:g} and that of its noise level "
            f"{watch.timestep_at(watch.levels[0]):g}",
        )
    return convention(watch.timestep_at(level), count)


def _inner(one: Tensor, other: Tensor) -> float:
    """The inner product of two batches, without samples that contain NaN or infinity."""
    products = (one.float() * other.float()).flatten(1).sum(dim=1)
    return float(products.detach().nan_to_num(0, 0, 0).sum())
