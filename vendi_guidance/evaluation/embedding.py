"""From a batch to features and kernels, with a description of each to print beside the scores."""

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
from vendi_guidance.features.network import digest_of
from vendi_guidance.features.probe import Looks, Probe
from vendi_guidance.features.prompts import embed_distinct, open_prompt_embedder
from vendi_guidance.kernels.custom import Similarity, as_kernel
from vendi_guidance.kernels.standard import Features, Gaussian, Kernel, as_features
from vendi_guidance.scores.bandwidth import median_distance

ImageFeatures: TypeAlias = "str | ImageEmbedder | Features"
PromptFeatures: TypeAlias = "str | PromptEmbedder | Features"
Clip: TypeAlias = "str | tuple[ImageEmbedder, PromptEmbedder]"

CHUNK = 256
"""So many pictures are decoded at a time."""

IMAGE_SIGMAS = {"dinov2": 25.0, "probe": 4.0}
"""Bandwidths by embedder. The papers have 20 to 30 for DINOv2. Two looks of one emoji lie about 10
apart in the demo probe's features, two emoji about 18, variants of one look far less: at 4, looks
count as different and variants as the same."""

PROMPT_SIGMAS = {"clip": 0.4, "sdxl": 0.3}
"""Of features of unit length. The papers have 0.1 to 0.8 for CLIP."""


class Embedded(NamedTuple):
    """Features of pictures.

    Attributes:
        features: (m, d).
        described: the embedder's name and settings, JSON values.
        kept: for each row, the number of its picture.
        skipped: the files that could not be read.
    """

    features: Tensor
    described: dict[str, Any]
    kept: list[int]
    skipped: list[BadImage]


@dataclass(frozen=True)
class PictureReader:
    """How pictures are read; attributes as the arguments of `stream_features`."""

    cache: Path | None = None
    workers: int = 0
    on_bad_image: Literal["skip", "fail"] = "skip"
    progress: bool = False

    def embed(self, pictures: Pictures, embedder: ImageFeatures) -> Embedded:
        """Features of n pictures.

        Args:
            pictures: n of them; features there are already are not computed.
            embedder: its name, itself, or (n, d) features.

        Raises:
            ValueError: no picture can be read, or features that are malformed or hold NaN.
        """
        if isinstance(embedder, (Tensor, np.ndarray)):
            features = _checked(embedder, "the features given", len(pictures))
            return Embedded(features, {"name": "given features"}, list(range(len(features))), [])
        if isinstance(embedder, str):
            embedder = open_image_embedder(embedder)
        described = {"name": embedder.name, "settings": embedder.settings}
        paths = pictures.paths()
        if paths is None:
            chunks = [
                embedder.embed(pictures[start : start + CHUNK])
                for start in range(0, len(pictures), CHUNK)
            ]
            features = _checked(torch.cat(chunks), f"{embedder.name}'s features", len(pictures))
            return Embedded(features, described, list(range(len(features))), [])
        batches = stream_features(
            paths,
            embedder,
            cache=self.cache,
            workers=self.workers,
            on_bad_image=self.on_bad_image,
            progress=self.progress,
        )
        found = collect_features(batches)
        features = _checked(found.features, f"{embedder.name}'s features", len(found.kept))
        return Embedded(features, described, found.kept, found.bad)


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
    pictures: Pictures, prompts: Sequence[str], clip: Clip, reader: PictureReader
) -> tuple[Tensor, dict[str, Any]]:
    """(n,) of each picture 100 max(cos, 0) with its prompt, and the CLIP's name and settings.

    Raises:
        ValueError: the two embedders' features have no common width.
    """
    images, texts = (clip, clip) if isinstance(clip, str) else clip
    x, described, _, _ = reader.embed(pictures, images)
    t, _ = embed_prompts(prompts, texts)
    if x.shape[1] != t.shape[1]:
        raise ValueError(
            f"a CLIPScore needs pictures and prompts embedded by one CLIP, got features of "
            f"{x.shape[1]} and {t.shape[1]} numbers"
        )
    cosines = torch.nn.functional.cosine_similarity(x.double(), t.double(), dim=1)
    return 100 * cosines.clamp(min=0, max=1), described


@torch.no_grad()
def looks_of(
    probe: Probe, pictures: Pictures, features: Tensor, described: dict[str, Any]
) -> Looks:
    """What a probe sees in n pictures.

    Args:
        features: (n, d) features of the pictures; if they are this probe's, they are not got twice.
        described: what gave the features.
    """
    if described.get("settings", {}).get("sha256") == digest_of(probe.body):
        classes = (head(features).argmax(dim=1).tolist() for head in probe.heads)
        return Looks(
            *([names[i] for i in row] for names, row in zip(probe.names, classes, strict=True))
        )
    seen = [
        probe.looks(pictures[start : start + CHUNK]) for start in range(0, len(pictures), CHUNK)
    ]
    return Looks(
        *([name for names in column for name in names] for column in zip(*seen, strict=True))
    )


def choose_kernel(
    kernel: "Similarity | None",
    usual: dict[str, float],
    described: dict[str, Any],
    features: Tensor,
) -> tuple[Kernel, dict[str, Any]]:
    """A kernel, and its settings, JSON values.

    Args:
        kernel: the one asked for; None is a Gaussian of the embedder's usual bandwidth, or of the
            features' median distance where there is none.
        usual: bandwidths by the name of the embedder.
        described: the embedder.
        features: (n, d).
    """
    if kernel is not None:
        chosen = as_kernel(kernel)
        settings: dict[str, Any] = asdict(chosen) if is_dataclass(chosen) else {}
        numbers = {k: v for k, v in settings.items() if isinstance(v, (int, float, str))}
        return chosen, {"name": type(chosen).__name__, **numbers}
    if described["name"] in usual:
        return choose_kernel(Gaussian(usual[described["name"]]), usual, described, features)
    differ = bool((features != features[0]).any())
    sigma = median_distance(features) if differ else 1.0  # all are equal at any bandwidth
    return Gaussian(sigma), {"name": "Gaussian", "sigma": sigma, "chosen": "median distance"}


def _checked(features: Features, whose: str, n: int) -> Tensor:
    try:
        checked = as_features(features)
    except ValueError as error:
        raise ValueError(f"{whose} cannot be scored: {error}") from None
    if len(checked) != n:
        raise ValueError(f"{whose} have {len(checked)} rows, but there are {n}: give one for each")
    return checked.cpu()
