"""Finished samples of one shape, and their similarities.

Features are scaled to unit length (Jalali et al., AISTATS 2026, appendix E), so kernels need only
cosine distances, which are stored: they change only when a sample enters or leaves.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.kernels.base import SphereKernel
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.kernels.rounding import cosine_distances
from vendi_guidance.storage.messages import counted

ROWS_AT_ONCE = 64
"""Samples enter in groups of this size, which bounds the memory needed."""

NONE = torch.empty(0, 0, dtype=torch.float32, device="cpu")


def unit_rows(x: Tensor) -> Tensor:
    """Rows of x: (n, d) at length 1; a zero row stays zero, one with infinity becomes NaN. Squares
    of single precision neither overflow nor underflow."""
    length, least = lengths(x, torch.float64), torch.finfo(x.dtype).tiny
    return x / torch.add(length, least, out=x.new_empty(length.shape))


def as_rows(x: Tensor) -> Tensor:
    """x: (n, ...) as (n, d), in at least single precision."""
    rows = x.detach().flatten(1)
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()


def lengths(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """(b, 1) lengths of the flattened rows of x: (b, ...), in at least this precision."""
    precise = torch.promote_types(x.dtype, dtype)
    return torch.linalg.vector_norm(x.detach().flatten(1), dim=1, keepdim=True, dtype=precise)


class Samples:
    """The last `size` samples of one shape: see `SlidingWindow`.

    Attributes:
        latent_shape: of one sample's features; None while there are none.
        cache: values derived from the samples; emptied when a sample enters.
    """

    def __init__(
        self,
        size: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        self.size = size
        self.dtype = dtype
        self.device = device
        self.latent_shape: tuple[int, ...] | None = None
        self._features: _Ring | None = None
        self._prompts: _Ring | None = None
        self._entered = 0
        self.cache: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return min(self._entered, self.size)

    @isolated()
    def enter(self, features: Tensor, prompts: Tensor | None) -> None:
        """Add finite samples that passed `check`."""
        kept = slice(-self.size, None)
        if self._features is None:
            self.latent_shape = tuple(features.shape[1:])
            self._features = _Ring(self.size, features, self.dtype, self.device)
            if prompts is not None:
                # prompts are few numbers: single precision costs nothing
                at_least_single = torch.promote_types(self.dtype, torch.float32)
                self._prompts = _Ring(self.size, prompts, at_least_single, self.device)
        self._features.write(features[kept], self._entered)
        if self._prompts is not None and prompts is not None:
            self._prompts.write(prompts[kept], self._entered)
        self._entered += len(features[kept])
        self.cache.clear()

    def check(self, features: Tensor, prompts: Tensor | None) -> None:
        """Raise ValueError if these samples do not fit those remembered."""
        if prompts is not None and len(prompts) != len(features):
            raise ValueError(
                f"got {counted(len(features), 'latent')} but {counted(len(prompts), 'prompt')}"
            )
        if self._features is None:
            return
        if (prompts is None) != (self._prompts is None):
            held, given = ("without", "with") if self._prompts is None else ("with", "without")
            raise ValueError(f"the window holds samples {held} prompts, got one {given}: clear it")
        if prompts is not None and self._prompts is not None:
            width, given_width = self._prompts.rows.shape[1], prompts[0].numel()
            if width != given_width:
                raise ValueError(
                    f"the window holds prompt embeddings of width {width}, got {given_width}: "
                    "clear it, or use one window for each text encoder"
                )

    @property
    def features(self) -> Tensor:
        """(N, D) unit-length features of the remembered samples, in the storage dtype."""
        return NONE if self._features is None else self._features.rows[: len(self)]

    @property
    def prompts(self) -> Tensor | None:
        """(N, m) unit-length prompt embeddings, or None where there are none."""
        return None if self._prompts is None else self._prompts.rows[: len(self)]

    @property
    def distances(self) -> Tensor:
        """(N, N) cosine distances of the remembered features."""
        if self._features is None:
            return NONE
        return self._features.distances[: len(self), : len(self)]

    def products(self, unit: Tensor) -> Tensor:
        """(b, N + b) inner products of unit, (b, D), with the remembered features and itself."""
        n, b = len(self), len(unit)
        found = unit.new_empty(n + b, b)
        if self._features is not None:
            self._features.products(unit, found[:n])
        torch.mm(unit, unit.T, out=found[n:])
        return found.T

    def add_weighted(self, total: Tensor, weights: Tensor) -> Tensor:
        """Add weights, (b, N), times the remembered features to total, (b, D), in place."""
        if self._features is not None:
            self._features.add_weighted(total, weights)
        return total

    def latent_gram(self, kernel: SphereKernel) -> Tensor:
        """(N, N) kernel matrix of the remembered features."""
        return self.cached("latent", kernel, lambda: self._gram(self._features, kernel))

    def prompt_gram(self, kernel: SphereKernel | None) -> Tensor:
        """(N, N) kernel matrix of the remembered prompts; all ones for None."""
        if kernel is None:
            return torch.ones_like(self.distances)
        return self.cached("prompt", kernel, lambda: self._gram(self._prompts, kernel))

    def cached(
        self, name: Hashable, key: Hashable, compute: Callable[[], Any], of: Any = None
    ) -> Any:
        """The value for a key and a tensor `of`, which is compared by identity, without a wait for
        the device. Only the last one of each name is kept: bandwidths may change."""
        known, item, value = self.cache.get(name, (None, None, None))
        if known != key or item is not of:
            value = compute()
            self.cache[name] = key, of, value
        return value

    def _gram(self, ring: "_Ring | None", kernel: SphereKernel) -> Tensor:
        if ring is None:
            return NONE
        return kernel.on_sphere(ring.distances[: len(self), : len(self)]).fill_diagonal_(1)

    def oldest_first(self) -> tuple[Tensor, Tensor | None]:
        """Features and prompts in the order in which they entered."""
        shift = -(self._entered % self.size) if self._entered > self.size else 0
        prompts = self.prompts
        return self.features.roll(shift, 0), None if prompts is None else prompts.roll(shift, 0)

    def resized(self, size: int) -> "Samples":
        """A copy that remembers `size` samples: the oldest are left out if there is no room."""
        other = Samples(size, self.dtype, self.device)
        if self.latent_shape is not None:
            features, prompts = self.oldest_first()
            other.enter(features.unflatten(1, self.latent_shape), prompts)
        return other


class _Ring:
    """Unit-length rows that are overwritten oldest first, and their cosine distances."""

    def __init__(
        self, size: int, like: Tensor, dtype: torch.dtype, device: torch.device | str | None
    ) -> None:
        place = like.device if device is None else device
        precise = torch.promote_types(dtype, torch.float32)
        self.rows = torch.zeros(size, like.shape[1:].numel(), dtype=dtype, device=place)
        self.distances = torch.zeros(size, size, dtype=precise, device=place)

    def write(self, x: Tensor, entered: int) -> None:
        """Store x: (b, ...), b <= size, after `entered` earlier ones."""
        size = len(self.rows)
        for part in x.split(ROWS_AT_ONCE):
            slots = (torch.arange(len(part), device=self.rows.device) + entered) % size
            self.rows[slots] = unit_rows(as_rows(part)).to(self.rows)
            entered += len(part)
            filled = min(entered, size)
            new = self.rows[slots].to(self.distances.dtype)
            products = self.products(new, new.new_empty(filled, len(new)))
            distances = cosine_distances(products, self.rows.shape[1], self.rows.dtype)
            self.distances[:filled, slots] = distances
            self.distances[slots, :filled] = distances.T

    def products(self, f: Tensor, out: Tensor) -> Tensor:
        """Write to out, (filled, b), the inner products of the first rows and f: (b, d)."""
        start = 0
        for rows in self._chunks(f, len(out)):
            torch.mm(rows, f.T, out=out[start : start + len(rows)])
            start += len(rows)
        return out

    def add_weighted(self, total: Tensor, weights: Tensor) -> None:
        """Add weights: (b, filled) times the first rows to total: (b, d)."""
        # MKL adds 16 rows to several sums three times as fast as it adds 300
        few, start = len(total) > 1, 0
        for rows in self._chunks(total, weights.shape[1], few):
            total.addmm_(weights[:, start : start + len(rows)], rows)
            start += len(rows)

    def _chunks(self, like: Tensor, filled: int, few: bool = False) -> Iterator[Tensor]:
        """The first rows in chunks, in the dtype and on the device of `like`, each valid until the
        next one. On a CPU they have 16 rows, which stay in cache, if `few` or of another dtype;
        else enough rows to outlast the launch of a GPU kernel."""
        as_stored = (like.dtype, like.device) == (self.rows.dtype, self.rows.device)
        few = like.device.type == "cpu" and (few or not as_stored)
        count = 16 if few else max(1, 2**26 // self.rows.shape[1])
        copy = None if as_stored else like.new_empty(min(count, filled), self.rows.shape[1])
        for rows in self.rows[:filled].split(count):
            yield rows if copy is None else copy[: len(rows)].copy_(rows)
