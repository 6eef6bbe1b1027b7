"""The denoising network of a pipeline, watched during a call.

A pipeline evaluates its network once a step for the prompt and, under classifier-free guidance
(CFG), without it: as more rows of the same batch, or in a second evaluation. While a `Network` is
on, it keeps the arguments of the last step, so that the step can be repeated for other latents, and
it scales CFG, which has no effect where the two predictions are equal.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import (
    SLACK,
    convention_of,
    in_form_of,
    input_name,
    input_of,
    only_rows,
    tensor_of,
    timestep_in,
    with_timestep,
)
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.nearby import has_tokens, with_prompt_noise
from vendi_guidance.adapter.schedule import Watch
from vendi_guidance.adapter.undistilled import (
    ADAPTERS,
    Undistilled,
    answer,
    check_fits,
    one_at_a_time,
)
from vendi_guidance.guidance.step import Generator, Level
from vendi_guidance.patching import Patch

NETWORKS = ("unet", "transformer", "transformer_2")
"""Components that denoise; some pipelines have two, for different noise levels."""

TOLERANCE = 0.05
"""How far what passes between scheduler and network may differ, as a share of its norm."""


class _Evaluation(NamedTuple):
    """How the network was called, and what it returned."""

    module: nn.Module
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any


class _Apart(NamedTuple):
    """How far outputs without the prompt were from those for it, at a step."""

    outputs: Tensor
    step: int


class Network:
    """The network of one pipeline, between `start` and `stop`.

    Args:
        pipeline: whose call it is.
        watch: of the pipeline's scheduler, started before.
        undistilled: what predicts in the rounds: see `VendiGuidance`.

    Attributes:
        cfg: the share of CFG at the next steps: 1, as the pipeline is called, to 0, none. The first
            step always uses full CFG, because the batch size is not known yet.
        repeats_cfg: whether every other step with less than full CFG takes from the one before how
            far the predictions with and without the prompt are apart.

    Raises:
        ValueError: the undistilled network does not fit the pipeline.
    """

    def __init__(self, pipeline: Any, watch: Watch, undistilled: Undistilled = None) -> None:
        self.cfg = 1.0
        self.repeats_cfg = False
        self._pipeline = pipeline
        self._family = family_of(pipeline)
        self._watch = watch
        self._evaluations: list[_Evaluation] = []
        self._step = -1  # whose evaluations they are
        self._share = 1.0  # of CFG at that step
        self._apart: _Apart | None = None
        self._rows_spent = 0
        self._undistilled = undistilled
        found = (getattr(pipeline, name, None) for name in NETWORKS)
        modules = [module for module in found if isinstance(module, nn.Module)]
        check_fits(undistilled, pipeline, modules)
        self._patches = [
            Patch(module, _entry(module), partial(self._wrap, module), watch.is_here)
            for module in modules
        ]
        if undistilled == ADAPTERS:  # innermost
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
        self._evaluations = []
        self._apart = None

    @property
    def levels(self) -> tuple[Level, Level]:
        """Before and after the last step."""
        return self._watch.levels

    @property
    def evaluations_per_step(self) -> int:
        """How many rows for each sample the pipeline gave the network at the last step."""
        rows = sum(self._rows(one) for one in self._evaluations)
        return max(1, rows // len(self._watch.step.sample))

    @property
    def spent(self) -> int:
        """How many rows for each sample the network has evaluated since the start."""
        return self._rows_spent // len(self._watch.step.sample)

    @property
    def ahead(self) -> list[float]:
        """The noise-to-signal ratios at which the steps still to come begin."""
        return self._watch.ahead

    @property
    def can_repeat_cfg(self) -> bool:
        """Whether `repeats_cfg` has an effect."""
        return self.repeats_cfg and self._is_divisible

    @property
    def denoised(self) -> Tensor:
        """(b, ...) the last step's prediction of clean latents."""
        return self._watch.prediction.denoised

    @property
    def has_prompt(self) -> bool:
        """Whether the last step was given embeddings of a prompt's tokens."""
        return any(has_tokens(it.module, it.args, it.kwargs) for it in self._evaluations[:1])

    @property
    def is_undistilled(self) -> bool:
        """Whether an undistilled network predicts for `denoise`."""
        return self._undistilled is not None

    @property
    def highest(self) -> Level:
        """The highest level that the network was trained at."""
        return self._watch.highest

    def at(self, ratio: float) -> Level:
        """The level of a noise-to-signal ratio in the scheduler's units, or `highest`."""
        return self._watch.at(ratio)

    def denoise(
        self,
        latents: Tensor,
        level: Level | None = None,
        *,
        prompt_noise: float = 0.0,
        generator: Generator = None,
    ) -> Tensor:
        """The prediction for other latents, without CFG.

        Args:
            latents: (b, ...) in the scheduler's units.
            level: theirs, in the schedule or not; None is the level before the last step.
            prompt_noise: sigma of noise on the prompt's tokens: see `prompt_nearby`.
            generator: of that noise, one for all samples or one for each.

        Returns:
            (b, ...) float32 or float64.

        Raises:
            ValueError: the pipeline changes its network's inputs or outputs in an unknown way, or
                gives it no prompt that noise could be put on.
        """
        if not self._evaluations:
            raise _unknown(self._pipeline, "its network is not evaluated between two steps")
        step, [first, *_] = self._watch.step, self._evaluations
        rows = self._rows(first)
        own = self._own(first)
        args, kwargs = first.args, first.kwargs
        if self._is_divisible:
            args, kwargs = only_rows(args, kwargs, rows, own)
            own = slice(None)
        # as the network got them, in its own units
        seen = self._part(tensor_of(input_of(args, kwargs))[own], step.sample)
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
            count = len(input_of(args, kwargs))
            prompts = range(count)[own]
            args, kwargs = with_prompt_noise(
                first.module, args, kwargs, prompts, count, prompt_noise, generator
            )
        raw = answer(self._undistilled, first.module, first.forward, args, kwargs)
        output = self._part(tensor_of(raw)[own], latents)
        return self._watch.denoise(latents, output * sign, level)

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        """Let a multistep scheduler go on as if its steps so far had found (b, ...) these."""
        self._watch.restart(clean, noise)

    def _sign(self, first: _Evaluation) -> float:
        """-1 if the pipeline negates the network's output before the scheduler sees it (flow models
        that reverse time)."""
        given = self._watch.step.output
        output = self._part(tensor_of(first.output)[self._own(first)], given).to(given)
        sign = -1.0 if _product(output, given) < 0 else 1.0
        is_alone = len(self._evaluations) == 1 and self._rows(first) == len(given)
        if is_alone or (self._share == 0 and self._is_divisible):
            self._check(given, sign * output, "changes its network's output")
        return sign

    def _check(self, found: Tensor, expected: Tensor, what: str) -> None:
        difference = found - expected
        if _product(difference, difference) > TOLERANCE**2 * _product(expected, expected):
            raise _unknown(self._pipeline, f"it {what} in a way that is not known")

    def _wrap(self, module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **kwargs: Any) -> Any:
            if self._step != self._watch.steps:
                self._step, self._evaluations = self._watch.steps, []
                self._share = self.cfg if self._step else 1.0
            call = _Evaluation(module, forward, args, kwargs, None)
            self._evaluations.append(call._replace(output=self._evaluate(call)))
            return self._evaluations[-1].output

        return watched

    def _evaluate(self, call: _Evaluation) -> Any:
        """The network's output, with the share of CFG that is due."""
        if self._share == 1:
            return self._forward(call)
        apart = self._known_apart()
        if self._evaluations:  # for the prompt, at this step; this one is without it
            prompts = self._evaluations[0].output
            if self._share == 0:
                return prompts
            output = tensor_of(prompts)
            if apart is not None:
                return in_form_of(prompts, output + self._share * apart)
            raw = self._forward(call)
            self._apart = _Apart(tensor_of(raw) - output, self._step)
            return in_form_of(raw, output.lerp(tensor_of(raw), self._share))
        rows, own = self._rows(call), self._own(call)
        if own == slice(0, rows):
            return self._forward(call)
        if (self._share == 0 or apart is not None) and self._is_divisible:
            args, kwargs = only_rows(call.args, call.kwargs, rows, own)
            raw = self._forward(call._replace(args=args, kwargs=kwargs))
            output = tensor_of(raw)
            output = torch.cat([output] * (rows // len(output)))
            return in_form_of(raw, output if apart is None else output + self._share * apart)
        raw = self._forward(call)
        output = tensor_of(raw)
        of_prompts = torch.cat([output[own]] * (rows // len(output[own])))
        self._apart = _Apart(output - of_prompts, self._step)
        return in_form_of(raw, of_prompts.lerp(output, self._share))

    def _forward(self, call: _Evaluation) -> Any:
        self._rows_spent += self._rows(call)
        return call.forward(*call.args, **call.kwargs)

    def _known_apart(self) -> Tensor | None:
        """How far outputs without the prompt are from those for it, if the step before found it."""
        known = self._apart
        if known is None or not self.can_repeat_cfg or self._share == 0:
            return None
        return known.outputs if self._step == known.step + 1 else None

    def _rows(self, call: _Evaluation) -> int:
        return len(input_of(call.args, call.kwargs))

    def _own(self, call: _Evaluation) -> slice:
        """The rows that are for the prompts."""
        rows, count = self._rows(call), len(self._watch.step.sample)
        if rows % count:
            raise _unknown(self._pipeline, f"its network gets {rows} rows for {count} samples")
        parts = rows // count
        first = 0 if parts == 1 or self._family.prompts_first else parts - 1
        if not self._is_divisible and parts > 1:
            first -= 1  # perturbed attention comes last
        return slice(first * count, (first + 1) * count)

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
        return _part(x, like, last=self._family.latents_last)

    @property
    def _is_divisible(self) -> bool:
        """Whether rows of a batch can be evaluated without the others."""
        return not getattr(self._pipeline, "do_perturbed_attention_guidance", False)


def _entry(module: nn.Module) -> str:
    """The method that a call of the module goes through, outside code that it has compiled."""
    compiled = "_compiled_call_impl"  # of `module.compile()`
    return "forward" if getattr(module, compiled, None) is None else compiled


def _product(one: Tensor, other: Tensor) -> float:
    """The inner product of two batches, without samples that hold NaN or infinity."""
    products = (one.float() * other.float()).flatten(1).sum(dim=1)
    return float(products[products.isfinite()].sum())


def _told_at(level: Level, watch: Watch, pipeline: Any, told: float | None, sign: float) -> float:
    """The timestep that a pipeline would tell its network at another level than `told` at the last
    step's."""
    count = watch.scheduler.config.num_train_timesteps
    timestep, expected = watch.timestep, watch.timestep_at(watch.levels[0])
    if told is None:
        raise _unknown(pipeline, "whose network is not told one timestep for all of a batch")
    convention = convention_of(told, timestep, count, backwards=sign < 0)
    if convention is None or abs(timestep - expected) > SLACK * count:
        raise _unknown(
            pipeline,
            f"which tells its network the timestep {told:g} where the scheduler's is "
            f"{timestep:g} and that of its noise level {expected:g}",
        )
    return convention(watch.timestep_at(level), count)


def _unknown(pipeline: Any, why: str) -> ValueError:
    return ValueError(
        f"no rounds can be made with a {type(pipeline).__name__}, {why}: "
        'use VendiGuidance(Published()) or preset="published"'
    )


def _part(x: Tensor, like: Tensor, last: bool) -> Tensor:
    """The part of x in the shape of `like`: pipelines append channels or tokens to latents, or put
    them before (`last`), and networks predict variances. A view."""
    if x.numel() == like.numel():
        return x.view(like.shape)
    for dimension, size in enumerate(like.shape):
        x = x.narrow(dimension, x.shape[dimension] - size if last else 0, size)
    return x
