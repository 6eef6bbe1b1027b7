"""The base of all methods: what is asked for, and how a method draws it with an SDXL pipeline."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from diffusers import StableDiffusionXLPipeline
from PIL import Image

from vendi_guidance.features.probe import Asked


class Prompt(NamedTuple):
    """What is asked for.

    Attributes:
        words: the prompt.
        look: the concept, and what else the prompt names, None where it leaves a value open.
    """

    words: str
    look: Asked

    @property
    def concept(self) -> str:
        """What is to be shown, in any look."""
        return str(self.look[0])

    @property
    def is_open(self) -> bool:
        """Whether the look is left open."""
        return not any(self.look[1:])


class Sample(NamedTuple):
    """An image to generate, and the seed of its noise."""

    prompt: Prompt
    seed: int


class Call(NamedTuple):
    """What `Method.arguments` is given."""

    pipe: StableDiffusionXLPipeline
    prompts: list[str]
    generators: list[torch.Generator]
    guidance_scale: float


class Draw(Protocol):
    """Calls the pipeline with the method's arguments, and all steps if no number is given."""

    def __call__(
        self, samples: Sequence[Sample], steps: int | None = None
    ) -> list[Image.Image]: ...


class Method(ABC):
    """A way to sample."""

    def arguments(
        self,
        pipe: StableDiffusionXLPipeline,
        prompts: list[str],
        generators: list[torch.Generator],
        guidance_scale: float,
    ) -> dict[str, Any]:
        """The keyword arguments of a call, all but the number of steps.

        Args:
            pipe: what will be called.
            prompts: one for each sample.
            generators: one for each sample, from which only the pipeline draws. The method's own
                noise is seeded by their `initial_seed()`, so it depends on the sample alone.
            guidance_scale: of classifier-free guidance.

        Raises:
            ValueError: prompts and generators differ in number.
        """
        if len(prompts) != len(generators):
            raise ValueError(
                "every prompt takes a generator of its own, "
                f"got {len(prompts)} prompts and {len(generators)} generators"
            )
        plain = {"prompt": prompts, "generator": generators, "guidance_scale": guidance_scale}
        return plain | self.changes(Call(pipe, prompts, generators, guidance_scale))

    @abstractmethod
    def changes(self, call: Call) -> dict[str, Any]:
        """The keyword arguments that replace or extend those of a plain call."""

    def images(self, draw: Draw, samples: Sequence[Sample]) -> list[Image.Image]:
        """The images of one batch, one a sample; with more than one call if the method selects."""
        return draw(samples)

    def steps_per_image(self, steps: int) -> int:
        """How many denoising steps an image takes, with those of images that are not kept."""
        return steps


def check_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value}")


def check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")
