"""What a batch shows for its numbers: groups, modes, near-duplicates, spectra, convergence curves.

Of large batches these look at a part, drawn at random once; each says of how many.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor

from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.evaluation.labels import looks_by_group
from vendi_guidance.kernels.standard import upper_triangle
from vendi_guidance.kernels.tiles import tile
from vendi_guidance.scores.convergence import FEWEST, Convergence, convergence
from vendi_guidance.scores.functional import conditional_vendi, rows_by_label, vendi
from vendi_guidance.scores.modes import ROUNDING, Mode, find_modes
from vendi_guidance.scores.references import in_batch_similarity
from vendi_guidance.scores.spectra import Exact

DENSE_UP_TO = 2000
"""Eigenvectors and heat maps are of so many pictures at most."""

PAIRS_UP_TO = 20_000
"""Near-duplicates are sought among so many."""

CURVES_TO = 1000
"""Convergence curves reach so far."""

MODES, OF_EACH = 6, 8
PAIRS = 12
EIGENVALUES = 100


@dataclass(frozen=True)
class Group:
    """Pictures that belong together, such as those of one prompt.

    Attributes:
        label: the prompt.
        rows: their numbers.
        vendi: how many different pictures there are among them, 1 to their number.
        similarity: mean cosine of two of them; None of a single one.
        looks: how many distinct correct variants its labels have; None without labels.
    """

    label: Hashable
    rows: tuple[int, ...]
    vendi: float
    similarity: float | None
    looks: int | None


@dataclass(frozen=True)
class Pair:
    """Two pictures, and how alike the kernel finds them, at most 1."""

    first: int
    second: int
    similarity: float


@dataclass(frozen=True, eq=False)
class Analysis:
    """What there is to see.

    Attributes:
        groups: the least diverse first; none where every picture has a label of its own.
        modes: the leading ones, by row numbers of the whole batch.
        pairs: the most alike, no picture twice.
        spectra: eigenvalues, largest first, of K_X/n, and where there are prompts of K_T/n and
            K_X∘K_T/n, by "pictures", "prompts" and "joint".
        convergence: of "conditional_vendi" and "vendi" as pictures are added.
        similarities: (b, b) of the pictures `rows`, which are in order of their groups.
        looked_at: how many pictures modes and spectra, and how many pairs, are of.
    """

    groups: list[Group]
    modes: list[Mode]
    pairs: list[Pair]
    spectra: dict[str, list[float]]
    convergence: dict[str, Convergence]
    similarities: Tensor
    rows: list[int]
    looked_at: dict[str, int]


@torch.no_grad()
def analyse(inputs: ScoreInputs, *, seed: int = 0) -> Analysis:
    """Everything there is to see of a batch.

    Args:
        inputs: the batch.
        seed: of the parts that are looked at of large batches.
    """
    some = _sample(len(inputs), DENSE_UP_TO, seed)
    part = inputs.take(some)
    more = _sample(len(inputs), PAIRS_UP_TO, seed)
    rows = some[_in_order_of_groups(part)]
    gram = part.kernel_x.gram(inputs.x[rows])
    return Analysis(
        groups=_groups(inputs),
        modes=[
            Mode(mode.eigenvalue, tuple(some[list(mode.rows)].tolist()), mode.loadings)
            for mode in find_modes(
                part.x, part.kernel_x, count=MODES, top=OF_EACH, spectrum=Exact()
            )
        ],
        pairs=_pairs(inputs.take(more), more),
        spectra=_spectra(part),
        convergence=_curves(inputs, seed),
        similarities=gram,
        rows=rows.tolist(),
        looked_at={"modes": len(some), "pairs": len(more)},
    )


def _sample(n: int, most: int, seed: int) -> Tensor:
    """At most so many row numbers, in order."""
    drawn = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return drawn[:most].sort().values


def _in_order_of_groups(part: ScoreInputs) -> Tensor:
    groups = rows_by_label(part.groups or [None] * len(part), len(part))
    return torch.tensor([row for rows in groups.values() for row in rows])


def _groups(inputs: ScoreInputs) -> list[Group]:
    if inputs.groups is None:
        return []
    members = rows_by_label(inputs.groups, len(inputs))
    if len(members) == len(inputs):
        return []
    looks = {} if inputs.labels is None else looks_by_group(inputs.groups, inputs.labels)
    found = []
    for label, rows in members.items():
        x = inputs.x[rows[:DENSE_UP_TO]]
        similarity = in_batch_similarity(x, ["one"] * len(x)) if x.any(1).all() else None
        score = float(vendi(x, inputs.kernel_x))
        found.append(Group(label, tuple(rows), score, similarity, looks.get(label)))
    return sorted(found, key=lambda group: group.vendi)


def _pairs(part: ScoreInputs, numbers: Tensor) -> list[Pair]:
    """Pictures and their nearest, the most alike first, no picture twice."""
    n = len(part)
    blocks = part.kernel_x.blocks(part.x)
    nearest = part.x.new_full((n,), -torch.inf)
    who = torch.zeros(n, dtype=torch.long, device=part.x.device)
    for rows, columns in upper_triangle(part.x):
        k = tile(blocks, rows, columns)
        if rows == columns:
            k = k.fill_diagonal_(-torch.inf)
        for these, those, values in ((rows, columns, k), (columns, rows, k.T)):
            best, where = values.max(dim=1)
            closer = best > nearest[these]
            who[these] = torch.where(closer, where + those.start, who[these])
            nearest[these] = torch.where(closer, best, nearest[these])
    pairs: list[Pair] = []
    shown: set[int] = set()
    for row in nearest.argsort(descending=True).tolist() if n > 1 else []:
        both = {row, int(who[row])}
        if not both & shown and len(pairs) < PAIRS:
            shown |= both
            first, second = sorted(int(numbers[i]) for i in both)
            pairs.append(Pair(first, second, float(nearest[row])))
    return pairs


def _spectra(part: ScoreInputs) -> dict[str, list[float]]:
    """Where prompts repeat, K_T has no more eigenvalues than there are prompts."""
    names = ("pictures", "prompts", "joint")
    found = (values[:EIGENVALUES] for values in part.eigenvalues())
    return {
        name: values[values > ROUNDING * values[0]].tolist()
        for name, values in zip(names, found, strict=False)
    }


def _curves(inputs: ScoreInputs, seed: int) -> dict[str, Convergence]:
    n = min(len(inputs), CURVES_TO)
    if n < 2 * FEWEST:
        return {}
    sizes = [round(FEWEST * (n / FEWEST) ** (step / 7)) for step in range(8)]
    curve = {"vendi": convergence(vendi, inputs.x, inputs.kernel_x, sizes=sizes, seed=seed)}
    if inputs.t is not None:
        curve["conditional_vendi"] = convergence(
            conditional_vendi,
            inputs.x,
            inputs.t,
            inputs.kernel_x,
            inputs.kernel_t,
            sizes=sizes,
            seed=seed,
        )
    return curve
