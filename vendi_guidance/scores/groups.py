"""Items that belong together, such as the images of one prompt."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import TypeAlias

import numpy as np
from torch import Tensor

Groups: TypeAlias = Tensor | np.ndarray | Sequence[Hashable]


def rows_by_label(labels: Groups, n: int) -> dict[Hashable, list[int]]:
    """The row numbers of each label, in order of appearance; ValueError for other than n labels."""
    values = labels.reshape(-1).tolist() if hasattr(labels, "reshape") else list(labels)
    if len(values) != n:
        raise ValueError(f"got {len(values)} labels for n = {n} items: give one for each")
    rows: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, label in enumerate(values):
        # tensors are equal to themselves only, as keys
        rows[label.item() if isinstance(label, Tensor) else label].append(row)
    return rows
