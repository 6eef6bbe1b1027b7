"""The structure of a batch: groups, modes and convergence curves."""

from collections.abc import Hashable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vendi_guidance.evaluation.inputs import ScoreInputs, looks_by_group
from vendi_guidance.scores.functional import conditional_vendi, vendi
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.intervals import CURVES_FROM, Convergence, convergence, eight_sizes
from vendi_guidance.scores.modes import Mode, find_modes
from vendi_guidance.scores.spectra import Exact

DENSE_UP_TO = 2000  # most images whose eigenvectors are computed: a random sample of larger batches
SAME = 0.95  # least similarity of near-duplicates: most images saved again as JPEG have more
LISTED = 100  # most pairs of near-duplicates that are listed
CURVE_UP_TO = 1000  # largest size in a convergence curve


@dataclass(frozen=True)
class Group:
    """Images with the same label, such as their prompt."""

    label: Hashable
    rows: tuple[int, ...]
    vendi: float
    looks: int | None  # number of distinct correct variants; None without labels


@dataclass(frozen=True, eq=False)
class Analysis:
    """The structure of a batch."""

    groups: list[Group]  # least diverse first; empty if every image has a label of its own
    modes: list[Mode]  # with row numbers of the whole batch
    convergence: dict[str, Convergence]  # "conditional_vendi" and "vendi"
    looked_at: dict[str, int]  # the number of images behind "modes" and near-duplicates
    near_duplicates: list[tuple[int, int, float]]  # two rows, and their similarity


@torch.no_grad()
def analyse(inputs: ScoreInputs) -> Analysis:
    """Compute the analysis of a batch."""
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0), device="cpu")
    sample = order[:DENSE_UP_TO].sort().values
    part = inputs.take(sample)
    similarities = part.kernel_x.gram(part.x).triu(1).flatten()
    closest = similarities.topk(min(LISTED, len(similarities)))
    modes = find_modes(part.x, part.kernel_x, count=6, top=8, spectrum=Exact())
    return Analysis(
        groups=_groups(inputs),
        modes=[replace(mode, rows=tuple(sample[list(mode.rows)].tolist())) for mode in modes],
        convergence=_convergence(inputs),
        looked_at={"modes": len(sample)},
        near_duplicates=[
            (*sample[[place // len(part), place % len(part)]].tolist(), similarity)
            for similarity, place in zip(*map(Tensor.tolist, closest), strict=True)
            if similarity >= SAME
        ],
    )


def _groups(inputs: ScoreInputs) -> list[Group]:
    if inputs.groups is None:
        return []
    members = rows_by_label(inputs.groups, len(inputs))
    if len(members) == len(inputs):
        return []
    looks = {} if inputs.labels is None else looks_by_group(inputs.groups, inputs.labels)
    groups = []
    for label, rows in members.items():
        score = float(vendi(inputs.x[rows[:DENSE_UP_TO]], inputs.kernel_x))
        groups.append(Group(label, tuple(rows), score, looks.get(label)))
    return sorted(groups, key=lambda group: group.vendi)


def _convergence(inputs: ScoreInputs) -> dict[str, Convergence]:
    if len(inputs) < CURVES_FROM:
        return {}
    sizes = eight_sizes(min(len(inputs), CURVE_UP_TO))
    x, t, kernels = inputs.x, inputs.t, (inputs.kernel_x, inputs.kernel_t)
    curves = {"vendi": convergence(vendi, x, kernels[0], sizes=sizes)}
    if t is not None:
        curves["conditional_vendi"] = convergence(conditional_vendi, x, t, *kernels, sizes=sizes)
    return curves
