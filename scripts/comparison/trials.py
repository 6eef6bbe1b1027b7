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
)
from PIL import Image

from scripts.comparison.candidates import Candidate
from scripts.comparison.prompts import Prompt
from scripts.demo.emoji import SIZE
from vendi_guidance.comparison.methods import Call, Method, Sample
from vendi_guidance.comparison.network import rows_counted

IN_TURN = "one prompt at a time"
INTERLEAVED = "prompts interleaved"
SAMPLERS: dict[str, Any] = {
    "ddim": DDIMScheduler,
    "euler": EulerDiscreteScheduler,
    "dpm": DPMSolverMultistepScheduler,
    "euler-ancestral": EulerAncestralDiscreteScheduler,
}

Item = TypeVar("Item")
Report = Callable[[int], Any]


class How(NamedTuple):
    """How a trial's images are drawn.

    Attributes:
        images_per_prompt: how many images of each prompt.
        protocol: `IN_TURN`, all images of a prompt, then the next prompt; or `INTERLEAVED`, one of
            each prompt, then the next of each.
        sampler: one of the generator's.
        steps: denoising steps.
        batch_size: the most images generated together.
    """

    images_per_prompt: int
    protocol: str
    sampler: str
    steps: int
    batch_size: int


@dataclass(frozen=True)
class Trial:
    """A run of one candidate over prompts, cached as a whole. Its images share a window.

    Attributes:
        candidate: the method and its settings.
        prompts: distinct ones, in their order.
        seed: image i of prompt p has the seed seed + p x images_per_prompt + i, in any protocol.
        how: the rest.
    """

    candidate: Candidate
    prompts: tuple[Prompt, ...]
    seed: int
    how: How

    @property
    def pictures(self) -> int:
        """The number of images that are kept."""
        return len(self.prompts) * self.how.images_per_prompt

    @property
    def steps(self) -> int:
        """The number of denoising steps of single images."""
        return self.pictures * self.candidate.build().steps_per_image(self.how.steps)

    def batches(self) -> list[list[Sample]]:
        """The samples in order, in batches. No batch has two prompts or, interleaved, the same
        prompt twice."""
        count, size = self.how.images_per_prompt, self.how.batch_size
        samples = [
            [Sample(prompt, self.seed + row * count + i) for i in range(count)]
            for row, prompt in enumerate(self.prompts)
        ]
        if self.how.protocol == IN_TURN:
            return [batch for of_prompt in samples for batch in parts(of_prompt, size)]
        in_order = [sample for one_of_each in zip(*samples, strict=True) for sample in one_of_each]
        return parts(in_order, min(size, len(self.prompts)))


def parts(items: Sequence[Item], size: int) -> list[list[Item]]:
    """The items in order, in chunks of `size` and a smaller last one."""
    return [list(items[start : start + size]) for start in range(0, len(items), size)]


class Drawn(NamedTuple):
    """Images, and what all took together.

    Attributes:
        images: 64 pixels wide and high.
        seconds: of time.
        evaluations: rows that passed through the network.
    """

    images: list[Image.Image]
    seconds: float
    evaluations: int


def samplers_of(pipe: Any) -> dict[str, Any]:
    """The model's own sampler first, then the other `SAMPLERS` made from it, by name."""
    own: Any = pipe.scheduler
    if "FlowMatch" in type(own).__name__:  # what others are made for is no flow
        return {type(own).__name__: own}
    others = {name: kind.from_config(own.config) for name, kind in SAMPLERS.items()}
    name = next((name for name, kind in SAMPLERS.items() if type(own) is kind), type(own).__name__)
    return {name: own} | {other: others[other] for other in others if other != name}


@dataclass(frozen=True)
class ImageGenerator:
    """Generates images.

    Attributes:
        pipe: the model.
        samplers: the model's own, and others made from it, by name.
    """

    pipe: Any
    samplers: dict[str, Any]

    def draw(
        self,
        method: Method,
        batches: Sequence[Sequence[Sample]],
        guidance_scale: float,
        how: How,
        report: Report = lambda _steps: None,
    ) -> Drawn:
        """Generate batches one after the other.

        Args:
            method: a new one, with an empty window.
            how: of which the sampler and the number of steps are used.
            report: called after each call of the pipeline with its denoising steps of single
                images.

        Returns:
            The images in the order of the samples.
        """
        self.pipe.scheduler = self.samplers[how.sampler]

        def call(samples: Sequence[Sample], steps: int | None = None) -> list[Image.Image]:
            generators = [torch.Generator().manual_seed(sample.seed) for sample in samples]
            words = [sample.prompt.words for sample in samples]
            asked = Call(self.pipe, words, generators, guidance_scale)
            steps = steps or how.steps
            with method.attached(asked) as given:
                images = self.pipe(**asked.arguments(), **given, num_inference_steps=steps).images
            report(steps * len(samples))
            return [image.convert("RGB").resize((SIZE, SIZE)) for image in images]

        begun = perf_counter()
        with rows_counted(self.pipe) as rows:
            images = [image for batch in batches for image in method.images(call, batch)]
        return Drawn(images, perf_counter() - begun, sum(rows))

    def run(self, trial: Trial, report: Report = lambda _steps: None) -> Drawn:
        """The images of a trial, in the order of its `batches`."""
        candidate = trial.candidate
        return self.draw(
            candidate.build(), trial.batches(), candidate.guidance_scale, trial.how, report
        )
