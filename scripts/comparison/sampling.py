"""The base of all methods: each gives the arguments of a call of an SDXL pipeline."""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from diffusers import StableDiffusionXLPipeline


class Call(NamedTuple):
    """What `Method.arguments` is given."""

    pipe: StableDiffusionXLPipeline
    prompts: list[str]
    generators: list[torch.Generator]
    guidance_scale: float


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


def check_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value}")


def check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")
