"""Diversity guidance as a diffusers callback.

Every few denoising steps each latent in flight moves a little towards a higher diversity score of
everything made so far (Jalali et al., AISTATS 2026, equation (14)); a finished sample enters the
window. The pipeline's own code stays as it is.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.callbacks import PipelineCallback
from diffusers.utils.torch_utils import randn_tensor
from torch import Tensor

from vendi_guidance.guidance.classifier_free import LateStart, can_rest, check_can_rest
from vendi_guidance.guidance.prediction import Prediction, Watch, go_on_from_here
from vendi_guidance.guidance.prompts import (
    best_of,
    pooled_by_clip,
    prompt_features,
    prompt_inputs,
    why_no_prompts,
)
from vendi_guidance.guidance.settings import CFG_START, PRESETS, SIGMA_PROMPT
from vendi_guidance.guidance.spaces import Space
from vendi_guidance.guidance.window import SlidingWindow, as_rows, unit_rows
from vendi_guidance.scores.bandwidth import median_distance

logger = logging.getLogger(__name__)

PROMPTS_TO_SETTLE = 10
"""From so many different prompts on, a bandwidth found from them stays."""


class VendiGuidance(PipelineCallback):
    """Makes what a diffusers pipeline generates more diverse, for the prompts asked.

    Pass it to any pipeline that takes `callback_on_step_end`, and to every call that should know
    of the earlier ones; see `on`. The b samples of a call are guided together, against the window
    and against one another. Samples enter the window after their last step. Latents keep their
    norm.

    With `scale=0` it does nothing and remembers nothing, unless `record` is set.

    Args:
        preset: what holds where nothing else is given: "standard", which moves predictions of clean
            latents apart at the first steps; "varied", which does so for longer; or "published",
            the paper's (see `settings`).
        objective: "conditional-rke", "conditional-vendi" (diverse among like prompts), "rke" or
            "vendi" (diverse whatever the prompts).
        scale: length of a step, in the unit of `step_rule`; 0 is no guidance.
        every: guide at every so-manieth denoising step, from the first on, the last left out. A
            scheduler that would lose the change at that step gets it at the next that keeps it.
        window: how many finished samples to remember, or a `SlidingWindow`.
        sigma_latent: bandwidth of the Gaussian kernel on unit-length latents, or what `space`
            compares instead.
        sigma_prompt: bandwidth of the Gaussian kernel on unit-length prompt embeddings. None is
            the published 0.3 for pooled CLIP embeddings, and for others 0.3 times the median
            distance between the different prompts seen, settled once there are ten.
        truncation: how many eigenvalues the Vendi pair keeps; None is all.
        start, stop: share of the steps where guidance begins and ends.
        schedule: how `scale` changes between start and stop: "constant", "linear" or "cosine"
            (down to 0), or a function of the share of the way, 0 to 1, that returns a factor.
        step_rule: "normalized", as published: each sample moves by scale x its norm; "adaptive":
            the same, times how crowded its neighbourhood is for its prompt, from 0 (nothing
            similar has been made) to 1 (a duplicate); "signal": as adaptive, but in units of the
            clean latents in the noisy ones (norm of the prediction x level of signal), which are
            short at first, when there is little but noise.
        space: what is compared: "latent", as published; "denoised", the scheduler's prediction of
            clean latents; or a space of your own (see `spaces`).
        center: the mean to take off what is compared: "prompt", weighted by how alike prompts are;
            "global"; or None.
        renoise_start, renoise_stop: share of the steps between which noise is drawn anew at every
            step, before guidance moves what is left: so what guidance bent returns to what the
            model knows. The level of noise is the scheduler's. Equal: never.
        renoise_shrink: how much of the way each prediction goes to the mean of those of like
            prompts before noise is drawn anew, 0 to 1. Guidance drives all samples away from that
            mean; what is left is that it drives them away from one another. In the denoised space
            remembered samples are among those that make the mean.
        cfg_start: the share of the steps for which classifier-free guidance, which draws samples of
            a prompt together, rests: until then its scale is 1, and negative prompts do nothing.
            With `on` from the first step on, else from the second. For pipelines that look up
            their scale at every step, see `classifier_free`. None is 0.3 for these, and 0 for all
            others.
        exemplars: (n, ...) finished latents (or features, in a space of your own) not to move away
            from, see `beta`.
        beta: how much of the score against the exemplars is taken off the objective.
        prompt_input: the pipeline's tensor that tells prompts apart, to be remembered whatever the
            objective; SDXL's pooled "add_text_embeds" does it best. None is "prompt_embeds", which
            nearly every pipeline has (with `on`, the best that the pipeline has), for a conditional
            objective, and nothing for another.
        record: let samples enter the window at scale 0 too.

    Attributes:
        settings: what was given above.
        window: the samples remembered.
        generator: of noise drawn anew: a `torch.Generator`, one for each sample, or None.

    Raises:
        ValueError: a value out of its range, named in the message.
    """

    def __init__(
        self,
        objective: str | None = None,
        scale: float | None = None,
        every: int | None = None,
        window: int | SlidingWindow = 300,
        *,
        preset: str = "standard",
        sigma_latent: float | None = None,
        sigma_prompt: float | None = None,
        truncation: int | None = None,
        start: float | None = None,
        stop: float | None = None,
        schedule: str | Callable[[float], float] | None = None,
        step_rule: str | None = None,
        space: str | Space | None = None,
        center: str | None = None,
        renoise_start: float | None = None,
        renoise_stop: float | None = None,
        renoise_shrink: float | None = None,
        cfg_start: float | None = None,
        beta: float | None = None,
        exemplars: Tensor | None = None,
        prompt_input: str | None = None,
        record: bool = False,
    ) -> None:
        super().__init__()
        self.settings = PRESETS["standard"].but(
            preset,
            objective=objective,
            scale=scale,
            every=every,
            sigma_latent=sigma_latent,
            sigma_prompt=sigma_prompt,
            truncation=truncation,
            start=start,
            stop=stop,
            schedule=schedule,
            step_rule=step_rule,
            space=space,
            center=center,
            renoise_start=renoise_start,
            renoise_stop=renoise_stop,
            renoise_shrink=renoise_shrink,
            cfg_start=cfg_start,
            beta=beta,
        )
        self.window = window if isinstance(window, SlidingWindow) else SlidingWindow(window)
        self.generator: torch.Generator | Sequence[torch.Generator] | None = None
        self._exemplars = _exemplar_window(exemplars)
        self._prompt_input = prompt_input
        self.record = record
        self._settled_sigma: float | None = None
        self._skipped: Tensor | int = 0
        self._warned = False
        self._due = False
        self._watch: Watch | None = None
        self._held_back: list[tuple[Tensor, Tensor | None]] | None = None
        self._late_start = LateStart()

    @property
    def skipped(self) -> int:
        """How many steps of single samples were skipped, and samples not remembered, because
        latents or gradient held NaN or infinity. A broken sample costs those of its batch that
        step too: they were to move away from it."""
        return int(self._skipped)

    @property
    def sigma_prompt(self) -> float | None:
        """The bandwidth given, or found and settled; None if it is still to be found."""
        given = self.settings.sigma_prompt
        return self._settled_sigma if given is None else given

    @property
    def tensor_inputs(self) -> list[str]:
        """The tensors that diffusers hands to the callback."""
        return ["latents"] if self.prompt_input is None else ["latents", self.prompt_input]

    @property
    def prompt_input(self) -> str | None:
        """The tensor that tells prompts apart, or None if prompts are not looked at."""
        return self._prompt_input or ("prompt_embeds" if self.settings.is_conditional else None)

    def on(
        self,
        pipeline: DiffusionPipeline,
        generator: torch.Generator | Sequence[torch.Generator] | None = None,
        guidance_scale: float | None = None,
    ) -> dict[str, Any]:
        """What guides a call of any pipeline, `pipe(prompts, **guidance.on(pipe))`.

        It asks for the best prompt features that this pipeline offers, where
        `callback_on_step_end=guidance` can only ask for what nearly every pipeline has, and some
        pipelines do not listen. The denoised space sees the call's first step too.

        Args:
            pipeline: the one that will be called.
            generator: what it will be called with, if noise drawn anew shall come from it.
            guidance_scale: of classifier-free guidance, if that has a `cfg_start`; it is then to be
                given here instead of to the pipeline.

        Raises:
            ValueError: `cfg_start` is not for this pipeline.
        """
        names: list[str] = []
        if self.prompt_input is not None:
            names = [self._prompt_input] if self._prompt_input else prompt_inputs(pipeline)
        self.generator = generator
        self._watch_steps_of(pipeline)
        arguments: dict[str, Any] = {
            "callback_on_step_end": self.callback_fn,
            "callback_on_step_end_tensor_inputs": ["latents", *names],
        }
        late = self._starts_cfg_late(pipeline)
        if guidance_scale is not None:
            first = self._late_start.first(guidance_scale) if late else guidance_scale
            arguments["guidance_scale"] = first
        return arguments

    @contextmanager
    def one_call(
        self,
        pipeline: DiffusionPipeline,
        generator: torch.Generator | Sequence[torch.Generator] | None = None,
        **changes: Any,
    ) -> Iterator[None]:
        """For one pipeline call: other settings, and a window left as it was if the call raises.

        Args:
            pipeline: the one called.
            generator: what it is called with, for noise drawn anew to come from.
            changes: fields of `Settings`, or a preset; None is no change.
        """
        self.generator = generator
        before, self.settings = self.settings, self.settings.but(**changes)
        self._held_back = []
        try:
            self._watch_steps_of(pipeline)
            yield
            for features, prompts in self._held_back:
                self.window.append(features, prompts)
        finally:
            self.settings, self._held_back, self.generator = before, None, None
            self._stop_watching()

    def callback_fn(
        self,
        pipeline: DiffusionPipeline,
        step_index: int,
        timesteps: Any,
        callback_kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        """What diffusers calls after each step; see `diffusers.callbacks.PipelineCallback`."""
        settings = self.settings
        if settings.scale == 0 and not self.record:
            return callback_kwargs
        steps = _number_of_steps(pipeline)
        last, share = step_index >= steps - 1, step_index / steps
        inside = settings.start <= share < settings.stop
        self._due = inside and (step_index % settings.every == 0 or (self._due and step_index > 0))
        if self._starts_cfg_late(pipeline):
            self._late_start.set(pipeline, rests=(step_index + 1) / steps < self._cfg_start)
        seen = self._watch_steps_of(pipeline)
        renoised = settings.renoise_start <= share < settings.renoise_stop
        moves = seen and settings.scale > 0 and not last and (self._due or renoised)
        moves = moves and go_on_from_here(pipeline.scheduler)
        if moves or last:
            latents, prompts = callback_kwargs["latents"], None
            if self.prompt_input is not None:
                prompts = self._prompt_features(pipeline, callback_kwargs)
            if moves and renoised:
                latents = self._renoise(latents, prompts)
            if moves and self._due:
                self._due = False
                latents = self._guide(pipeline, latents, prompts, settings.scale_at(share))
            if last:
                self._finish(pipeline, latents, prompts)
                self._stop_watching()
            callback_kwargs["latents"] = latents
        return callback_kwargs

    def _prompt_features(self, pipeline: DiffusionPipeline, tensors: dict[str, Any]) -> Tensor:
        features = prompt_features(pipeline, tensors, self._prompt_input)
        if features is None:
            raise ValueError(
                f"objective {self.settings.objective!r} needs prompts: {why_no_prompts(pipeline)}"
            )
        name = self._prompt_input or best_of(tensors)
        if self.sigma_prompt is None and name and pooled_by_clip(pipeline, name):
            self._settled_sigma = SIGMA_PROMPT
        return features

    def _guide(
        self, pipeline: DiffusionPipeline, latents: Tensor, prompts: Tensor | None, scale: float
    ) -> Tensor:
        """One ascent step along the sphere of each latent's norm."""
        settings = self.settings
        prediction = self._prediction(latents)
        view = settings.build_space().view(pipeline, latents, prediction)
        # these samples shall enter the window: say now if they cannot
        self.window.check(view.features, prompts)
        objective = settings.build_objective(self._sigma_for(prompts))
        ascent = objective.ascend(view.features, prompts, self.window, settings.center)
        gradient = ascent.gradient
        if self._exemplars is not None:
            if self._exemplars.latent_shape != view.features.shape[1:]:
                raise ValueError(
                    f"exemplars of shape {self._exemplars.latent_shape} cannot be compared with "
                    f"{tuple(view.features.shape[1:])}: make them by exemplar_features with this "
                    "pipeline, space and picture size"
                )
            contrast = objective.of_latents_alone().ascend(view.features, None, self._exemplars)
            gradient = gradient - settings.beta * contrast.gradient
        z, gradient = as_rows(latents), as_rows(view.pull_back(gradient)).to(latents.device)
        length = z.new_full((len(z), 1), scale)
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        if settings.step_rule != "normalized":
            length = length * ascent.crowding[:, None].to(z)
        if settings.step_rule == "signal" and prediction is not None:
            clean = torch.linalg.vector_norm(
                as_rows(prediction.denoised).to(z), dim=1, keepdim=True
            )
            length = length * prediction.signal * clean / norm
        moved = unit_rows(unit_rows(z) + length * unit_rows(gradient)) * norm
        sound = moved.isfinite().all(dim=1, keepdim=True)
        self._skipped = self._skipped + sound.logical_not().sum()  # stays on the device: no wait
        return moved.where(sound, z).view_as(latents).to(latents.dtype)

    def _renoise(self, latents: Tensor, prompts: Tensor | None) -> Tensor:
        """What was predicted, with other noise at the level where the latents are."""
        prediction = self._prediction(latents)
        if prediction is None or not prediction.noise:
            return latents
        z = latents.to(prediction.denoised)
        generator = self.generator
        drawn = randn_tensor(
            z.shape,
            generator=list(generator) if isinstance(generator, Sequence) else generator,
            device=z.device,
            dtype=z.dtype,
        )
        clean = self._shrunk(prediction.denoised, prompts)
        renewed = prediction.signal * clean + prediction.noise * drawn
        sound = renewed.flatten(1).isfinite().all(dim=1).view(-1, *[1] * (z.ndim - 1))
        return renewed.where(sound, z).to(latents.dtype)

    def _shrunk(self, denoised: Tensor, prompts: Tensor | None) -> Tensor:
        """Predictions, some of the way to the mean of those of like prompts."""
        settings = self.settings
        if settings.renoise_shrink == 0:
            return denoised
        window = self.window if settings.space == "denoised" else SlidingWindow(1)
        window.check(denoised, prompts)
        objective = settings.build_objective(self._sigma_for(prompts))
        mean = objective.mean_of_alike(denoised, prompts, window)
        return denoised.lerp(mean, settings.renoise_shrink)

    def _finish(self, pipeline: DiffusionPipeline, latents: Tensor, prompts: Tensor | None) -> None:
        """Let finished samples into the window, but for broken ones."""
        features = self.settings.build_space().remember(pipeline, latents)
        sound = torch.isfinite(as_rows(features)).all(dim=1)
        if prompts is not None:
            sound &= torch.isfinite(prompts).all(dim=1).to(sound.device)
        self._skipped = self._skipped + sound.logical_not().sum()
        self._skipped = self.skipped  # the call is over: now it may wait for the device
        if self._skipped and not self._warned:
            self._warned = True
            logger.warning(
                "NaN or infinity in latents, prompts or gradient: %d guidance steps skipped, "
                "samples concerned not remembered. Half precision often is the cause.",
                self._skipped,
            )
        kept = (features[sound], None if prompts is None else prompts[sound.to(prompts.device)])
        if not sound.any():
            return
        if self._held_back is None:
            self.window.append(*kept)
        else:
            self._held_back.append(kept)

    def _sigma_for(self, prompts: Tensor | None) -> float:
        """The prompt kernel's bandwidth, found from the prompts seen if none was given."""
        if self.sigma_prompt is not None or prompts is None or not self.settings.is_conditional:
            return self.sigma_prompt or SIGMA_PROMPT
        t = unit_rows(as_rows(prompts))
        known = self.window.prompts
        seen = torch.cat([t, t[:0] if known is None else known.to(t)])
        different = seen[seen.isfinite().all(dim=1)].mul(1e4).round().unique(dim=0) / 1e4
        if len(different) < 2:
            return SIGMA_PROMPT  # one prompt is like itself at any bandwidth
        sigma = SIGMA_PROMPT * median_distance(different)
        if len(different) >= PROMPTS_TO_SETTLE:
            self._settled_sigma = sigma
            logger.info("prompt bandwidth settled at %.3g", sigma)
        return sigma

    def _watch_steps_of(self, pipeline: DiffusionPipeline) -> bool:
        """Listen to the scheduler if guidance needs to; False if what it needs went by unheard."""
        settings = self.settings
        if settings.scale == 0 or not settings.needs_prediction:
            return True
        if self._watch is not None and self._watch.scheduler is pipeline.scheduler:
            return self._watch.has_seen
        self._stop_watching()
        self._watch = Watch(pipeline.scheduler).start()
        return False

    def _starts_cfg_late(self, pipeline: DiffusionPipeline) -> bool:
        settings = self.settings
        if settings.cfg_start == 0 or settings.scale == 0:
            return False
        if settings.cfg_start is None:
            return can_rest(pipeline)
        check_can_rest(pipeline)
        return True

    @property
    def _cfg_start(self) -> float:
        given = self.settings.cfg_start
        return CFG_START if given is None else given

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        self._watch = None

    def _prediction(self, latents: Tensor) -> Prediction | None:
        """What the scheduler said in the step that returned these latents, if it is watched."""
        if self._watch is None:
            return None
        prediction = self._watch.prediction
        if prediction.denoised.shape != latents.shape:
            raise ValueError(
                f"the scheduler predicts latents of shape {tuple(prediction.denoised.shape)}, the "
                f'pipeline has {tuple(latents.shape)}: use preset="published", which needs none'
            )
        return prediction


class ThenCallback(PipelineCallback):
    """Guidance first, then the user's own `callback_on_step_end`, which sees guided latents.

    Args:
        guidance: ours.
        callback: a function or a diffusers callback.
        tensor_inputs: what a function asked for; a diffusers callback knows its own.
    """

    def __init__(
        self,
        guidance: VendiGuidance,
        callback: Callable[..., dict[str, Any] | None],
        tensor_inputs: Sequence[str],
    ) -> None:
        super().__init__()
        self.guidance = guidance
        self.callback = callback
        self._inputs = list(getattr(callback, "tensor_inputs", tensor_inputs))

    @property
    def tensor_inputs(self) -> list[str]:
        return list(dict.fromkeys([*self.guidance.tensor_inputs, *self._inputs]))

    def callback_fn(
        self,
        pipeline: DiffusionPipeline,
        step_index: int,
        timesteps: Any,
        callback_kwargs: dict[str, Any],
    ) -> dict[str, Any]:
        guided = self.guidance(pipeline, step_index, timesteps, callback_kwargs)
        asked = {name: guided[name] for name in self._inputs}
        changed = self.callback(pipeline, step_index, timesteps, asked)
        return {**guided, **(changed or {})}  # what a callback does not return stays as it is


def _number_of_steps(pipeline: DiffusionPipeline) -> int:
    steps = getattr(pipeline, "num_timesteps", None)
    return len(pipeline.scheduler.timesteps) if steps is None else steps


def _exemplar_window(exemplars: Tensor | None) -> SlidingWindow | None:
    if exemplars is None:
        return None
    if not isinstance(exemplars, Tensor) or exemplars.ndim < 2 or not len(exemplars):
        shape = f"shape {tuple(exemplars.shape)}" if isinstance(exemplars, Tensor) else "no shape"
        raise ValueError(
            f"exemplars must be a tensor of at least one row, (n, ...), got {shape}; "
            "exemplar_features makes one of pictures"
        )
    if not exemplars.isfinite().all():
        raise ValueError("exemplars hold NaN or infinity: leave those rows out")
    window = SlidingWindow(len(exemplars))
    window.append(exemplars)
    return window
