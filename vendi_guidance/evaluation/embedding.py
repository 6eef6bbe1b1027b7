"""Features and kernels of a batch, each with a description to print beside the scores."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.evaluation.batches import Pictures
from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.files import FileFeatures, collect_features, stream_features
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

PROMPT_SIGMAS = {"clip": 0.4, "sdxl": 0.3, "words": 0.4}
"""For features of unit length. The papers have 0.1 to 0.8 for CLIP."""


@dataclass(frozen=True)
class ImageReader:
    """How images are read; attributes as the arguments of `stream_features`."""

    cache: Path | None = None
    workers: int = 0
    on_bad_image: Literal["skip", "fail"] = "skip"
    progress: bool = False

    def embed(
        self, images: Pictures, embedder: ImageFeatures
    ) -> tuple[FileFeatures, dict[str, Any]]:
        """Features of the images that can be read, and what gave them, JSON values.

        Args:
            embedder: its name, itself, or (n, d) features, which are taken as they are.

        Raises:
            ValueError: no image can be read, or features that are malformed or hold NaN.
        """
        every = list(range(len(images)))
        if isinstance(embedder, (Tensor, np.ndarray)):
            features = _checked(embedder, "the features given", len(images))
            return FileFeatures(features, every, []), {"name": "given features"}
        if isinstance(embedder, str):
            embedder = open_image_embedder(embedder)
        paths = images.paths()
        if paths is None:
            features = torch.cat([embedder.embed(chunk) for chunk in images.chunks()])
            found = FileFeatures(features, every, [])
        else:
            found = collect_features(stream_features(paths, embedder, **vars(self)))
        features = _checked(found.features, f"{embedder.name}'s features", len(found.kept))
        described = {"name": embedder.name, "settings": embedder.settings}
        return found._replace(features=features), described


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


def choose_kernel(
    kernel: "Similarity | None", usual: dict[str, float], embedder: dict[str, Any], x: Tensor
) -> tuple[Kernel, dict[str, Any]]:
    """A kernel, and its settings, JSON values.

    Args:
        kernel: the one asked for; None is a Gaussian of the embedder's usual bandwidth, else of the
            features' median distance.
        usual: bandwidths by the name of the embedder.
        embedder: its name and settings.
        x: (n, d) features.
    """
    if kernel is None and embedder["name"] in usual:
        kernel = Gaussian(usual[embedder["name"]])
    if kernel is not None:
        chosen = as_kernel(kernel)
        settings: dict[str, Any] = asdict(chosen) if is_dataclass(chosen) else {}
        numbers = {k: v for k, v in settings.items() if isinstance(v, (int, float, str))}
        return chosen, {"name": type(chosen).__name__, **numbers}
    try:
        sigma = median_distance(x)
    except ValueError:  # no two items differ: any bandwidth gives the same
        sigma = 1.0
    return Gaussian(sigma), {"name": "Gaussian", "sigma": sigma, "chosen": "median distance"}


def _checked(features: Features, whose: str, n: int) -> Tensor:
    try:
        checked = as_features(features)
    except ValueError as error:
        raise ValueError(f"{whose} cannot be scored: {error}") from None
    if len(checked) != n:
        raise ValueError(f"{whose} have {len(checked)} rows, but there are {n}: give one for each")
    return checked.cpu()
