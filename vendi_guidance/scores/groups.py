"""Items that belong together, such as the images of one prompt."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from torch import Tensor

Groups: TypeAlias = Tensor | np.ndarray | Sequence[Hashable]


def rows_by_label(labels: Groups, n: int) -> dict[Hashable, list[int]]:
    """The row numbers of each label, in order of appearance; ValueError for other than n labels."""
    values = as_keys(labels.reshape(-1).tolist() if hasattr(labels, "reshape") else labels)
    if len(values) != n:
        raise ValueError(f"got {len(values)} labels for n = {n} items: give one for each")
    rows: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, label in enumerate(values):
        rows[label].append(row)
    return rows


def as_keys(labels: Iterable[Any]) -> list[Hashable]:
    """Labels that are equal where their values are: tensors, as keys, equal themselves only."""
    return [label.item() if isinstance(label, Tensor) else label for label in labels]
