"""Trials: which images in which order, and the generator that makes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import torch
from diffusers import (
    DDIMScheduler,
    DPMSolverMultistepScheduler,
    EulerAncestralDiscreteScheduler,
    EulerDiscreteScheduler,
    StableDiffusionXLPipeline,
)
from PIL import Image

from scripts.comparison.candidates import Candidate
from scripts.comparison.sampling import Method
from scripts.demo.emoji import SIZE, TONES, caption

IN_TURN = "one prompt at a time"
INTERLEAVED = "prompts interleaved with the same that name a tone"
VARIATIONS = (None, *TONES)
SAMPLERS: dict[str, Any] = {
    "euler": EulerDiscreteScheduler,
    "euler-ancestral": EulerAncestralDiscreteScheduler,
    "ddim": DDIMScheduler,
    "dpm": DPMSolverMultistepScheduler,
}
"""Available as the second sampler."""

Item = TypeVar("Item")


class Sample(NamedTuple):
    """An image to generate.

    Attributes:
        prompt: the concept.
        seed: of its noise.
        tone: also named by the prompt, or None.
    """

    prompt: str
    seed: int
    tone: str | None = None

    @property
    def words(self) -> str:
        return caption(self.prompt, tone=self.tone)


@dataclass(frozen=True)
class Trial:
    """A run of one candidate over prompts, cached as a whole.

    Attributes:
        candidate: the method and its settings.
        prompts: distinct ones.
        images_per_prompt: how many images of each.
        seed: image i of prompt p has the seed seed + p x images_per_prompt + i, in any protocol;
            prompts that name a tone come after all that do not.
        protocol: `IN_TURN`, all images of a prompt, then the next prompt; or `INTERLEAVED`, one
            of each prompt, then one of each that also names the first tone, and so on, and then
            the next of each; images of different prompts are then similar.
        sampler: one of the generator's.
    """

    candidate: Candidate
    prompts: tuple[str, ...]
    images_per_prompt: int
    seed: int
    protocol: str
    sampler: str

    @property
    def pictures(self) -> int:
        return sum(map(len, self.batches(1)))

    def batches(self, size: int) -> list[list[Sample]]:
        """The samples in order, in batches of at most `size`. No batch has two prompts or,
        interleaved, the same words twice."""
        words = [(prompt, tone) for tone in VARIATIONS for prompt in self.prompts]
        if self.protocol == IN_TURN:
            words = words[: len(self.prompts)]
        samples = [
            [
                Sample(prompt, self.seed + row * self.images_per_prompt + i, tone)
                for i in range(self.images_per_prompt)
            ]
            for row, (prompt, tone) in enumerate(words)
        ]
        if self.protocol == IN_TURN:
            return [batch for of_prompt in samples for batch in parts(of_prompt, size)]
        in_order = [sample for one_of_each in zip(*samples, strict=True) for sample in one_of_each]
        return parts(in_order, min(size, len(words)))


def parts(items: Sequence[Item], size: int) -> list[list[Item]]:
    """The items in order, in chunks of `size` and a smaller last one."""
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


class Drawn(NamedTuple):
    """Images, and the seconds that all took together."""

    images: list[Image.Image]
    seconds: float


def samplers_of(pipe: StableDiffusionXLPipeline, second: str | None) -> dict[str, Any]:
    """The model's own sampler and another, by the names of their classes.

    Args:
        second: one of `SAMPLERS`; None is Euler, or DDIM where the model has Euler.

    Raises:
        ValueError: the second is the model's own.
    """
    own: Any = pipe.scheduler
    if second is None:
        second = "ddim" if isinstance(own, EulerDiscreteScheduler) else "euler"
    other = SAMPLERS[second].from_config(own.config)
    if type(other) is type(own):
        raise ValueError(
            f"the model's own sampler is {type(own).__name__}: name another second one"
        )
    return {type(one).__name__: one for one in (own, other)}


@dataclass(frozen=True)
class ImageGenerator:
    """Generates images.

    Attributes:
        pipe: the model.
        steps: denoising steps.
        batch_size: images generated together.
        samplers: the model's own, and others made from it, by the names of their classes.
    """

    pipe: StableDiffusionXLPipeline
    steps: int
    batch_size: int
    samplers: dict[str, Any]

    def draw(
        self,
        method: Method,
        batches: Sequence[Sequence[Sample]],
        guidance_scale: float,
        sampler: str,
        drawn: Callable[[int], Any] = lambda _count: None,
    ) -> Drawn:
        """Generate batches one after the other.

        Args:
            method: a new one, with an empty window.
            drawn: called with the number of images after each batch.

        Returns:
            The images in the order of the samples, 64 pixels wide and high.
        """
        self.pipe.scheduler = self.samplers[sampler]
        images: list[Image.Image] = []
        begun = perf_counter()
        for batch in batches:
            generators = [torch.Generator().manual_seed(sample.seed) for sample in batch]
            prompts = [sample.words for sample in batch]
            given = method.arguments(self.pipe, prompts, generators, guidance_scale)
            images += self.pipe(**given, num_inference_steps=self.steps).images
            drawn(len(batch))
        seconds = perf_counter() - begun
        return Drawn([image.convert("RGB").resize((SIZE, SIZE)) for image in images], seconds)

    def run(self, trial: Trial, drawn: Callable[[int], Any] = lambda _count: None) -> Drawn:
        """The images of a trial, in the order of its `batches`."""
        candidate = trial.candidate
        return self.draw(
            candidate.build(),
            trial.batches(self.batch_size),
            candidate.guidance_scale,
            trial.sampler,
            drawn,
        )
