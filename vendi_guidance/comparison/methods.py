"""The base of all methods: what is asked for, and how a method generates it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple, Protocol

import torch
from PIL import Image

from vendi_guidance.adapter.undistilled import Undistilled


class Sample(NamedTuple):
    """An image to generate, from the noise of its seed."""

    prompt: str
    seed: int


class PipelineCall(NamedTuple):
    """A call of a pipeline, without its number of steps.

    Attributes:
        pipe: of a class with one network, as `adapter.denoiser.NETWORKS` names it.
        prompts: one for each sample.
        generators: one for each sample, from which only the pipeline draws. A method's own noise
            is seeded by their `initial_seed()`, so it depends on the sample alone.
        undistilled: what the pipeline's network was distilled from: see `VendiGuidance`.
        scale_name: the pipeline's argument for the scale of CFG.
    """

    pipe: Any
    prompts: list[str]
    generators: list[torch.Generator]
    undistilled: Undistilled = None
    scale_name: str = "guidance_scale"


class Generate(Protocol):
    """Calls the pipeline with the method's arguments, and all steps if no number is given."""

    def __call__(
        self, samples: Sequence[Sample], steps: int | None = None
    ) -> list[Image.Image]: ...


@dataclass(frozen=True)
class Method:
    """A way to sample; the base is the pipeline's own, with classifier-free guidance only."""

    @contextmanager
    def attached(self, call: PipelineCall) -> Iterator[dict[str, Any]]:
        """Change what a pipeline does meanwhile; yields further keyword arguments of the call."""
        yield {}

    def images(self, generate: Generate, samples: Sequence[Sample]) -> list[Image.Image]:
        """The images of one batch, one a sample; with more than one call if the method selects."""
        return generate(samples)


def check_not_negative(name: str, value: float) -> None:
    if not 0 <= value < inf:
        raise ValueError(f"{name} must be finite and at least 0, got {value}")


def check_shares(**shares: float) -> None:
    """Raise ValueError unless these are shares, none smaller than the one before it."""
    if not all(low <= high for low, high in pairwise((0, *shares.values(), 1))):
        names, values = " <= ".join(shares), " and ".join(map(str, shares.values()))
        raise ValueError(f"0 <= {names} <= 1 must hold, got {values}")
