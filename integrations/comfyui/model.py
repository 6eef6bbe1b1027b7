"""The model that a guider evaluates, as samplers call it and as guidance asks it."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.joint import is_joint
from vendi_guidance.adapter.patching import patched
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.step import Level, Perturb, Prediction, where_finite

from .perturbed import has_tokens, perturbed
from .schedule import KEY

SCALES = ("cfg", "cfg1", "cfg2")
"""Attributes of ComfyUI's guiders that hold a scale of classifier-free guidance (CFG)."""

BATCHES = "calc_cond_batch"
"""The kind of ComfyUI's wrappers around the evaluation of a list of conditionings."""


@dataclass(eq=False)
class SamplerStep:
    """A step of the sampler: a `Denoiser`."""

    model: "Model"
    latents: Tensor  # (b, ...) of which `denoised` is predicted
    sigma: Tensor  # of these latents: that of one of `levels`
    levels: tuple[Level, Level]  # before and after the step
    options: dict[str, Any]  # the sampler's `extra_args`
    is_undistilled: bool  # whether the undistilled model predicts in the rounds
    made_by: Any  # the undistilled model if that makes the step, or None
    with_cfg: Any = None  # (b, ...) what the sampler was told to be the clean latents
    clean: Any = None  # (b, ...) the rounds' last prediction; `denoised` where that is not finite
    asked: Level | None = None  # of the last prediction by `denoise`
    told: Callable[[Tensor, Tensor], None] = lambda latents, clean: None  # of each of them
    swapped: Callable[[], AbstractContextManager[None]] = nullcontext  # around each prediction

    def __post_init__(self) -> None:
        self.at, self.is_joint = self.model.at, self.model.is_joint
        self.evaluations_per_step = self.model.evaluations_per_step
        self.has_prompt = has_tokens(self.model.guider)
        self.made_by_undistilled = self.made_by is not None

    def settle(self, may_be_off: bool) -> bool:
        return self.is_undistilled

    @cached_property
    def denoised(self) -> Tensor:
        """(b, ...) clean latents predicted without CFG. Takes an evaluation, unless they were set
        from the sampler's."""
        return self._predicted(self.latents, self.sigma)

    def denoise(
        self, latents: Tensor, level: Level | None = None, perturb: Perturb | None = None
    ) -> Tensor:
        self.asked = level = level or self.levels[0]
        is_own = level == self.model.level(self.sigma)
        sigma = self.sigma if is_own else self.sigma.new_tensor(level.noise)
        with perturbed(self.model.guider, len(latents), perturb):
            clean = self._predicted(latents, sigma)
        self.told(latents, clean)
        return clean

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        self.clean = where_finite(clean, self.denoised)

    def predicted_with(self, share_of_cfg: float) -> Prediction:
        """The step with this share of CFG, which takes an evaluation."""
        return Prediction(self._predicted(self.latents, self.sigma, share_of_cfg), *self.levels[1])

    def _predicted(self, latents: Tensor, sigma: Tensor, share: float = 0.0) -> Tensor:
        with self.swapped():
            return self.model.evaluate(latents, sigma.expand(len(latents)), share, **self.options)


class Model:
    """The model as samplers call it, with CFG scaled as guidance requires at each noise level.

    Attributes:
        rounds_are_made: whether an earlier run made the rounds.
        guider: evaluates the model.
        evaluations_per_step, is_joint: see `Denoiser`.
        cfg: scale of CFG at the last evaluation, before it was scaled.
        own_step: the step that the sampler is about to make, which takes from its first evaluation
            the predictions with CFG and without.
    """

    rounds_are_made = False
    cfg = 1.0
    evaluations_per_step = 1.0
    own_step: SamplerStep | None = None

    def __init__(self, model: Any, engine: Engine, guider: Any) -> None:
        self._model = model
        self._engine = engine
        self.guider = guider
        network = getattr(guider.inner_model, "diffusion_model", None)
        self.is_joint = isinstance(network, nn.Module) and is_joint(network)
        self._expected: tuple[Tensor, Any, Tensor] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)  # samplers read the model's attributes

    def __call__(self, x: Tensor, sigma: Tensor, **options: Any) -> Tensor:
        """Predict (b, ...) clean latents from (b, ...) latents at (b,) sigmas."""
        expected, self._expected = self._expected, None
        step, self.own_step = self.own_step, None
        if expected is not None:
            latents, model_options, prediction = expected
            # other options: the sampler added hooks of its own, which must be called
            if options.get("model_options") is model_options and torch.equal(x, latents):
                if step is not None:
                    step.denoised = step.with_cfg = prediction
                return prediction
        share = self.share_at(self.level(sigma[0]))
        if step is None:
            return self.evaluate(x, sigma, share, **options)
        found: list[Tensor] = []
        step.with_cfg = clean = self.evaluate(x, sigma, share, **self._keeping(found, options))
        if found and found[0].shape == clean.shape:
            mask = options.get("denoise_mask")  # which keeps a part of another image
            step.denoised = found[0] if mask is None else torch.lerp(clean, found[0], mask)
        return clean

    def _keeping(self, found: list[Tensor], options: dict[str, Any]) -> dict[str, Any]:
        """Options of an evaluation that adds to a list what the guider's positive conditioning
        predicts; nothing if the guider evaluates in another way."""

        def keep(executor: Any, model: Any, conds: Sequence[Any], *given: Any) -> Any:
            outputs = executor(model, conds, *given)
            prompts = self.guider.conds.get("positive")
            found.extend(it for cond, it in zip(conds, outputs, strict=True) if cond is prompts)
            return outputs

        of_model = options.get("model_options") or {}
        of_network = of_model.get("transformer_options", {})
        wrappers = of_network.get("wrappers", {})
        kept = {**wrappers.get(BATCHES, {}), KEY: [keep]}
        of_network = {**of_network, "wrappers": {**wrappers, BATCHES: kept}}
        return {**options, "model_options": {**of_model, "transformer_options": of_network}}

    def share_at(self, level: Level) -> float:
        """The share of CFG at a step that begins at this level; none until a way is decided."""
        way = self._engine.way
        return 0.0 if way is None else way.share_of_cfg(level.ratio, self.rounds_are_made)

    def evaluate(self, x: Tensor, sigma: Tensor, share_of_cfg: float, **options: Any) -> Tensor:
        """Predict with this share of CFG."""
        with _cfg_scaled(self.guider, share_of_cfg) as scales:
            clean: Tensor = self._model(x, sigma, **options)
        self.cfg = max(scales.values(), default=1.0)
        return clean

    def find_cfg(self, x: Tensor, sigmas: Tensor, **options: Any) -> None:
        """Find `evaluations_per_step`: wrappers may change CFG from step to step. The guider is
        called at each sigma, but does not evaluate the model."""

        def nothing(x: Tensor, *_: Any, **__: Any) -> Tensor:
            return torch.zeros_like(x)

        with_cfg = 0
        with patched(self.guider, "predict_noise", lambda _: nothing):
            for sigma in sigmas:
                # other programs' wrappers may fail
                with _cfg_scaled(self.guider, 1.0) as scales, suppress(Exception):
                    self.guider(x, sigma.expand(len(x)), **options)
                with_cfg += any(w != 1 for w in (scales or _cfg_scales(self.guider)).values())
        self.evaluations_per_step = 1 + with_cfg / len(sigmas)

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

    with patched(guider, "predict_noise", scaled):
        yield found


@contextmanager
def model_swapped(guider: Any, undistilled: Any, latents: Tensor) -> Iterator[None]:
    """Make a guider evaluate another model while the context lasts. ComfyUI loads it: beside the
    guider's own model if both fit in memory, else in its place.

    Args:
        guider: the sampler's guider.
        undistilled: a ModelPatcher, which may share the weights of the guider's own, without its
            LoRAs; None keeps the guider's own.
        latents: latents of the shape that the model will be given.

    Raises:
        ValueError: the two models are of different classes.
    """
    if undistilled is None:
        yield
        return
    own, before = guider.model_patcher, guider.inner_model
    if type(undistilled.model) is not type(before):
        raise ValueError(
            f"undistilled is a {type(undistilled.model).__name__}, but the sampler's model is a "
            f"{type(before).__name__}: connect the model that this one was distilled from"
        )
    try:
        guider.inner_model = _load(undistilled, guider, latents)
        undistilled.pre_run()
        yield
    finally:
        undistilled.cleanup()
        guider.inner_model = _load(own, guider, latents)
        guider.inner_model.current_patcher = own


def _load(patcher: Any, guider: Any, latents: Tensor) -> Any:
    """Load a patcher's model, with its weights and LoRAs, onto its device."""
    from comfy.sampler_helpers import prepare_sampling

    return prepare_sampling(patcher, latents.shape, guider.conds, guider.model_options)[0]
