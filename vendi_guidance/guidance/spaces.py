"""The spaces in which samples are compared, and the way of a gradient back to the latents.

"latent" compares the latents as the sampler left them, with their noise (Jalali et al., AISTATS
2026). "denoised" compares the predictions of clean latents, which are of the same kind as finished
samples. `ImageSpace`, in `image_space`, compares an image encoder's features of them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from vendi_guidance.guidance.step import Prediction


class View(NamedTuple):
    """What is compared, and the way back.

    Attributes:
        features: (b, ...) one for each sample in flight.
        pull_back: a gradient in the features, shaped like them, to one in the latents.
    """

    features: Tensor
    pull_back: Callable[[Tensor], Tensor]


class Space:
    """Where samples are compared. This one compares latents as the sampler left them."""

    needs_prediction = False
    """Whether `view` reads the scheduler's prediction."""

    def view(self, pipeline: Any, latents: Tensor, prediction: Prediction | None) -> View:
        """Of samples in flight: (b, ...) latents after a step that made this prediction."""
        return View(latents, lambda gradient: gradient)

    def remember(self, pipeline: Any, latents: Tensor) -> Tensor:
        """(b, ...) features of finished samples' latents."""
        return latents


class DenoisedSpace(Space):
    """Predicted clean latents x0 = (z - noise eps) / signal, with eps taken as constant."""

    needs_prediction = True

    def view(self, pipeline: Any, latents: Tensor, prediction: Prediction | None) -> View:
        if prediction is None:
            raise ValueError("the denoised space needs the scheduler's prediction, got none")
        signal = prediction.signal
        return View(prediction.denoised, lambda gradient: gradient / signal)


SPACES: dict[str, Space] = {"latent": Space(), "denoised": DenoisedSpace()}
