"""A finished batch in, what can be said of its diversity and fidelity out."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from math import fsum
from typing import Any, Protocol

from PIL import Image
from torch import Tensor

from vendi_guidance import fidelity, scores
from vendi_guidance.embedders import Probe
from vendi_guidance.kernels import Kernel


class ImageEmbedder(Protocol):
    """Gives features of pictures."""

    def embed(self, images: Sequence[Image.Image]) -> Tensor:
        """(n, d) features of n pictures."""
        ...


class PromptEmbedder(Protocol):
    """Gives features of prompts."""

    def embed(self, prompts: Sequence[str]) -> Tensor:
        """(n, m) features of n prompts."""
        ...


@dataclass(frozen=True)
class Report:
    """The scores of a batch, and the settings they were computed with.

    Attributes:
        images, prompts: how many pictures, and how many different prompts.
        judged: how many pictures were asked for by a name that the probe knows; the next three
            look at those only.
        fidelity: see `fidelity.prompt_fidelity`; None if nothing was judged.
        looks_per_prompt: mean of `looks_by_prompt`; None if nothing was judged.
        looks_by_prompt: see `fidelity.looks_by_prompt`.
        conditional_vendi, conditional_rke, vendi, rke: see `scores`.
        in_batch_similarity: see `fidelity.in_batch_similarity`.
        seconds_per_image: mean; None if not known.
        settings: embedders, kernels and truncation, JSON values.
    """

    images: int
    prompts: int
    judged: int
    fidelity: float | None
    looks_per_prompt: float | None
    looks_by_prompt: dict[str, int]
    conditional_vendi: float
    conditional_rke: float
    vendi: float
    rke: float
    in_batch_similarity: float | None
    seconds_per_image: float | None
    settings: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return asdict(self)


def evaluate(
    images: Sequence[Image.Image],
    prompts: Sequence[str],
    *,
    image_embedder: ImageEmbedder,
    prompt_embedder: PromptEmbedder,
    kernel_image: Kernel,
    kernel_prompt: Kernel,
    truncation: int | None = None,
    seconds: Sequence[float] | None = None,
    probe: Probe | None = None,
) -> Report:
    """Score a finished batch.

    Args:
        images: n pictures.
        prompts: the n prompts they were made from.
        image_embedder, prompt_embedder: what gives features.
        kernel_image, kernel_prompt: how alike two pictures, and two prompts, are.
        truncation: of the spectra behind the two Vendi scores (see `entropy.truncate`).
        seconds: what each of the n pictures took, if known.
        probe: what says which concept and look a picture shows; without it, or if no prompt names
            a concept that it knows, fidelity and looks are left out.

    Raises:
        ValueError: no pictures, or not one prompt (and one time) for each picture; or a setting
            that `scores` refuses.
    """
    if not images:
        raise ValueError("there are no images to evaluate")
    if len(images) != len(prompts):
        raise ValueError(
            f"got {len(images)} images and {len(prompts)} prompts: give one prompt for each image"
        )
    if seconds is not None and len(seconds) != len(images):
        raise ValueError(
            f"got {len(images)} images and {len(seconds)} times: give one time for each image"
        )
    x, t = image_embedder.embed(images), prompt_embedder.embed(prompts)
    asked = fidelity.asked_concepts(prompts, probe.names[0] if probe else [])
    judged = sum(concept is not None for concept in asked)
    share: float | None = None
    looks: dict[str, int] = {}
    if probe and judged:
        seen = probe.looks(images)
        share = fidelity.prompt_fidelity(asked, seen)
        looks = fidelity.looks_by_prompt(prompts, asked, seen)
    kernels = (kernel_image, kernel_prompt)
    return Report(
        images=len(images),
        prompts=len(set(prompts)),
        judged=judged,
        fidelity=share,
        looks_per_prompt=sum(looks.values()) / len(looks) if looks else None,
        looks_by_prompt=looks,
        conditional_vendi=float(scores.conditional_vendi(x, t, *kernels, truncation=truncation)),
        conditional_rke=float(scores.conditional_rke(x, t, *kernels)),
        vendi=float(scores.vendi(x, kernel_image, truncation=truncation)),
        rke=float(scores.rke(x, kernel_image)),
        in_batch_similarity=fidelity.in_batch_similarity(x, prompts),
        seconds_per_image=None if seconds is None else fsum(seconds) / len(seconds),
        settings={
            "image_embedder": type(image_embedder).__name__,
            "prompt_embedder": type(prompt_embedder).__name__,
            "kernel_image": _described(kernel_image),
            "kernel_prompt": _described(kernel_prompt),
            "truncation": truncation,
        },
    )


def _described(kernel: Kernel) -> dict[str, Any]:
    settings: dict[str, Any] = asdict(kernel) if is_dataclass(kernel) else {}
    return {"name": type(kernel).__name__, **settings}
