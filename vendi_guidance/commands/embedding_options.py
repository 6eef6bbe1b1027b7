"""Options of the commands that embed images and prompts, and the demo's own embedders."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from vendi_guidance.commands.cli import Option, Range
from vendi_guidance.commands.run_options import PATH, together
from vendi_guidance.evaluation.batches import Images
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.features.base import Embedder, load_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.storage.assets import asset


class Usual(NamedTuple):
    """An embedder that is used if none is named, what replaces it where it is not at hand, and the
    sentence that says what that costs."""

    open: Callable[..., Embedder[Any]]
    spec: str
    fallback: str
    note: str


DINOV2 = Usual(
    open_image_embedder,
    "dinov2",
    "pixels",
    "DINOv2 is not at hand, so images are compared by their pixels: scores then say how "
    "much colours and layout differ, not what is shown, and cannot be compared with "
    "scores by other embedders.",
)
CLIP = Usual(
    open_prompt_embedder,
    "clip",
    "words",
    "CLIP is not at hand, so prompts are compared by their words: two that say the same "
    "in other words count as different.",
)

scored = partial(click.option, cls=Option, group="Features and scores")
known = partial(click.option, cls=Option, group="Demo")


def sigma(what: str) -> Any:
    """The option of a kernel's bandwidth."""
    return scored(
        f"--sigma-{what}",
        type=Range(0, min_open=True),
        show_default="the embedder's usual one, else the median distance",
        help=f"Bandwidth of the Gaussian kernel on {what} features.",
    )


embedding_options = together(
    scored(
        "--image-embedder",
        show_default="probe for the demo's prompts, else dinov2",
        help="Features of images: dinov2, clip:MODEL, timm:NAME, pixels, ...",
    ),
    scored(
        "--prompt-embedder",
        show_default="sdxl for the demo's prompts, else clip",
        help="Features of prompts: clip:MODEL, sentence-transformers:NAME, sdxl:FOLDER, ...",
    ),
    sigma("image"),
    sigma("prompt"),
    scored(
        "--truncation",
        type=click.IntRange(1),
        help="How many eigenvalues the truncated scores keep; without it, these are left out.",
    ),
)

demo_options = together(
    known(
        "--probe",
        type=PATH,
        default=asset("demo-probe"),
        show_default=False,
        help="The demo's classifier of emoji.",
    ),
    known(
        "--text-encoder",
        type=PATH,
        default=asset("demo-sdxl"),
        show_default=False,
        help="The demo's SDXL, for prompts.",
    ),
)


class Demo(NamedTuple):
    """The folders of the demo's own embedders, for the prompts that they know."""

    probe: Path | None
    text_encoder: Path | None


def open_embedding(
    has_prompts: bool,
    demo: Demo | None,
    device: str,
    image_embedder: str | None,
    prompt_embedder: str | None,
    sigma_image: float | None,
    sigma_prompt: float | None,
) -> tuple[Embedding, list[str]]:
    """What the options name, else the usual embedders, and what it costs if they are not at hand.

    Raises:
        ValueError: there is no such embedder.
        FileNotFoundError: the weights of one that is named are missing.
    """
    notes: list[str] = []
    opened = partial(open_or_fall_back, notes=notes, device=device)
    usual = f"probe:{demo.probe}" if demo else None
    images, prompts = opened(image_embedder or usual, DINOV2), None
    if has_prompts:
        usual = f"sdxl:{demo.text_encoder}" if demo and demo.text_encoder else None
        prompts = opened(prompt_embedder or usual, CLIP)
    sigmas = (sigma_image, sigma_prompt)
    of_images, of_prompts = (None if sigma is None else Gaussian(sigma) for sigma in sigmas)
    return Embedding(images, prompts or "clip", of_images, of_prompts), notes


def open_references(path: Path | None, embedding: Embedding, demo: Demo | None) -> Images | None:
    """Reference images or their features; without a path, those of the demo's probe, if that is
    what embeds images."""
    if path is None and demo and demo.probe and getattr(embedding.image, "name", "") == "probe":
        beside = demo.probe / "training_features.safetensors"
        path = beside if beside.is_file() else None
    return load_features(path) if path is not None and path.is_file() else path


def open_or_fall_back(
    spec: str | None, usual: Usual, *, notes: list[str], device: str
) -> Embedder[Any]:
    """An embedder by its name; None is the usual one or, where that is not at hand, the fallback,
    with a note of what that costs."""
    if spec is not None:
        return usual.open(spec, device=device)
    try:
        return usual.open(usual.spec, device=device)
    except (ImportError, OSError) as error:
        notes.append(usual.note)
        click.echo(f"{usual.note}\nTo have it: {error}", err=True)
        return usual.open(usual.fallback, device=device)
