"""Features and kernels of a batch, each with a description to print beside the scores."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.evaluation.batches import Pictures
from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.files import BadImage, collect_features, stream_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.prompts import embed_distinct, open_prompt_embedder
from vendi_guidance.kernels.base import Features, Kernel, as_features
from vendi_guidance.kernels.custom import Similarity, as_kernel
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.bandwidth import median_distance

ImageFeatures: TypeAlias = "str | ImageEmbedder | Features"
PromptFeatures: TypeAlias = "str | PromptEmbedder | Features"
Clip: TypeAlias = "str | tuple[ImageEmbedder, PromptEmbedder]"

IMAGE_SIGMAS = {"dinov2": 25.0, "probe": 4.0}
"""Bandwidths by embedder. The papers have 20 to 30 for DINOv2. In the demo probe's features,
images of two concepts are about 18 apart and two variants of one about 10: at 4, both count as
different."""

PROMPT_SIGMAS = {"clip": 0.4, "sdxl": 0.3}
"""For features of unit length. The papers have 0.1 to 0.8 for CLIP."""


class Embedded(NamedTuple):
    """Features of images.

    Attributes:
        features: (m, d).
        described: the embedder's name and settings, JSON values.
        kept: for each row, the number of its image.
        skipped: the files that could not be read.
    """

    features: Tensor
    described: dict[str, Any]
    kept: list[int]
    skipped: list[BadImage]


@dataclass(frozen=True)
class ImageReader:
    """How images are read; attributes as the arguments of `stream_features`."""

    cache: Path | None = None
    workers: int = 0
    on_bad_image: Literal["skip", "fail"] = "skip"
    progress: bool = False

    def embed(self, images: Pictures, embedder: ImageFeatures) -> Embedded:
        """Features of n images.

        Args:
            images: n images.
            embedder: its name, itself, or (n, d) features, which are taken as they are.

        Raises:
            ValueError: no image can be read, or features that are malformed or hold NaN.
        """
        kept, skipped = list(range(len(images))), list[BadImage]()
        if isinstance(embedder, (Tensor, np.ndarray)):
            features = _checked(embedder, "the features given", len(images))
            return Embedded(features, {"name": "given features"}, kept, skipped)
        if isinstance(embedder, str):
            embedder = open_image_embedder(embedder)
        paths = images.paths()
        if paths is None:
            features = torch.cat([embedder.embed(chunk) for chunk in images.chunks()])
        else:
            features, kept, skipped = collect_features(
                stream_features(
                    paths,
                    embedder,
                    cache=self.cache,
                    workers=self.workers,
                    on_bad_image=self.on_bad_image,
                    progress=self.progress,
                )
            )
        features = _checked(features, f"{embedder.name}'s features", len(kept))
        described = {"name": embedder.name, "settings": embedder.settings}
        return Embedded(features, described, kept, skipped)


def embed_prompts(
    prompts: Sequence[str], embedder: PromptFeatures
) -> tuple[Tensor, dict[str, Any]]:
    """(n, m) features of n prompts, and what gave them, JSON values.

    Raises:
        ValueError: features that are malformed or hold NaN.
    """
    if isinstance(embedder, (Tensor, np.ndarray)):
        features = _checked(embedder, "the prompts' features given", len(prompts))
        return features, {"name": "given features"}
    if isinstance(embedder, str):
        embedder = open_prompt_embedder(embedder)

    def embed(distinct: list[str]) -> Tensor:
        return _checked(embedder.embed(distinct), f"{embedder.name}'s features", len(distinct))

    described = {"name": embedder.name, "settings": embedder.settings}
    return embed_distinct(prompts, embed), described


def clip_scores(
    images: Pictures, prompts: Sequence[str], clip: Clip, reader: ImageReader
) -> tuple[Tensor, dict[str, Any]]:
    """(n,) values 100 max(cos, 0) of images and their prompts, and the CLIP's name and settings.

    Raises:
        ValueError: the two embedders' features have different widths.
    """
    of_images, of_prompts = (clip, clip) if isinstance(clip, str) else clip
    x, described, _, _ = reader.embed(images, of_images)
    t, _ = embed_prompts(prompts, of_prompts)
    if x.shape[1] != t.shape[1]:
        raise ValueError(
            f"a CLIPScore needs images and prompts embedded by one CLIP, got features of "
            f"{x.shape[1]} and {t.shape[1]} numbers"
        )
    cosines = torch.nn.functional.cosine_similarity(x.double(), t.double(), dim=1)
    return 100 * cosines.clamp(min=0, max=1), described


def choose_kernel(
    kernel: "Similarity | None",
    usual: dict[str, float],
    described: dict[str, Any],
    features: Tensor,
) -> tuple[Kernel, dict[str, Any]]:
    """A kernel, and its settings, JSON values.

    Args:
        kernel: the one asked for; None is a Gaussian of the embedder's usual bandwidth, else of the
            features' median distance.
        usual: bandwidths by the name of the embedder.
        described: the embedder.
        features: (n, d).
    """
    if kernel is None and described["name"] in usual:
        kernel = Gaussian(usual[described["name"]])
    if kernel is not None:
        chosen = as_kernel(kernel)
        settings: dict[str, Any] = asdict(chosen) if is_dataclass(chosen) else {}
        numbers = {k: v for k, v in settings.items() if isinstance(v, (int, float, str))}
        return chosen, {"name": type(chosen).__name__, **numbers}
    differ = bool((features != features[0]).any())
    sigma = median_distance(features) if differ else 1.0  # any bandwidth gives the same
    return Gaussian(sigma), {"name": "Gaussian", "sigma": sigma, "chosen": "median distance"}


def _checked(features: Features, whose: str, n: int) -> Tensor:
    try:
        checked = as_features(features)
    except ValueError as error:
        raise ValueError(f"{whose} cannot be scored: {error}") from None
    if len(checked) != n:
        raise ValueError(f"{whose} have {len(checked)} rows, but there are {n}: give one for each")
    return checked.cpu()
