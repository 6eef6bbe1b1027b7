"""The guidance step: gradient ascent of a diversity score on each latent's sphere.

Jalali et al. (AISTATS 2026), equation (14): z <- z + eta grad_z Score(z_1..n | t_1..n), with the
gradient of each sample rescaled to a length of its own and the norm of z kept.
"""

import torch
from torch import Tensor

from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.objectives import Objective
from vendi_guidance.guidance.settings import Settings
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.window import SlidingWindow, as_rows, unit_rows


class Ascend:
    """Moves latents towards a higher score, at every N-th step between two shares of the steps."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._is_pending = False

    def is_due(self, step: Step) -> bool:
        """Due at every N-th step, and then at each further one until it could be made."""
        is_nth = step.index % self.settings.every == 0
        is_inside = self.settings.start <= step.share < self.settings.stop
        self._is_pending = is_inside and (is_nth or self._is_pending)
        return self._is_pending

    def __call__(self, step: Step, memory: Memory) -> Step:
        self._is_pending = False
        settings = self.settings
        view = settings.build_space().view(step.pipeline, step.latents, step.prediction)
        memory.window.check(view.features, step.prompts)  # where they will enter
        objective = memory.objective(settings, step.prompts)
        found = objective.gradient(view.features, step.prompts, memory.window, settings.center)
        gradient = found.gradient
        if memory.exemplars is not None:
            contrast = _against_exemplars(objective, view.features, memory.exemplars)
            gradient = gradient - settings.beta * contrast
        gradient = as_rows(view.pull_back(gradient)).to(step.latents.device)

        z = as_rows(step.latents)
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        length = self._length(step, z, norm, found.crowding)
        moved = unit_rows(unit_rows(z) + length * unit_rows(gradient)) * norm
        finite = moved.isfinite().all(dim=1, keepdim=True)
        memory.count_skipped(finite)
        moved = moved.where(finite, z).view_as(step.latents)
        return step.with_latents(moved.to(step.latents.dtype))

    def _length(self, step: Step, z: Tensor, norm: Tensor, crowding: Tensor) -> Tensor:
        """(b, 1) length of each sample's step, as a share of its norm."""
        length = z.new_full((len(z), 1), self.settings.scale_at(step.share))
        if self.settings.step_rule != "normalized":
            length = length * crowding[:, None].to(z)
        if self.settings.step_rule == "signal" and step.prediction is not None:
            rows = as_rows(step.prediction.denoised).to(z)
            clean = torch.linalg.vector_norm(rows, dim=1, keepdim=True)
            length = length * step.prediction.signal * clean / norm
        return length


def _against_exemplars(objective: Objective, features: Tensor, exemplars: SlidingWindow) -> Tensor:
    """The gradient of the score against the exemplars, whatever the prompts."""
    if exemplars.latent_shape != features.shape[1:]:
        raise ValueError(
            f"exemplars of shape {exemplars.latent_shape} cannot be compared with "
            f"{tuple(features.shape[1:])}: make them by exemplar_features with this pipeline, "
            "space and image size"
        )
    return objective.of_latents_alone().gradient(features, None, exemplars).gradient
