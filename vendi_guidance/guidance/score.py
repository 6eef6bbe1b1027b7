"""The diversity score of one call: its gradient, and moves along it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vendi_guidance.guidance.objectives import Objective
from vendi_guidance.guidance.samples import as_rows, lengths, unit_rows
from vendi_guidance.guidance.spaces import Space
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.kernels.rounding import rounding

SAME = 0.99
"""Two prompts count as the same from this similarity on."""

OF_LARGEST = 0.6
"""The spread, as a share of the largest distance. The largest shows what a prompt leaves open even
where nearly all images of a model are alike and the median distance is about 0."""


@dataclass(frozen=True)
class Score:
    """An objective, the space in which it compares samples, and the samples to compare with."""

    objective: Objective
    space: Space
    window: SlidingWindow
    exemplars: SlidingWindow | None  # their score is subtracted,
    beta: float  # with this weight
    count_skipped: Callable[[Tensor], None]  # called with (b,) False where a move was not finite

    def gradient(self, step: Step) -> Tensor:
        """(b, D) unit rows: the gradient of the score in the flattened latents. ValueError if the
        samples do not fit those in the memory."""
        features, pull_back = self.space.view(step.pipeline, step.latents, step.prediction)
        self.window.of_shape(features.shape[1:]).check(features, step.prompts)
        if self.exemplars is None:
            found = self.objective.direction(features, step.prompts, self.window)
        else:
            if self.exemplars.latent_shape != features.shape[1:]:
                raise ValueError(
                    f"exemplars of shape {self.exemplars.latent_shape} cannot be compared with "
                    f"{tuple(features.shape[1:])}: make them by exemplar_features with this "
                    "pipeline, space and image size"
                )
            alone = replace(self.objective, kernel_prompt=None)
            found = self.objective.gradient(features, step.prompts, self.window).gradient
            found = found - self.beta * alone.gradient(features, None, self.exemplars).gradient
            found = unit_rows(as_rows(found))
        if pull_back is not None:
            found = unit_rows(as_rows(pull_back(found.view_as(features))))
        return found.to(step.latents.device)

    @isolated()
    def move(self, latents: Tensor, direction: Tensor, length: Tensor | float) -> Tensor:
        """Move (b, ...) latents on the sphere of their norm, along (b, D) unit rows, by a length
        that is a share of the norm: one for all, or (b, 1). Samples whose move is not finite stay,
        and are counted."""
        z = as_rows(latents)
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        moved = torch.addcmul(z, length * norm, direction)
        share = norm / torch.linalg.vector_norm(moved, dim=1, keepdim=True)
        moved *= share
        finite = share > 0  # neither NaN nor, of infinite lengths, 0
        self.count_skipped(finite)
        return moved.where(finite, z).view_as(latents).to(latents.dtype)


def spread(distances: Tensor) -> Tensor:
    """(b, 1) `OF_LARGEST` times the largest of each sample's distances; NaN if it has none."""
    largest = distances.nan_to_num(0).amax(dim=1, keepdim=True)
    return (OF_LARGEST * largest).where(distances.isfinite().any(dim=1, keepdim=True), torch.nan)


def between(clean: Tensor, similarity: Tensor) -> Tensor:
    """(b, b) distances of (b, ...) predictions for the same prompt, given the (b, b) similarity of
    prompts; NaN for those of other prompts, to itself and to copies."""
    rows = as_rows(clean)
    # from differences: inner products leave rounding of the distance between copies
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    least = rounding(rows.dtype, rows.shape[1]) * lengths(clean)
    others = (similarity > SAME).fill_diagonal_(False) & distances.isfinite() & (distances > least)
    return distances.where(others, torch.nan)
