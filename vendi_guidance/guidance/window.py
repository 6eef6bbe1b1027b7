"""The sliding window: the most recent finished samples and their prompts.

Features (latents, or what another space compares) are flattened and scaled to unit length (Jalali
et al., AISTATS 2026, section 6 and appendix E), so kernels need only inner products. Those among
the window's own samples change only when one enters or leaves; they are kept, and so is what is
derived from them.
"""

import copy
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.checks import check_count, counted
from vendi_guidance.kernels.base import SphereKernel
from vendi_guidance.kernels.rounding import exact_ones
from vendi_guidance.storage.tensors import load_tensors, save_tensors

FORMAT = "vendi-guidance window"
VERSION = 1
VERSION_OF_SHAPES = 2
"""Of a file with samples of several shapes."""

WINDOW = 300
"""How many samples are remembered if nothing is said."""

ROWS_AT_ONCE = 64
"""Samples enter in groups of this size, which bounds the memory that entering takes."""


def unit_rows(x: Tensor) -> Tensor:
    """Rows of x: (n, d) at length 1; a zero row stays zero. Neither overflows nor underflows."""
    largest = x.abs().amax(dim=1, keepdim=True)
    return torch.nn.functional.normalize(x / largest.where(largest > 0, 1), dim=1)


def as_rows(x: Tensor) -> Tensor:
    """x: (n, ...) as (n, d), in at least single precision."""
    rows = x.detach().flatten(1)
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()


def squared_norm(matrix: Tensor) -> Tensor:
    """The squared Frobenius norm of matrix: (n, m), 0-d float64; without a copy in float64."""
    return torch.linalg.vector_norm(matrix, dim=1).double().square().sum()


class SlidingWindow:
    """The last `size` finished samples, with their prompt embeddings.

    Samples of one shape, such as latents of images of one size, are compared with one another
    only, and each shape has `size` samples of its own. The window shows those of the shape that
    entered last; `of_shape` has the others.

    Memory of each shape: size x (feature elements + prompt width) in `dtype`, plus size^2 in
    float32.

    Args:
        size: how many samples of each shape to remember.
        dtype: of the stored features; kernels are computed in float32 or float64.
        device: where they are stored; None is where the first ones come from.

    Attributes:
        latent_shape: of one sample's features; None while the window is empty.
        cache: values derived from the samples, by key; emptied when a sample enters.

    Raises:
        ValueError: size < 1.

    Example:
        >>> import torch
        >>> from vendi_guidance import SlidingWindow
        >>> window = SlidingWindow(3)
        >>> window.append(torch.randn(5, 4, 8, 8))
        >>> len(window), tuple(window.features.shape)
        (3, (3, 256))
    """

    def __init__(
        self,
        size: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
    ) -> None:
        check_count("window", size)
        self.size = size
        self.dtype = dtype
        self.device = device
        self.clear()

    def clear(self) -> None:
        """Forget every sample, of every shape."""
        self._others: dict[tuple[int, ...], SlidingWindow] = {}
        self.latent_shape: tuple[int, ...] | None = None
        self._features: _Ring | None = None
        self._prompts: _Ring | None = None
        self._entered = 0
        self.cache: dict[Hashable, Any] = {}

    def __len__(self) -> int:
        return min(self._entered, self.size)

    def __repr__(self) -> str:
        others = f", and {len(self._others)} other shapes" if self._others else ""
        return f"SlidingWindow({self.size}), {len(self)} of them filled{others}"

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """The shapes of which there are samples, the one that entered last first."""
        return [*([] if self.latent_shape is None else [self.latent_shape]), *self._others]

    def of_shape(self, shape: Sequence[int]) -> "SlidingWindow":
        """The samples of one shape, as a window; an empty one where there are none."""
        shape = tuple(shape)
        if self.latent_shape == shape:
            return self
        empty = SlidingWindow(self.size, dtype=self.dtype, device=self.device)
        return self._others.get(shape, empty)

    def adopt(self, other: "SlidingWindow") -> None:
        """Also remember another window's samples, of the shapes that this one has none of."""
        for shape in other.shapes:
            if shape not in self.shapes:
                self._others[shape] = other.of_shape(shape)._alone()

    def _alone(self) -> "SlidingWindow":
        """The samples that the window shows, without those of other shapes."""
        alone = copy.copy(self)
        alone._others = {}
        return alone

    def _show(self, shape: tuple[int, ...]) -> None:
        """Let the samples of this shape be those that the window shows."""
        if shape == self.latent_shape or (self.latent_shape is None and shape not in self._others):
            return
        known, others = self.of_shape(shape), self._others
        if self.latent_shape is not None:
            others = {self.latent_shape: self._alone(), **others}
        self._others = {at: it for at, it in others.items() if at != shape}
        for name in ("latent_shape", "_features", "_prompts", "_entered", "cache"):
            setattr(self, name, getattr(known, name))

    def append(self, features: Tensor, prompts: Tensor | None = None) -> None:
        """Remember finished samples; the oldest leave when there is no room.

        O(b N D) for b samples that enter a window of N.

        Args:
            features: (b, ...), of any length: latents as the sampler left them, for one.
            prompts: (b, m) embeddings, or None in a window without prompts.

        Raises:
            ValueError: other prompts than those of this shape have, prompts given once and missing
                another time, or NaN or infinity. The window stays as it was.
        """
        self.of_shape(features.shape[1:]).check(features, prompts)
        if not features.isfinite().all() or not (prompts is None or prompts.isfinite().all()):
            raise ValueError("latents and prompts that enter the window must be finite numbers")
        self._show(tuple(features.shape[1:]))
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
        """Raise ValueError if such samples do not fit beside those that the window shows."""
        if prompts is not None and len(prompts) != len(features):
            raise ValueError(
                f"got {counted(len(features), 'latent')} but {counted(len(prompts), 'prompt')}"
            )
        self.check_shape(features)
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

    def check_shape(self, features: Tensor) -> None:
        """Raise ValueError if features, (b, ...), have another shape than the window's."""
        shape = tuple(features.shape[1:])
        if self.latent_shape not in (None, shape):
            raise ValueError(
                f"the window holds latents of shape {self.latent_shape}, got {shape}: "
                "compare them with window.of_shape(shape)"
            )

    @property
    def features(self) -> Tensor:
        """(N, D) unit-length features of the remembered samples, in the storage dtype."""
        return torch.empty(0, 0) if self._features is None else self._features.rows[: len(self)]

    @property
    def prompts(self) -> Tensor | None:
        """(N, m) unit-length prompt embeddings, or None where there are none."""
        return None if self._prompts is None else self._prompts.rows[: len(self)]

    @property
    def inner_products(self) -> Tensor:
        """(N, N) inner products of the remembered features."""
        if self._features is None:
            return torch.empty(0, 0)
        return self._features.inner[: len(self), : len(self)]

    def products(self, unit: Tensor) -> Tensor:
        """(b, N) inner products of unit, (b, D), with the remembered features."""
        if self._features is None:
            return unit.new_empty(len(unit), 0)
        return self._features.products(unit, len(self))

    def add_weighted(self, total: Tensor, weights: Tensor) -> Tensor:
        """Add weights, (b, N), times the remembered features to total, (b, D), in place."""
        if self._features is not None:
            self._features.add_weighted(total, weights)
        return total

    def latent_gram(self, kernel: SphereKernel) -> Tensor:
        """(N, N) kernel matrix of the remembered features."""
        return self._cached("latent", kernel, lambda: self._gram(self._features, kernel))

    def prompt_gram(self, kernel: SphereKernel | None) -> Tensor:
        """(N, N) kernel matrix of the remembered prompts; all ones for None."""
        if kernel is None:
            return torch.ones_like(self.inner_products)
        return self._cached("prompt", kernel, lambda: self._gram(self._prompts, kernel))

    def squared_norms(
        self, kernel_latent: SphereKernel, kernel_prompt: SphereKernel | None
    ) -> tuple[Tensor, Tensor]:
        """|K_T|_F^2 and |K_Z∘K_T|_F^2 of the remembered samples, 0-d float64."""

        def compute() -> tuple[Tensor, Tensor]:
            prompt = self.prompt_gram(kernel_prompt)
            return squared_norm(prompt), squared_norm(self.latent_gram(kernel_latent) * prompt)

        return self._cached("squared norms", (kernel_latent, kernel_prompt), compute)

    def _cached(self, name: str, key: Hashable, compute: Callable[[], Any]) -> Any:
        """One value a name: bandwidths that follow the features differ from step to step."""
        known, value = self.cache.get(name, (None, None))
        if known != key:
            value = compute()
            self.cache[name] = key, value
        return value

    def resize(self, size: int) -> None:
        """Remember up to `size` samples from now on; the oldest leave when there is no room.

        Raises:
            ValueError: size < 1.
        """
        check_count("window", size)
        if size == self.size:
            return
        features, prompts, shape = *self._oldest_first(), self.latent_shape
        others = {at: copy.copy(other) for at, other in self._others.items()}
        for other in others.values():
            other.resize(size)
        self.size = size
        self.clear()
        self._others = others
        if shape is not None:
            self.append(features.unflatten(1, shape), prompts)

    @contextmanager
    def resized(self, size: int) -> Iterator[None]:
        """`resize`, which also holds after the block unless that raises: what left then comes back.

        Raises:
            ValueError: size < 1.
        """
        before = dict(vars(self))  # `resize` copies the samples, so these stay as they are
        self.resize(size)
        try:
            yield
        except BaseException:
            if before["size"] != size:
                vars(self).update(before)
            raise

    def save(self, path: str | Path) -> None:
        """Write a safetensors file, whole or not at all: the oldest sample first, and a JSON header
        with format, version, size, dtype and latent shape.

        Raises:
            OSError: the file cannot be written.
        """
        header = {
            "format": FORMAT,
            "version": VERSION,
            "size": self.size,
            "latent_shape": self.latent_shape,
            "dtype": str(self.dtype).removeprefix("torch."),
        }
        tensors: dict[str, Tensor | None] = {}
        for number, shape in enumerate(self.shapes or [()]):
            names = _names(number)
            tensors |= zip(names, self.of_shape(shape)._oldest_first(), strict=True)
        if self._others:
            header |= {"version": VERSION_OF_SHAPES, "other_shapes": self.shapes[1:]}
        save_tensors(Path(path), tensors, header)

    @classmethod
    def load(
        cls,
        path: str | Path,
        device: torch.device | str | None = None,
        *,
        largest: int | None = None,
    ) -> "SlidingWindow":
        """Read what `save` wrote.

        Args:
            largest: refuse a window of a larger size, which files of strangers may have.

        Raises:
            ValueError: the file is damaged, no window, or of a newer version; the message says why.
            FileNotFoundError: there is no such file.
        """
        header, tensors = load_tensors(Path(path))
        reason = _misfit(header, tensors)
        if reason:
            raise ValueError(f"{path} is not a window this version can read: {reason}")
        shapes = _shapes(header)
        total = header["size"] * max(1, len(shapes))
        if largest is not None and total > largest:
            raise ValueError(f"{path} is a window of size {total}, beyond {largest}")
        window = cls(header["size"], dtype=getattr(torch, header["dtype"]), device=device)
        try:
            for number, shape in reversed([*enumerate(shapes)]):
                latents, prompts = _names(number)
                features = tensors[latents].unflatten(1, shape).to(device)
                window.append(features, tensors.get(prompts))
        except RuntimeError:
            raise ValueError(
                f"there is no memory for {path}, a window of {counted(window.size, 'sample')}"
            ) from None
        return window

    def _gram(self, ring: "_Ring | None", kernel: SphereKernel) -> Tensor:
        n = len(self)
        if n == 0:
            return torch.empty(0, 0)
        if ring is None:
            raise ValueError("the window holds no prompts: use an unconditional objective")
        return kernel.on_sphere(ring.inner[:n, :n]).fill_diagonal_(1)

    def _oldest_first(self) -> tuple[Tensor, Tensor | None]:
        shift = -(self._entered % self.size) if self._entered > self.size else 0
        prompts = self.prompts
        return self.features.roll(shift, 0), None if prompts is None else prompts.roll(shift, 0)


class _Ring:
    """Unit-length rows that are overwritten oldest first, and their inner products."""

    def __init__(
        self, size: int, like: Tensor, dtype: torch.dtype, device: torch.device | str | None
    ) -> None:
        place = like.device if device is None else device
        self.rows = torch.zeros(size, like.shape[1:].numel(), dtype=dtype, device=place)
        precise = torch.promote_types(dtype, torch.float32)
        self.inner = torch.zeros(size, size, dtype=precise, device=place)

    def write(self, x: Tensor, entered: int) -> None:
        """Store x: (b, ...), b <= size, after `entered` earlier ones."""
        size = len(self.rows)
        for part in x.split(ROWS_AT_ONCE):
            slots = (torch.arange(len(part), device=self.rows.device) + entered) % size
            self.rows[slots] = unit_rows(as_rows(part)).to(self.rows)
            entered += len(part)
            filled = min(entered, size)
            products = self.products(self.rows[slots].to(self.inner.dtype), filled)
            exact_ones(products, self.rows.shape[1], self.rows.dtype)
            self.inner[slots, :filled] = products
            self.inner[:filled, slots] = products.T

    def products(self, f: Tensor, filled: int) -> Tensor:
        """(b, filled) inner products of f: (b, d) with the first rows."""
        return torch.cat([rows @ f.T for rows in self._chunks(f, filled)]).T

    def add_weighted(self, total: Tensor, weights: Tensor) -> None:
        """Add weights: (b, filled) times the first rows to total: (b, d)."""
        # MKL adds 16 rows to several sums three times as fast as it adds 300
        few, start = len(total) > 1, 0
        for rows in self._chunks(total, weights.shape[1], few):
            total.addmm_(weights[:, start : start + len(rows)], rows)
            start += len(rows)

    def _chunks(self, like: Tensor, filled: int, few: bool = False) -> Iterator[Tensor]:
        """The first rows, some at a time, in the precision and on the device of `like`.

        Each chunk is valid until the next. On a CPU it has 16 rows, which stay in cache, if `few`
        or stored in another precision; else enough rows to outlast the launch of a GPU's kernel.
        """
        as_stored = (like.dtype, like.device) == (self.rows.dtype, self.rows.device)
        few = like.device.type == "cpu" and (few or not as_stored)
        count = 16 if few else max(1, 2**26 // self.rows.shape[1])
        copy = None if as_stored else like.new_empty(min(count, filled), self.rows.shape[1])
        for rows in self.rows[:filled].split(count):
            yield rows if copy is None else copy[: len(rows)].copy_(rows)


def _names(number: int) -> tuple[str, str]:
    """The tensors of a file that hold the samples of its shapes, the one shown first."""
    return (f"latents_{number}", f"prompts_{number}") if number else ("latents", "prompts")


def _shapes(header: dict[str, Any]) -> list[Any]:
    """Those of which a file holds samples."""
    shapes = [header.get("latent_shape"), *header.get("other_shapes", [])]
    return [] if shapes == [None] else shapes


def _misfit(header: Any, tensors: dict[str, Tensor]) -> str | None:
    """Why a file's content is not a window, or None where it is one."""
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        return f"its header does not say {FORMAT!r}"
    if header.get("version") not in (VERSION, VERSION_OF_SHAPES):
        return f"it has version {header.get('version')}, this is {VERSION_OF_SHAPES}"
    if not _is_count(header.get("size")):
        return f"its size is {header.get('size')}"
    if header.get("dtype") not in ("float16", "bfloat16", "float32", "float64"):
        return f"its dtype is {header.get('dtype')}"
    if not isinstance(header.get("other_shapes", []), list):
        return f"its other shapes are {header['other_shapes']}"
    if "latents" not in tensors:
        return "it holds no latents"
    if not _shapes(header):
        return None if tensors["latents"].numel() == 0 else "its latents have no shape"
    for name, tensor in tensors.items():
        if not tensor.is_floating_point() or tensor.ndim != 2 or tensor.shape[1] == 0:
            return f"its {name} are {tensor.dtype} of shape {tuple(tensor.shape)}"
    for number, shape in enumerate(_shapes(header)):
        latents, prompts = map(tensors.get, _names(number))
        if reason := _misfit_of(header, shape, latents, prompts):
            return reason
    return None


def _misfit_of(
    header: dict[str, Any], shape: Any, latents: Tensor | None, prompts: Tensor | None
) -> str | None:
    """Why samples in a file do not fit its header, or None where they do."""
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        return f"its latents have shape {shape}"
    if latents is None:
        return f"it holds no latents of shape {shape}"
    if latents.shape[1] != prod(shape) or len(latents) > header["size"]:
        return f"latents of shape {tuple(latents.shape)} do not fit its header {header}"
    if prompts is not None and len(prompts) != len(latents):
        return f"prompts of shape {tuple(prompts.shape)} do not fit {len(latents)} latents"
    return None


def _is_count(value: Any) -> bool:
    return type(value) is int and 1 <= value < 2**63
