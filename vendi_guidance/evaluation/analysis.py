"""The structure of a batch: groups, modes and convergence curves."""

from dataclasses import dataclass, replace
from statistics import median_low

import torch
from torch import Tensor

from vendi_guidance.evaluation.inputs import ScoreInputs, looks_by_group
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.scores.alignment import vendi_of_each
from vendi_guidance.scores.functional import conditional_vendi, vendi
from vendi_guidance.scores.groups import rows_by_label, shuffled
from vendi_guidance.scores.intervals import CURVES_FROM, Convergence, convergence, eight_sizes
from vendi_guidance.scores.modes import Mode, find_modes

DENSE_UP_TO = 2000  # most images whose eigenvectors are computed: a random sample of larger batches
NEAR = 0.95  # least similarity of near-duplicates: most images saved again as JPEG have more
LISTED = 100  # most pairs of near-duplicates that are listed
CURVE_UP_TO = 1000  # largest size in a convergence curve
WITHIN_UP_TO = 256  # likewise, in that of the images of a prompt


@dataclass(frozen=True)
class Group:
    """The images of a prompt."""

    label: str
    rows: tuple[int, ...]
    vendi: float
    looks: int | None  # number of distinct correct variants; None without labels


@dataclass(frozen=True, eq=False)
class Analysis:
    """The structure of a batch."""

    groups: list[Group]  # least diverse first; empty if every image has a prompt of its own
    modes: list[Mode]  # with row numbers of the whole batch
    convergence: dict[str, Convergence]  # "conditional_vendi", "vendi" and "within_prompt"
    looked_at: dict[str, int]  # the number of images behind "modes" and near-duplicates
    near_duplicates: list[tuple[int, int, float]]  # two rows, and their similarity


@isolated()
def analyse(inputs: ScoreInputs) -> Analysis:
    sample = shuffled(len(inputs))[:DENSE_UP_TO].sort().values
    part = inputs.take(sample)
    similarities = part.kernel_x.gram(part.x).triu(1).flatten()
    closest = similarities.topk(min(LISTED, len(similarities)))
    modes = find_modes(part.x, part.kernel_x, count=6, top=8)
    return Analysis(
        groups=_groups(inputs),
        modes=[replace(mode, rows=tuple(sample[list(mode.rows)].tolist())) for mode in modes],
        convergence=_convergence(inputs),
        looked_at={"modes": len(sample)},
        near_duplicates=[
            (*sample[[place // len(part), place % len(part)]].tolist(), similarity)
            for similarity, place in zip(*map(Tensor.tolist, closest), strict=True)
            if similarity >= NEAR
        ],
    )


def _groups(inputs: ScoreInputs) -> list[Group]:
    members, groups = rows_by_label(inputs.prompts or range(len(inputs)), len(inputs)), []
    if inputs.prompts is None or len(members) == len(inputs):
        return []
    looks = {} if inputs.labels is None else looks_by_group(inputs.prompts, inputs.labels)
    for prompt, rows in members.items():
        score = float(vendi(inputs.x[rows[:DENSE_UP_TO]], inputs.kernel_x))
        groups.append(Group(str(prompt), tuple(rows), score, looks.get(prompt)))
    return sorted(groups, key=lambda group: group.vendi)


def _convergence(inputs: ScoreInputs) -> dict[str, Convergence]:
    curves = _within_prompts(inputs)
    if len(inputs) < CURVES_FROM:
        return curves
    sizes = eight_sizes(min(len(inputs), CURVE_UP_TO))
    x, t, kernel_x, kernel_t = inputs.x, inputs.t, inputs.kernel_x, inputs.kernel_t
    curves["vendi"] = convergence(lambda rows: vendi(x[rows], kernel_x), len(x), sizes=sizes)
    if t is not None and kernel_t is not None:

        def score(rows: Tensor) -> Tensor:
            return conditional_vendi(x[rows], t[rows], kernel_x, kernel_t)

        curves["conditional_vendi"] = convergence(score, len(x), sizes=sizes)
    return curves


def _within_prompts(inputs: ScoreInputs) -> dict[str, Convergence]:
    """The Vendi score of a prompt's images against their number, mean over prompts; up to the
    median number of images, from at most `DENSE_UP_TO` of them."""
    members = rows_by_label(inputs.prompts or range(len(inputs)), len(inputs)).values()
    n = min(median_low(map(len, members)), WITHIN_UP_TO)
    if n < 2:
        return {}
    full = [rows[:n] for rows in members if len(rows) >= n]
    every = -(-len(full) * n // DENSE_UP_TO)
    grams = torch.stack([inputs.kernel_x.gram(inputs.x[rows]) for rows in full[::every]])

    def score(rows: Tensor) -> Tensor:
        return vendi_of_each(grams[:, rows[:, None], rows]).mean()

    sizes = sorted({-(-n * part // 16) for part in range(1, 17)})
    return {"within_prompt": convergence(score, n, sizes=sizes)}
