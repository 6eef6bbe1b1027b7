"""What moves a sample: the direction in which the score rises, and the step along it."""

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import as_rows, unit_rows
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.window import SlidingWindow


def gradient(step: Step, score: Score) -> Tensor:
    """(b, D) unit rows: the gradient of the score in the flattened latents.

    Args:
        step: with a prediction, unless the space needs none.
        score: of these samples and those that they are moved away from.

    Raises:
        ValueError: samples that do not fit the memory's.
    """
    view = score.space.view(step.pipeline, step.latents, step.prediction)
    window = score.window_of(view.features)
    window.check(view.features, step.prompts)  # where they will enter
    found = score.objective.gradient(view.features, step.prompts, window).gradient
    if score.exemplars is not None:
        found = found - score.beta * _against(score.exemplars, view.features, score)
    return unit_rows(as_rows(view.pull_back(found)).to(step.latents.device))


def move(latents: Tensor, direction: Tensor, length: Tensor | float, score: Score) -> Tensor:
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
    score.count_skipped(finite)
    return moved.where(finite, z).view_as(latents).to(latents.dtype)


def _against(exemplars: SlidingWindow, features: Tensor, score: Score) -> Tensor:
    """The gradient of the score against the exemplars, whatever the prompts."""
    if exemplars.latent_shape != features.shape[1:]:
        raise ValueError(
            f"exemplars of shape {exemplars.latent_shape} cannot be compared with "
            f"{tuple(features.shape[1:])}: make them by exemplar_features with this pipeline, "
            "space and image size"
        )
    return score.objective.of_latents_alone().gradient(features, None, exemplars).gradient
