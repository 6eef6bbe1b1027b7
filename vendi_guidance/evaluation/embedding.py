"""Features and kernels of a batch, with the settings that describe them in reports."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass, replace
from os import PathLike
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.evaluation.batches import Batch, LazyImages
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.files import BadImage, FileFeatures, file_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.kernels.base import Features, Kernel, as_features, as_kernel, check_count
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.bandwidth import median_distance

ImageFeatures: TypeAlias = "str | ImageEmbedder | Features"

AT_ONCE = 256  # most images in memory that are not files

# Bandwidths by embedder. The papers use 20 to 30 for DINOv2, and 0.1 to 0.8 for CLIP's prompts. In
# the demo probe's features, images of two concepts are about 18 apart and two variants of one about
# 10, so that a bandwidth of 4 tells both apart.
IMAGE_SIGMAS = {"dinov2": 25.0, "probe": 4.0}
PROMPT_SIGMAS = {"clip": 0.4, "sdxl": 0.3, "words": 0.4}


@dataclass(frozen=True, eq=False)
class Embedding:
    """The features and kernels that images and prompts are compared by.

    Attributes:
        image, prompt: embedder of the images and of the prompts: a name (see `open_image_embedder`
            and `open_prompt_embedder`), which computes on the CPU; an embedder, such as
            `open_image_embedder("dinov2", device="cuda")`; or (n, d) features computed elsewhere.
        kernel_image, kernel_prompt: similarity of two images, and of two prompts. None is a
            Gaussian with the embedder's usual bandwidth, or else the features' median distance.
        truncation: how many eigenvalues the truncated scores keep; None leaves these scores out.
        group_size: images in a group of in-group Vendi (`group_vendi`); None leaves it out.

    Raises:
        ValueError: `image` or `prompt` is none of these, or truncation < 1.

    Example:
        >>> Embedding("pixels:4", kernel_image=Gaussian(0.5)).prompt
        'clip'
    """

    image: ImageFeatures = "dinov2"
    prompt: str | PromptEmbedder | Features = "clip"
    kernel_image: Kernel | None = None
    kernel_prompt: Kernel | None = None
    truncation: int | None = None
    group_size: int | None = None

    def __post_init__(self) -> None:
        for given in (self.image, self.prompt):
            if not isinstance(given, (str, Tensor, np.ndarray)) and not hasattr(given, "embed"):
                raise ValueError(
                    "features must be given by name, by an embedder such as FromFunction(function, "
                    f"name), or as an (n, d) tensor or array, got {given!r:.80}"
                )
        if self.truncation is not None:
            check_count("truncation", self.truncation)
            object.__setattr__(self, "truncation", int(self.truncation))  # for JSON

    def with_kernels_of(self, inputs: ScoreInputs) -> "Embedding":
        """A copy with the kernels of another batch (its `report.inputs`), to compare both."""
        return replace(self, kernel_image=inputs.kernel_x, kernel_prompt=inputs.kernel_t)


DINOV2_AND_CLIP = Embedding()
GIVEN: dict[str, Any] = {"name": "given features"}


@dataclass(frozen=True)
class ImageReader:
    """How image files are read and embedded.

    Attributes:
        cache: folder that stores the features of files between calls, by path, size and time; None
            stores nothing.
        workers: number of processes that decode files; 0 decodes in the main process.
        on_bad_image: "skip" leaves out files that cannot be read, "fail" raises at the first.
        progress: show progress bars.

    Raises:
        ValueError: `on_bad_image` has another value.

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
        """Features of the readable images, and the embedder's settings as JSON values.

        Given (n, d) features are copied. ValueError if no image can be read, or features are
        malformed or contain NaN.
        """
        every = list(range(len(images)))
        if isinstance(embedder, (Tensor, np.ndarray)):
            features = checked(embedder, "the given features", len(images))
            return FileFeatures(features, every, []), GIVEN
        if isinstance(embedder, str):
            embedder = open_image_embedder(embedder)
        paths = images.paths()
        if paths is None:
            chunks = (images[start : start + AT_ONCE] for start in every[::AT_ONCE])
            features = torch.cat([embedder.embed(chunk) for chunk in chunks])
            found = FileFeatures(features, every, [])
        else:
            found = file_features(paths, embedder, **vars(self))
        features = checked(found.features, f"{embedder.name}'s features", len(found.kept))
        about = {"name": embedder.name, "settings": embedder.settings}
        return found._replace(features=features), about


READER = ImageReader()


@dataclass(frozen=True, eq=False)
class Embedded:
    """A batch without its unreadable images, with the inputs of its scores."""

    batch: Batch
    kept: list[int]  # row numbers of the images among those given
    given: int
    inputs: ScoreInputs
    settings: dict[str, Any]  # what the scores depend on, as JSON values
    skipped: list[BadImage]


def embed_batch(batch: Batch, embedding: Embedding, reader: ImageReader) -> Embedded:
    """Features and kernels of a batch's images, and of its prompts, if it has any."""
    given = len(batch.images)
    (x, kept, skipped), embedder = reader.embed(batch.images, embedding.image)
    batch = batch.take(kept)
    kernel_x, kernel = choose_kernel(embedding.kernel_image, IMAGE_SIGMAS, embedder, x)
    settings: dict[str, Any] = {"images": len(x), "image_embedder": embedder}
    scored: Any = {"truncation": embedding.truncation, "group_size": embedding.group_size}
    settings |= {"kernel_image": kernel, **scored}
    columns = {}
    with suppress(ValueError):  # not known
        columns["seconds_per_image"] = batch.column("seconds")
    seeds = [row.get("seed") for row in batch.rows or ()]
    scored["seeds"] = seeds if seeds and all(isinstance(it, int) for it in seeds) else None
    inputs = ScoreInputs(x, kernel_x, prompts=batch.prompts, columns=columns, **scored)
    if batch.prompts is not None:
        if isinstance(embedding.prompt, (Tensor, np.ndarray)):
            t, embedder = checked(embedding.prompt, "the prompts' features", given)[kept], GIVEN
        else:
            t, embedder = embed_prompts(batch.prompts, embedding.prompt)
        kernel_t, kernel = choose_kernel(embedding.kernel_prompt, PROMPT_SIGMAS, embedder, t)
        inputs = replace(inputs, t=t, kernel_t=kernel_t)
        settings["prompts"] = len(set(batch.prompts))
        settings |= {"prompt_embedder": embedder, "kernel_prompt": kernel}
    return Embedded(batch, kept, given, inputs, settings, skipped)


def embed_prompts(
    prompts: Sequence[str], embedder: str | PromptEmbedder
) -> tuple[Tensor, dict[str, Any]]:
    """(n, m) features of n prompts, of which each distinct one is embedded once, and the embedder's
    settings as JSON values."""
    if isinstance(embedder, str):
        embedder = open_prompt_embedder(embedder)
    rows = {prompt: row for row, prompt in enumerate(dict.fromkeys(prompts))}
    found = checked(embedder.embed([*rows]), f"{embedder.name}'s features", len(rows))
    about = {"name": embedder.name, "settings": embedder.settings}
    return found[[rows[prompt] for prompt in prompts]], about


def choose_kernel(
    kernel: Kernel | None, usual: dict[str, float], embedder: dict[str, Any], x: Tensor
) -> tuple[Kernel, dict[str, Any]]:
    """A kernel for (n, d) features, and its settings as JSON values; None is a Gaussian with the
    `usual` bandwidth for the embedder's name, or else the median distance."""
    if kernel is None and embedder["name"] in usual:
        kernel = Gaussian(usual[embedder["name"]])
    if kernel is not None:
        kernel = as_kernel(kernel)
        fields: dict[str, Any] = asdict(kernel) if is_dataclass(kernel) else {}
        settings = {k: v for k, v in fields.items() if isinstance(v, (int, float, str))}
        return kernel, {"name": type(kernel).__name__, **settings}
    try:
        sigma = median_distance(x)
    except ValueError:  # all items are equal, so the bandwidth does not matter
        sigma = 1.0
    return Gaussian(sigma), {"name": "Gaussian", "sigma": sigma, "chosen": "median distance"}


def checked(features: Features, name: str, n: int) -> Tensor:
    """A copy of valid (n, d) features on the CPU."""
    try:
        checked = as_features(features)
    except ValueError as error:
        raise ValueError(f"{name} cannot be scored: {error}") from None
    if len(checked) != n:
        raise ValueError(f"{name} have {len(checked)} rows, but there are {n}: give one for each")
    return checked.to("cpu", copy=True)
