"""Stable Diffusion XL whose pictures differ from one another, for the prompts asked.

pipe = VendiGuidedSDXLPipeline.from_pretrained("stabilityai/stable-diffusion-xl-base-1.0")
images = pipe(["a person waving"] * 8, diversity_scale=0.03).images
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

from diffusers import StableDiffusionXLPipeline
from diffusers.pipelines.stable_diffusion_xl import StableDiffusionXLPipelineOutput

from vendi_guidance.guidance import ThenCallback, VendiGuidance


class VendiGuidedSDXLPipeline(StableDiffusionXLPipeline):
    """`StableDiffusionXLPipeline` with diversity guidance; `diversity_scale=0` is the stock one."""

    @property
    def guidance(self) -> VendiGuidance:
        """The guidance, its window kept from call to call; assign another one to replace it."""
        if not hasattr(self, "_guidance"):
            self._guidance = VendiGuidance(prompt_input="add_text_embeds")
        return self._guidance

    @guidance.setter
    def guidance(self, guidance: VendiGuidance) -> None:
        self._guidance = guidance

    def __call__(
        self,
        *args: Any,
        diversity_scale: float | None = None,
        diversity_objective: str | None = None,
        diversity_every: int | None = None,
        diversity_window: int | None = None,
        diversity_start: float | None = None,
        diversity_stop: float | None = None,
        diversity_step_rule: str | None = None,
        diversity_sigma_latent: float | None = None,
        diversity_sigma_prompt: float | None = None,
        diversity_truncation: int | None = None,
        callback_on_step_end: Callable[..., dict[str, Any] | None] | None = None,
        callback_on_step_end_tensor_inputs: Sequence[str] = ("latents",),
        **kwargs: Any,
    ) -> StableDiffusionXLPipelineOutput | tuple:
        """Generate as `StableDiffusionXLPipeline.__call__` does, whose arguments all hold.

        Args:
            diversity_*: as the arguments of `VendiGuidance`, for this call; None is what
                `self.guidance` has (`diversity_window` resizes its window for good).
            callback_on_step_end: called after guidance, with guided latents.

        Raises:
            ValueError: a value out of its range, named in the message.
        """
        changes = {
            "scale": diversity_scale,
            "objective": diversity_objective,
            "every": diversity_every,
            "start": diversity_start,
            "stop": diversity_stop,
            "step_rule": diversity_step_rule,
            "sigma_latent": diversity_sigma_latent,
            "sigma_prompt": diversity_sigma_prompt,
            "truncation": diversity_truncation,
        }
        guidance = self.guidance
        given = {name: value for name, value in changes.items() if value is not None}
        with guidance.one_call(self, **given):
            if diversity_window is not None:
                guidance.window.resize(diversity_window)
            callback: Any = guidance
            if callback_on_step_end is not None:
                inputs = callback_on_step_end_tensor_inputs
                callback = ThenCallback(guidance, callback_on_step_end, inputs)
            return super().__call__(*args, callback_on_step_end=callback, **kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs: Any) -> None:
        """Save as the stock pipeline, so that anyone can load it, with or without this package."""
        StableDiffusionXLPipeline.from_pipe(self).save_pretrained(save_directory, **kwargs)
