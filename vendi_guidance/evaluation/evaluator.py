"""Scores of a finished batch, and the differences between those of two."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from math import isfinite
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from vendi_guidance.evaluation.analysis import analyse
from vendi_guidance.evaluation.batches import Images, as_batch
from vendi_guidance.evaluation.embedding import (
    DINOV2_AND_CLIP,
    READER,
    Embedding,
    ImageFeatures,
    ImageReader,
    embed_batch,
)
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.evaluation.judges import NO_JUDGES, Judges, judge_attributes, judge_images
from vendi_guidance.evaluation.measures import MEASURES, basis
from vendi_guidance.evaluation.remarks import MOST_REFERENCES, remarks_on, remarks_on_images
from vendi_guidance.evaluation.results import Comparison, Difference, Report, ScoreResult
from vendi_guidance.features.files import BadImage
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.kernels.base import as_features
from vendi_guidance.scores.groups import rows_by_label, shuffled
from vendi_guidance.scores.subsampling import LEVEL, Subsamples, subsample

# settings that may differ between reports that are compared
INCIDENTAL = {"images", "prompts", "labeled", "references", "interval"}


def evaluate(
    images: Images,
    prompts: Sequence[str] | None = None,
    *,
    name: str = "",
    embedding: Embedding = DINOV2_AND_CLIP,
    judges: Judges = NO_JUDGES,
    references: Images | None = None,
    reader: ImageReader = READER,
) -> Report:
    """Score a finished batch.

    Args:
        images: n images: a folder, PIL images, arrays, a tensor or a dataset; or a `Batch` from
            `as_batch`.
        prompts: n prompts, for conditional scores; None uses those of the folder or dataset.
        name: name of the batch; "" uses the folder's name.
        embedding: features and kernels. To compare two batches, evaluate the second with
            `embedding.with_kernels_of(report.inputs)`, where `report` is that of the first.
        judges: models or data for CLIPScore, faithfulness, labels and attributes.
        references: real images to compare with, given like `images`, or their (m, d) features.
        reader: how files are read, and whether progress is shown.

    Raises:
        ValueError: no images, or the wrong number of prompts or labels; features with NaN; a CLIP
            or features of prompts without prompts; or a setting that a kernel or a score refuses.
        FileNotFoundError: a folder or an embedder's weights do not exist.

    Example:
        >>> import torch
        >>> from vendi_guidance import Embedding, Gaussian
        >>> x, t = torch.eye(4).repeat(4, 1), torch.eye(2).repeat(8, 1)
        >>> embedding = Embedding(x, t, kernel_image=Gaussian(0.1), kernel_prompt=Gaussian(0.1))
        >>> images = torch.zeros(16, 3, 8, 8)
        >>> report = evaluate(images, ["a cat", "a dog"] * 8, embedding=embedding)
        >>> [round(report.scores[name].value, 3) for name in ("vendi", "conditional_vendi")]
        [4.0, 2.0]
    """
    batch = as_batch(images, prompts)
    given = isinstance(embedding.prompt, (Tensor, np.ndarray))  # features of prompts
    if batch.prompts is None and (given or judges.clip or judges.attributes):
        raise ValueError("this judge or the features of prompts need them: give the prompts too")
    if isinstance(embedding.image, str):  # opened once, for the references too
        embedding = replace(embedding, image=open_image_embedder(embedding.image))
    real, unread = _embed_references(references, embedding.image, reader)
    judged = judge_images(embed_batch(batch, embedding, reader), judges, reader)
    judged, attributes = judge_attributes(judged, judges, reader)
    inputs, settings = replace(judged.inputs, reference=real), judged.settings
    if real is not None:
        settings["references"] = len(real)
    subsamples = subsample([inputs.prompts], [len(inputs)])
    drawn = {"level": LEVEL, "drawn": subsamples.unit}
    settings["interval"] = drawn if subsamples.parts else None
    found = inputs.scores()
    values = {key: value for key, value in found.items() if isfinite(value)}
    [of_parts] = subsample_scores([inputs], subsamples, reader.progress)
    scores = {}
    for key in filter(values.__contains__, MEASURES):
        measure, of_key = MEASURES[key], [one[key] for one in of_parts if key in one]
        how: Any = {"is_ratio": measure.is_ratio, "limits": (measure.low, measure.high)}
        estimate = subsamples.estimate(values[key], of_key, **how)
        scores[key] = ScoreResult(*estimate, basis(key, settings))
    analysis = analyse(inputs)
    notes = [
        judged.batch.note,
        *remarks_on(judged, judges, found, subsamples),
        *remarks_on_images(inputs, analysis),
    ]
    return Report(
        name=name or batch.name or "the batch",
        scores=scores,
        settings=settings,
        skipped=judged.skipped + unread,
        analysis=analysis,
        images=judged.batch.images,
        inputs=inputs,
        attributes=attributes,
        notes=[note for note in notes if note],
    )


def compare(first: Report, second: Report, *, progress: bool = False) -> Comparison:
    """Compare the scores of two batches, with 95% confidence intervals of the changes.

    Both batches contribute the same number of images for each prompt, because untruncated scores
    grow with the number of images. Intervals are paired if both have the same prompts, so that the
    variation between prompts cancels.

    Args:
        first, second: reports made with the same settings and equal kernels; those without `==`,
            such as `Precomputed`, must be the same object (see `Embedding.with_kernels_of`). Scores
            against reference images are left out unless both have the same reference images.
        progress: show a progress bar.

    Raises:
        ValueError: the embedders, kernels, truncation, groups, CLIP or faithfulness judge differ,
            or only one report has prompts.

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
    for key in sorted({*settings[0], *settings[1]} - INCIDENTAL):
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
    subsamples = subsample([batch.prompts for batch in inputs], [n, n])
    scores = [[batch.scores() for batch in inputs]]
    scores += map(list, zip(*subsample_scores(inputs, subsamples, progress), strict=True))
    names = [name for name in MEASURES if all(name in found for found in scores[0])]
    differences = {name: _difference(name, scores, subsamples) for name in names}
    return Comparison(first, second, differences, n, subsamples.unit, subsamples.paired)


def subsample_scores(
    batches: Sequence[ScoreInputs], subsamples: Subsamples, progress: bool
) -> list[list[dict[str, float]]]:
    """For each batch, the scores of every subsample."""
    smaller = []
    for batch in batches:
        references = batch.reference
        if references is not None and len(references) > MOST_REFERENCES:
            sample = shuffled(len(references))[:MOST_REFERENCES]
            batch = replace(batch, reference=references[sample])
        # images of a batch share one time, so that subsets do not show how much times vary
        columns = {name: it for name, it in batch.columns.items() if name != "seconds_per_image"}
        smaller.append(replace(batch, columns=columns))
    found: list[list[dict[str, float]]] = [[] for _ in batches]
    for part in tqdm(subsamples.parts, "intervals", disable=None if progress else True):
        for batch, rows, scores in zip(smaller, part, found, strict=True):
            scores.append(batch.take(rows).scores())  # at most `LARGEST_PART` images
    return found


def _embed_references(
    references: Images | None, embedder: ImageFeatures, reader: ImageReader
) -> tuple[Tensor | None, list[BadImage]]:
    """(m, d) features of the reference images, and the files that could not be read."""
    if references is None:
        return None, []
    if isinstance(references, (Tensor, np.ndarray)) and references.ndim == 2:
        return as_features(references).to("cpu", copy=True), []
    if isinstance(embedder, (Tensor, np.ndarray)):
        raise ValueError(
            "the images are given as features, so the reference images must be, too: references "
            "must be an (m, d) tensor or array"
        )
    found, _ = reader.embed(as_batch(references, read_prompts=False).images, embedder)
    return found.features, found.bad


def _is_same(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except (RuntimeError, ValueError):  # dataclasses cannot compare fields that are tensors
        return False


def _matching_rows(first: ScoreInputs, second: ScoreInputs) -> list[Tensor]:
    """The rows to compare: as many of each group that both have; if none, as many of all images."""
    one, other = (rows_by_label(it.prompts or range(len(it)), len(it)) for it in (first, second))
    sizes = {label: min(len(one[label]), len(other[label])) for label in one if label in other}
    if not sizes:
        return [torch.arange(min(len(first), len(second)), device="cpu")] * 2
    both = ([rows[label][:n] for label, n in sizes.items()] for rows in (one, other))
    return [torch.tensor(sorted(chain(*rows)), device="cpu") for rows in both]


def _difference(
    name: str, scores: list[list[dict[str, float]]], subsamples: Subsamples
) -> Difference:
    """The change of one score; `scores` are those of both batches, then of each subsample."""
    pairs = [(a[name], b[name]) for a, b in scores if name in a and name in b]
    is_ratio = MEASURES[name].is_ratio and min(map(min, pairs)) > 0
    changes = [b / a if is_ratio else b - a for a, b in pairs]
    change, low, high = subsamples.estimate(changes[0], changes[1:], is_ratio=is_ratio)
    return Difference(*pairs[0], change, low, high, is_ratio)
