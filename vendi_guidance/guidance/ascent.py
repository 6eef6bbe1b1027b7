"""The guidance step: gradient ascent of a diversity score on each latent's sphere.

Jalali et al. (AISTATS 2026), equation (14): z <- z + eta grad_z Score(z_1..n | t_1..n), with the
gradient of each sample rescaled to the length eta |z| and the norm of z kept.
"""

import torch
from torch import Tensor

from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.objectives import Objective
from vendi_guidance.guidance.settings import Settings
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.window import SlidingWindow, as_rows, unit_rows


class Ascend:
    """Guidance as published: one ascent at every N-th denoising step."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._is_pending = False

    def is_due(self, step: Step) -> bool:
        """Due at every N-th step but the last, and then at each further one until it is made."""
        self._is_pending = self._is_pending or step.index % self.settings.every == 0
        return self._is_pending and not step.is_last

    def __call__(self, step: Step, memory: Memory) -> Step:
        self._is_pending = False
        direction = ascent_direction(step, memory, self.settings)
        return step.with_latents(move(step.latents, direction, self.settings.scale, memory))


def ascent_direction(step: Step, memory: Memory, settings: Settings) -> Tensor:
    """(b, D) unit rows: the gradient of the score in the flattened latents.

    Args:
        step: with a prediction, unless the space needs none.
        memory: whose samples are moved away from.
        settings: of the score.

    Raises:
        ValueError: samples that do not fit the memory's.
    """
    view = settings.build_space().view(step.pipeline, step.latents, step.prediction)
    window = memory.window_of(view.features)
    window.check(view.features, step.prompts)  # where they will enter
    objective = memory.objective(settings, step.prompts)
    gradient = objective.gradient(view.features, step.prompts, window).gradient
    if memory.exemplars is not None:
        contrast = _against_exemplars(objective, view.features, memory.exemplars)
        gradient = gradient - settings.beta * contrast
    return unit_rows(as_rows(view.pull_back(gradient)).to(step.latents.device))


def move(latents: Tensor, direction: Tensor, length: Tensor | float, memory: Memory) -> Tensor:
    """Latents moved on the sphere of their norm; those where the result is not finite stay, and are
    counted in the memory.

    Args:
        latents: (b, ...).
        direction: (b, D) unit rows.
        length: before the projection back to the sphere, as a share of the norm; one for all
            samples or (b, 1).
    """
    z = as_rows(latents)
    norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
    moved = unit_rows(unit_rows(z) + length * direction) * norm
    finite = moved.isfinite().all(dim=1, keepdim=True)
    memory.count_skipped(finite)
    return moved.where(finite, z).view_as(latents).to(latents.dtype)


def _against_exemplars(objective: Objective, features: Tensor, exemplars: SlidingWindow) -> Tensor:
    """The gradient of the score against the exemplars, whatever the prompts."""
    if exemplars.latent_shape != features.shape[1:]:
        raise ValueError(
            f"exemplars of shape {exemplars.latent_shape} cannot be compared with "
            f"{tuple(features.shape[1:])}: make them by exemplar_features with this pipeline, "
            "space and image size"
        )
    return objective.of_latents_alone().gradient(features, None, exemplars).gradient
