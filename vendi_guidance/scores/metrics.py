"""The scores as `torchmetrics.Metric`s: features come batch by batch, to any number of processes.

With a `RandomFourier` spectrum a metric keeps float64 sums of fixed size, O(r^2), however many
items it sees; with any other it keeps the features. Either way it returns what its function in
`scores` returns for all of them at once. `forward` scores the batch by itself, too, which costs as
much as `compute`: where nobody wants that score, call `update`.

In a `MetricCollection`, name the features, `update(x=..., t=...)`, and each metric takes those that
it reads; metrics that would keep the same keep it once.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat
from torchmetrics.utilities.distributed import gather_all_tensors

from vendi_guidance.kernels.base import Features, Kernel, as_features
from vendi_guidance.kernels.custom import as_kernel, reads_features
from vendi_guidance.kernels.parts import Part
from vendi_guidance.kernels.streams import Rows, chunks, side_by_side, width
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.functional import EXACT, Parts
from vendi_guidance.scores.linalg import Map, add_products, matrix_entropy, symmetric
from vendi_guidance.scores.spectra import RandomFourier, Spectrum

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class EntropyMetric(Metric):
    """exp of entropies, some added and some taken off: what the metrics here have in common.

    Attributes:
        kernels: one for each of the features that `update` takes.
        entropy: its order and truncation.
        spectrum: how it is got.
    """

    higher_is_better: bool = True
    is_differentiable: bool = False
    full_state_update: bool = False
    plot_lower_bound: float | None = 1.0

    signs: ClassVar[dict[str, int]]
    """1 or -1 for each entropy, by the name of its part."""

    count: Tensor
    x: list[Tensor]

    def __init__(
        self, kernels: Sequence[Kernel], entropy: Entropy, spectrum: Spectrum, **kwargs: Any
    ) -> None:
        for kernel in map(as_kernel, kernels):
            if not reads_features(kernel):
                raise ValueError(
                    f"metrics read features batch by batch, and {kernel} compares other things, "
                    "all at once: use a function of vendi_guidance.scores.functional"
                )
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
            for name in self._sums:
                size = spectrum.features, spectrum.features
                self.add_state(name, torch.zeros(size, dtype=torch.float64), "sum")
        else:
            for name in self._inputs:
                self.add_state(name, [], "cat")

    @abstractmethod
    def parts(self, d: int) -> dict[str, Part]:
        """What there are entropies of, by name, for x of width d."""

    def compute(self) -> Tensor:
        """The score of all items so far, 0-d float64.

        Raises:
            ValueError: there are none.
        """
        if isinstance(self.spectrum, RandomFourier):
            self._refuse_none(int(self.count))
            moments = [symmetric(getattr(self, name)).div_(self.count) for name in self._sums]
            entropies = [matrix_entropy(moment, self.entropy) for moment in moments]
        else:
            self._refuse_none(len(self.x))
            features = [dim_zero_cat(getattr(self, name)) for name in self._inputs]
            parts = self._wanted(features[0].shape[1])
            entropies = self.spectrum.entropies(_joined(features), parts, self.entropy)
        signed = zip(self.signs.values(), entropies, strict=True)
        return torch.stack([sign * entropy for sign, entropy in signed]).sum().exp()

    def plot(
        self, val: "Tensor | Sequence[Tensor] | None" = None, ax: "Axes | None" = None
    ) -> "tuple[Figure, Any]":
        """A figure and its axes: one score as a point, several as a line.

        Args:
            val: what `compute` or `forward` returned, or a list of such; None calls `compute`.
            ax: where to plot; None makes a figure.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
        """
        figure, axes = self._plot(val, ax)
        return figure, axes

    def _add(self, *items: Features) -> None:
        features = [as_features(item).detach() for item in items]
        rows = _joined(features)
        widths = tuple(each.shape[1] for each in features)
        if self._widths not in (None, widths):
            raise ValueError(f"batches must agree in d, got {self._widths} and then {widths}")
        if isinstance(self.spectrum, RandomFourier):
            if self._maps is None:
                self._maps = [
                    (part, self.spectrum.map(part.kernel, part.width(width(rows))))
                    for part in self._wanted(widths[0])
                ]
            for chunk in chunks(rows):
                for name, (part, features_of) in zip(self._sums, self._maps, strict=True):
                    add_products(getattr(self, name), features_of(part.of(chunk)))
            self.count += len(features[0])
        else:
            for name, each in zip(self._inputs, features, strict=True):
                getattr(self, name).append(each)
        self._widths = widths

    def _wanted(self, d: int) -> list[Part]:
        parts = self.parts(d)
        return [parts[name] for name in self.signs]

    def _refuse_none(self, count: int) -> None:
        if not count:
            raise ValueError(f"{type(self).__name__} has seen no items: call update before compute")

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        # `.to(torch.bfloat16)` on a model reaches its metrics, and sums of thousands of items
        # would not survive it: whatever is asked for, only devices change.
        def move(state: Tensor) -> Tensor:
            moved = fn(state)
            return moved if moved.dtype == state.dtype else state.to(moved.device)

        return super()._apply(move, exclude_state)

    def _load_from_state_dict(self, *args: Any) -> None:
        super()._load_from_state_dict(*args)
        # Updates work in place, and what was loaded is someone else's.
        for name in self._defaults:
            setattr(self, name, deepcopy(getattr(self, name)))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_maps": None}  # closures cannot be pickled


class VendiScore(EntropyMetric):
    """exp H(K/n), the effective number of different items: see `scores.vendi`.

    `update` and `forward` take

    - x: (b, d) features of some items, tensor or array.

    `compute` and `forward` return a 0-d float64 tensor, 1 <= score <= n.

    Args:
        kernel: how alike two items are.
        order: of Renyi's entropy, 0 < order <= infinity.
        truncation: how many eigenvalues to keep, an upper bound of the score then.
        spectrum: how the entropy is got; `RandomFourier` needs no more memory for more items.
        kwargs: those of every `torchmetrics.Metric`, such as `dist_sync_on_step`.

    Raises:
        ValueError: order <= 0, truncation < 1, a kernel that does not compare features, or kwargs
            that `Metric` does not know; on update, features that `kernels.as_features` refuses or
            of another d than before, or a kernel that the spectrum cannot do; on compute, no items.

    Example:
        >>> import torch
        >>> from vendi_guidance.kernels.standard import Gaussian
        >>> from vendi_guidance.scores.metrics import VendiScore
        >>> metric = VendiScore(Gaussian(1.0))
        >>> metric.update(torch.tensor([[0.0], [0.0], [9.0]]))
        >>> metric.update(torch.tensor([[9.0]]))
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
        """Take in a batch of items: (b, d) features."""
        self._add(x)

    def parts(self, d: int) -> dict[str, Part]:
        return {"x": Part(self.kernels[0])}


class RKEScore(VendiScore):
    """n^2 / |K|_F^2, which is `VendiScore` of order 2: see `scores.rke`.

    `update` and `forward` take

    - x: (b, d) features of some items, tensor or array.

    `compute` and `forward` return a 0-d float64 tensor, 1 <= score <= n. No eigenvalues are needed.

    Args:
        kernel: how alike two items are.
        spectrum: `RandomFourier` needs no more memory for more items, and O(r^2) time for a score.
        kwargs: those of every `torchmetrics.Metric`.

    Raises:
        ValueError: as `VendiScore`.

    Example:
        >>> import torch
        >>> from vendi_guidance.kernels.standard import Cosine
        >>> from vendi_guidance.scores.metrics import RKEScore
        >>> metric = RKEScore(Cosine())
        >>> metric.update(torch.eye(3))
        >>> metric.update(torch.eye(3))
        >>> round(float(metric.compute()), 3)
        3.0
    """

    def __init__(self, kernel: Kernel, *, spectrum: Spectrum = EXACT, **kwargs: Any) -> None:
        super().__init__(kernel, order=2, spectrum=spectrum, **kwargs)


class PromptMetric(EntropyMetric):
    """What the metrics of items and their prompts have in common."""

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
        """Take in a batch of items: (b, d) features, and (b, m) features of their prompts."""
        self._add(x, t)

    def parts(self, d: int) -> dict[str, Part]:
        kernel_x, kernel_t = self.kernels
        return Parts.of(kernel_x, kernel_t, d)._asdict()


class ConditionalVendiScore(PromptMetric):
    """exp(H(K_X∘K_T / n) - H(K_T / n)): the diversity of x that the prompts t do not explain.

    See `scores.conditional_vendi`. `update` and `forward` take

    - x: (b, d) features of some items, tensor or array;
    - t: (b, m) features of the prompts, one row for each row of x.

    `compute` and `forward` return a 0-d float64 tensor, 1 <= score <= n (a truncated one may fall
    short of 1).

    Args:
        kernel_x: how alike two items are.
        kernel_t: how alike two prompts are.
        order: of both entropies, 0 < order <= infinity.
        truncation: of both spectra, how many eigenvalues to keep.
        spectrum: how the entropies are got; `RandomFourier` needs no more memory for more items.
        kwargs: those of every `torchmetrics.Metric`.

    Raises:
        ValueError: as `VendiScore`; on update, also x and t of different b.

    Example:
        >>> import torch
        >>> from vendi_guidance.kernels.standard import Gaussian
        >>> from vendi_guidance.scores.metrics import ConditionalVendiScore
        >>> metric = ConditionalVendiScore(Gaussian(1.0), Gaussian(1.0))
        >>> metric.update(torch.tensor([[0.0], [9.0]]), torch.tensor([[0.0], [0.0]]))
        >>> metric.update(torch.tensor([[18.0], [27.0]]), torch.tensor([[9.0], [9.0]]))
        >>> round(float(metric.compute()), 3)
        2.0
    """

    signs: ClassVar[dict[str, int]] = {"joint": 1, "t": -1}


class ConditionalRKEScore(ConditionalVendiScore):
    """|K_T|_F^2 / |K_X∘K_T|_F^2, which is `ConditionalVendiScore` of order 2.

    See `scores.conditional_rke`. `update` and `forward` take

    - x: (b, d) features of some items, tensor or array;
    - t: (b, m) features of the prompts, one row for each row of x.

    `compute` and `forward` return a 0-d float64 tensor, 1 <= score <= n. No eigenvalues are needed.

    Args:
        kernel_x: how alike two items are.
        kernel_t: how alike two prompts are.
        spectrum: `RandomFourier` needs no more memory for more items, and O(r^2) time for a score.
        kwargs: those of every `torchmetrics.Metric`.

    Raises:
        ValueError: as `ConditionalVendiScore`.

    Example:
        >>> import torch
        >>> from vendi_guidance.kernels.standard import Cosine
        >>> from vendi_guidance.scores.metrics import ConditionalRKEScore
        >>> metric = ConditionalRKEScore(Cosine(), Cosine())
        >>> metric.update(torch.eye(3), torch.ones(3, 2))
        >>> round(float(metric.compute()), 3)
        3.0
    """

    def __init__(
        self, kernel_x: Kernel, kernel_t: Kernel, *, spectrum: Spectrum = EXACT, **kwargs: Any
    ) -> None:
        super().__init__(kernel_x, kernel_t, order=2, spectrum=spectrum, **kwargs)


class InformationVendiScore(PromptMetric):
    """exp(H(K_X/n) + H(K_T/n) - H(K_X∘K_T / n)): the diversity of x that the prompts t explain.

    See `scores.information_vendi`; with `ConditionalVendiScore` it multiplies to `VendiScore`.
    `update` and `forward` take

    - x: (b, d) features of some items, tensor or array;
    - t: (b, m) features of the prompts, one row for each row of x.

    `compute` and `forward` return a 0-d float64 tensor, 0 < score <= n, and of order 1 at least 1.

    Args:
        kernel_x: how alike two items are.
        kernel_t: how alike two prompts are.
        order: of the three entropies, 0 < order <= infinity.
        truncation: of the three spectra, how many eigenvalues to keep.
        spectrum: how the entropies are got; `RandomFourier` needs no more memory for more items.
        kwargs: those of every `torchmetrics.Metric`.

    Raises:
        ValueError: as `ConditionalVendiScore`.

    Example:
        >>> import torch
        >>> from vendi_guidance.kernels.standard import Gaussian
        >>> from vendi_guidance.scores.metrics import InformationVendiScore
        >>> metric = InformationVendiScore(Gaussian(1.0), Gaussian(1.0))
        >>> metric.update(torch.tensor([[0.0], [9.0]]), torch.tensor([[0.0], [0.0]]))
        >>> metric.update(torch.tensor([[18.0], [27.0]]), torch.tensor([[9.0], [9.0]]))
        >>> round(float(metric.compute()), 3)
        2.0
    """

    plot_lower_bound: float | None = 0.0
    signs: ClassVar[dict[str, int]] = {"x": 1, "t": 1, "joint": -1}


class InformationRKEScore(InformationVendiScore):
    """n^2 |K_X∘K_T|_F^2 / (|K_X|_F^2 |K_T|_F^2), which is `InformationVendiScore` of order 2.

    See `scores.information_rke`. `update` and `forward` take

    - x: (b, d) features of some items, tensor or array;
    - t: (b, m) features of the prompts, one row for each row of x.

    `compute` and `forward` return a 0-d float64 tensor, 0 < score <= n. No eigenvalues are needed.

    Args:
        kernel_x: how alike two items are.
        kernel_t: how alike two prompts are.
        spectrum: `RandomFourier` needs no more memory for more items, and O(r^2) time for a score.
        kwargs: those of every `torchmetrics.Metric`.

    Raises:
        ValueError: as `ConditionalVendiScore`.

    Example:
        >>> import torch
        >>> from vendi_guidance.kernels.standard import Cosine
        >>> from vendi_guidance.scores.metrics import InformationRKEScore
        >>> metric = InformationRKEScore(Cosine(), Cosine())
        >>> metric.update(torch.eye(3), torch.eye(3))
        >>> round(float(metric.compute()), 3)
        3.0
    """

    def __init__(
        self, kernel_x: Kernel, kernel_t: Kernel, *, spectrum: Spectrum = EXACT, **kwargs: Any
    ) -> None:
        super().__init__(kernel_x, kernel_t, order=2, spectrum=spectrum, **kwargs)


def gather_rows(state: Tensor, group: Any = None) -> list[Tensor]:
    """Kept features of all processes, of which some may have none and so do not know their width.

    Args:
        state: (n, d) features of this process, or (0,) where it has none.
        group: the processes; None is all.

    Returns:
        (n, d) features of each.
    """
    size = torch.tensor([state[:1].numel(), state.element_size()], device=state.device)
    width, itemsize = torch.stack(gather_all_tensors(size, group)).amax(dim=0).tolist()
    dtype = torch.float64 if itemsize == torch.float64.itemsize else torch.float32
    return gather_all_tensors(state.to(dtype).reshape(len(state), width), group)


def _joined(features: Sequence[Tensor]) -> Rows:
    """(n, d + m): the columns of x, then those of t where there are prompts."""
    return features[0] if len(features) == 1 else side_by_side(*features)
