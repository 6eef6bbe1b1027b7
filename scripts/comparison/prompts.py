"""The prompts: concepts whose look is left open, and prompts that name an attribute of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from scripts.demo.world import World
from vendi_guidance.features.probe import Asked, Look, Probe
from vendi_guidance.spacing import evenly_spaced


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


@dataclass(frozen=True)
class Prompts:
    """The prompts of one kind of trial.

    Attributes:
        open: prompts that leave the look open.
        named: prompts that name an attribute; in turn they come after all open ones.
    """

    open: tuple[Prompt, ...]
    named: tuple[Prompt, ...] = ()

    @property
    def all(self) -> tuple[Prompt, ...]:
        return (*self.open, *self.named)


def select(
    probe: Probe, world: World, concepts: Sequence[str], open_count: int, named_count: int
) -> Prompts:
    """Evenly spaced concepts, left open and named; all where there are fewer."""
    return Prompts(
        tuple(prompt(probe, concept) for concept in evenly_spaced(concepts, open_count)),
        tuple(named_prompts(probe, world, evenly_spaced(concepts, named_count))),
    )


def prompt(probe: Probe, concept: str, **named: str) -> Prompt:
    """A prompt for a concept that names some attributes."""
    look = (concept, *(named.get(attribute) for attribute in probe.attributes))
    return Prompt(probe.words(look), look)


def named_prompts(probe: Probe, world: World, concepts: Sequence[str]) -> list[Prompt]:
    """A prompt of each concept that names some attributes, as `world.naming` says by row.

    Of prompts that name the same attributes, each takes the next value of each, so that all values
    occur nearly equally often, and combinations differ as long as they can. Combinations that no
    look of the concept has are left out.
    """
    found, counts = [], dict.fromkeys(world.naming, 0)
    for row, concept in enumerate(concepts):
        names = world.naming[row % len(world.naming)]
        possible = [_part(probe, look, names) for look in world.looks([concept])]
        while (values := _values(probe, names, counts[names])) not in possible:
            counts[names] += 1
        counts[names] += 1
        found.append(prompt(probe, concept, **values))
    return found


def _values(probe: Probe, names: Sequence[str], turn: int) -> dict[str, str]:
    """The turn-th combination of values; the first attribute's change fastest, the others' with it
    and once more for each of its rounds."""
    values, shift = {}, 0
    for name in names:
        of = probe.attributes[name]
        values[name] = of[(turn + shift) % len(of)]
        shift += turn // len(of)
    return values


def _part(probe: Probe, look: Look, names: Sequence[str]) -> dict[str, str]:
    """What a look has of some attributes."""
    values = dict(zip(probe.attributes, look[1:], strict=True))
    return {name: values[name] for name in names}


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
