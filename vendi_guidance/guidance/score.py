"""The score that one call raises, and how: the direction in which it rises, and moves along it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vendi_guidance.guidance.objectives import Objective
from vendi_guidance.guidance.samples import as_rows, unit_rows
from vendi_guidance.guidance.spaces import Space
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.window import SlidingWindow

SAME = 0.99
"""The similarity from which on two prompts count as the same."""

OF_LARGEST = 0.6
"""The spread as a share of the largest distance. That shows what a prompt leaves open even where a
model makes nearly all images alike; the median distance is then nearly 0."""


@dataclass(frozen=True)
class Score:
    """An objective, the space in which it compares samples, and what it compares them with: built
    once a call, from its settings, its prompts and the memory.

    Attributes:
        window: of remembered samples.
        exemplars: samples that count against, or None.
        beta: their weight.
        count_skipped: told (b,) False for samples that a move would have broken.
    """

    objective: Objective
    space: Space
    window: SlidingWindow
    exemplars: SlidingWindow | None
    beta: float
    count_skipped: Callable[[Tensor], None]

    def gradient(self, step: Step) -> Tensor:
        """(b, D) unit rows: the gradient of the score in the flattened latents.

        Args:
            step: with a prediction, unless the space needs none.

        Raises:
            ValueError: samples that do not fit the memory's.
        """
        features, pull_back = self.space.view(step.pipeline, step.latents, step.prediction)
        window = self.window.of_shape(features.shape[1:])
        window.check(features, step.prompts)  # where they will enter
        found = self.objective.gradient(features, step.prompts, window).gradient
        if self.exemplars is not None:
            if self.exemplars.latent_shape != features.shape[1:]:
                raise ValueError(
                    f"exemplars of shape {self.exemplars.latent_shape} cannot be compared with "
                    f"{tuple(features.shape[1:])}: make them by exemplar_features with this "
                    "pipeline, space and image size"
                )
            alone = self.objective.of_latents_alone()
            found = found - self.beta * alone.gradient(features, None, self.exemplars).gradient
        return unit_rows(as_rows(pull_back(found)).to(step.latents.device))

    def move(self, latents: Tensor, direction: Tensor, length: Tensor | float) -> Tensor:
        """Latents moved on the sphere of their norm; those where the result is not finite stay, and
        are counted in the memory.

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
        self.count_skipped(finite)
        return moved.where(finite, z).view_as(latents).to(latents.dtype)

    def choose(self, step: Step, noisy: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
        """Of (c, b, ...) candidates and their predictions, (b, ...) that differ most."""
        if len(noisy) == 1:
            return noisy[0], clean[0]
        features = torch.stack([self.space.remember(step.pipeline, one) for one in clean])
        window = self.window.of_shape(features.shape[2:])
        taken = self.objective.choose(features, step.prompts, window)
        rows = torch.arange(len(taken), device=taken.device)
        return noisy[taken, rows], clean[taken, rows]


def spread(clean: Tensor, similarity: Tensor) -> Tensor:
    """(b, 1) how far each prediction is from the others for the same prompt, by (b, b) similarities
    of prompts; NaN where there are none."""
    rows = as_rows(clean)
    # from differences: inner products leave rounding of the distance between copies
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    others = (similarity > SAME).fill_diagonal_(False) & distances.isfinite()
    largest = distances.where(others, 0).amax(dim=1, keepdim=True)
    return (OF_LARGEST * largest).where(others.any(dim=1, keepdim=True), torch.nan)
