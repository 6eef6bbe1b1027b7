"""What gives features, and features that were computed elsewhere.

Whatever has these three members is an embedder; `FromFunction` makes one of any function.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from zipfile import BadZipFile

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from vendi_guidance.kernels.standard import Features, as_features

Item = TypeVar("Item")


class ImageEmbedder(Protocol):
    """Gives features of pictures.

    Attributes:
        name: short, shown beside every score.
        settings: all that decides the features (weights, preprocessing), JSON values.
    """

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    def embed(self, images: Sequence[Image.Image]) -> Tensor:
        """(n, d) float32 features of n pictures, on the CPU."""
        ...


class PromptEmbedder(Protocol):
    """Gives features of prompts; its attributes are those of an `ImageEmbedder`."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    def embed(self, prompts: Sequence[str]) -> Tensor:
        """(n, m) float32 features of n prompts, on the CPU."""
        ...


@dataclass(frozen=True)
class FromFunction(Generic[Item]):
    """A function as an embedder, of pictures or of prompts.

    Attributes:
        function: n items to their (n, d) features, a tensor or an array.
        name: what to call it beside scores.
        settings: all that decides the features. Where embeddings are kept on disk, these tell them
            from those of another function.
    """

    function: Callable[[Sequence[Item]], Features]
    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def embed(self, items: Sequence[Item]) -> Tensor:
        """(n, d) float32 features of n items, on the CPU.

        Raises:
            ValueError: the function did not return one row for each item.
        """
        features = torch.as_tensor(self.function(items)).detach().cpu().float()
        if features.ndim != 2 or len(features) != len(items):
            raise ValueError(
                f"{self.name} gave features of shape {tuple(features.shape)} for {len(items)} "
                "items: give one row for each"
            )
        return features


@dataclass(frozen=True)
class FrameMean:
    """Features of videos: the mean of those of some of their frames.

    Attributes:
        embedder: of pictures.
        frames: how many to take of each video, evenly from its first to its last; all of a
            shorter one.

    Raises:
        ValueError: frames < 1.
    """

    embedder: ImageEmbedder
    frames: int = 16

    def __post_init__(self) -> None:
        if self.frames < 1:
            raise ValueError(f"a video's feature needs at least 1 frame, got frames={self.frames}")

    @property
    def name(self) -> str:
        return f"{self.embedder.name}, mean of frames"

    @property
    def settings(self) -> dict[str, Any]:
        return {**self.embedder.settings, "frames": self.frames}

    def embed(self, videos: Sequence[Sequence[Image.Image]]) -> Tensor:
        """(n, d) float32 features of n videos, each the frames that `diffusers.utils.load_video`
        gives, on the CPU.

        Raises:
            ValueError: a video without frames.
        """
        for number, video in enumerate(videos):
            if not len(video):
                raise ValueError(f"video {number} has no frames")
        return torch.stack([self.embedder.embed(self._some(video)).mean(0) for video in videos])

    def _some(self, video: Sequence[Image.Image]) -> list[Image.Image]:
        count = min(self.frames, len(video))
        places = np.linspace(0, len(video) - 1, count).round().astype(int)
        return [video[place] for place in places]


def load_features(path: Path) -> Tensor:
    """Features that were computed elsewhere.

    Args:
        path: a `.npy`, `.npz` or `.safetensors` file; of several arrays in it, the one named
            "features" is read.

    Returns:
        (n, d) float32.

    Raises:
        ValueError: another kind of file, a damaged one, no such array, or one that holds no
            numbers or is not 2-D.
        FileNotFoundError: there is no such file.
    """
    readers: dict[str, Callable[[Path], dict[str, Any]]] = {
        ".npy": _read_npy,
        ".npz": _read_npz,
        ".safetensors": load_file,
    }
    if path.suffix not in readers:
        raise ValueError(f"features are read from {', '.join(readers)}, not from {path}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        arrays = readers[path.suffix](path)
    except (ValueError, EOFError, BadZipFile, SafetensorError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    name = next(iter(arrays)) if len(arrays) == 1 else "features"
    if name not in arrays:
        raise ValueError(f'{path} holds {", ".join(arrays) or "nothing"}: name one "features"')
    try:
        return as_features(arrays[name]).float()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read_npy(path: Path) -> dict[str, np.ndarray]:
    return {"features": np.load(path, allow_pickle=False)}


def _read_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


class Labels(NamedTuple):
    """What n images show, as a classifier or a person says.

    Attributes:
        asked: for each image the label that its prompt asks for, None where that is unknown.
        shown: the label that it shows.
        variant: which version of the label it shows, in what the prompt left open, such as a style.

    Example:
        >>> labels = Labels(["cat", "cat"], ["cat", "dog"], ["black", "brown"])
        >>> labels.take([1])
        Labels(asked=['cat'], shown=['dog'], variant=['brown'])
    """

    asked: Sequence[str | None]
    shown: Sequence[str]
    variant: Sequence[Hashable]

    def take(self, rows: Sequence[int]) -> "Labels":
        """The labels of some of the images, by row numbers."""
        return Labels._make([column[row] for row in rows] for column in self)


class Labeler(Protocol):
    """Gives labels of images and their prompts."""

    def __call__(self, images: Sequence[Image.Image], prompts: Sequence[str]) -> Labels: ...
