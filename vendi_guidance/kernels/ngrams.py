"""The similarity of two texts: the n-grams of words that they share."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.checks import check_count, missing
from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.custom import ItemKernel, row_numbers
from vendi_guidance.kernels.tiles import Blocks

STRIP = 512
"""Rows of counts that are multiplied at a time."""


def words(text: str) -> list[str]:
    """The words of a text in lower case, and each other character but spaces."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


@dataclass(unsafe_hash=True)
class NGram(ItemKernel):
    """Cosine of the counts of n-grams in two texts, averaged over n, in [0, 1].

    The similarity of texts in Friedman & Dieng (2023), section 5. A text of fewer than n words is
    its own only n-gram: similar to its copies, and to nothing else. Only sparse counts are stored;
    K is computed from them in single precision. Needs scikit-learn.

    Args:
        n: numbers of words in an n-gram, each >= 1.
        tokenizer: splits a text into words, or any other units: `list` into letters.

    Raises:
        ValueError: no n, or one below 1; on use, items that are not texts, or have no word.
        ImportError: on use, scikit-learn is missing.

    Example:
        >>> from vendi_guidance import NGram, vendi
        >>> captions = ["a cat sat", "a cat sat", "two birds fly"]
        >>> round(float(vendi(captions, NGram())), 3)
        1.89
    """

    n: Sequence[int] = (1, 2, 3, 4)
    tokenizer: Callable[[str], Sequence[str]] = field(default=words, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.n, Integral) or not len(self.n):
            raise ValueError(f"n must be whole numbers of at least 1, like (1, 2), got {self.n}")
        for length in self.n:
            check_count("n", length)
        self.n = tuple(self.n)

    def bind(self, items: Any) -> tuple[Tensor, Kernel]:
        """(n, 1) row numbers of n texts, whose n-grams are counted here."""
        if isinstance(items, str):
            raise ValueError(f"items must be a list of texts, got one text, {items!r}")
        texts = []
        for row, text in enumerate(items):
            if not isinstance(text, str):
                raise ValueError(f"items must be texts, got {type(text).__name__} in row {row}")
            texts.append(tuple(self.tokenizer(text)))
            if not texts[-1]:
                raise ValueError(f"row {row} is {text!r}, which has no word: leave it out")
        if not texts:
            raise ValueError("there are no texts: give at least one")
        return _Counts(self, _unit_counts(texts, self.n)).bind(range(len(texts)))


@dataclass(frozen=True, eq=False)
class _Counts(Kernel):
    """`NGram` of counted texts; items are their row numbers, and K the inner products of their
    sparse (texts, n-grams) `units`."""

    of: NGram
    units: Any = field(repr=False)

    def bind(self, items: Any) -> tuple[Tensor, Kernel]:
        return row_numbers(items, self.units.shape[0])[:, None].float(), self

    def blocks(self, x: Tensor) -> Blocks:
        units = self.units[row_numbers(x, self.units.shape[0]).numpy()]

        def block(rows: slice, columns: slice) -> Tensor:
            left, right = units[rows], units[columns].T.tocsr()
            values = x.new_empty(left.shape[0], right.shape[1])
            for start in range(0, len(values), STRIP):
                strip = slice(start, start + STRIP)
                values[strip] = torch.from_numpy((left[strip] @ right).toarray())
            return values

        return block


def _unit_counts(texts: Sequence[Sequence[str]], lengths: Sequence[int]) -> Any:
    """Sparse (texts, n-grams): each n's counts at length 1, then all at length 1."""
    try:
        from scipy import sparse
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.preprocessing import normalize
    except ImportError:
        raise missing("NGram", "scikit-learn", "metrics") from None
    counters = [CountVectorizer(analyzer=partial(_ngrams, n), dtype=np.float64) for n in lengths]
    counts = [normalize(counter.fit_transform(texts)) for counter in counters]
    return sparse.hstack(counts, format="csr") / len(lengths) ** 0.5


def _ngrams(n: int, text: Sequence[str]) -> Iterable[Sequence[str]]:
    return zip(*(text[i:] for i in range(n)), strict=False) if len(text) >= n else [text]
