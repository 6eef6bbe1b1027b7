"""The model that a guider evaluates, as samplers call it and as guidance asks it."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.adapter.patching import Patch
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.step import Level, Perturb, where_finite

from .blocks import Blocks
from .perturbed import has_tokens, perturbed
from .schedule import KEY
from .undistilled import model_swapped

SCALES = ("cfg", "cfg1", "cfg2")
"""Attributes of ComfyUI's guiders that hold a scale of classifier-free guidance (CFG)."""


class SamplerStep:
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
    has_blocks = has_text_block = False
    denoise_moved: Any = None

    def __init__(
        self,
        levels: tuple[Level, Level],
        model: "Model",
        undistilled: Any = None,
        done: int = 0,
        ahead: Sequence[Level] = (),
    ) -> None:
        self.levels = levels
        self.spent = 1 + done
        self.ahead = [level.ratio for level in ahead]
        self.has_prompt = has_tokens(model.guider)
        self.is_undistilled = undistilled is not None
        self.at, self.move_inside = model.at, model.blocks.move_inside
        self.evaluations_per_step = model.evaluations_per_step

    def without_prompts(self) -> tuple[Tensor, float] | None:
        """See `Denoiser`."""
        return None

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        self.clean = where_finite(clean, self.denoised)


class FirstStep(SamplerStep):
    """The first step of an image, before it is made: it tells whether samples are moved inside the
    network.

    Args:
        latents: (b, ...) with which the sampler begins.
        sigma: at which it begins, as a tensor.
        options: the sampler's `extra_args`.
        has_blocks: see `Denoiser`.
        given: arguments of `SamplerStep`.
    """

    def __init__(
        self,
        latents: Tensor,
        sigma: Tensor,
        options: dict[str, Any],
        has_blocks: bool,
        model: "Model",
        undistilled: Any,
        *given: Any,
    ) -> None:
        super().__init__((model.level(sigma),) * 2, model, undistilled, *given)
        self.has_blocks, self._undistilled = has_blocks, undistilled
        self.has_text_block = model.blocks.has_text
        self._latents, self._sigma, self._options, self._model = latents, sigma, options, model

    @cached_property
    def denoised(self) -> Tensor:
        return self._evaluate(self._latents, 0.0)

    @cached_property
    def with_cfg(self) -> Tensor:
        """(b, ...) the step's own prediction, with all of CFG."""
        return self._evaluate(self._latents, 1.0)

    def denoise(
        self, latents: Tensor, level: Level | None = None, perturb: Perturb | None = None
    ) -> Tensor:
        """See `Denoiser`; the level is the step's."""
        guider, undistilled = self._model.guider, None if perturb else self._undistilled
        with (
            model_swapped(guider, undistilled, latents),
            perturbed(guider, len(latents), perturb),
        ):
            return self._evaluate(latents, 0.0)

    def without_prompts(self) -> tuple[Tensor, float] | None:
        """See `Denoiser`: what would give the guider's own prediction at its scale, even if the
        guider mixes predictions in another way."""
        clean = self.denoised
        if (scale := self._model.cfg) == 1:
            return None
        return (scale * clean - self.with_cfg) / (scale - 1), scale

    def denoise_moved(self, moves: Any, scale: Tensor | float) -> Tensor:
        """See `Denoiser`; the scale is the guider's own."""
        with self._model.blocks.moving(moves, object(), self.levels[0].ratio):
            return self._evaluate(self._latents, 1.0)

    def _evaluate(self, latents: Tensor, share: float) -> Tensor:
        sigma = self._sigma.expand(len(latents))
        return self._model.evaluate(latents, sigma, share, **self._options)


class Model:
    """The model as samplers call it, with CFG scaled as the rounds require at each noise level.

    Attributes:
        rounds_are_made: whether an earlier run made the rounds.
        evaluations_per_step: how many times as much is evaluated with CFG as without it.
        guider: evaluates the model.
        blocks: of the network, which are moved where that is due.
        cfg: scale of CFG at the last evaluation, before it was scaled.
    """

    rounds_are_made = False
    cfg = 1.0
    evaluations_per_step = 1.0

    def __init__(self, model: Any, engine: Engine, guider: Any) -> None:
        self._model = model
        self._engine = engine
        self.guider = guider
        self.blocks = Blocks(guider)
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
        level = self.level(sigma[0])
        share = self._engine.share_of_cfg(level, self.rounds_are_made)
        with self.blocks.moving_if_due(object(), level.ratio):
            return self.evaluate(x, sigma, share, **options)

    def evaluate(self, x: Tensor, sigma: Tensor, share_of_cfg: float, **options: Any) -> Tensor:
        """Predict with this share of CFG."""
        with _cfg_scaled(self.guider, share_of_cfg) as scales:
            clean: Tensor = self._model(x, sigma, **options)
        self.cfg = max(scales.values(), default=1.0)
        return clean

    def count_conditions(self, x: Tensor, sigmas: Tensor, **options: Any) -> None:
        """Find `evaluations_per_step` by asking the guider at each sigma for a prediction, in which
        only conditions are counted: wrappers may change CFG from step to step."""

        def count(executor: Any, model: Any, conds: Sequence[Any], x: Tensor, *_: Any) -> Any:
            self.blocks.find_own(conds, self.guider.conds)
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


def _cfg_scales(guider: Any) -> dict[str, float]:
    return {name: getattr(guider, name) for name in SCALES if hasattr(guider, name)}


@contextmanager
def _cfg_scaled(guider: Any, share: float) -> Iterator[dict[str, float]]:
    """While the context lasts, a guider predicts with CFG scales 1 + share (w - 1), where w are its
    own or those that a wrapper such as *CFGOverride* sets at this sigma: those that the context
    yields, once the guider has predicted."""
    found: dict[str, float] = {}

    def scaled(predict: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def predict_scaled(*args: Any, **named: Any) -> Tensor:
            before = _cfg_scales(guider)
            found.update(before)
            try:
                if share != 1:
                    vars(guider).update({name: 1 + share * (w - 1) for name, w in before.items()})
                return predict(*args, **named)
            finally:
                vars(guider).update(before)

        return predict_scaled

    with Patch(guider, "predict_noise", scaled):
        yield found
