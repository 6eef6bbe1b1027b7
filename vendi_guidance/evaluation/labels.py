"""Scores by labels of what images show."""

from collections.abc import Hashable, Sequence

from vendi_guidance.features.base import Labels


def prompt_fidelity(labels: Labels) -> float | None:
    """The share of images that show what was asked for, in [0, 1].

    Images whose prompt asks for no known label are left out; None if there are no others.
    """
    pairs = zip(labels.asked, labels.shown, strict=True)
    correct = [asked == shown for asked, shown in pairs if asked is not None]
    return sum(correct) / len(correct) if correct else None


def looks_by_group(groups: Sequence[Hashable], labels: Labels) -> dict[Hashable, int]:
    """How many distinct correct variants each group of images has.

    Args:
        groups: n labels of groups, such as prompts.
        labels: of the n images; those whose prompt asks for no known label are left out.
    """
    looks: dict[Hashable, set[Hashable]] = {}
    for group, asked, shown, variant in zip(groups, *labels, strict=True):
        if asked is not None:
            found = looks.setdefault(group, set())
            if shown == asked:
                found.add(variant)
    return {group: len(found) for group, found in looks.items()}
