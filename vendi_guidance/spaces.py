"""Where samples are compared: what guidance looks at, and how its gradient gets back to latents.

"latent" takes the latents as the sampler left them, noise and all (Jalali et al., AISTATS 2026).
"denoised" takes the scheduler's prediction of clean latents, so that samples in flight are compared
with finished ones of their own kind. An `ImageSpace` takes an image encoder's features of that
prediction, decoded.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from torch import Tensor

from vendi_guidance.denoised import Prediction

PullBack = Callable[[Tensor], Tensor]


class View(NamedTuple):
    """What is compared, and the way back.

    Attributes:
        features: (b, ...) one for each sample in flight.
        pull_back: a gradient in the features, shaped like them, to one in the latents.
    """

    features: Tensor
    pull_back: PullBack


class Space(Protocol):
    """Where samples are compared."""

    @property
    def needs_prediction(self) -> bool:
        """Whether `view` reads the scheduler's prediction."""
        ...

    def view(self, pipeline: Any, latents: Tensor, prediction: Prediction | None) -> View:
        """Of samples in flight: (b, ...) latents after a step that made this prediction."""
        ...

    def remember(self, pipeline: Any, latents: Tensor) -> Tensor:
        """(b, ...) features of finished samples' latents."""
        ...


class LatentSpace:
    """Latents as the sampler left them."""

    needs_prediction = False

    def view(self, pipeline: Any, latents: Tensor, prediction: Prediction | None) -> View:
        return View(latents, lambda gradient: gradient)

    def remember(self, pipeline: Any, latents: Tensor) -> Tensor:
        return latents


class DenoisedSpace:
    """Predicted clean latents x0 = (z - noise eps) / signal, the noise eps taken as it is."""

    needs_prediction = True

    def view(self, pipeline: Any, latents: Tensor, prediction: Prediction | None) -> View:
        if prediction is None:
            raise ValueError("the denoised space needs the scheduler's prediction, got none")
        signal = prediction.signal
        return View(prediction.denoised, lambda gradient: gradient / signal)

    def remember(self, pipeline: Any, latents: Tensor) -> Tensor:
        return latents


SPACES: dict[str, Space] = {"latent": LatentSpace(), "denoised": DenoisedSpace()}
