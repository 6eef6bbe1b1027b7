"""Options for scoring images: embedders, attributes and the demo's probe."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import transformers

from vendi_guidance.commands.cli import Option, tell
from vendi_guidance.commands.run_options import PATH, together
from vendi_guidance.evaluation.answers import Answers, Questions
from vendi_guidance.evaluation.attributes import ATTRIBUTES, load_attributes
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.judges import AttributeJudge, Judges, ProbeJudge, ZeroShot
from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import TRAINING_FEATURES, Probe, open_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.storage.assets import asset

FALLBACKS = {
    "dinov2": (
        "pixels",
        "DINOv2 is not available, so images are compared by their pixels: scores then measure "
        "colours and layout, not what is shown, and cannot be compared with scores by other "
        "embedders.",
    ),
    "clip": (
        "words",
        "CLIP is not available, so prompts are compared by their words: paraphrases count as "
        "different prompts.",
    ),
}
"""For each default embedder: what replaces it if it is not available, and a note on the effect."""

PROBES = ("demo-photos-probe", "demo-probe", "demo-faces-probe")
"""Classifiers of the demo models' images. An installed package has only the default model's."""

feature_option = partial(click.option, cls=Option, group="Features and scores")
judge_option = partial(click.option, cls=Option, group="Judges")

image_embedder_option = feature_option(
    "--image-embedder",
    show_default="probe for the demo's prompts, else dinov2",
    help="Features of images: dinov2, clip:MODEL, timm:NAME, pixels, ...",
)
scoring_options = together(
    image_embedder_option,
    feature_option(
        "--prompt-embedder",
        show_default="sdxl for the demo's prompts, else clip",
        help="Features of prompts: clip:MODEL, sentence-transformers:NAME, sdxl:FOLDER, ...",
    ),
    judge_option("--clip", help="CLIPScore and attributes by clip or clip:MODEL/PRETRAINED."),
    judge_option(
        "--attributes",
        type=PATH,
        metavar="FILE",
        help='File of attributes to count, such as {"hair": ["black", "brown"]} or a benchmark.',
    ),
    judge_option(
        "--judge",
        type=click.Path(exists=True, path_type=Path),
        show_default="the probe for prompts that it knows, else --clip",
        help="A table of answers (file, attribute, value, confidence), or a folder of a VQA model.",
    ),
    judge_option(
        "--labelled",
        type=click.Path(exists=True, path_type=Path),
        metavar="FILE",
        help="Table of right answers about some images, to correct shares for the judge's errors.",
    ),
    judge_option(
        "--probe",
        type=PATH,
        show_default="that of the demo model with such prompts",
        help="Folder of a classifier of images, used for prompts that it knows.",
    ),
)


class Scoring(NamedTuple):
    """What the options of scoring stand for."""

    embedding: Embedding
    judges: Judges
    notes: list[str]  # on embedders that are not available, and a probe that is not used
    reference: Path | None  # the probe's features of real images, if it embeds the images


def open_scoring(
    prompts: Sequence[str],
    device: str,
    *,
    image_embedder: str | None = None,
    prompt_embedder: str | None = None,
    probe: Path | None = None,
    tell: Callable[[str], object] = tell,
    **judging: Any,
) -> Scoring:
    """The embedding and judges of images of these prompts, given the values of the options. Prompts
    that a demo model's probe all knows have those of the demo by default.

    ValueError if there is no such embedder or judge, or the file holds no attributes;
    FileNotFoundError if a file or the weights of an embedder or judge are missing.
    """
    transformers.utils.logging.disable_progress_bar()
    notes: list[str] = []

    def open_or_replace(open: Callable[..., Any], name: str | None, default: str) -> Any:
        try:
            return open(default if name is None else name, device=device)
        except (ImportError, OSError) as error:
            if name is not None:
                raise
            fallback, note = FALLBACKS[default]
            notes.append(note)
            tell(f"{note}\nTo use it: {error}")
            return open(fallback, device=device)

    folder, known = find_probe(prompts, probe)
    if known is None and probe is not None:
        what = "knows none of the prompts" if prompts else "is not used without prompts"
        notes.append(f"The probe in {probe} {what}: images are embedded and judged without it.")
        tell(notes[-1])
    reference = None
    if folder is not None:
        own = folder.parent / folder.name.removesuffix("-probe")
        encoder: Any = own if own.is_dir() else asset("demo-sdxl")
        prompt_embedder = prompt_embedder or (encoder and f"sdxl:{encoder}")
        if image_embedder in (None, f"probe:{folder}"):
            image_embedder = f"probe:{folder}"
            reference = next(folder.glob(TRAINING_FEATURES), None)
        judging["attributes"] = judging.get("attributes") or next(folder.glob(ATTRIBUTES), None)
    embedding = Embedding(
        open_or_replace(open_image_embedder, image_embedder, "dinov2"),
        open_or_replace(open_prompt_embedder, prompt_embedder if prompts else "words", "clip"),
    )
    return Scoring(embedding, open_judges(known, device, **judging), notes, reference)


def find_probe(prompts: Sequence[str], probe: Path | None) -> tuple[Path | None, Probe | None]:
    """The probe of a demo model that knows all prompts, or the given one if it knows one."""
    for folder in [probe] if probe else filter(None, map(asset, PROBES)):
        known = open_probe(folder, prompts)
        # one word that a demo's probe knows does not make images those of the demo
        if known and (probe or all(it is not None for it in known.asked(prompts))):
            return folder, known
    return None, None


def open_judges(
    known: Probe | None,
    device: str,
    *,
    clip: str | None = None,
    attributes: Path | None = None,
    judge: Path | None = None,
    labelled: Path | None = None,
) -> Judges:
    """The judges of images whose prompts a probe knows, if any; errors as for `open_scoring`."""
    clips = None if clip is None else open_clip(clip, device)
    judges = Judges(clip=clips, labels=known)
    if attributes is None:
        if judge or labelled:
            raise ValueError("--judge and --labelled are about attributes: name --attributes too")
        return judges
    judges = replace(judges, attributes=load_attributes(attributes))  # mistakes before weights
    by: AttributeJudge
    if judge is not None:
        by = Questions(judge, device) if judge.is_dir() else Answers.read(judge)
    else:
        by = ProbeJudge(known) if known else ZeroShot(*(clips or open_clip("clip", device)))
    right = None if labelled is None else Answers.read(labelled)
    return replace(judges, attribute_judge=by, labelled=right)


def open_clip(name: str, device: str) -> tuple[ImageEmbedder, PromptEmbedder]:
    return open_image_embedder(name, device=device), open_prompt_embedder(name, device=device)
