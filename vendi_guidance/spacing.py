"""Some of many items, evenly spaced."""

from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


def evenly_spaced(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` of the items, in order, the first one first; `count` is at least 1.

    Example:
        >>> evenly_spaced("abcdefgh", 3), evenly_spaced("ab", 3)
        (['a', 'c', 'f'], ['a', 'b'])
    """
    step = max(1.0, len(items) / count)
    # i * len(items) // count is not always the same: published results are of what this chooses
    return [items[int(i * step)] for i in range(min(count, len(items)))]
