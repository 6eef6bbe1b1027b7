"""What a batch consists of: groups, modes, spectra and convergence curves."""

from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch

from vendi_guidance.evaluation.inputs import ScoreInputs, looks_by_group
from vendi_guidance.scores.alignment import in_batch_similarity
from vendi_guidance.scores.convergence import FEWEST, Convergence, convergence
from vendi_guidance.scores.functional import conditional_vendi, vendi
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.modes import ROUNDING, Mode, find_modes, group_scores
from vendi_guidance.scores.spectra import Exact

DENSE_UP_TO = 2000
"""The most images whose eigenvectors are computed: of larger batches, a random sample."""

CURVES_FROM = 2 * FEWEST
"""With fewer images, there are no convergence curves."""

EIGENVALUES = 100


@dataclass(frozen=True)
class Group:
    """Images that belong together, such as those of one prompt.

    Attributes:
        label: the prompt.
        rows: the numbers of its images.
        vendi: their Vendi score, from 1 to their number.
        similarity: mean cosine of two of them; None for a single one.
        looks: how many distinct correct variants their labels have; None without labels.
    """

    label: Hashable
    rows: tuple[int, ...]
    vendi: float
    similarity: float | None
    looks: int | None


@dataclass(frozen=True, eq=False)
class Analysis:
    """What a batch consists of.

    Attributes:
        groups: the least diverse first; none where every image has a label of its own.
        modes: the leading ones, by row numbers of the whole batch.
        spectra: eigenvalues, largest first, of K_X/n ("pictures"), and where there are prompts of
            K_T/n ("prompts") and K_X∘K_T/n ("joint").
        convergence: "conditional_vendi" and "vendi" as images are added.
        looked_at: of how many images the "modes" and spectra are.
    """

    groups: list[Group]
    modes: list[Mode]
    spectra: dict[str, list[float]]
    convergence: dict[str, Convergence]
    looked_at: dict[str, int]


@torch.no_grad()
def analyse(inputs: ScoreInputs) -> Analysis:
    """Analyse a batch."""
    drawn = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0), device="cpu")
    some = drawn[:DENSE_UP_TO].sort().values
    part = inputs.take(some)
    modes = find_modes(part.x, part.kernel_x, count=6, top=8, spectrum=Exact())
    return Analysis(
        groups=_groups(inputs),
        modes=[replace(mode, rows=tuple(some[list(mode.rows)].tolist())) for mode in modes],
        spectra={
            # without eigenvalues of 0, which K_T has where prompts repeat
            name: values[values > ROUNDING * values[0]][:EIGENVALUES].tolist()
            for name, values in part.eigenvalues().items()
        },
        convergence=_convergence(inputs),
        looked_at={"modes": len(some)},
    )


def _groups(inputs: ScoreInputs) -> list[Group]:
    if inputs.groups is None:
        return []
    members = rows_by_label(inputs.groups, len(inputs))
    if len(members) == len(inputs):
        return []
    looks = {} if inputs.labels is None else looks_by_group(inputs.groups, inputs.labels)
    scored = [row for rows in members.values() for row in rows[:DENSE_UP_TO]]
    labels = [inputs.groups[row] for row in scored]
    groups = []
    for one in group_scores(inputs.x[scored], inputs.kernel_x, labels):
        rows = members[one.label]
        x = inputs.x[rows[:DENSE_UP_TO]]
        similarity = in_batch_similarity(x, [""] * len(x)) if x.any(1).all() else None
        groups.append(Group(one.label, tuple(rows), one.score, similarity, looks.get(one.label)))
    return groups


def _convergence(inputs: ScoreInputs) -> dict[str, Convergence]:
    n = min(len(inputs), 1000)  # where curves end
    if n < CURVES_FROM:
        return {}
    sizes = [round(FEWEST * (n / FEWEST) ** (step / 7)) for step in range(8)]
    x, t, kernels = inputs.x, inputs.t, (inputs.kernel_x, inputs.kernel_t)
    curves = {"vendi": convergence(vendi, x, kernels[0], sizes=sizes)}
    if t is not None:
        curves["conditional_vendi"] = convergence(conditional_vendi, x, t, *kernels, sizes=sizes)
    return curves
