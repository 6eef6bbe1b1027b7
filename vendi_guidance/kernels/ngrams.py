"""How alike two texts are: the n-grams of words that they share."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.custom import OfThings, row_numbers
from vendi_guidance.kernels.standard import Blocks, Kernel

STRIP = 512
"""So many rows of counts are multiplied at a time."""


def words(text: str) -> list[str]:
    """The words of a text in lower case, and each mark that is no letter, digit or space."""
    return re.findall(r"\w+|[^\w\s]", text.lower())


@dataclass(frozen=True)
class NGram(OfThings):
    """Cosine of the counts of n-grams in two texts, averaged over n, in [0, 1].

    The similarity of texts in Friedman & Dieng (2023), section 5. A text of fewer than n words is
    its own only n-gram: like its copies, and like nothing else. K is computed, in single precision,
    from sparse counts, and those are all that is held. Needs scikit-learn.

    Args:
        n: numbers of words in an n-gram, each >= 1.
        tokenizer: cuts a text into words, or whatever n-grams are to be made of: `list` into
            letters.

    Raises:
        ValueError: no n, or one below 1; on use, items that are no texts, or have no word.
        ImportError: on use, scikit-learn is missing.
    """

    n: Sequence[int] = (1, 2, 3, 4)
    tokenizer: Callable[[str], Sequence[str]] = field(default=words, repr=False)

    def __post_init__(self) -> None:
        lengths = () if isinstance(self.n, Integral) else tuple(self.n)
        if not lengths or not all(isinstance(n, Integral) and n >= 1 for n in lengths):
            raise ValueError(f"n must be whole numbers of at least 1, like (1, 2), got {self.n}")
        object.__setattr__(self, "n", lengths)

    def bind(self, items: Any) -> tuple[Tensor, Kernel]:
        """(n, 1) row numbers of n texts, which are counted here."""
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
    """`NGram` of texts at hand; items are their row numbers.

    Args:
        of: the kernel that counted.
        units: sparse (texts, n-grams) counts, scaled so that their inner products are K.
    """

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
    """Sparse (texts, n-grams): for each n counts of length 1, and shared out among the n."""
    try:
        from scipy import sparse
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.preprocessing import normalize
    except ImportError:
        raise ImportError(
            "NGram counts with scikit-learn: pip install 'vendi-guidance[metrics]'"
        ) from None
    counters = [CountVectorizer(analyzer=partial(_ngrams, n), dtype=np.float64) for n in lengths]
    counts = [normalize(counter.fit_transform(texts)) for counter in counters]
    return sparse.hstack(counts, format="csr") / len(lengths) ** 0.5


def _ngrams(n: int, text: Sequence[str]) -> Iterable[Sequence[str]]:
    return zip(*(text[i:] for i in range(n)), strict=False) if len(text) >= n else [text]
