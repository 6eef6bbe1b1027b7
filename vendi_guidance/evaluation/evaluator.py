"""Scores of a finished batch."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from vendi_guidance.checks import counted
from vendi_guidance.evaluation.analysis import CURVES_FROM, analyse
from vendi_guidance.evaluation.attribute_diversity import attribute_scores, attribute_spreads
from vendi_guidance.evaluation.batches import Images, as_batch
from vendi_guidance.evaluation.deprecated import takes_deprecated_keywords
from vendi_guidance.evaluation.embedding import (
    DINOV2_AND_CLIP,
    READER,
    Embedding,
    ImageFeatures,
    ImageReader,
    embed_batch,
)
from vendi_guidance.evaluation.inputs import NEIGHBOURS, ScoreInputs
from vendi_guidance.evaluation.intervals import ENOUGH, LEVEL, Draws, draw_parts
from vendi_guidance.evaluation.judges import NO_JUDGES, Judges, judge_images, own_features
from vendi_guidance.evaluation.measures import MEASURES, basis
from vendi_guidance.evaluation.results import Report, ScoreResult
from vendi_guidance.features.files import BadImage
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.kernels.base import as_features
from vendi_guidance.scores.spectra import Exact, Lanczos, Nystrom, Spectrum

MOST_REFERENCES = 1000
"""For confidence intervals many parts of a batch are scored. To save time they are compared with
at most this many reference images, the same ones each time."""


@takes_deprecated_keywords
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
    if batch.prompts is None and judges.attributes:
        raise ValueError("attributes are counted for each prompt: give the prompts too")
    if isinstance(embedding.image, str):  # opened once, for the references too
        embedding = replace(embedding, image=open_image_embedder(embedding.image))
    real, unread = _embed_references(references, embedding.image, reader)
    judged = judge_images(embed_batch(batch, embedding, reader), judges, reader)
    inputs, settings = replace(judged.inputs, reference=real), judged.settings
    if real is not None:
        settings["references"] = len(real)
    spectrum = spectrum_for(len(inputs))
    settings["spectrum"] = {"name": type(spectrum).__name__, **vars(spectrum)}
    draws = draw_parts([inputs.groups], [len(inputs)])
    settings["interval"] = None if draws is None else {"level": LEVEL, "drawn": draws.unit}
    values = inputs.scores(spectrum)
    [of_parts] = scores_of_parts([inputs], draws, reader.progress)
    scores = {}
    for score in filter(values.__contains__, MEASURES):
        ends = _interval(score, values[score], of_parts, draws, inputs.lower_bound(score))
        scores[score] = ScoreResult(values[score], *ends, basis(score, settings))
    judge = judges.attribute_judge
    features = own_features(judged, judge)
    attributes = attribute_scores(judged.batch, judges.attributes, judge, features)
    notes = (judged.batch.note, _too_few(inputs, scores, draws))
    return Report(
        name=name or batch.name or "the batch",
        scores=scores,
        settings=settings,
        skipped=judged.skipped + unread,
        analysis=analyse(inputs),
        images=judged.batch.images,
        inputs=inputs,
        attributes=attributes,
        spreads=attribute_spreads(attributes, judged.batch.prompts or [], judges.mix),
        notes=[note for note in notes if note],
    )


def spectrum_for(n: int) -> Spectrum:
    """How the entropies of n images are computed: exactly where that takes only seconds."""
    if n <= 3000:
        return Exact()
    return Lanczos() if n <= 20_000 else Nystrom(2000)


def scores_of_parts(
    batches: Sequence[ScoreInputs], draws: Draws | None, progress: bool
) -> list[list[dict[str, float]]]:
    """For each batch, the scores of its part in every draw; confidence intervals come from these.
    Without draws there are none."""
    smaller = [_with_fewer_references(batch) for batch in batches]
    found: list[list[dict[str, float]]] = [[] for _ in batches]
    parts = [] if draws is None else draws.parts
    for part in tqdm(parts, "intervals", disable=None if progress else True):
        for batch, rows, scores in zip(smaller, part, found, strict=True):
            scores.append(batch.take(rows).scores(Exact()))  # parts are small: `LARGEST_PART`
    return found


def _embed_references(
    references: Images | None, embedder: ImageFeatures, reader: ImageReader
) -> tuple[Tensor | None, list[BadImage]]:
    """(m, d) features of the reference images, and which of their files could not be read."""
    if references is None:
        return None, []
    if isinstance(references, (Tensor, np.ndarray)) and references.ndim == 2:
        return as_features(references).cpu(), []
    if isinstance(embedder, (Tensor, np.ndarray)):
        raise ValueError(
            "the images' features are given, so those of reference images are needed, too: "
            "references must be an (m, d) tensor or array of them"
        )
    features, _, unread = reader.embed(as_batch(references, read_prompts=False).images, embedder)[0]
    return features, unread


def _with_fewer_references(batch: ScoreInputs) -> ScoreInputs:
    """The same with `MOST_REFERENCES` drawn from its reference images, if it has more."""
    references = batch.reference
    if references is None or len(references) <= MOST_REFERENCES:
        return batch
    drawn = torch.randperm(
        len(references), generator=torch.Generator().manual_seed(0), device="cpu"
    )
    return replace(batch, reference=references[drawn[:MOST_REFERENCES]])


def _interval(
    name: str,
    value: float,
    scores: list[dict[str, float]],
    draws: Draws | None,
    lower_bound: float,
) -> tuple[float | None, float | None]:
    """The confidence interval of a score, cut to the values that it can have, by the scores of the
    batch's parts; None for both ends where one of these is too small for the score."""
    if draws is None or not all(name in part for part in scores):
        return None, None
    measure, of_parts = MEASURES[name], [part[name] for part in scores]
    is_ratio = measure.is_ratio and min(value, *of_parts) > 0
    ends = draws.interval(value, of_parts, is_ratio=is_ratio)
    if ends is None:
        return None, None
    return max(ends[0], lower_bound, measure.low), min(ends[1], measure.high)


def _too_few(inputs: ScoreInputs, scores: Collection[str], draws: Draws | None) -> str:
    """Which results are left out, and how many images these need; "" if none are."""
    n, has_reference, fewest = len(inputs), inputs.reference is not None, NEIGHBOURS + 1
    is_left_out = {
        f"confidence intervals (they need {ENOUGH})": draws is None,
        f"convergence curves ({CURVES_FROM} images)": n < CURVES_FROM,
        "in-batch similarity (2 images of a prompt)": inputs.groups is not None
        and len(set(inputs.groups)) == n,
        "kernel and Fréchet distance (2 images, and 2 reference images)": has_reference
        and "kernel_distance" not in scores,
        f"precision and recall ({fewest} images, and {fewest} reference images)": has_reference
        and "precision" not in scores,
    }
    left_out = [what for what, is_out in is_left_out.items() if is_out]
    if not left_out:
        return ""
    there = counted(n, "image")
    if inputs.reference is not None and "reference" in left_out[-1]:
        there += f" and {counted(len(inputs.reference), 'reference image')}"
    return f"Left out for {there}: {', '.join(left_out)}."
