"""Renoising: the same prediction at the same noise level, with fresh noise.

A sample at noise level (signal a, noise s) is z = a x0 + s eps. The scheduler's prediction of x0 is
kept, optionally moved towards the mean prediction for similar prompts, and eps is drawn again. What
guidance distorted is then corrected by the model.
"""

from collections.abc import Sequence

from diffusers.utils.torch_utils import randn_tensor
from torch import Tensor

from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import Settings
from vendi_guidance.guidance.step import Step


class Renoise:
    """Replaces the noise in the latents, between two shares of the steps."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def is_due(self, step: Step) -> bool:
        return self.settings.renoise_start <= step.share < self.settings.renoise_stop

    def __call__(self, step: Step, memory: Memory) -> Step:
        prediction, generator = step.prediction, step.generator
        if prediction is None or not prediction.noise:
            return step
        z = step.latents.to(prediction.denoised)
        noise = randn_tensor(
            z.shape,
            generator=list(generator) if isinstance(generator, Sequence) else generator,
            device=z.device,
            dtype=z.dtype,
        )
        clean = self._shrunk(prediction.denoised, step.prompts, memory)
        renewed = prediction.signal * clean + prediction.noise * noise
        finite = renewed.flatten(1).isfinite().all(dim=1).view(-1, *[1] * (z.ndim - 1))
        return step.with_latents(renewed.where(finite, z).to(step.latents.dtype))

    def _shrunk(self, denoised: Tensor, prompts: Tensor | None, memory: Memory) -> Tensor:
        """Predictions, part of the way to the mean of those for similar prompts."""
        settings = self.settings
        if settings.renoise_shrink == 0:
            return denoised
        # in other spaces remembered samples are no predictions to average with
        window = memory.window if settings.space == "denoised" else None
        objective = memory.objective(settings, prompts)
        mean = objective.mean_of_similar(denoised, prompts, window)
        return denoised.lerp(mean, settings.renoise_shrink)
