"""Networks as embedders: batches, precision, and the networks' digests."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import torch
from PIL import Image
from torch import Tensor, nn

from vendi_guidance.checks import check_count, nearest
from vendi_guidance.features.weights import reason
from vendi_guidance.storage.images import to_rgb

T = TypeVar("T")
Parts: TypeAlias = tuple[dict[str, Any], nn.Module, Callable[..., Tensor]]
"""The settings, network and transform of an `EmbeddingNetwork`."""


def open_parts(
    what: str, kinds: Mapping[str, Callable[[str], Parts]], spec: str
) -> tuple[str, Parts]:
    """The kind in `KIND[:WHICH]`, and what its entry in `kinds` makes of WHICH, "" by default."""
    kind, _, which = spec.partition(":")
    if kind not in kinds:
        raise ValueError(
            f"there is no {what} embedder {kind!r}{nearest(kind, kinds)}: "
            f"take one of {', '.join(kinds)}"
        )
    try:
        return kind, kinds[kind](which)
    except Exception as error:  # damaged files raise errors of every kind
        # errors of JSON and of texts are ValueErrors too, and name no file
        names_no_file = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
        if isinstance(error, ValueError | OSError | ImportError) and not names_no_file:
            raise
        raise ValueError(f"the weights of {spec} cannot be used: {reason(error)}") from error


class EmbeddingNetwork:
    """A network on a device, and what images' and prompts' embedders by a network have in common.

    Args:
        name, settings: see `ImageEmbedder`; to the settings, the digest of the weights and the
            precision are added.
        network: computes the features; for images, of (b, c, h, w) float32 to (b, d).
        transform: of images, an RGB image to the (c, h, w) tensor that the network takes, picklable
            to be sent to worker processes; of prompts, b of them and the device to (b, m) features.
        device: where it computes; products are in half precision on a GPU, where that is faster.
        batch_size: how many items at once.

    Raises:
        ValueError: batch_size < 1.
    """

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        network: nn.Module,
        transform: Callable[..., Tensor],
        device: str,
        batch_size: int,
    ) -> None:
        check_count("batch_size", batch_size)
        self.name, self.transform = name, transform
        self.device, self.batch_size = device, batch_size
        self._half = torch.device(device).type == "cuda"
        precision = "float16" if self._half else "float32"
        settings = {**settings, "sha256": digest_of(network), "precision": precision}
        # as they are read back: libraries keep some in tuples
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.network = network.eval().requires_grad_(False).to(device)

    def batches(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """Items, of which there must be one, `batch_size` at once."""
        if not len(items):
            raise ValueError("there is nothing to embed")
        return (items[i : i + self.batch_size] for i in range(0, len(items), self.batch_size))

    @contextmanager
    def precision(self) -> Iterator[None]:
        """The context to compute in: without gradients, in half precision on a GPU.

        Raises:
            ValueError: the network cannot compute, such as one that its config does not fit.
        """
        try:
            with torch.no_grad(), torch.autocast("cuda", torch.float16, enabled=self._half):
                yield
        except Exception as error:  # libraries raise errors of every kind
            raise ValueError(f"the embedder {self.name} failed: {reason(error)}") from error


class NetworkEmbedder(EmbeddingNetwork):
    """Features of images by a network."""

    def embed(self, images: Sequence[Image.Image]) -> Tensor:
        """(n, d) float32 features of n >= 1 images of any size and mode, on the CPU."""
        batches = ([self.transform(to_rgb(image)) for image in b] for b in self.batches(images))
        return torch.cat([self.encode(torch.stack(batch)) for batch in batches])

    def encode(self, pixels: Tensor) -> Tensor:
        """(b, c, h, w) prepared images to their (b, d) float32 features, on the CPU."""
        with self.precision():
            return self.network(pixels.to(self.device)).float().cpu()


def digest_of(network: nn.Module) -> str:
    """A SHA-256 of all weights and their names."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
