"""The spaces in which samples are compared, and how gradients return from there to the latents."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from vendi_guidance.guidance.step import Prediction


class View(NamedTuple):
    """(b, ...) features of samples in flight, and the map from gradients there to the latents."""

    features: Tensor
    pull_back: Callable[[Tensor], Tensor] | None  # None where both have the same direction


class Space:
    """A space in which samples are compared; this one compares the noisy latents, as in Jalali et
    al. (AISTATS 2026)."""

    needs_prediction = False
    """Whether `view` needs the step's prediction of clean latents."""

    def view(self, pipeline: Any, latents: Tensor, prediction: Prediction | None) -> View:
        """The samples in flight, from (b, ...) latents after a step and the step's prediction."""
        return View(latents, None)

    def remember(self, pipeline: Any, latents: Tensor) -> Tensor:
        """(b, ...) features of finished samples, from their latents."""
        return latents


class DenoisedSpace(Space):
    """Compares predicted clean latents x0 = (z - noise eps) / signal; eps counts as constant."""

    needs_prediction = True

    def view(self, pipeline: Any, latents: Tensor, prediction: Prediction | None) -> View:
        if prediction is None:
            raise ValueError("the denoised space needs the scheduler's prediction, got none")
        return View(prediction.denoised, None)


SPACES: dict[str, Space] = {"latent": Space(), "denoised": DenoisedSpace()}
