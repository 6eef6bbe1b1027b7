"""A finished batch in, a report of its diversity and fidelity out."""

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from math import exp, log
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from vendi_guidance.evaluation.analysis import Exhibits, gather_exhibits
from vendi_guidance.evaluation.basis import basis_of
from vendi_guidance.evaluation.batches import Images, Pictures, as_batch
from vendi_guidance.evaluation.embedding import (
    IMAGE_SIGMAS,
    PROMPT_SIGMAS,
    Clip,
    ImageFeatures,
    PictureReader,
    PromptFeatures,
    choose_kernel,
    clip_scores,
    embed_prompts,
    looks_of,
)
from vendi_guidance.evaluation.inputs import Evidence
from vendi_guidance.evaluation.intervals import LEVEL, Draws, draw_parts
from vendi_guidance.evaluation.measures import MEASURES, Measure
from vendi_guidance.features.files import BadImage
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import Probe
from vendi_guidance.kernels.custom import Similarity
from vendi_guidance.kernels.standard import as_features
from vendi_guidance.scores import references as fidelity
from vendi_guidance.scores.spectra import Exact, Lanczos, Nystrom, Spectrum

EXACT_UP_TO, LANCZOS_UP_TO = 3000, 20_000
"""Up to how many pictures all eigenvalues are found, and up to how many the entropy is got from
products with the kernel's matrix."""

LANDMARKS = 2000
"""Of the Nystrom spectra of yet more pictures."""

REFERENCES_OF_A_PART = 1000
"""Parts of a batch are compared with so many reference pictures at most, always the same ones."""


@dataclass(frozen=True)
class Score:
    """A number, and how far chance reaches.

    Attributes:
        value: the number.
        low, high: between which as many fresh prompts, or pictures, would score, at level 0.95;
            None where there is too little to tell.
        basis: what decides the number, in words.
    """

    value: float
    low: float | None
    high: float | None
    basis: str


@dataclass(frozen=True, eq=False)
class Report:
    """What can be said of a batch.

    Attributes:
        name: what the batch is called.
        scores: by their names in `measures.MEASURES`.
        settings: all that decides them, JSON values.
        skipped: the files that could not be read.
        exhibits: what there is to see.
        images: the n pictures that were evaluated.
        evidence: what the scores are of, one row a picture.
    """

    name: str
    scores: dict[str, Score]
    settings: dict[str, Any]
    skipped: list[BadImage]
    exhibits: Exhibits
    images: Pictures = field(repr=False)
    evidence: Evidence = field(repr=False)

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
    probe: Probe | None = None,
    seconds: Sequence[float] | None = None,
    cache: Path | None = None,
    workers: int = 0,
    on_bad_image: Literal["skip", "fail"] = "skip",
    progress: bool = False,
) -> Report:
    """Score a finished batch.

    Args:
        images: n pictures: a folder, PIL images, arrays, a tensor or a dataset (see `as_batch`).
        prompts: what each was made from; None takes those that come with the folder or dataset.
            Without prompts there are no conditional scores.
        name: what the batch is called; "" is the folder's own name.
        image_embedder, prompt_embedder: what gives features: its name (see `open_image_embedder`
            and `open_prompt_embedder`), itself, or the n features.
        kernel_image, kernel_prompt: how alike two pictures, and two prompts, are. None is a
            Gaussian of the embedder's usual bandwidth, or of the median distance where there is
            none: of a second batch to compare with, give that of the first (`report.evidence`).
        truncation: how many eigenvalues the truncated scores keep; None leaves these out.
        groups: n labels of pictures that belong together; None is the prompts.
        reference: real pictures to compare with, as `images`, or their (m, d) features.
        clip: what gives the CLIPScore: the name of a CLIP, or its two embedders.
        probe: what says which concept and look a picture shows; without it, or if no prompt names
            a concept that it knows, prompt fidelity and looks are left out.
        seconds: what each picture took; None takes what the folder says.
        cache: a folder where the features of files are kept between calls.
        workers: how many processes decode files.
        on_bad_image: leave out files that cannot be read, or fail at the first.
        progress: show bars.

    Raises:
        ValueError: no pictures, or not one prompt, label and time for each; features that hold NaN;
            a CLIP without prompts; or a setting that a kernel or a score refuses.
        FileNotFoundError: a folder, or an embedder's weights, are missing.
    """
    batch = as_batch(images, prompts)
    n = len(batch.images)
    for what, given in (("group labels", groups), ("times", seconds)):
        if given is not None and len(given) != n:
            raise ValueError(f"got {n} images and {len(given)} {what}: give one for each image")
    if batch.prompts is None and clip is not None:
        raise ValueError("a CLIPScore compares pictures with prompts: give the prompts too")
    if isinstance(image_embedder, str):
        image_embedder = open_image_embedder(image_embedder)
    reader = PictureReader(cache, workers, on_bad_image, progress)
    x, described_x, kept, skipped = reader.embed(batch.images, image_embedder)
    batch = batch.take(kept)
    times = batch.seconds if seconds is None else [float(seconds[i]) for i in kept]

    kernel_x, settings_x = choose_kernel(kernel_image, IMAGE_SIGMAS, described_x, x)
    settings: dict[str, Any] = {
        "images": len(x),
        "image_embedder": described_x,
        "kernel_image": settings_x,
        "truncation": truncation,
    }
    evidence = Evidence(
        x,
        kernel_x,
        groups=batch.prompts if groups is None else [groups[i] for i in kept],
        truncation=truncation,
        seconds=None if times is None else torch.tensor(times, dtype=torch.float64),
    )
    if batch.prompts is not None:
        t, described = embed_prompts(batch.prompts, prompt_embedder)
        kernel_t, settings_t = choose_kernel(kernel_prompt, PROMPT_SIGMAS, described, t)
        evidence = replace(evidence, t=t, kernel_t=kernel_t)
        settings["prompts"] = len(set(batch.prompts))
        settings |= {"prompt_embedder": described, "kernel_prompt": settings_t}
        if clip is not None:
            cosines, settings["clip"] = clip_scores(batch.images, batch.prompts, clip, reader)
            evidence = replace(evidence, clip=cosines)
        asked = fidelity.asked_concepts(batch.prompts, probe.names[0] if probe else [])
        if probe and any(asked):
            evidence = replace(
                evidence, asked=asked, seen=looks_of(probe, batch.images, x, described_x)
            )
            settings["judged"] = sum(concept is not None for concept in asked)
    if reference is not None:
        if isinstance(reference, (Tensor, np.ndarray)) and reference.ndim == 2:
            real = as_features(reference)
        else:
            real = reader.embed(as_batch(reference).images, image_embedder).features
        evidence = replace(evidence, reference=real)
        settings["references"] = len(real)
    spectrum = spectrum_for(len(x))
    settings["spectrum"] = _described(spectrum)
    draws = draw_parts([evidence.groups], [len(evidence)])
    settings["interval"] = None if draws is None else {"level": LEVEL, "drawn": draws.unit}
    return Report(
        name or batch.name or "the batch",
        _scores(evidence, spectrum, settings, draws, progress),
        settings,
        skipped,
        gather_exhibits(evidence),
        batch.images,
        evidence,
    )


def spectrum_for(n: int) -> Spectrum:
    """How the entropies of n pictures are got: exactly as long as that takes seconds."""
    if n <= EXACT_UP_TO:
        return Exact()
    return Lanczos() if n <= LANCZOS_UP_TO else Nystrom(LANDMARKS)


def _described(spectrum: Spectrum) -> dict[str, Any]:
    settings: dict[str, Any] = asdict(spectrum) if is_dataclass(spectrum) else {}
    return {"name": type(spectrum).__name__, **settings}


def scores_of_parts(
    evidence: Sequence[Evidence], draws: Draws, progress: bool
) -> list[list[dict[str, float]]]:
    """For each batch, the scores of its part in every draw."""
    lighter = [_with_fewer_references(one) for one in evidence]
    found: list[list[dict[str, float]]] = [[] for _ in evidence]
    for number in tqdm(range(len(draws.parts)), "intervals", disable=None if progress else True):
        for one, rows, scores in zip(lighter, draws.parts[number], found, strict=True):
            scores.append(one.take(rows).scores(Exact()))
    return found


def _with_fewer_references(evidence: Evidence) -> Evidence:
    real = evidence.reference
    if real is None or len(real) <= REFERENCES_OF_A_PART:
        return evidence
    drawn = torch.randperm(len(real), generator=torch.Generator().manual_seed(0))
    return replace(evidence, reference=real[drawn[:REFERENCES_OF_A_PART]])


def _scores(
    evidence: Evidence,
    spectrum: Spectrum,
    settings: dict[str, Any],
    draws: Draws | None,
    progress: bool,
) -> dict[str, Score]:
    """In the order of `MEASURES`."""
    values = evidence.scores(spectrum)
    parts = [] if draws is None else scores_of_parts([evidence], draws, progress)[0]
    found = {}
    for name, measure in MEASURES.items():
        if name in values:
            value = values[name]
            ends: tuple[float | None, float | None] = (None, None)
            if draws is not None and all(name in part for part in parts):
                ends = _interval(measure, value, [part[name] for part in parts], draws)
            found[name] = Score(value, *ends, basis=basis_of(name, settings))
    return found


def _interval(
    measure: Measure, value: float, parts: Sequence[float], draws: Draws
) -> tuple[float, float] | tuple[None, None]:
    if measure.is_ratio and min(value, *parts) > 0:
        reach = draws.reach([log(part) for part in parts])
        ends = None if reach is None else (value * exp(-reach), value * exp(reach))
    else:
        reach = draws.reach(parts)
        ends = None if reach is None else (value - reach, value + reach)
    if ends is None:
        return None, None
    return max(ends[0], measure.low), min(ends[1], measure.high)
