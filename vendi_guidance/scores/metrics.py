"""The scores as `torchmetrics.Metric`s, for features that arrive in batches and on many processes;
those of order 2 are the RKE scores.

`update` and `forward` accept `x: (b, d)` features of a batch of items and, for scores with prompts,
`t: (b, m)` features of their prompts, as tensors or arrays. `compute` returns the score of all
items, a 0-d float64 tensor, as the function in `scores.functional` does and at the same cost.
`forward` also computes the score of its batch; call `update` if that is not needed.

With a `RandomFourier` spectrum, a metric keeps sums of fixed size, O(features^2), for any number of
items; with any other spectrum, a copy of the features. In a `MetricCollection`, pass features by
name, `update(x=..., t=...)`: each metric takes those that it needs, and equal states are shared.

Every metric raises ValueError for order <= 0, truncation < 1, kernels that do not compare features
and unknown keyword arguments; on update, if `as_features` rejects the features, d differs between
batches, x and t differ in b, or the spectrum does not support the kernel; on compute, if empty.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import reduce
from typing import Any, ClassVar

import torch
from torch import Tensor

from vendi_guidance.kernels.base import (
    CHUNK,
    Features,
    Kernel,
    as_features,
    as_kernel,
    concat_columns,
)
from vendi_guidance.kernels.parts import Part
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.kernels.standard import Precomputed
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.functional import EXACT, Parts
from vendi_guidance.scores.linalg import Map, add_products, matrix_entropy, mirror
from vendi_guidance.scores.spectra import RandomFourier, Spectrum
from vendi_guidance.storage.messages import missing

try:
    from torchmetrics import Metric
    from torchmetrics.utilities import dim_zero_cat
    from torchmetrics.utilities.distributed import gather_all_tensors
except ImportError:
    raise missing("a score as a metric", "torchmetrics", "metrics") from None


class EntropyMetric(Metric):
    """Base class of the metrics here: exp of a signed sum of entropies."""

    higher_is_better: bool = True
    is_differentiable: bool = False
    full_state_update: bool = False

    signs: ClassVar[dict[str, int]]
    """The sign, 1 or -1, of each entropy in the sum, by the name of its field in `Parts`."""

    count: Tensor
    x: list[Tensor]

    def __init__(
        self, kernels: Sequence[Kernel], entropy: Entropy, spectrum: Spectrum, **kwargs: Any
    ) -> None:
        for kernel in map(as_kernel, kernels):
            if isinstance(kernel, Precomputed):
                raise ValueError("metrics take batches of features: use the score's function")
        if not isinstance(spectrum, RandomFourier):
            kwargs.setdefault("dist_sync_fn", gather_rows)
        super().__init__(**kwargs)
        self.kernels = tuple(kernels)
        self.entropy = entropy
        self.spectrum = spectrum
        self._inputs = ("x", "t")[: len(kernels)]
        self._sums = [f"sum_{name}" for name in self.signs]
        self._widths: tuple[int, ...] | None = None
        self._maps: list[tuple[Part, Map]] | None = None
        if isinstance(spectrum, RandomFourier):
            self.add_state("count", torch.tensor(0), "sum")
            size = spectrum.features, spectrum.features
            for name in self._sums:
                self.add_state(name, torch.zeros(size, dtype=torch.float64), "sum")
        else:
            for name in self._inputs:
                self.add_state(name, [], "cat")

    @isolated()
    def compute(self) -> Tensor:
        """The score of all items so far, 0-d float64; ValueError if there are none."""
        keeps_sums = isinstance(self.spectrum, RandomFourier)
        if not (int(self.count) if keeps_sums else len(self.x)):
            raise ValueError(f"{type(self).__name__} has seen no items: call update before compute")
        if keeps_sums:
            moments = [mirror(getattr(self, name)).div_(self.count) for name in self._sums]
            entropies = [matrix_entropy(moment, self.entropy) for moment in moments]
        else:
            features = [dim_zero_cat(getattr(self, name)) for name in self._inputs]
            parts = self._parts(features[0].shape[1])
            entropies = self.spectrum.entropies(
                reduce(concat_columns, features), parts, self.entropy
            )
        signed = [sign * h for sign, h in zip(self.signs.values(), entropies, strict=True)]
        return torch.stack(signed).sum().exp()

    def reset(self) -> None:
        """Forgets all items."""
        super().reset()
        self._widths = self._maps = None

    # adds a batch, which may be refused, before it resets; its score takes far longer than adding
    _forward_reduce_state_update = Metric._forward_full_state_update

    @isolated()
    def _add(self, *batch: Features) -> None:
        features = [as_features(each) for each in batch]
        rows, widths = reduce(concat_columns, features), tuple(each.shape[1] for each in features)
        if self._widths not in (None, widths):
            raise ValueError(f"batches must agree in d, got {self._widths} and then {widths}")
        if isinstance(self.spectrum, RandomFourier):
            if self._maps is None:
                self._maps = self.spectrum.maps(self._parts(widths[0]), sum(widths))
            for name in ("count", *self._sums):
                if getattr(self, name).is_inference():  # after `forward` in inference mode
                    setattr(self, name, getattr(self, name).clone())
            for chunk in rows.split(CHUNK):
                for name, (part, feature_map) in zip(self._sums, self._maps, strict=True):
                    add_products(getattr(self, name), feature_map(part.of(chunk)))
            self.count += len(features[0])
        else:
            for name, each in zip(self._inputs, features, strict=True):
                getattr(self, name).append(each.clone())  # the caller may reuse its tensor
        self._widths = widths

    def _parts(self, d: int) -> list[Part]:
        """The parts in the order of `signs`, for x of width d."""
        if len(self.kernels) == 1:
            return [Part(self.kernels[0])]
        parts = Parts.of(self.kernels[0], self.kernels[1], d)
        return [getattr(parts, name) for name in self.signs]

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        # `model.to(torch.bfloat16)` also casts the metrics of the model, and sums over thousands of
        # items would lose their precision: follow the device, keep the dtype.
        def move(state: Tensor) -> Tensor:
            moved = fn(state)
            return moved if moved.dtype == state.dtype else state.to(moved.device)

        return super()._apply(move, exclude_state)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        # Updates work in place and must not change the tensors that were loaded.
        for name in self._defaults:
            setattr(self, name, deepcopy(getattr(self, name)))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_maps": None}  # closures cannot be pickled


class VendiScore(EntropyMetric):
    """Vendi score, the effective number of distinct items, in [1, n].

        VendiScore = exp H_a(K/n)

    Args:
        kernel, order, truncation, spectrum: as in `vendi`, with the same errors.
        kwargs: as in `torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian, VendiScore
        >>> metric = VendiScore(Gaussian(1.0))
        >>> metric.update(torch.tensor([[0.0], [0.0], [9.0], [9.0]]))
        >>> round(float(metric.compute()), 3)
        2.0
    """

    signs: ClassVar[dict[str, int]] = {"x": 1}

    def __init__(
        self,
        kernel: Kernel,
        *,
        order: float = 1.0,
        truncation: int | None = None,
        spectrum: Spectrum = EXACT,
        **kwargs: Any,
    ) -> None:
        super().__init__([kernel], Entropy(order, truncation), spectrum, **kwargs)

    def update(self, x: Features) -> None:
        """Adds a batch of items: (b, d) features."""
        self._add(x)


class PromptMetric(EntropyMetric):
    """Base class of the metrics of items and their prompts."""

    def __init__(
        self,
        kernel_x: Kernel,
        kernel_t: Kernel,
        *,
        order: float = 1.0,
        truncation: int | None = None,
        spectrum: Spectrum = EXACT,
        **kwargs: Any,
    ) -> None:
        super().__init__([kernel_x, kernel_t], Entropy(order, truncation), spectrum, **kwargs)

    def update(self, x: Features, t: Features) -> None:
        """Adds a batch of items: (b, d) features, and (b, m) features of their prompts."""
        self._add(x, t)


class ConditionalVendiScore(PromptMetric):
    """Conditional Vendi score: the diversity of x that the prompts t do not explain.

        ConditionalVendiScore = exp(H_a(K_X∘K_T / n) - H_a(K_T / n))

    In [1, n]; a truncated score can fall slightly below 1. Args are those of `conditional_vendi`.

    Example:
        >>> import torch
        >>> from vendi_guidance import ConditionalVendiScore, Cosine
        >>> metric = ConditionalVendiScore(Cosine(), Cosine())
        >>> metric.update(torch.eye(4), torch.eye(2).repeat(2, 1))
        >>> round(float(metric.compute()), 3)
        2.0
    """

    signs: ClassVar[dict[str, int]] = {"joint": 1, "t": -1}


class InformationVendiScore(PromptMetric):
    """Information Vendi score: the diversity of x that the prompts t explain.

        InformationVendiScore = exp(H_a(K_X / n) + H_a(K_T / n) - H_a(K_X∘K_T / n))

    In (0, n], and at least 1 for order 1 without truncation. Args are those of `information_vendi`.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, InformationVendiScore
        >>> metric = InformationVendiScore(Cosine(), Cosine())
        >>> round(float(metric(torch.eye(4), torch.eye(2).repeat(2, 1))), 3)
        2.0
    """

    signs: ClassVar[dict[str, int]] = {"x": 1, "t": 1, "joint": -1}


def gather_rows(state: Tensor, group: Any = None) -> list[Tensor]:
    """The (n, d) features of every process; the state of one without items is empty, (0,)."""
    shape = torch.tensor([state[:1].numel(), state.element_size()], device=state.device)
    width, itemsize = torch.stack(gather_all_tensors(shape, group)).amax(dim=0).tolist()
    dtype = torch.float64 if itemsize == torch.float64.itemsize else torch.float32
    return gather_all_tensors(state.to(dtype).reshape(len(state), width), group)
