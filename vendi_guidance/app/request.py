"""What a visitor asks for, checked: a browser may send anything."""

from collections import Counter
from dataclasses import dataclass
from numbers import Real
from typing import Any

from vendi_guidance.storage.prompt_files import fault_of

MOST_PROMPTS = 8
MOST_IMAGES = 16
"""Of one prompt."""

LONGEST_PROMPT = 500
LARGEST_SEED = 2**31 - 1
MOST_STEPS = 100
LARGEST_SCALE = 30.0


@dataclass(frozen=True)
class Request:
    """Images to generate.

    Attributes:
        prompts: their texts, in order.
        images: of each prompt.
        strength: the dial.
        seed: of the first image.
        steps: of denoising.
        guidance_scale: of classifier-free guidance; None where the model has none.
        batch_size: images made at a time.
        repeated: the prompts that were given more than once.
    """

    prompts: tuple[str, ...]
    images: int
    strength: float
    seed: int
    steps: int
    guidance_scale: float | None
    batch_size: int
    repeated: frozenset[str] = frozenset()

    @property
    def total(self) -> int:
        """Images in all, of one kind: without guidance, or with it."""
        return len(self.prompts) * self.images


def read_request(
    prompts: Any,
    images: Any,
    strength: Any,
    seed: Any,
    steps: Any,
    guidance_scale: Any,
    batch_size: Any,
) -> Request:
    """A request from the values of a page's fields, which may be of any type.

    Args:
        prompts: a text with a prompt in each line; blank lines are skipped.
        guidance_scale: None for a model without.

    Raises:
        ValueError: a value that cannot be used; the message names it and quotes no prompt.
    """
    counts = read_prompts(prompts)
    return Request(
        tuple(counts),
        _whole("Images per prompt", images, 1, MOST_IMAGES),
        _number("The dial", strength, 0, 1),
        _whole("The seed", seed, 0, LARGEST_SEED),
        _whole("Steps", steps, 1, MOST_STEPS),
        None if guidance_scale is None else _number("The scale", guidance_scale, 0, LARGEST_SCALE),
        _whole("Images at a time", batch_size, 1, MOST_IMAGES),
        frozenset(prompt for prompt, count in counts.items() if count > 1),
    )


def read_prompts(text: Any) -> Counter[str]:
    """The prompts in a text, one a line, in order, and how often each is given.

    Raises:
        ValueError: there is none, or they are too many or too long.
    """
    if not isinstance(text, str):
        raise ValueError("Prompts must be text, one a line.")
    if len(text) > 2 * MOST_PROMPTS * LONGEST_PROMPT:
        raise ValueError(f"The prompts have {len(text)} characters: shorten them.")
    lines = [line.strip() for line in text.splitlines()]
    prompts = Counter(filter(None, lines))
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


def _number(name: str, value: Any, low: float, high: float) -> float:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}.")
    return float(value)


def _whole(name: str, value: Any, low: int, high: int) -> int:
    is_whole = isinstance(value, Real) and not isinstance(value, bool) and value == value // 1
    if not is_whole or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}.")
    return int(value)
