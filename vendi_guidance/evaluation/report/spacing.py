"""Evenly spaced selection."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def evenly_spaced(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` evenly spaced items, in order and including the first; `count` >= 1.

    Example:
        >>> evenly_spaced("abcdefgh", 3), evenly_spaced("ab", 3), evenly_spaced(range(30), 22)[11]
        (['a', 'c', 'f'], ['a', 'b'], 14)
    """
    step = max(1.0, len(items) / count)
    # not i * len(items) // count, which rounds differently: published results use this choice
    return [items[int(i * step)] for i in range(min(count, len(items)))]
