"""What a visitor asks for. Gradio checks numbers against the ranges of their fields."""

from collections import Counter
from dataclasses import dataclass

from vendi_guidance.storage.prompt_files import fault_of

MOST_PROMPTS = 8
MOST_IMAGES = 16
"""Of one prompt."""

LONGEST_PROMPT = 500
MISSING = "A number is missing: fill in every field."


@dataclass(frozen=True)
class Request:
    """Images to generate.

    Attributes:
        prompts: how often each is given, in order; each is generated once.
        images: of each prompt.
        strength: the dial.
        seed: of the first image.
        steps: of denoising.
        guidance_scale: of classifier-free guidance; None where the model has none.
        batch_size: images made at a time.

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
        """Images in all, of one kind: without guidance, or with it."""
        return len(self.prompts) * self.images

    def prompt(self, number: int) -> str:
        """That of an image."""
        return list(self.prompts)[number // self.images]


def read_prompts(text: str | None) -> Counter[str]:
    """The prompts in a text, one a line, in order, and how often each is given.

    Raises:
        ValueError: there is none, or they are too many or too long.
    """
    prompts = Counter(filter(None, map(str.strip, (text or "").splitlines())))
    if not prompts:
        raise ValueError("Write a prompt first, one a line.")
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
