"""The denoising network of a pipeline, watched during a call.

A pipeline evaluates its network once a step for the prompt and, under classifier-free guidance
(CFG), without it. While a `Network` is on, it keeps the arguments of the last step, so that the
step can be repeated for other latents, and lets a `ScaledCFG` evaluate the pipeline's network.
"""

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import (
    SLACK,
    convention_of,
    in_form_of,
    input_name,
    input_of,
    tensor_of,
    timestep_in,
    with_timestep,
)
from vendi_guidance.adapter.cfg import Evaluation, ScaledCFG, no_rounds
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.nearby import has_tokens, with_tokens, without_cache
from vendi_guidance.adapter.schedule import Watch
from vendi_guidance.adapter.undistilled import (
    ADAPTERS,
    AUTO,
    BLURRED,
    Undistilled,
    answer,
    check_fits,
    has_adapters,
    one_at_a_time,
)
from vendi_guidance.guidance.noise import each_of, prompt_nearby
from vendi_guidance.guidance.step import Generator, Level
from vendi_guidance.patching import Patch

NETWORKS = ("unet", "transformer", "transformer_2")
"""Components that denoise; some pipelines have two, for different noise levels."""

TOLERANCE = 0.05
"""How far what passes between scheduler and network may differ, as a share of its norm."""


class Network:
    """The network of one pipeline, between `start` and `stop`: a `Denoiser`.

    Args:
        pipeline: whose call it is.
        watch: of the pipeline's scheduler, started before.
        undistilled: what predicts in the rounds: see `VendiGuidance`. "auto" is left to `settle`.
        cfg_every: see `ScaledCFG`.

    Attributes:
        cfg: with the share of CFG at the next steps.

    Raises:
        ValueError: the undistilled network does not fit the pipeline.
    """

    def __init__(
        self, pipeline: Any, watch: Watch, undistilled: Undistilled = None, cfg_every: int = 1
    ) -> None:
        self.cfg = ScaledCFG(pipeline, watch, cfg_every)
        self._pipeline = pipeline
        self._latents_last = family_of(pipeline).latents_last
        self._watch = watch
        self.at, self.restart = watch.at, watch.restart
        found = (getattr(pipeline, name, None) for name in NETWORKS)
        modules = [module for module in found if isinstance(module, nn.Module)]
        check_fits(undistilled, pipeline, modules)
        if undistilled == AUTO and not has_adapters(pipeline, modules):
            undistilled = None
        self._is_auto = undistilled == AUTO
        self._undistilled = None if self._is_auto else undistilled
        self._are_distilling: bool | None = None  # the LoRAs, where that has been asked
        self._patches = [
            Patch(module, _entry(module), partial(self._wrap, module), watch.is_here)
            for module in modules
        ]
        if undistilled in (ADAPTERS, AUTO):  # innermost
            alone = [one_at_a_time(module, _entry(module)) for module in modules]
            self._patches = [*alone, *self._patches]

    def start(self) -> "Network":
        for patch in self._patches:
            patch.apply()
        return self

    def stop(self) -> None:
        """Leave the network as it was and forget the last step."""
        for patch in self._patches:
            patch.remove()
        self.cfg.forget()

    @property
    def is_undistilled(self) -> bool:
        return self._undistilled is not None

    def settle(self, may_be_off: bool) -> None:
        """After each step, where "auto" leaves it open: LoRAs are off in rounds after this step if
        they may be, and are what distilled the network. The first step where they may be finds that
        out, by one evaluation of the first sample alone."""
        if not self._is_auto:
            return
        if may_be_off and self._are_distilling is None:
            self._are_distilling = self._share_of_contrast() < BLURRED
        self._undistilled = ADAPTERS if may_be_off and self._are_distilling else None

    def _share_of_contrast(self) -> float:
        """The contrast of what the first sample's prediction were without LoRAs, as a share of what
        it is; infinite where that cannot be asked."""
        evaluation = next(iter(self.cfg.evaluations), None)
        if evaluation is None or without_cache(evaluation.module, evaluation.kwargs) is None:
            return inf
        first = self.cfg.prompt_rows(evaluation).start
        asked = evaluation.of_rows(slice(first, first + 1))
        raw = answer(ADAPTERS, asked.module, asked.forward, asked.args, asked.kwargs)
        found = self._clean(tensor_of(raw), self._watch.step.sample[:1])
        return float(found.std() / self.denoised[:1].std())

    def _clean(self, output: Tensor, sample: Tensor) -> Tensor:
        """Clean latents by the network's output for samples at the level before the last step."""
        output = self._part(output, sample) * self._sign(self.cfg.evaluations[0])
        return self._watch.denoise(sample, output, self.levels[0])

    @property
    def levels(self) -> tuple[Level, Level]:
        return self._watch.levels

    @property
    def evaluations_per_step(self) -> int:
        rows = sum(one.rows for one in self.cfg.evaluations)
        return max(1, rows // len(self._watch.step.sample))

    @property
    def spent(self) -> int:
        return self.cfg.rows_evaluated // len(self._watch.step.sample)

    @property
    def ahead(self) -> list[float]:
        return self._watch.ahead

    @property
    def cfg_every(self) -> int:
        return self.cfg.every

    @property
    def denoised(self) -> Tensor:
        if self.cfg.is_off or self.evaluations_per_step == 1:
            return self._watch.prediction.denoised
        # the first step of a call has all of CFG, which takes predictions several times as far
        # apart as those of the rounds
        first = self.cfg.evaluations[0]
        own = tensor_of(first.output)[self.cfg.prompt_rows(first)]
        return self._clean(own, self._watch.step.sample)

    @property
    def has_prompt(self) -> bool:
        return any(has_tokens(it.module, it.args, it.kwargs) for it in self.cfg.evaluations[:1])

    def denoise(
        self,
        latents: Tensor,
        level: Level | None = None,
        *,
        prompt_noise: float = 0.0,
        generator: Generator = None,
    ) -> Tensor:
        """The prediction, float32 or float64. No more rows are evaluated at once than the pipeline
        did; ValueError also where it changes its network's inputs or outputs in an unknown way."""
        if not self.cfg.evaluations:
            raise no_rounds(self._pipeline, "its network is not evaluated between two steps")
        step, first = self._watch.step, self.cfg.evaluations[0]
        asked, own = first, self.cfg.prompt_rows(first)
        can_fit = len(step.sample)
        if self.cfg.is_divisible and not prompt_noise:
            can_fit *= first.rows // len(step.sample)
        if len(latents) > can_fit:
            given: Any = {"prompt_noise": prompt_noise, "generator": generator}
            parts = latents.split(can_fit)
            return torch.cat([self.denoise(part, level, **given) for part in parts])
        # as the network got them, in its own units
        seen = self._part(tensor_of(input_of(first.args, first.kwargs))[own], step.sample)
        if self.cfg.is_divisible:
            asked, own = first.of_rows(own, len(latents) // len(step.sample)), slice(None)
        args, kwargs = asked.args, asked.kwargs
        factor = _product(seen, step.sample) / (_product(step.sample, step.sample) or 1.0)
        self._check(seen, factor * step.sample, "scales its latents")
        sign = self._sign(first)
        level = level or self.levels[0]
        if level != self.levels[0]:
            scale = self._watch.input_scale
            factor *= scale(level) / scale(self.levels[0])
            told = _told_at(level, self._watch, self._pipeline, timestep_in(args, kwargs), sign)
            args, kwargs = with_timestep(args, kwargs, told)
        args, kwargs = self._with_input(args, kwargs, own, factor * latents)
        if prompt_noise:
            count, each = len(input_of(args, kwargs)), each_of(generator, len(latents))
            args, kwargs = with_tokens(
                *(first.module, args, kwargs, range(count)[own], count),
                lambda tokens, at, mask: prompt_nearby(tokens, prompt_noise, each[at], mask),
            )
        raw = answer(self._undistilled, first.module, first.forward, args, kwargs)
        output = self._part(tensor_of(raw)[own], latents)
        return self._watch.denoise(latents, output * sign, level)

    def _sign(self, first: Evaluation) -> float:
        """-1 if the pipeline negates the network's output before the scheduler sees it (flow models
        that reverse time)."""
        given = self._watch.step.output
        output = self._part(tensor_of(first.output)[self.cfg.prompt_rows(first)], given).to(given)
        sign = -1.0 if _product(output, given) < 0 else 1.0
        if self.cfg.is_off or self.evaluations_per_step == 1:
            self._check(given, sign * output, "changes its network's output")
        return sign

    def _check(self, found: Tensor, expected: Tensor, what: str) -> None:
        difference = found - expected
        if _product(difference, difference) > TOLERANCE**2 * _product(expected, expected):
            raise no_rounds(self._pipeline, f"it {what} in a way that is not known")

    def _wrap(self, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.cfg.evaluate(Evaluation(module, forward, args, kwargs))

    def _with_input(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], own: slice, latents: Tensor
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments with other latents in the rows `own`; what is appended to them stays."""
        old = input_of(args, kwargs)
        new = tensor_of(old).clone()
        self._part(new[own], latents).copy_(latents)
        new = in_form_of(old, new)
        if args:
            return (new, *args[1:]), kwargs
        return args, {**kwargs, input_name(kwargs): new}

    def _part(self, x: Tensor, like: Tensor) -> Tensor:
        """The part of x in the shape of `like`: pipelines append channels or tokens to latents, or
        put them before, and networks predict variances. A view."""
        if x.numel() == like.numel():
            return x.view(like.shape)
        for dimension, size in enumerate(like.shape):
            last = x.shape[dimension] - size
            x = x.narrow(dimension, last if self._latents_last else 0, size)
        return x


def _entry(module: nn.Module) -> str:
    """The method that a call of the module goes through, outside code that it has compiled."""
    compiled = "_compiled_call_impl"  # of `module.compile()`
    return "forward" if getattr(module, compiled, None) is None else compiled


def _product(one: Tensor, other: Tensor) -> float:
    """The inner product of two batches, without samples that hold NaN or infinity."""
    products = (one.float() * other.float()).flatten(1).sum(dim=1)
    return float(products[products.isfinite()].sum())


def _told_at(level: Level, watch: Watch, pipeline: Any, told: float | None, sign: float) -> float:
    """What a pipeline that told its network the timestep `told` at the last step would tell it at
    another level."""
    count = watch.scheduler.config.num_train_timesteps
    timestep, expected = watch.timestep, watch.timestep_at(watch.levels[0])
    if told is None:
        raise no_rounds(pipeline, "whose network is not told one timestep for all of a batch")
    convention = convention_of(told, timestep, count, backwards=sign < 0)
    if convention is None or abs(timestep - expected) > SLACK * count:
        raise no_rounds(
            pipeline,
            f"which tells its network the timestep {told:g} where the scheduler's is "
            f"{timestep:g} and that of its noise level {expected:g}",
        )
    return convention(watch.timestep_at(level), count)
