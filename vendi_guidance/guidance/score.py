"""The diversity score of one call: its gradient, moves along it, and the choice of candidates."""

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
"""Two prompts count as the same from this similarity on."""

OF_LARGEST = 0.6
"""The spread, as a share of the largest distance. The largest shows what a prompt leaves open even
where nearly all images of a model are alike and the median distance is about 0."""


@dataclass(frozen=True)
class Score:
    """An objective, the space in which it compares samples, and the samples to compare with.

    It is built once per call, from the settings, the prompts and the memory.

    Attributes:
        window: the remembered samples.
        exemplars: samples whose score is subtracted, or None.
        beta: weight of the exemplars.
        count_skipped: called with (b,) False for samples whose move was not finite.
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
            ValueError: the samples do not fit those in the memory.
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
        """Move latents on the sphere of their norm.

        Args:
            latents: (b, ...).
            direction: (b, D) unit rows.
            length: as a share of the norm, before the projection back to the sphere; one for all
                samples or (b, 1).

        Returns:
            (b, ...) moved latents. Samples whose move is not finite stay, and are counted.
        """
        z = as_rows(latents)
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        moved = unit_rows(unit_rows(z) + length * direction) * norm
        finite = moved.isfinite().all(dim=1, keepdim=True)
        self.count_skipped(finite)
        return moved.where(finite, z).view_as(latents).to(latents.dtype)

    def choose(self, step: Step, noisy: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
        """Choose one of c candidates for each sample, so that the predictions differ most.

        Args:
            noisy, clean: (c, b, ...) candidates and the predictions for them.

        Returns:
            The chosen ones, (b, ...) each.
        """
        if len(noisy) == 1:
            return noisy[0], clean[0]
        features = torch.stack([self.space.remember(step.pipeline, one) for one in clean])
        window = self.window.of_shape(features.shape[2:])
        taken = self.objective.choose(features, step.prompts, window)
        rows = torch.arange(len(taken), device=taken.device)
        return noisy[taken, rows], clean[taken, rows]


def spread(clean: Tensor, similarity: Tensor) -> Tensor:
    """How far each prediction is from the others for the same prompt: `OF_LARGEST` times the
    largest distance.

    Args:
        clean: (b, ...) predictions.
        similarity: (b, b) of their prompts.

    Returns:
        (b, 1); NaN for a sample without others.
    """
    rows = as_rows(clean)
    # from differences: inner products leave rounding of the distance between copies
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    others = (similarity > SAME).fill_diagonal_(False) & distances.isfinite()
    largest = distances.where(others, 0).amax(dim=1, keepdim=True)
    return (OF_LARGEST * largest).where(others.any(dim=1, keepdim=True), torch.nan)
