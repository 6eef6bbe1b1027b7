"""Scores of a finished batch."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, is_dataclass, replace
from os import PathLike
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from vendi_guidance.checks import counted
from vendi_guidance.evaluation.analysis import CURVES_FROM, analyse
from vendi_guidance.evaluation.attribute_diversity import attribute_scores
from vendi_guidance.evaluation.attribute_spread import spreads
from vendi_guidance.evaluation.batches import Batch, Images, as_batch
from vendi_guidance.evaluation.earlier import takes_earlier_keywords
from vendi_guidance.evaluation.embedding import (
    DINOV2_AND_CLIP,
    READER,
    Embedding,
    ImageReader,
    embed_batch,
)
from vendi_guidance.evaluation.inputs import NEIGHBOURS, ScoreInputs
from vendi_guidance.evaluation.intervals import ENOUGH, LEVEL, Draws, draw_parts
from vendi_guidance.evaluation.judges import NO_JUDGES, Judges, judge_images
from vendi_guidance.evaluation.measures import MEASURES, basis
from vendi_guidance.evaluation.results import ReportData, ScoreResult
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.kernels.base import as_features
from vendi_guidance.scores.spectra import Exact, Lanczos, Nystrom, Spectrum

REFERENCES_OF_A_PART = 1000
"""Parts of a batch are compared with at most as many reference images, always the same ones."""


class Report(ReportData):
    """What `evaluate` returns: the scores of a batch, which can be saved as a report.

    Example:
        >>> import torch
        >>> from vendi_guidance import Embedding
        >>> embedding = Embedding(torch.eye(4).repeat(4, 1))
        >>> report = evaluate(torch.zeros(16, 3, 8, 8), embedding=embedding)
        >>> report.scores["rke"].basis
        'given features, Gaussian σ = 1.414 (median distance); order 2, n = 16'
    """

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write `report.html`, `report.json` and figures as PNG files.

        Returns:
            The path of the page.

        Raises:
            OSError: the folder cannot be written.
        """
        from vendi_guidance.evaluation.report.writer import save_report  # matplotlib takes a second

        return save_report(Path(folder), [self])


@takes_earlier_keywords
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
        images: n images: a folder, PIL images, arrays, a tensor or a dataset; or a `Batch` of
            `as_batch`, which also takes groups of images and the time that each took.
        prompts: the n prompts; None takes those that come with the folder or dataset. Without
            prompts there are no conditional scores.
        name: of the batch; "" is the folder's own name.
        embedding: features and kernels. To compare two batches, give the second
            `embedding.with_kernels_of(report.inputs)` of the first.
        judges: what gives CLIPScore, faithfulness, labels and attributes.
        references: real images to compare with, as `images`, or their (m, d) features.
        reader: how files are read, and whether progress is shown.

    Raises:
        ValueError: no images, or not one prompt and label for each; features that hold NaN;
            a CLIP without prompts; or a setting that a kernel or a score refuses.
        FileNotFoundError: a folder, or an embedder's weights, are missing.

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
    if batch.prompts is None and judges.clip is not None:
        raise ValueError("a CLIPScore compares images with prompts: give the prompts too")
    if isinstance(references, (Tensor, np.ndarray)) and references.ndim == 2:
        real: Tensor | Batch | None = as_features(references)
    else:
        real = None if references is None else as_batch(references, read_prompts=False)
    if isinstance(embedding.image, str):  # it may embed the references, too
        embedding = replace(embedding, image=open_image_embedder(embedding.image))
    found = judge_images(embed_batch(batch, embedding, reader), judges, reader)
    if isinstance(real, Batch):
        real, _, unread = reader.embed(real.images, embedding.image)[0]
        found = replace(found, skipped=found.skipped + unread)
    if real is not None:
        found.settings["references"] = len(real)
    inputs, settings = replace(found.inputs, reference=real), found.settings
    spectrum = spectrum_for(len(inputs))
    settings["spectrum"] = {"name": type(spectrum).__name__}
    settings["spectrum"] |= asdict(spectrum) if is_dataclass(spectrum) else {}
    draws = draw_parts([inputs.groups], [len(inputs)])
    settings["interval"] = None if draws is None else {"level": LEVEL, "drawn": draws.unit}
    values = inputs.scores(spectrum)
    [parts] = scores_of_parts([inputs], draws, reader.progress)
    scores = {}
    for score in (score for score in MEASURES if score in values):
        ends = _interval(score, values, parts, draws, inputs.least(score))
        scores[score] = ScoreResult(values[score], *ends, basis(score, settings))
    of_attributes = attribute_scores(found.batch, judges.attributes, judges.attribute_judge)
    notes = (found.batch.note, _wanting(inputs, scores, draws))
    return Report(
        name=name or batch.name or "the batch",
        scores=scores,
        settings=settings,
        skipped=found.skipped,
        analysis=analyse(inputs),
        images=found.batch.images,
        inputs=inputs,
        attributes=of_attributes,
        spreads=spreads(of_attributes, found.batch.prompts or [], judges.mix),
        notes=[note for note in notes if note],
    )


def _wanting(inputs: ScoreInputs, scores: Collection[str], draws: Draws | None) -> str:
    """What is left out because there are too few images, and how many it needs; "" if nothing."""
    n, has_reference, least = len(inputs), inputs.reference is not None, NEIGHBOURS + 1
    conditions = {
        f"confidence intervals (they need {ENOUGH})": draws is None,
        f"convergence curves ({CURVES_FROM} images)": n < CURVES_FROM,
        "in-batch similarity (2 images of a prompt)": inputs.groups is not None
        and len(set(inputs.groups)) == n,
        "kernel and Fréchet distance (2 images, and 2 reference images)": has_reference
        and "kernel_distance" not in scores,
        f"precision and recall ({least} images, and {least} reference images)": has_reference
        and "precision" not in scores,
    }
    wanted = [what for what, is_wanting in conditions.items() if is_wanting]
    if not wanted:
        return ""
    there = "There is" if n == 1 else "There are"
    return f"{there} {counted(n, 'image')}, too few for {', '.join(wanted)}."


def spectrum_for(n: int) -> Spectrum:
    """How the entropies of n images are computed: exactly as long as that takes seconds."""
    if n <= 3000:
        return Exact()
    return Lanczos() if n <= 20_000 else Nystrom(2000)


def scores_of_parts(
    batches: Sequence[ScoreInputs], draws: Draws | None, progress: bool
) -> list[list[dict[str, float]]]:
    """For each batch, the scores of its part in every draw."""
    smaller = []
    for one in batches:
        if one.reference is not None and len(one.reference) > REFERENCES_OF_A_PART:
            drawn = torch.randperm(len(one.reference), generator=torch.Generator().manual_seed(0))
            one = replace(one, reference=one.reference[drawn[:REFERENCES_OF_A_PART]])
        smaller.append(one)
    found: list[list[dict[str, float]]] = [[] for _ in batches]
    parts = [] if draws is None else draws.parts
    for part in tqdm(parts, "intervals", disable=None if progress else True):
        for one, rows, scores in zip(smaller, part, found, strict=True):
            scores.append(one.take(rows).scores(Exact()))
    return found


def _interval(
    name: str,
    values: dict[str, float],
    parts: list[dict[str, float]],
    draws: Draws | None,
    least: float,
) -> tuple[float | None, float | None]:
    """The confidence interval of a score, cut to its range and to what is at least `least`."""
    if draws is None or not all(name in part for part in parts):
        return None, None
    measure, of_parts = MEASURES[name], [part[name] for part in parts]
    is_ratio = measure.is_ratio and min(values[name], *of_parts) > 0
    low, high = draws.interval(values[name], of_parts, is_ratio=is_ratio)
    if low is None or high is None:
        return None, None
    return max(low, least, measure.low), min(high, measure.high)
