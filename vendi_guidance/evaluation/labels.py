"""Labels of a batch's images, and the scores that read them."""

from collections.abc import Hashable, Sequence
from itertools import chain, islice
from typing import Any

from torch import Tensor

from vendi_guidance.checks import counted
from vendi_guidance.evaluation.batches import Pictures
from vendi_guidance.features.base import Labeler, Labels


def label_images(
    labels: Labeler, images: Pictures, prompts: Sequence[str], x: Tensor, embedder: dict[str, Any]
) -> Labels:
    """The labels of n images and their prompts.

    A labeler with the attributes `sha256` and `from_features` (see `ProbeLabeler`) reads them off
    the features x: (n, d) of the images, where its own network is the embedder that gave these.

    Raises:
        ValueError: the labeler did not return n labels.
    """
    sha256 = embedder.get("settings", {}).get("sha256")
    if sha256 is not None and sha256 == getattr(labels, "sha256", None):
        return check_labels(labels.from_features(x, prompts), len(images))  # type: ignore[attr-defined]
    rest = iter(prompts)
    chunks = [
        check_labels(labels(some, list(islice(rest, len(some)))), len(some))
        for some in images.chunks()
    ]
    return Labels._make(list(chain(*columns)) for columns in zip(*chunks, strict=True))


def check_labels(labels: Labels, n: int) -> Labels:
    """The labels; raises ValueError unless there are n of each kind."""
    for name, column in zip(labels._fields, labels, strict=True):
        if len(column) != n:
            both = f"{counted(n, 'image')} and {counted(len(column), f'{name} label')}"
            raise ValueError(f"got {both}: give one for each")
    return labels


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
