"""Scores of a finished batch."""

from collections.abc import Collection, Hashable, Sequence
from dataclasses import asdict, is_dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from vendi_guidance.checks import counted
from vendi_guidance.evaluation.analysis import CURVES_FROM, analyse
from vendi_guidance.evaluation.attributes import Attribute, AttributeJudge
from vendi_guidance.evaluation.batches import Batch, Images, as_batch
from vendi_guidance.evaluation.embedding import (
    IMAGE_SIGMAS,
    PROMPT_SIGMAS,
    Clip,
    ImageFeatures,
    ImageReader,
    PromptFeatures,
    choose_kernel,
    embed_prompts,
)
from vendi_guidance.evaluation.faithfulness import Faithfulness, faithfulness_of
from vendi_guidance.evaluation.inputs import NEIGHBOURS, ScoreInputs
from vendi_guidance.evaluation.intervals import ENOUGH, LEVEL, Draws, draw_parts
from vendi_guidance.evaluation.labels import check_labels, label_images
from vendi_guidance.evaluation.measures import MEASURES, basis
from vendi_guidance.evaluation.results import ReportData, Score
from vendi_guidance.evaluation.spreads import attribute_scores
from vendi_guidance.features.base import Labeler, Labels
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.kernels.base import as_features
from vendi_guidance.kernels.custom import Similarity
from vendi_guidance.scores.alignment import clip_cosines
from vendi_guidance.scores.spectra import Exact, Lanczos, Nystrom, Spectrum

REFERENCES_OF_A_PART = 1000
"""Parts of a batch are compared with at most as many reference images, always the same ones."""


class Report(ReportData):
    """What `evaluate` returns: the scores of a batch, which can be saved as a report.

    Example:
        >>> import torch
        >>> report = evaluate(torch.zeros(16, 3, 8, 8), image_embedder=torch.eye(4).repeat(4, 1))
        >>> report.scores["rke"].basis
        'given features, Gaussian σ = 1.414 (median distance); order 2, n = 16'
    """

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write `report.html`, `report.md`, `report.json` and figures as PNG files.

        Returns:
            The path of the page.

        Raises:
            OSError: the folder cannot be written.
        """
        from vendi_guidance.evaluation.report.writer import save_report  # matplotlib takes a second

        return save_report(Path(folder), [self])


def evaluate(
    images: Images,
    prompts: Sequence[str] | None = None,
    *,
    name: str = "",
    image_embedder: ImageFeatures = "dinov2",
    prompt_embedder: PromptFeatures = "clip",
    kernel_image: "Similarity | None" = None,
    kernel_prompt: "Similarity | None" = None,
    truncation: int | None = None,
    groups: Sequence[Hashable] | None = None,
    reference: Images | None = None,
    clip: "Clip | None" = None,
    faithfulness: "Faithfulness | None" = None,
    labels: Labels | Labeler | None = None,
    attributes: Sequence[Attribute] = (),
    attribute_judge: AttributeJudge | None = None,
    seconds: Sequence[float] | None = None,
    cache: Path | None = None,
    workers: int = 0,
    on_bad_image: Literal["skip", "fail"] = "skip",
    progress: bool = False,
) -> Report:
    """Score a finished batch.

    Args:
        images: n images: a folder, PIL images, arrays, a tensor or a dataset (see `as_batch`).
        prompts: the n prompts; None takes those that come with the folder or dataset. Without
            prompts there are no conditional scores.
        name: of the batch; "" is the folder's own name.
        image_embedder, prompt_embedder: what gives features: its name (see `open_image_embedder`
            and `open_prompt_embedder`), which computes on the CPU; itself, such as
            `open_image_embedder("dinov2", device="cuda")`; or the n features.
        kernel_image, kernel_prompt: the similarity of two images, and of two prompts. None is a
            Gaussian of the embedder's usual bandwidth, else of the median distance. To compare two
            batches, give the second the kernels of the first: `report.inputs.kernel_x`, `kernel_t`.
        truncation: how many eigenvalues the truncated scores keep; None leaves these out.
        groups: n labels of images that belong together; None is the prompts.
        reference: real images to compare with, as `images`, or their (m, d) features.
        clip: what gives the CLIPScore: the name of a CLIP, or its two embedders.
        faithfulness: how well each image matches its prompt: the name of a column of numbers in
            `metadata.jsonl` (a VQAScore, HPS or ImageReward computed elsewhere), n numbers,
            or a function that returns them for some images and their prompts.
        labels: what each image shows: n labels, or a `Labeler`, which is not called without
            prompts. Prompt fidelity and looks need a prompt that asks for a known label.
        attributes: what may vary, such as of `load_attributes`: how each prompt's images spread
            over the values.
        attribute_judge: says which value an image shows; None takes labels from columns of the
            folder's `metadata.jsonl`.
        seconds: the time each image took; None takes it from the folder.
        cache: a folder where the features of files are kept between calls.
        workers: how many processes decode files.
        on_bad_image: leave out files that cannot be read, or fail at the first.
        progress: show progress bars.

    Raises:
        ValueError: no images, or not one prompt, label and time for each; features that hold NaN;
            a CLIP without prompts; or a setting that a kernel or a score refuses.
        FileNotFoundError: a folder, or an embedder's weights, are missing.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian
        >>> x, t = torch.eye(4).repeat(4, 1), torch.eye(2).repeat(8, 1)
        >>> settings = {"image_embedder": x, "kernel_image": Gaussian(0.1)}
        >>> settings |= {"prompt_embedder": t, "kernel_prompt": Gaussian(0.1)}
        >>> report = evaluate(torch.zeros(16, 3, 8, 8), ["a cat", "a dog"] * 8, **settings)
        >>> [round(report.scores[name].value, 3) for name in ("vendi", "conditional_vendi")]
        [4.0, 2.0]
    """
    batch = as_batch(images, prompts)
    n = len(batch.images)
    for what, given in (("group label", groups), ("time", seconds)):
        if given is not None and len(given) != n:
            both = f"{counted(n, 'image')} and {counted(len(given), what)}"
            raise ValueError(f"got {both}: give one for each image")
    if batch.prompts is None and clip is not None:
        raise ValueError("a CLIPScore compares images with prompts: give the prompts too")
    if isinstance(reference, (Tensor, np.ndarray)) and reference.ndim == 2:
        real: Tensor | Batch | None = as_features(reference)
    else:
        real = None if reference is None else as_batch(reference, read_prompts=False)
    if isinstance(image_embedder, str):
        image_embedder = open_image_embedder(image_embedder)
    reader = ImageReader(cache, workers, on_bad_image, progress)
    (x, kept, skipped), described_x = reader.embed(batch.images, image_embedder)
    batch = batch.take(kept)
    times = batch.seconds if seconds is None else [float(seconds[i]) for i in kept]
    kernel_x, settings_x = choose_kernel(kernel_image, IMAGE_SIGMAS, described_x, x)
    settings: dict[str, Any] = {"images": len(x), "image_embedder": described_x}
    settings |= {"kernel_image": settings_x, "truncation": truncation}
    inputs = ScoreInputs(
        x,
        kernel_x,
        groups=batch.prompts if groups is None else [groups[i] for i in kept],
        truncation=truncation,
        seconds=None if times is None else torch.tensor(times, dtype=torch.float64),
    )
    if batch.prompts is not None:
        t, described = embed_prompts(batch.prompts, prompt_embedder)
        kernel_t, settings_t = choose_kernel(kernel_prompt, PROMPT_SIGMAS, described, t)
        inputs = replace(inputs, t=t, kernel_t=kernel_t)
        settings["prompts"] = len(set(batch.prompts))
        settings |= {"prompt_embedder": described, "kernel_prompt": settings_t}
        if clip is not None:
            of_images, of_prompts = (clip, clip) if isinstance(clip, str) else clip
            clip_x, settings["clip"] = reader.embed(batch.images, of_images)
            clip_t, _ = embed_prompts(batch.prompts, of_prompts)
            inputs = replace(inputs, clip=100 * clip_cosines(clip_x.features, clip_t))
    if faithfulness is not None:
        judged, settings["faithfulness"] = faithfulness_of(batch, faithfulness, n, kept)
        inputs = replace(inputs, faithfulness=judged)
    if isinstance(labels, Labels):
        labels = check_labels(labels, n).take(kept)
    elif labels is not None and batch.prompts is not None:
        labels = label_images(labels, batch.images, batch.prompts, x, described_x)
    if isinstance(labels, Labels) and any(labels.asked):
        inputs = replace(inputs, labels=labels)
        settings["labeled"] = sum(asked is not None for asked in labels.asked)
    if real is not None:
        if isinstance(real, Batch):
            real, _, unread = reader.embed(real.images, image_embedder)[0]
            skipped = skipped + unread
        inputs = replace(inputs, reference=real)
        settings["references"] = len(real)
    spectrum = spectrum_for(len(x))
    settings["spectrum"] = {"name": type(spectrum).__name__}
    settings["spectrum"] |= asdict(spectrum) if is_dataclass(spectrum) else {}
    draws = draw_parts([inputs.groups], [len(inputs)])
    settings["interval"] = None if draws is None else {"level": LEVEL, "drawn": draws.unit}
    values = inputs.scores(spectrum)
    [parts] = scores_of_parts([inputs], draws, progress)
    scores = {
        score: Score(
            values[score],
            *_interval(score, values, parts, draws, inputs.least(score)),
            basis(score, settings),
        )
        for score in MEASURES
        if score in values
    }
    name = name or batch.name or "the batch"
    found = attribute_scores(batch, attributes, attribute_judge) if attributes else []
    notes = [note for note in (batch.note, _wanting(inputs, scores, draws)) if note]
    about = analyse(inputs)
    return Report(name, scores, settings, skipped, about, batch.images, inputs, found, notes)


def _wanting(inputs: ScoreInputs, scores: Collection[str], draws: Draws | None) -> str:
    """What is left out because there are too few images, and how many it needs; "" if nothing."""
    wanted = [] if draws else [f"confidence intervals (they need {ENOUGH})"]
    if len(inputs) < CURVES_FROM:
        wanted.append(f"convergence curves ({CURVES_FROM} images)")
    if inputs.groups is not None and len(set(inputs.groups)) == len(inputs):
        wanted.append("in-batch similarity (2 images of a prompt)")
    if inputs.reference is not None:
        if "kernel_distance" not in scores:
            wanted.append("kernel and Fréchet distance (2 images, and 2 reference images)")
        if "precision" not in scores:
            least = NEIGHBOURS + 1
            wanted.append(f"precision and recall ({least} images, and {least} reference images)")
    if not wanted:
        return ""
    there = "There is" if len(inputs) == 1 else "There are"
    return f"{there} {counted(len(inputs), 'image')}, too few for {', '.join(wanted)}."


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
