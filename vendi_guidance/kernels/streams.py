"""Streams of features: chunks of rows, so that not all need to be in memory at once."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.kernels.base import as_features

CHUNK = 4096  # rows that are processed at a time
DIFFER = "x and t must describe the same items"


class Stream:
    """(n, d) features in chunks of (b, d), any b >= 1, that can be read once; `width` is d.

    Raises:
        ValueError: there is no chunk; or, here or while reading, `as_features` rejects a chunk or
            chunks differ in d.
    """

    def __init__(self, chunks: Iterable[Any]) -> None:
        checked = _checked(chunks)
        first = next(checked, None)
        if first is None:
            raise ValueError("there are no features: the stream is empty, or was read before")
        self._chunks, self.width = chain([first], checked), first.shape[1]

    def __iter__(self) -> Iterator[Tensor]:
        """The chunks as `as_features` returns them."""
        return self._chunks


def _checked(chunks: Iterable[Any]) -> Iterator[Tensor]:
    """The chunks as `as_features` returns them, all of the same width."""
    seen, width = 0, None
    for chunk in chunks:
        try:
            features = as_features(chunk)
        except ValueError as error:
            raise ValueError(f"in the chunk that starts at row {seen}: {error}") from None
        width = width or features.shape[1]
        if features.shape[1] != width:
            raise ValueError(f"chunks must agree in d, got {width} and {features.shape[1]}")
        yield features
        seen += len(features)


Rows: TypeAlias = "Tensor | Stream"


def as_stream(x: Any) -> Stream | None:
    """A memory-mapped array, a slice of a safetensors file (`safe_open(...).get_slice(name)`), or
    an iterable of (b, d) tensors or arrays, each optionally in a tuple or list of one, such as a
    generator or a DataLoader, as a stream. None for tensors, arrays and lists of items."""
    if isinstance(x, np.memmap) or hasattr(x, "get_shape"):
        n = x.get_shape()[0] if hasattr(x, "get_shape") else len(x)
        return Stream(x[start : start + CHUNK] for start in range(0, n, CHUNK))
    if isinstance(x, (Tensor, np.ndarray, str)) or not isinstance(x, Iterable):
        return None
    if isinstance(x, Sequence):
        first = _unwrap(x[0]) if len(x) else None
        if not isinstance(first, (Tensor, np.ndarray)) or first.ndim != 2:
            return None
    return Stream(_unwrap(chunk) for chunk in x)


def chunks(rows: Rows) -> Iterator[Tensor]:
    """The rows in order, in chunks of (b, d); b <= CHUNK if they are in memory."""
    return iter(rows.split(CHUNK) if isinstance(rows, Tensor) else rows)


def width(rows: Rows) -> int:
    """d of (n, d) rows."""
    return rows.shape[1] if isinstance(rows, Tensor) else rows.width


def gather(rows: Rows) -> Tensor:
    """All rows as one tensor in memory."""
    return rows if isinstance(rows, Tensor) else torch.cat(list(rows))


def concat_columns(x: Rows, t: Rows) -> Rows:
    """[x, t]: (n, d + m), for x: (n, d) and t: (n, m); ValueError if they differ in n or device."""
    if isinstance(x, Tensor) and isinstance(t, Tensor):
        if len(x) != len(t):
            raise ValueError(f"{DIFFER}, got n = {len(x)} and n = {len(t)}")
        return _concat(x, t)
    return Stream(_concat_chunks(chunks(x), chunks(t)))


def _concat_chunks(xs: Iterator[Tensor], ts: Iterator[Tensor]) -> Iterator[Tensor]:
    """Chunks of [x, t] from chunks of x and t, whose sizes may differ."""
    x, t = next(xs, None), next(ts, None)
    seen = 0
    while x is not None and t is not None:
        b = min(len(x), len(t))
        yield _concat(x[:b], t[:b])
        seen += b
        x = x[b:] if b < len(x) else next(xs, None)
        t = t[b:] if b < len(t) else next(ts, None)
    if x is not None or t is not None:
        longer = "t" if x is None else "x"
        raise ValueError(f"{DIFFER}, but only {longer} has row {seen}")


def _concat(x: Tensor, t: Tensor) -> Tensor:
    if x.device != t.device:
        raise ValueError(f"x is on {x.device} but t on {t.device}: move them to one device")
    return torch.cat([x, t], dim=1)


def _unwrap(chunk: Any) -> Any:
    """The chunk itself: a DataLoader over one tensor wraps each batch in a list of length 1."""
    return chunk[0] if isinstance(chunk, (list, tuple)) and len(chunk) == 1 else chunk
