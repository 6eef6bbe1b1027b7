"""The score that one call raises: built once, from its settings, its prompts and the memory."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vendi_guidance.guidance.objectives import Objective
from vendi_guidance.guidance.samples import as_rows
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
    """An objective, the space in which it compares samples, and what it compares them with.

    Attributes:
        window_of: the remembered samples of the shape of (b, ...) features.
        exemplars: samples that count against, or None.
        beta: their weight.
        count_skipped: told (b,) False for samples that a move would have broken.
    """

    objective: Objective
    space: Space
    window_of: Callable[[Tensor], SlidingWindow]
    exemplars: SlidingWindow | None
    beta: float
    count_skipped: Callable[[Tensor], None]

    def choose(self, step: Step, noisy: Tensor, clean: Tensor) -> tuple[Tensor, Tensor]:
        """Of (c, b, ...) candidates and their predictions, (b, ...) that differ most."""
        if len(noisy) == 1:
            return noisy[0], clean[0]
        features = torch.stack([self.space.remember(step.pipeline, one) for one in clean])
        window = self.window_of(features[0])
        taken = self.objective.choose(features, step.prompts, window)
        rows = torch.arange(len(taken), device=taken.device)
        return noisy[taken, rows], clean[taken, rows]

    def spread(self, step: Step, clean: Tensor) -> Tensor:
        """(b, 1) how far each prediction is from the others for the same prompt, NaN where there
        are none."""
        return spread(clean, self.objective.similarity(step.prompts, clean))


def spread(clean: Tensor, similarity: Tensor) -> Tensor:
    """The same for (b, b) similarities of prompts."""
    rows = as_rows(clean)
    # from differences: inner products leave rounding of the distance between copies
    distances = torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")
    others = (similarity > SAME).fill_diagonal_(False) & distances.isfinite()
    largest = distances.where(others, 0).amax(dim=1, keepdim=True)
    return (OF_LARGEST * largest).where(others.any(dim=1, keepdim=True), torch.nan)
