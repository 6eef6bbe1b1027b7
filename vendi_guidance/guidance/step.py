"""One denoising step as a value."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.guidance.network import Network
from vendi_guidance.guidance.prediction import Prediction

Generator = torch.Generator | Sequence[torch.Generator] | None


@dataclass(frozen=True)
class Step:
    """A denoising step that the sampler has just made.

    Attributes:
        pipeline: the one called.
        index: the step's number, from 0.
        latents: (b, ...) as the sampler left them.
        prompts: (b, m) embeddings, or None where prompts are not compared.
        prediction: of clean latents, made in this step, or None where it is not needed.
        network: to repeat the step with, or None where it is not needed.
        generator: of fresh noise.
    """

    pipeline: Any
    index: int
    latents: Tensor
    prompts: Tensor | None = None
    prediction: Prediction | None = None
    network: Network | None = None
    generator: Generator = None

    @property
    def count(self) -> int:
        """How many steps the call has."""
        count = getattr(self.pipeline, "num_timesteps", None)
        return len(self.pipeline.scheduler.timesteps) if count is None else count

    @property
    def is_last(self) -> bool:
        """Whether the call's latents are finished."""
        return self.index >= self.count - 1

    def with_latents(self, latents: Tensor) -> "Step":
        """The same step with other latents."""
        return replace(self, latents=latents)
