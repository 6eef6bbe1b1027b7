"""Features and kernels of a batch, each with a description to print beside the scores."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.evaluation.batches import Batch, LazyImages
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.files import BadImage, FileFeatures, file_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.prompts import embed_distinct, open_prompt_embedder
from vendi_guidance.kernels.base import Features, Kernel, as_features, as_kernel
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.bandwidth import median_distance

ImageFeatures: TypeAlias = "str | ImageEmbedder | Features"
PromptFeatures: TypeAlias = "str | PromptEmbedder | Features"

IMAGE_SIGMAS = {"dinov2": 25.0, "probe": 4.0}
"""Bandwidths by embedder. The papers have 20 to 30 for DINOv2. In the demo probe's features,
images of two concepts are about 18 apart and two variants of one about 10: at 4, both count as
different."""

PROMPT_SIGMAS = {"clip": 0.4, "sdxl": 0.3, "words": 0.4}
"""For features of unit length. The papers have 0.1 to 0.8 for CLIP."""


@dataclass(frozen=True, eq=False)
class Embedding:
    """What images and prompts are compared by.

    Attributes:
        image, prompt: what gives features: its name (see `open_image_embedder` and
            `open_prompt_embedder`), which computes on the CPU; itself, such as
            `open_image_embedder("dinov2", device="cuda")`; or the n features.
        kernel_image, kernel_prompt: the similarity of two images, and of two prompts. None is a
            Gaussian of the embedder's usual bandwidth, else of the median distance.
        truncation: how many eigenvalues the truncated scores keep; None leaves these out.

    Raises:
        ValueError: something else as `image` or `prompt`, or truncation < 1.

    Example:
        >>> Embedding("pixels:4", kernel_image=Gaussian(0.5)).prompt
        'clip'
    """

    image: ImageFeatures = "dinov2"
    prompt: PromptFeatures = "clip"
    kernel_image: Kernel | None = None
    kernel_prompt: Kernel | None = None
    truncation: int | None = None

    def __post_init__(self) -> None:
        for given in (self.image, self.prompt):
            if not isinstance(given, (str, Tensor, np.ndarray)) and not hasattr(given, "embed"):
                raise ValueError(
                    "features come from a name, an embedder such as FromFunction(function, name), "
                    f"or an (n, d) tensor or array, got {given!r:.80}"
                )
        if self.truncation is not None:
            check_count("truncation", self.truncation)
            object.__setattr__(self, "truncation", int(self.truncation))  # for JSON

    def with_kernels_of(self, inputs: ScoreInputs) -> "Embedding":
        """The same with the kernels of another batch, such as `report.inputs`, to compare both."""
        return replace(self, kernel_image=inputs.kernel_x, kernel_prompt=inputs.kernel_t)


DINOV2_AND_CLIP = Embedding()


@dataclass(frozen=True)
class ImageReader:
    """How images are read.

    Attributes:
        cache: a folder where the features of files are kept between calls; None keeps nothing.
        workers: how many processes decode files; 0 is this one.
        on_bad_image: leave out files that cannot be read, or fail at the first.
        progress: show progress bars.

    Raises:
        ValueError: another `on_bad_image`.

    Example:
        >>> ImageReader("features", workers=4).on_bad_image
        'skip'
    """

    cache: str | PathLike[str] | None = None
    workers: int = 0
    on_bad_image: Literal["skip", "fail"] = "skip"
    progress: bool = False

    def __post_init__(self) -> None:
        if self.on_bad_image not in ("skip", "fail"):
            raise ValueError(f"on_bad_image must be 'skip' or 'fail', got {self.on_bad_image!r}")

    def embed(
        self, images: LazyImages, embedder: ImageFeatures
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
            found = file_features(paths, embedder, **vars(self))
        features = _checked(found.features, f"{embedder.name}'s features", len(found.kept))
        about = {"name": embedder.name, "settings": embedder.settings}
        return found._replace(features=features), about


READER = ImageReader()


@dataclass(frozen=True, eq=False)
class Embedded:
    """A batch and what its scores are computed from.

    Attributes:
        batch: of the images that could be read.
        kept: which of the `given` images these are.
        given: how many images there were.
        inputs: what scores are computed from.
        settings: what the scores depend on, JSON values.
        skipped: the files that could not be read.
    """

    batch: Batch
    kept: list[int]
    given: int
    inputs: ScoreInputs
    settings: dict[str, Any]
    skipped: list[BadImage]


def embed_batch(batch: Batch, embedding: Embedding, reader: ImageReader) -> Embedded:
    """Features and kernels of a batch's images, and of its prompts, if it has any."""
    (x, kept, skipped), embedder = reader.embed(batch.images, embedding.image)
    some = batch.take(kept)
    kernel_x, kernel = choose_kernel(embedding.kernel_image, IMAGE_SIGMAS, embedder, x)
    settings: dict[str, Any] = {"images": len(x), "image_embedder": embedder}
    settings |= {"kernel_image": kernel, "truncation": embedding.truncation}
    inputs = ScoreInputs(
        x,
        kernel_x,
        groups=some.prompts if some.groups is None else some.groups,
        truncation=embedding.truncation,
        seconds=None
        if some.seconds is None
        else torch.tensor(some.seconds, dtype=torch.float64, device="cpu"),
    )
    if some.prompts is not None:
        if isinstance(embedding.prompt, (Tensor, np.ndarray)):
            given = _checked(embedding.prompt, "the prompts' features given", len(batch.images))
            t, embedder = given[kept], {"name": "given features"}
        else:
            t, embedder = embed_prompts(some.prompts, embedding.prompt)
        kernel_t, kernel = choose_kernel(embedding.kernel_prompt, PROMPT_SIGMAS, embedder, t)
        inputs = replace(inputs, t=t, kernel_t=kernel_t)
        settings["prompts"] = len(set(some.prompts))
        settings |= {"prompt_embedder": embedder, "kernel_prompt": kernel}
    return Embedded(some, kept, len(batch.images), inputs, settings, skipped)


def embed_prompts(
    prompts: Sequence[str], embedder: str | PromptEmbedder
) -> tuple[Tensor, dict[str, Any]]:
    """(n, m) features of n prompts, and what gave them, JSON values."""
    if isinstance(embedder, str):
        embedder = open_prompt_embedder(embedder)

    def embed(distinct: list[str]) -> Tensor:
        return _checked(embedder.embed(distinct), f"{embedder.name}'s features", len(distinct))

    return embed_distinct(prompts, embed), {"name": embedder.name, "settings": embedder.settings}


def choose_kernel(
    kernel: Kernel | None, usual: dict[str, float], embedder: dict[str, Any], x: Tensor
) -> tuple[Kernel, dict[str, Any]]:
    """A kernel of (n, d) features, and its settings, JSON values.

    None is a Gaussian of the `usual` bandwidth of the embedder's name, else of the features' median
    distance.
    """
    if kernel is None and embedder["name"] in usual:
        kernel = Gaussian(usual[embedder["name"]])
    if kernel is not None:
        chosen = as_kernel(kernel)
        fields: dict[str, Any] = asdict(chosen) if is_dataclass(chosen) else {}
        settings = {k: v for k, v in fields.items() if isinstance(v, (int, float, str))}
        return chosen, {"name": type(chosen).__name__, **settings}
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
