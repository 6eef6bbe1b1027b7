"""The base class of all methods, and the samples and pipeline calls it works on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple, Protocol

import torch
from PIL.Image import Image

from vendi_guidance.adapter.undistilled import Undistilled


class Sample(NamedTuple):
    """An image to generate; the seed determines its initial noise."""

    prompt: str
    seed: int


class PipelineCall(NamedTuple):
    """A pipeline call of any number of steps.

    Attributes:
        pipe: a pipeline with exactly one network, under a name in `adapter.denoiser.NETWORKS`.
        prompts: one per sample.
        generators: one per sample, used by the pipeline only. Methods seed their own noise with
            `initial_seed()`, so that it depends on the sample alone.
        undistilled: the network that the pipeline's was distilled from; see `VendiGuidance`.
        scale_name: the pipeline's argument for the CFG scale.
    """

    pipe: Any
    prompts: list[str]
    generators: list[torch.Generator]
    undistilled: Undistilled = None
    scale_name: str = "guidance_scale"


class Generate(Protocol):
    """Calls the pipeline with the method's arguments, by default with all steps."""

    def __call__(self, samples: Sequence[Sample], steps: int | None = None) -> list[Image]: ...


@dataclass(frozen=True)
class Method:
    """A sampling method. The base class is the stock pipeline, with classifier-free guidance."""

    @contextmanager
    def attached(self, call: PipelineCall) -> Iterator[dict[str, Any]]:
        """Context in which the method changes the pipeline; yields extra arguments of the call."""
        yield {}

    def images(self, generate: Generate, samples: Sequence[Sample]) -> list[Image]:
        """Generate one image per sample; methods that select call `generate` more than once."""
        return generate(samples)


def check_not_negative(name: str, value: float) -> None:
    if not 0 <= value < inf:
        raise ValueError(f"{name} must be finite and at least 0, got {value}")


def check_shares(**shares: float) -> None:
    """Raise ValueError unless the values are in [0, 1] and in ascending order."""
    if not all(low <= high for low, high in pairwise((0, *shares.values(), 1))):
        names, values = " <= ".join(shares), " and ".join(map(str, shares.values()))
        raise ValueError(f"0 <= {names} <= 1 must hold, got {values}")
