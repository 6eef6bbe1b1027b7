"""Embedders, and features that were computed elsewhere.

Any object with `Embedder`'s three members is one; `FromFunction` makes one of any function.
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
        name: short, printed beside every score.
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
    """A function as an embedder of images or prompts.

    Attributes:
        function: n items to their (n, d) features, a tensor or an array.
        name, settings: as of any `Embedder`; the key of features cached on disk.

    Example:
        >>> from vendi_guidance import FromFunction
        >>> lengths = FromFunction(lambda words: [[float(len(word))] for word in words], "length")
        >>> lengths.embed(["cat", "horse"])
        tensor([[3.],
                [5.]])
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
        shape, n = tuple(features.shape), len(items)
        if len(shape) != 2 or shape[0] != n:
            about = f"{self.name} returned features of shape {shape} for {n} items"
            raise ValueError(f"{about}: return one row for each")
        return features


def load_features(path: str | PathLike[str]) -> Tensor:
    """Features that were computed elsewhere.

    Args:
        path: a `.npy`, `.npz` or `.safetensors` file with one array, or with one named "features".

    Returns:
        (n, d) float32.

    Raises:
        ValueError: another kind of file, a damaged one, no such array, or one that is not numeric
            or not 2-D.
        FileNotFoundError: there is no such file.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from vendi_guidance import load_features
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
        raise ValueError(f"{path} is damaged or has objects: {error}") from error


class Labels(NamedTuple):
    """What n images show, as a classifier or a person says.

    Attributes:
        asked: for each image the label that its prompt asks for, None where that is unknown.
        shown: the label that it shows.
        variant: the version of that label, in what the prompt left open, such as a style.

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


Labeler: TypeAlias = Callable[[Sequence[Image.Image], Sequence[str]], Labels]
"""Labels of images, given them and their prompts."""
