"""Grouping of items by label, such as the images of one prompt, and their order for samples."""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Groups: TypeAlias = Tensor | np.ndarray | Sequence[Hashable]


def rows_by_label(labels: Groups, n: int) -> dict[Hashable, list[int]]:
    """Row indices of each label, in order of appearance; ValueError if there are not n labels."""
    values = as_keys(labels.reshape(-1).tolist() if hasattr(labels, "reshape") else labels)
    if len(values) != n:
        raise ValueError(f"got {len(values)} labels for n = {n} items: give one for each")
    rows: defaultdict[Hashable, list[int]] = defaultdict(list)
    for row, label in enumerate(values):
        rows[label].append(row)
    return rows


def shuffled(n: int) -> Tensor:
    """(n,) row numbers in a random order, always the same: its first ones are a sample."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0), device="cpu")


def as_keys(labels: Iterable[Any]) -> list[Hashable]:
    """Labels with 0-d tensors replaced by their values: tensors are hashed by identity."""
    return [label.item() if isinstance(label, Tensor) else label for label in labels]
