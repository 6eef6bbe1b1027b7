"""Embedders, labels, and features loaded from files.

Any object with the three members of `Embedder` can be used as one; `FromFunction` wraps a function.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vendi_guidance.kernels.base import Features, as_features
from vendi_guidance.storage.tensors import load_tensors

Item = TypeVar("Item", contravariant=True)


class Embedder(Protocol[Item]):
    """Computes features of images or of prompts.

    Attributes:
        name: short name, printed beside every score.
        settings: JSON values that determine the features, such as weights and preprocessing.
    """

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    def embed(self, items: Sequence[Item], /) -> Tensor:
        """(n, d) float32 features of n items, on the CPU."""
        ...


ImageEmbedder: TypeAlias = Embedder[Image.Image]
PromptEmbedder: TypeAlias = Embedder[str]


@dataclass(frozen=True)
class FromFunction(Generic[Item]):
    """Wraps a function as an embedder of images or prompts.

    Attributes:
        function: maps n items to (n, d) features, a tensor or an array.
        name, settings: see `Embedder`; together they are the key of features cached on disk.

    Example:
        >>> from vendi_guidance.features import FromFunction
        >>> lengths = FromFunction(lambda words: [[float(len(word))] for word in words], "length")
        >>> lengths.embed(["cat", "horse"])
        tensor([[3.],
                [5.]])
    """

    function: Callable[[Sequence[Item]], Features]
    name: str
    settings: dict[str, Any] = field(default_factory=dict)

    def embed(self, items: Sequence[Item]) -> Tensor:
        """(n, d) float32 features of n items, on the CPU; ValueError unless the function returned
        one row per item."""
        features = torch.as_tensor(self.function(items)).detach().cpu().float()
        shape, n = tuple(features.shape), len(items)
        if len(shape) != 2 or shape[0] != n:
            raise ValueError(f"{self.name} returned shape {shape} for {n} items: return ({n}, d)")
        return features


def load_features(path: str | PathLike[str]) -> Tensor:
    """Load features that were computed elsewhere.

    Args:
        path: a `.npy`, `.npz` or `.safetensors` file with one array, or with one named "features".

    Returns:
        (n, d) float32.

    Raises:
        ValueError: the file has another format or is damaged, or its array is missing, not numeric
            or not 2-D.
        FileNotFoundError: the file does not exist.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from vendi_guidance.features import load_features
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/features.npy", np.ones((1, 3)))
        ...     load_features(f"{folder}/features.npy")
        tensor([[1., 1., 1.]])
    """
    path = Path(path)
    if path.suffix not in (".npy", ".npz", ".safetensors"):
        raise ValueError(f"features are read from .npy, .npz or .safetensors, not from {path}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    arrays = load_tensors(path)[1] if path.suffix == ".safetensors" else _load_numpy(path)
    name = next(iter(arrays)) if len(arrays) == 1 else "features"
    if name not in arrays:
        found = ", ".join(arrays) or "nothing"
        raise ValueError(f'{path} contains {found}: name one array "features"')
    try:
        return as_features(arrays[name]).float()
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _load_numpy(path: Path) -> dict[str, Any]:
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"features": loaded}
        with loaded:
            return dict(loaded)
    except Exception as error:  # damaged files raise errors of every kind
        raise ValueError(f"{path} is damaged or contains Python objects: {error}") from error


class Labels(NamedTuple):
    """What each of n images should show and does show, according to a classifier or a person.

    Attributes:
        asked: for each image, the label its prompt asks for; None if unknown.
        shown: the label the image shows.
        variant: how it shows it, in aspects that prompts leave open, such as the style.

    Example:
        >>> labels = Labels(["cat", "cat"], ["cat", "dog"], ["black", "brown"])
        >>> labels.take([1])
        Labels(asked=['cat'], shown=['dog'], variant=['brown'])
    """

    asked: Sequence[str | None]
    shown: Sequence[str]
    variant: Sequence[Hashable]

    def take(self, rows: Sequence[int]) -> "Labels":
        """The labels of the images at these positions."""
        return Labels._make([column[row] for row in rows] for column in self)
