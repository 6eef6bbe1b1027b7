"""Scores of a finished batch."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from vendi_guidance.evaluation.analysis import analyse
from vendi_guidance.evaluation.attribute_diversity import attribute_scores
from vendi_guidance.evaluation.batches import Images, as_batch
from vendi_guidance.evaluation.embedding import (
    DINOV2_AND_CLIP,
    READER,
    Embedding,
    ImageFeatures,
    ImageReader,
    embed_batch,
)
from vendi_guidance.evaluation.inputs import NEIGHBOURS, ScoreInputs
from vendi_guidance.evaluation.judges import NO_JUDGES, Judges, judge_images, own_features
from vendi_guidance.evaluation.measures import MEASURES, basis
from vendi_guidance.evaluation.results import Report, ScoreResult
from vendi_guidance.features.files import BadImage
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.kernels.base import as_features
from vendi_guidance.scores.intervals import CURVES_FROM
from vendi_guidance.scores.spectra import Exact, Lanczos, Nystrom, Spectrum
from vendi_guidance.scores.subsampling import ENOUGH, LEVEL, Subsamples, subsample
from vendi_guidance.storage.messages import counted

MOST_REFERENCES = 1000  # that subsamples are compared with, to save time; the same ones for all


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
            `as_batch`, which also takes groups of images and generation times.
        prompts: n prompts, for conditional scores; None uses those of the folder or dataset.
        name: name of the batch; "" uses the folder's name.
        embedding: features and kernels. To compare two batches, evaluate the second with
            `embedding.with_kernels_of(report.inputs)`, where `report` is that of the first.
        judges: models or data for CLIPScore, faithfulness, labels and attributes.
        references: real images to compare with, given like `images`, or their (m, d) features.
        reader: how files are read, and whether progress is shown.

    Raises:
        ValueError: no images, or the wrong number of prompts or labels; features with NaN; a CLIP
            without prompts; or a setting that a kernel or a score refuses.
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
    subsamples = subsample([inputs.groups], [len(inputs)])
    settings["interval"] = subsamples and {"level": LEVEL, "drawn": subsamples.unit}
    values = inputs.scores(spectrum)
    [of_parts] = subsample_scores([inputs], subsamples, reader.progress)
    scores = {}
    for key, measure in MEASURES.items():
        if key in values:
            low, high = None, None
            part = [found[key] for found in of_parts if key in found]
            if subsamples is not None and len(part) == len(of_parts):
                is_ratio = measure.is_ratio and min(values[key], *part) > 0
                if ends := subsamples.interval(values[key], part, is_ratio=is_ratio):
                    low = max(ends[0], inputs.lower_bound(key), measure.low)
                    high = min(ends[1], measure.high)
            scores[key] = ScoreResult(values[key], low, high, basis(key, settings))
    judge = judges.attribute_judge
    given = judged.batch, judges.attributes, judge, own_features(judged, judge), judges.mix
    notes = (judged.batch.note, _left_out(inputs, scores, subsamples))
    return Report(
        name=name or batch.name or "the batch",
        scores=scores,
        settings=settings,
        skipped=judged.skipped + unread,
        analysis=analyse(inputs),
        images=judged.batch.images,
        inputs=inputs,
        attributes=attribute_scores(*given),
        notes=[note for note in notes if note],
    )


def spectrum_for(n: int) -> Spectrum:
    """How to compute entropies of n images: exactly if that takes only seconds."""
    if n <= 3000:
        return Exact()
    return Lanczos() if n <= 20_000 else Nystrom(2000)


def subsample_scores(
    batches: Sequence[ScoreInputs], subsamples: Subsamples | None, progress: bool
) -> list[list[dict[str, float]]]:
    """For each batch, the scores of every subsample; an empty list without subsamples."""
    smaller = []
    for batch in batches:
        references = batch.reference
        if references is not None and len(references) > MOST_REFERENCES:
            generator = torch.Generator().manual_seed(0)
            order = torch.randperm(len(references), generator=generator, device="cpu")
            batch = replace(batch, reference=references[order[:MOST_REFERENCES]])
        smaller.append(batch)
    found: list[list[dict[str, float]]] = [[] for _ in batches]
    parts = [] if subsamples is None else subsamples.parts
    for part in tqdm(parts, "intervals", disable=None if progress else True):
        for batch, rows, scores in zip(smaller, part, found, strict=True):
            scores.append(batch.take(rows).scores(Exact()))  # at most `LARGEST_PART` images
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
    features, _, unread = reader.embed(as_batch(references, read_prompts=False).images, embedder)[0]
    return features, unread


def _left_out(inputs: ScoreInputs, scores: Collection[str], subsamples: Subsamples | None) -> str:
    """A sentence that lists results left out for lack of images, with how many they need, or ""."""
    n, size = len(inputs), counted(len(inputs), "image")
    left_out = []
    if subsamples is None:
        left_out.append(f"confidence intervals (they need {ENOUGH})")
    if n < CURVES_FROM:
        left_out.append(f"convergence curves ({CURVES_FROM} images)")
    if inputs.groups is not None and len(set(inputs.groups)) == n:
        left_out.append("in-batch similarity (2 images of a prompt)")
    if inputs.reference is not None and "precision" not in scores:
        size += f" and {counted(len(inputs.reference), 'reference image')}"
        if "kernel_distance" not in scores:
            left_out.append("kernel and Fréchet distance (2 images, and 2 reference images)")
        fewest = NEIGHBOURS + 1
        left_out.append(f"precision and recall ({fewest} images, and {fewest} reference images)")
    return f"Left out for {size}: {', '.join(left_out)}." if left_out else ""
