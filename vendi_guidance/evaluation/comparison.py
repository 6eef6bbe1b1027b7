"""The differences between two reports, with confidence intervals.

As many images of each prompt are compared from both batches: untruncated scores grow with the
number of images. Intervals are paired where both have the same prompts (see `intervals`), so
variation between prompts cancels.
"""

from dataclasses import replace

import torch
from torch import Tensor

from vendi_guidance.evaluation.evaluator import scores_of_parts, spectrum_for
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.evaluation.intervals import Draws, draw_parts
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.results import Comparison, Difference, Report
from vendi_guidance.scores.groups import rows_by_label

OF_KERNELS = ("image_embedder", "kernel_image", "prompt_embedder", "kernel_prompt")
DECISIVE = (*OF_KERNELS, "truncation", "clip", "faithfulness")
"""Settings that must agree for scores to be comparable."""


def compare(first: Report, second: Report, *, progress: bool = False) -> Comparison:
    """What changes from one batch to another, with 95% confidence intervals.

    Args:
        first, second: reports made with the same settings. Scores against reference images are
            left out unless both have the same ones.
        progress: show a progress bar.

    Raises:
        ValueError: the reports were made with other embedders, kernels or truncation, or another
            CLIP or judge of faithfulness; or only one has prompts.

    Example:
        >>> import torch
        >>> from vendi_guidance import Embedding, Gaussian, evaluate
        >>> images, kernel = torch.zeros(16, 3, 8, 8), Gaussian(0.1)
        >>> few, many = (
        ...     evaluate(images, embedding=Embedding(x, kernel_image=kernel))
        ...     for x in (torch.eye(2).repeat(8, 1), torch.eye(4).repeat(4, 1))
        ... )
        >>> round(compare(few, many).differences["vendi"].change, 3)
        2.0
    """
    bare = [report.name for report in (first, second) if report.inputs.t is None]
    if len(bare) == 1:
        raise ValueError(f"{bare[0]} has no prompts: evaluate both with prompts, or both without")
    for key in DECISIVE:
        one, other = (
            # however kernels were chosen
            {k: v for k, v in it.items() if k != "chosen"} if isinstance(it, dict) else it
            for it in (report.settings.get(key) for report in (first, second))
        )
        if one != other:
            raise ValueError(
                f"{first.name} and {second.name} cannot be compared: {key} is {one} of one and "
                f"{other} of the other; evaluate both with the same"
            )
    both = [first.inputs, second.inputs]
    real = [one.reference for one in both]
    if real[0] is None or real[1] is None or not torch.equal(real[0], real[1]):
        both = [replace(one, reference=None) for one in both]
    both = [one.take(rows) for one, rows in zip(both, _matching_rows(*both), strict=True)]
    n = len(both[0])
    draws = draw_parts([one.groups for one in both], [n, n])
    scores = [[one.scores(spectrum_for(n)) for one in both]]
    scores += map(list, zip(*scores_of_parts(both, draws, progress), strict=True))
    names = [name for name in MEASURES if all(name in found for found in scores[0])]
    differences = {name: _difference(name, scores, draws) for name in names}
    unit, paired = (None, False) if draws is None else (draws.unit, draws.paired)
    return Comparison(first, second, differences, n, unit, paired)


def _matching_rows(first: ScoreInputs, second: ScoreInputs) -> list[Tensor]:
    """Rows of as many images of each: of each group that both have, else of all."""
    if first.groups is not None and second.groups is not None:
        one = rows_by_label(first.groups, len(first))
        other = rows_by_label(second.groups, len(second))
        sizes = {label: min(len(one[label]), len(other[label])) for label in one if label in other}
        if sizes:
            return [
                torch.tensor(
                    sorted(i for label, n in sizes.items() for i in rows[label][:n]), device="cpu"
                )
                for rows in (one, other)
            ]
    return [torch.arange(min(len(first), len(second)), device="cpu")] * 2


def _difference(name: str, scores: list[list[dict[str, float]]], draws: Draws | None) -> Difference:
    """The change of one score; `scores` are both batches', then those of their parts in a draw."""
    pairs = [(a[name], b[name]) for a, b in scores if name in a and name in b]
    if len(pairs) < len(scores):  # there are parts too small for this score
        pairs = pairs[:1]
    is_ratio = MEASURES[name].is_ratio and min(map(min, pairs)) > 0
    change, *changes = [b / a if is_ratio else b - a for a, b in pairs]
    ends = draws.interval(change, changes, is_ratio=is_ratio) if draws and changes else None
    low, high = ends or (None, None)
    return Difference(*pairs[0], change, low, high, is_ratio)
