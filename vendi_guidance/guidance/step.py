"""One denoising step as a value: what guidance has to know of a sampler."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

Generator = torch.Generator | Sequence[torch.Generator] | None


class Level(NamedTuple):
    """A noise level: samples there are signal x0 + noise eps."""

    signal: float
    noise: float

    @property
    def ratio(self) -> float:
        """Noise to signal; infinite where there is no signal."""
        return self.noise / self.signal if self.signal else math.inf

    def mix(self, clean: Tensor, noise: Tensor) -> Tensor:
        """A sample at this level."""
        return self.signal * clean + self.noise * noise


class Prediction(NamedTuple):
    """The prediction of one step of a sampler.

    Attributes:
        denoised: x0 from the step's sample and model output, in the sample's shape and units,
            float32 or float64, neither clipped nor thresholded.
        signal, noise: the nominal level after the step, which returned signal x0 + noise eps;
            (1, 0) after the last step of most samplers.
    """

    denoised: Tensor
    signal: float
    noise: float


class Denoiser(Protocol):
    """The last step of a sampler, which it can predict again for other latents."""

    @property
    def levels(self) -> tuple[Level, Level]:
        """Before and after the step."""

    def at(self, ratio: float) -> Level:
        """The level of a noise-to-signal ratio in the sampler's units, or the highest that the
        network was trained at if that is less; without signal for some."""

    @property
    def evaluations_per_step(self) -> int:
        """How many times the sampler evaluates its network for each sample at a step: twice with
        CFG."""

    @property
    def spent(self) -> int:
        """How many times it has evaluated its network for each sample up to this step."""

    @property
    def ahead(self) -> Sequence[float]:
        """The noise-to-signal ratios at which the steps still to come begin."""

    @property
    def cfg_every(self) -> int:
        """Of so many steps with less than full CFG, the first predicts without the prompt too, and
        the others take over what the prompt changed there."""

    @property
    def denoised(self) -> Tensor:
        """(b, ...) the step's prediction of clean latents, without CFG."""

    @property
    def has_prompt(self) -> bool:
        """Whether the network is given token embeddings of a prompt, which can be perturbed."""

    @property
    def is_undistilled(self) -> bool:
        """Whether another network predicts for `denoise`, that the sampler's was distilled from."""

    def denoise(
        self,
        latents: Tensor,
        level: Level | None = None,
        *,
        prompt_noise: float = 0.0,
        generator: Generator = None,
    ) -> Tensor:
        """The prediction for other latents, (n b, ...), without CFG.

        Args:
            latents: n for each sample, those of all samples one after another.
            level: of the latents, which the schedule need not have; None is that before the step.
            prompt_noise: predict for a prompt nearby: see `prompt_nearby`. 0 is the prompt itself.
            generator: of that noise.

        Raises:
            ValueError: there is no prompt to perturb, or no other level can be predicted at.
        """

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        """Go on as if all steps so far had found (b, ...) these, where they are finite."""


@dataclass(frozen=True)
class Step:
    """A denoising step that the sampler has just made.

    Attributes:
        index: the step's number, from 0.
        count: how many steps the call has.
        latents: (b, ...) as the sampler left them.
        pipeline: what an `ImageSpace` decodes with.
        prompts: (b, m) embeddings, or None where prompts are not compared.
        prediction: of clean latents, made in this step, or None where it is not needed.
        network: to repeat the step with, or None where it is not needed.
        generator: of fresh noise.
        scheduled: how many steps the schedule has, where the call begins with an image and makes
            only its last ones.
    """

    index: int
    count: int
    latents: Tensor
    pipeline: Any = None
    prompts: Tensor | None = None
    prediction: Prediction | None = None
    network: Denoiser | None = None
    generator: Generator = None
    scheduled: int = 0

    @property
    def is_last(self) -> bool:
        """Whether the call's latents are finished."""
        return self.index >= self.count - 1

    def with_finite_latents(self, latents: Tensor) -> "Step":
        """The same with other latents of the samples where those are finite."""
        return replace(self, latents=where_finite(latents, self.latents))


def where_finite(new: Tensor, old: Tensor) -> Tensor:
    """(b, ...) new samples, and the old ones of those that are not finite, in the old dtype."""
    finite = new.flatten(1).isfinite().all(dim=1).view(-1, *[1] * (new.ndim - 1))
    return new.to(old.dtype).where(finite, old)
