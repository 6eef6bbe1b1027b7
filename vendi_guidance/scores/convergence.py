"""A score against the number of items, as in figures 1 and 3-5 of Ospanov & Farnia (UAI 2025)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.scores.subsampling import Score, Subsets, quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST = 20  # items in the smallest subset by default


@dataclass(frozen=True)
class Convergence:
    """The score of random subsets against their size.

    From low to high is a prediction band for the score of as many fresh items, of which it is to
    cover a share `level`. Subsets of the same n items vary less than those; the band corrects for
    it, at n itself from the largest size below.
    """

    sizes: Tensor  # (s,), increasing
    scores: Tensor  # (s, repeats) float64; each repeat keeps its items and adds to them
    mean: Tensor  # (s,) over the repeats
    low: Tensor  # (s,)
    high: Tensor  # (s,)
    level: float

    def plot(self, ax: "Axes | None" = None, label: str | None = None) -> "Axes":
        """The mean, with this label, and the band, drawn on ax or new axes; needs matplotlib."""
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
            ax.set(xlabel="items", ylabel="score")
        (line,) = ax.plot(self.sizes, self.mean, label=label)
        color = line.get_color()
        ax.fill_between(self.sizes, self.low, self.high, color=color, alpha=0.2, linewidth=0)
        return ax


def convergence(
    score: Score,
    *arguments: Any,
    sizes: Sequence[int] | None = None,
    repeats: int = 5,
    level: float = 0.95,
    seed: int = 0,
    **options: Any,
) -> Convergence:
    """A score of larger and larger random subsets: has it converged at n items?

    Args:
        score, arguments, options: a function; its arguments, first what the n items are (features,
            prompts, labels), then the kernels; its keywords.
        sizes: from 1 to n, at least one of them below n; None is eight from n/64, or 20, to n.
        repeats: how many random permutations, drawn with the seed, the items are added in, >= 3.
        level: of the band, 0 < level < 1.

    Raises:
        ValueError: sizes, repeats or level out of range; without sizes, fewer than 40 items;
            streams, weights, items of different n, or what the score refuses.

    Example:
        >>> import torch
        >>> from vendi_guidance import Cosine, convergence, rke
        >>> found = convergence(rke, torch.eye(8), Cosine(), sizes=[2, 4, 8])
        >>> [round(mean, 3) for mean in found.mean.tolist()]
        [2.0, 4.0, 8.0]
    """
    z = quantile(level)
    check_count("repeats", repeats, 3)
    subsets = Subsets(score, arguments, options)
    n = subsets.n
    asked = _eight_sizes(n) if sizes is None else sorted(set(sizes))
    sizes = [int(size) for size in asked]
    if not sizes or sizes != asked or not 1 <= sizes[0] < n or sizes[-1] > n:
        raise ValueError(
            f"sizes must be whole numbers from 1 to n = {n}, one of them below n, got {asked}"
        )

    repeated: list[list[float]] = []
    for rows in subsets.permutations(seed, repeats):
        known = repeated[0][-1:] if repeated and sizes[-1] == n else []  # of all n: in any order
        scored = [subsets(rows[:size]) for size in sizes[: len(sizes) - len(known)]]
        repeated.append(scored + known)
    scores = torch.tensor(repeated, dtype=torch.float64, device="cpu").T
    mean, deviation = scores.mean(dim=1), scores.std(dim=1)
    shares = torch.tensor(sizes, dtype=torch.float64, device="cpu") / n
    if sizes[-1] == n:
        # As for a mean, whose deviation is proportional to 1 / sqrt(items).
        deviation[-1] = deviation[-2] * shares[-2].sqrt()
        shares[-1] = shares[-2]
    half = _student(z, repeats - 1) * deviation / (1 - shares).sqrt()
    return Convergence(
        torch.tensor(sizes, device="cpu"), scores, mean, mean - half, mean + half, level
    )


def _eight_sizes(n: int) -> list[int]:
    if n < 2 * FEWEST:
        raise ValueError(f"got {n} items: give at least {2 * FEWEST}, or the sizes wanted")
    first = max(FEWEST, n / 64)
    return [round(first * (n / first) ** (step / 7)) for step in range(8)]


def _student(z: float, degrees: int) -> float:
    """Student's t quantile from that of the normal, by Fisher's expansion, to 5% from 2 degrees.

    `subsampling.quantile` is exact; published bands are of this.
    """
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return sum(term / degrees**power for power, term in enumerate(terms))
