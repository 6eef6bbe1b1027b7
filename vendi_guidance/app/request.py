"""A visitor's request. Gradio checks that numbers lie in the ranges of their fields."""

from collections import Counter
from dataclasses import dataclass

from vendi_guidance.storage.prompt_files import fault_of

MOST_PROMPTS = 8
MOST_IMAGES = 16  # for each prompt
LONGEST_PROMPT = 500
MISSING = "A number is missing: fill in every field."


@dataclass(frozen=True)
class Request:
    """Images to generate.

    Attributes:
        prompts: how often each prompt is given, in order; each is generated once.
        images: number of images for each prompt.
        strength: strength of guidance, the dial.
        seed: seed of the first image.
        steps: number of denoising steps.
        guidance_scale: scale of classifier-free guidance; None if the model has none.
        batch_size: number of images generated at a time.

    Raises:
        ValueError: a number is missing.
    """

    prompts: Counter[str]
    images: int
    strength: float
    seed: int
    steps: int
    guidance_scale: float | None
    batch_size: int

    def __post_init__(self) -> None:
        if None in (self.images, self.strength, self.seed, self.steps, self.batch_size):
            raise ValueError(MISSING)

    @property
    def total(self) -> int:
        """Number of images in each arm."""
        return len(self.prompts) * self.images

    def prompt(self, number: int) -> str:
        """The prompt of an image."""
        return list(self.prompts)[number // self.images]


def read_prompts(text: str | None) -> Counter[str]:
    """The prompts in a text, one per line, in order, and how often each is given.

    Raises:
        ValueError: there are no prompts, too many, or one that is too long or invalid.
    """
    prompts = Counter(filter(None, map(str.strip, (text or "").splitlines())))
    if not prompts:
        raise ValueError("Write a prompt first, one per line.")
    if len(prompts) > MOST_PROMPTS:
        raise ValueError(f"At most {MOST_PROMPTS} prompts at a time, got {len(prompts)}.")
    for number, prompt in enumerate(prompts, 1):
        if len(prompt) > LONGEST_PROMPT:
            raise ValueError(
                f"Prompt {number} has {len(prompt)} characters: shorten it to {LONGEST_PROMPT}."
            )
        if fault := fault_of(prompt):
            raise ValueError(f"Prompt {number} {fault}.")
    return prompts
