"""The prompts: concepts whose look is left open, and prompts that name an attribute of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from scripts.comparison.sampling import Prompt
from scripts.demo.emoji import TONES, VENDORS

Item = TypeVar("Item")

NAMES = ("tone", "vendor", "both", "tone", "both", "vendor", "tone", "both")
"""What the named prompts of eight concepts in a row name."""


@dataclass(frozen=True)
class Prompts:
    """The prompts of one kind of trial.

    Attributes:
        open: concepts whose look is left open.
        named: prompts that name an attribute; in turn they come after all open ones.
    """

    open: tuple[str, ...]
    named: tuple[Prompt, ...] = ()

    @property
    def all(self) -> tuple[Prompt, ...]:
        return (*(Prompt(concept) for concept in self.open), *self.named)


def select(concepts: Sequence[str], open_count: int, named_count: int) -> Prompts:
    """Evenly spaced concepts, left open and named; all where there are fewer."""
    return Prompts(
        tuple(spread(concepts, open_count)), tuple(named_prompts(spread(concepts, named_count)))
    )


def named_prompts(concepts: Sequence[str]) -> list[Prompt]:
    """A prompt of each concept that names its tone, its vendor or both, as `NAMES` says by row.

    Of prompts that name the same, each takes the next tone and vendor, so that all values occur
    nearly equally often, and 18 prompts that name both differ in their looks.
    """
    found, counts = [], dict.fromkeys(NAMES, 0)
    for row, concept in enumerate(concepts):
        names = NAMES[row % len(NAMES)]
        turn = counts[names]
        counts[names] += 1
        tone = TONES[turn % len(TONES)] if names != "vendor" else None
        shift = turn // len(TONES) if names == "both" else 0
        vendor = VENDORS[(turn + shift) % len(VENDORS)] if names != "tone" else None
        found.append(Prompt(concept, vendor, tone))
    return found


def split_prompts(file: Path, concepts: Sequence[str]) -> tuple[list[str], list[str]]:
    """The concepts for tuning, and those of the file, which are reported on.

    Args:
        file: one concept a line.
        concepts: all that the probe knows.

    Raises:
        ValueError: a line is no such concept or occurs twice, or none is left for tuning.
        FileNotFoundError: there is no such file.
    """
    lines = file.read_text(encoding="utf-8").splitlines()
    reported = [line.strip() for line in lines if line.strip()]
    for prompt in reported:
        if prompt not in concepts:
            raise ValueError(f"the probe knows no {prompt!r}, which {file} asks for")
        if reported.count(prompt) > 1:
            raise ValueError(f"{file} asks for {prompt!r} more than once")
    tuning = [concept for concept in concepts if concept not in reported]
    if not tuning or not reported:
        raise ValueError(
            f"{file} asks for {len(reported)} of the {len(concepts)} concepts that the probe "
            "knows: some have to be asked for, and some to be left for tuning"
        )
    return tuning, reported


def spread(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` of the items, evenly spaced."""
    step = max(1.0, len(items) / count)
    return [items[int(i * step)] for i in range(min(count, len(items)))]
