"""Diversity guidance as a diffusers callback.

Every few denoising steps each latent in flight moves a little towards a higher diversity score of
everything made so far (Jalali et al., AISTATS 2026, equation (14)); a finished sample enters the
window. The pipeline's own code stays as it is.
"""

import dataclasses
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import DiffusionPipeline
from diffusers.callbacks import PipelineCallback
from torch import Tensor

from vendi_guidance.kernels import Gaussian
from vendi_guidance.objectives import OBJECTIVES, ConditionalVendi, Objective
from vendi_guidance.prompts import prompt_features, prompt_inputs, why_no_prompts
from vendi_guidance.window import SlidingWindow, as_rows, unit_rows

logger = logging.getLogger(__name__)

STEP_RULES = ("normalized", "adaptive")


@dataclass(frozen=True)
class Settings:
    """How guidance moves latents; see `VendiGuidance` for each field."""

    objective: str
    scale: float
    every: int
    sigma_latent: float
    sigma_prompt: float
    truncation: int | None
    start: float
    stop: float
    step_rule: str

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ValueError(
                f"objective must be one of {', '.join(OBJECTIVES)}, got {self.objective!r}"
            )
        if not (math.isfinite(self.scale) and self.scale >= 0):
            raise ValueError(f"scale must be finite and at least 0 (no guidance), got {self.scale}")
        if not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"every must be a whole number of at least 1, got {self.every}")
        if not 0 <= self.start <= self.stop <= 1:
            raise ValueError(
                "start and stop are shares of the steps, 0 <= start <= stop <= 1, "
                f"got {self.start} and {self.stop}"
            )
        if self.step_rule not in STEP_RULES:
            raise ValueError(
                f"step_rule must be one of {', '.join(STEP_RULES)}, got {self.step_rule!r}"
            )
        # refuse a bad sigma or truncation now, in use or not, rather than at some later step
        ConditionalVendi(Gaussian(self.sigma_latent), Gaussian(self.sigma_prompt), self.truncation)

    def build_objective(self) -> Objective:
        given: dict[str, Any] = {"kernel_latent": Gaussian(self.sigma_latent)}
        if self.objective.startswith("conditional"):
            given["kernel_prompt"] = Gaussian(self.sigma_prompt)
        if self.objective.endswith("vendi"):
            given["truncation"] = self.truncation
        return OBJECTIVES[self.objective](**given)


class VendiGuidance(PipelineCallback):
    """Makes what a diffusers pipeline generates more diverse, for the prompts asked.

    Pass it to any pipeline that takes `callback_on_step_end`, and to every call that should know
    of the earlier ones. The b samples of a call are guided together, against the window and
    against one another. Samples enter the window after their last step. Latents keep their norm.

    With `scale=0` it does nothing and remembers nothing, unless `record` is set.

    Args:
        objective: "conditional-rke", "conditional-vendi" (diverse among like prompts), "rke" or
            "vendi" (diverse whatever the prompts).
        scale: length of a step, as a share of the latents' norm.
        every: guide at every so-manieth denoising step, from the first on, the last left out.
        window: how many finished samples to remember, or a `SlidingWindow`.
        sigma_latent: bandwidth of the Gaussian kernel on unit-length latents.
        sigma_prompt: bandwidth of the Gaussian kernel on unit-length prompt embeddings.
        truncation: how many eigenvalues the Vendi pair keeps; None is all.
        start, stop: share of the steps where guidance begins and ends.
        step_rule: "normalized", as published: each sample moves by scale x its norm; "adaptive":
            the same, times how crowded its neighbourhood is for its prompt, from 0 (nothing
            similar has been made) to 1 (a duplicate).
        prompt_input: the pipeline's tensor that tells prompts apart, to be remembered whatever the
            objective; SDXL's pooled "add_text_embeds" does it best. None is "prompt_embeds", which
            nearly every pipeline has, for a conditional objective, and nothing for another.
        record: let samples enter the window at scale 0 too.

    Attributes:
        settings: what was given above.
        window: the samples remembered.

    Raises:
        ValueError: a value out of its range, named in the message.
    """

    def __init__(
        self,
        objective: str = "conditional-rke",
        scale: float = 0.03,
        every: int = 10,
        window: int | SlidingWindow = 300,
        *,
        sigma_latent: float = 0.8,
        sigma_prompt: float = 0.3,
        truncation: int | None = None,
        start: float = 0.0,
        stop: float = 1.0,
        step_rule: str = "normalized",
        prompt_input: str | None = None,
        record: bool = False,
    ) -> None:
        super().__init__()
        self.settings = Settings(
            objective, scale, every, sigma_latent, sigma_prompt, truncation, start, stop, step_rule
        )
        self.window = window if isinstance(window, SlidingWindow) else SlidingWindow(window)
        self._prompt_input = prompt_input
        self.record = record
        self._skipped: Tensor | int = 0
        self._warned = False
        self._held_back: list[tuple[Tensor, Tensor | None]] | None = None

    @property
    def skipped(self) -> int:
        """How many steps of single samples were skipped, and samples not remembered, because
        latents or gradient held NaN or infinity."""
        return int(self._skipped)

    @property
    def tensor_inputs(self) -> list[str]:
        """The tensors that diffusers hands to the callback."""
        return ["latents"] if self.prompt_input is None else ["latents", self.prompt_input]

    @property
    def prompt_input(self) -> str | None:
        """The tensor that tells prompts apart, or None if prompts are not looked at."""
        conditional = self.settings.objective.startswith("conditional")
        return self._prompt_input or ("prompt_embeds" if conditional else None)

    def on(self, pipeline: DiffusionPipeline) -> dict[str, Any]:
        """What guides a call of any pipeline, `pipe(prompts, **guidance.on(pipe))`.

        It asks for the best prompt features that this pipeline offers, where
        `callback_on_step_end=guidance` can only ask for what nearly every pipeline has, and some
        pipelines do not listen.
        """
        names: list[str] = []
        if self.prompt_input is not None:
            names = [self._prompt_input] if self._prompt_input else prompt_inputs(pipeline)
        return {
            "callback_on_step_end": self.callback_fn,
            "callback_on_step_end_tensor_inputs": ["latents", *names],
        }

    @contextmanager
    def one_call(self, **changes: Any) -> Iterator[None]:
        """For one pipeline call: other settings, and a window left as it was if the call raises.

        Args:
            changes: fields of `Settings`.
        """
        before, self.settings = self.settings, dataclasses.replace(self.settings, **changes)
        self._held_back = []
        try:
            yield
            for latents, prompts in self._held_back:
                self.window.append(latents, prompts)
        finally:
            self.settings, self._held_back = before, None

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
        last = step_index >= steps - 1
        due = step_index % settings.every == 0
        inside = settings.start <= step_index / steps < settings.stop
        guided = settings.scale > 0 and due and inside and not last
        if guided or last:
            latents = callback_kwargs["latents"]
            prompts = self._prompt_features(pipeline, callback_kwargs)
            if guided:
                callback_kwargs["latents"] = self._guide(latents, prompts)
            if last:
                self._finish(latents, prompts)
        return callback_kwargs

    def _prompt_features(
        self, pipeline: DiffusionPipeline, tensors: dict[str, Any]
    ) -> Tensor | None:
        if self.prompt_input is None:
            return None
        features = prompt_features(pipeline, tensors, self._prompt_input)
        if features is None:
            raise ValueError(
                f"objective {self.settings.objective!r} needs prompts: {why_no_prompts(pipeline)}"
            )
        return features

    def _guide(self, latents: Tensor, prompts: Tensor | None) -> Tensor:
        """One ascent step along the sphere of each latent's norm."""
        self.window.check(latents, prompts)  # these samples shall enter it: say now if they cannot
        ascent = self.settings.build_objective().ascend(latents, prompts, self.window)
        z, gradient = as_rows(latents), as_rows(ascent.gradient)
        length = torch.full((len(z), 1), self.settings.scale).to(z)
        if self.settings.step_rule == "adaptive":
            length = length * ascent.crowding[:, None]
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        moved = unit_rows(unit_rows(z) + length * unit_rows(gradient)) * norm
        sound = moved.isfinite().all(dim=1, keepdim=True)
        self._skipped = self._skipped + sound.logical_not().sum()  # stays on the device: no wait
        return moved.where(sound, z).view_as(latents).to(latents.dtype)

    def _finish(self, latents: Tensor, prompts: Tensor | None) -> None:
        """Let finished samples into the window, but for broken ones."""
        sound = torch.isfinite(as_rows(latents)).all(dim=1)
        self._skipped = self._skipped + sound.logical_not().sum()
        if self.skipped and not self._warned:
            self._warned = True
            logger.warning(
                "NaN or infinity in latents or gradient: %d guidance steps skipped, samples "
                "concerned not remembered. Half precision often is the cause.",
                self.skipped,
            )
        kept = (latents[sound], None if prompts is None else prompts[sound])
        if not sound.any():
            return
        if self._held_back is None:
            self.window.append(*kept)
        else:
            self._held_back.append(kept)


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
