"""A network behind its own preprocessing, as an embedder of pictures."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from PIL import Image
from torch import Tensor, nn
from tqdm import tqdm

from vendi_guidance.storage.images import to_rgb

T = TypeVar("T")


class NetworkEmbedder:
    """Features of pictures by a network.

    Args:
        name: see `features.ImageEmbedder`.
        settings: all that decides the features besides the values of the weights and the
            precision, which are added.
        prepare: an RGB picture to a (c, h, w) tensor, as the network wants it; to be sent to other
            processes, it has to be picklable.
        network: (b, c, h, w) float32 to (b, d).
        device: where it computes; products are in half precision on a GPU.
        batch_size: how many pictures at once.
        progress: show a bar.
    """

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        prepare: Callable[[Image.Image], Tensor],
        network: nn.Module,
        *,
        device: str = "cpu",
        batch_size: int = 64,
        progress: bool = False,
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"a batch has at least 1 picture, got batch_size={batch_size}")
        self.name = name
        settings = {**settings, "sha256": digest_of(network), "precision": precision(device)}
        # as they will be read back: libraries keep some in tuples
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.prepare = prepare
        self.network = network.eval().requires_grad_(False).to(device)
        self.device = device
        self.batch_size = batch_size
        self.progress = progress

    def embed(self, images: Sequence[Image.Image]) -> Tensor:
        """(n, d) float32 features of n >= 1 pictures of any size and mode, on the CPU."""
        return torch.cat(
            [
                self.encode(torch.stack([self.prepare(to_rgb(image)) for image in batch]))
                for batch in batches(images, self.batch_size, self.progress)
            ]
        )

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """(b, c, h, w) prepared pictures to their (b, d) float32 features, on the CPU."""
        with half_precision(self.device):
            return self.network(pixels.to(self.device)).float().cpu()


def batches(items: Sequence[T], size: int, progress: bool) -> Iterator[Sequence[T]]:
    """Items in order, `size` at once, under a bar that counts them.

    Raises:
        ValueError: there are none.
    """
    if not len(items):
        raise ValueError("there is nothing to embed")
    with tqdm(total=len(items), disable=None if progress else True) as bar:
        for start in range(0, len(items), size):
            batch = items[start : start + size]
            yield batch
            bar.update(len(batch))


def half_precision(device: str) -> AbstractContextManager[Any]:
    """Where matrices are multiplied in half precision, if that is faster there."""
    if torch.device(device).type == "cuda":
        return torch.autocast("cuda", torch.float16)
    return nullcontext()


def precision(device: str) -> str:
    """What `half_precision` computes in, in words."""
    return "float16" if torch.device(device).type == "cuda" else "float32"


def digest_of(network: nn.Module) -> str:
    """A SHA-256 of all weights and their names."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
