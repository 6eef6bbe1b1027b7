"""Options of the commands that embed images and prompts, and the demo's own embedders."""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from vendi_guidance.commands.cli import Option, Range
from vendi_guidance.commands.run_options import PATH, together
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.storage.assets import asset

FALLBACKS = {
    "dinov2": (
        "pixels",
        "DINOv2 is not at hand, so images are compared by their pixels: scores then say how "
        "much colours and layout differ, not what is shown, and cannot be compared with "
        "scores by other embedders.",
    ),
    "clip": (
        "words",
        "CLIP is not at hand, so prompts are compared by their words: two that say the same "
        "in other words count as different.",
    ),
}
"""By the embedder that is used if none is named: what replaces it where it is not at hand, and what
that costs."""

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


def open_embedding(
    image: str | None,
    prompt: str | None,
    device: str,
    sigma_image: float | None,
    sigma_prompt: float | None,
) -> tuple[Embedding, list[str]]:
    """The embedders of these names, None for the usual ones, and what it costs if they are not at
    hand.

    Raises:
        ValueError: there is no such embedder.
        FileNotFoundError: the weights of one that is named are missing.
    """
    notes: list[str] = []

    def opened(open: Callable[..., Any], name: str | None, usual: str) -> Any:
        if name is not None:
            return open(name, device=device)
        try:
            return open(usual, device=device)
        except (ImportError, OSError) as error:
            fallback, note = FALLBACKS[usual]
            notes.append(note)
            click.echo(f"{note}\nTo have it: {error}", err=True)
            return open(fallback, device=device)

    of_images = opened(open_image_embedder, image, "dinov2")
    of_prompts = opened(open_prompt_embedder, prompt, "clip")
    sigmas = sigma_image, sigma_prompt
    kernels = (None if sigma is None else Gaussian(sigma) for sigma in sigmas)
    return Embedding(of_images, of_prompts, *kernels), notes
