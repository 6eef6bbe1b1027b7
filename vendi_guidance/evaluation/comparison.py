"""The differences between two reports, with confidence intervals.

Both batches contribute the same number of images for each prompt, because untruncated scores grow
with the number of images. Intervals are paired if both have the same prompts (see
`scores.subsampling`), so that the variation between prompts cancels.
"""

from dataclasses import replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.evaluation.evaluator import spectrum_for, subsample_scores
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.results import Comparison, Difference, Report
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.subsampling import Subsamples, subsample

OF_FEATURES = ("image_embedder", "kernel_image", "prompt_embedder", "kernel_prompt")
DECISIVE = (*OF_FEATURES, "truncation", "clip", "faithfulness")
"""Settings that must agree for scores to be comparable."""


def compare(first: Report, second: Report, *, progress: bool = False) -> Comparison:
    """Compare the scores of two batches, with 95% confidence intervals of the changes.

    Args:
        first, second: reports made with the same settings and equal kernels; those without `==`,
            such as `Precomputed`, must be the same object (see `Embedding.with_kernels_of`). Scores
            against reference images are left out unless both have the same reference images.
        progress: show a progress bar.

    Raises:
        ValueError: the embedders, kernels, truncation, CLIP or faithfulness judge differ, or only
            one report has prompts.

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
    settings = [
        # the kernels themselves, because settings may only name a kernel's class
        one.settings | {"kernel_image": one.inputs.kernel_x, "kernel_prompt": one.inputs.kernel_t}
        for one in (first, second)
    ]
    for key in DECISIVE:
        one, other = (given.get(key) for given in settings)
        if not _is_same(one, other):
            hint = " (see Embedding.with_kernels_of)" if key.startswith("kernel") else ""
            raise ValueError(
                f"{first.name} and {second.name} cannot be compared: {key} is {one!s:.80} for the "
                f"first and {other!s:.80} for the second; evaluate both with the same{hint}"
            )
    inputs = [first.inputs, second.inputs]
    real = [batch.reference for batch in inputs]
    if real[0] is None or real[1] is None or not torch.equal(real[0], real[1]):
        inputs = [replace(batch, reference=None) for batch in inputs]
    inputs = [batch.take(rows) for batch, rows in zip(inputs, _matching_rows(*inputs), strict=True)]
    n = len(inputs[0])
    subsamples = subsample([batch.groups for batch in inputs], [n, n])
    scores = [[batch.scores(spectrum_for(n)) for batch in inputs]]
    scores += map(list, zip(*subsample_scores(inputs, subsamples, progress), strict=True))
    names = [name for name in MEASURES if all(name in found for found in scores[0])]
    differences = {name: _difference(name, scores, subsamples) for name in names}
    unit, paired = (None, False) if subsamples is None else (subsamples.unit, subsamples.paired)
    return Comparison(first, second, differences, n, unit, paired)


def _is_same(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except (RuntimeError, ValueError):  # dataclasses cannot compare fields that are tensors
        return False


def _matching_rows(first: ScoreInputs, second: ScoreInputs) -> list[Tensor]:
    """The rows to compare: as many of each group that both have; if none, as many of all images."""
    if first.groups is not None and second.groups is not None:
        one = rows_by_label(first.groups, len(first))
        other = rows_by_label(second.groups, len(second))
        sizes = {label: min(len(one[label]), len(other[label])) for label in one if label in other}
        if sizes:
            both = ([rows[label][:n] for label, n in sizes.items()] for rows in (one, other))
            return [torch.tensor(sorted(chain(*rows)), device="cpu") for rows in both]
    return [torch.arange(min(len(first), len(second)), device="cpu")] * 2


def _difference(
    name: str, scores: list[list[dict[str, float]]], subsamples: Subsamples | None
) -> Difference:
    """The change of one score; `scores` are those of both batches, then of each subsample."""
    pairs = [(a[name], b[name]) for a, b in scores if name in a and name in b]
    if len(pairs) < len(scores):  # some subsamples are too small for this score
        pairs = pairs[:1]
    is_ratio = MEASURES[name].is_ratio and min(map(min, pairs)) > 0
    change, *changes = [b / a if is_ratio else b - a for a, b in pairs]
    ends = None
    if subsamples is not None and changes:
        ends = subsamples.interval(change, changes, is_ratio=is_ratio)
    low, high = ends or (None, None)
    return Difference(*pairs[0], change, low, high, is_ratio)
