"""Embedders that run a network: batching, precision, and a digest of the weights."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import torch
from PIL import Image
from torch import Tensor, nn

from vendi_guidance.features.weights import reason
from vendi_guidance.kernels.base import check_count
from vendi_guidance.kernels.precision import float32_by_default, isolated
from vendi_guidance.storage.images import to_rgb
from vendi_guidance.storage.messages import nearest

T = TypeVar("T")
Parts: TypeAlias = tuple[dict[str, Any], nn.Module, Callable[..., Tensor]]
"""The settings, network and transform of an `EmbeddingNetwork`."""


@float32_by_default()
def open_parts(
    what: str, kinds: Mapping[str, Callable[[str], Parts]], spec: str
) -> tuple[str, Parts]:
    """Load the parts of the embedder `KIND[:NAME]`; `kinds` has a loader of NAME for each kind."""
    kind, _, name = spec.partition(":")
    if kind not in kinds:
        raise ValueError(
            f"there is no {what} embedder {kind!r}{nearest(kind, kinds)}: "
            f"use one of {', '.join(kinds)}"
        )
    try:
        return kind, kinds[kind](name)
    except Exception as error:  # damaged files raise errors of every kind
        # JSON and decoding errors are ValueErrors too, but their messages name no file
        names_no_file = isinstance(error, json.JSONDecodeError | UnicodeDecodeError)
        if isinstance(error, ValueError | OSError | ImportError) and not names_no_file:
            raise
        raise ValueError(f"the weights of {spec} cannot be used: {reason(error)}") from error


class EmbeddingNetwork:
    """Base of the embedders that run a network; on a GPU in half precision, which is faster.

    Args:
        settings: see `Embedder`; the precision and a digest of the weights are added.
        network: computes the features. Image networks map (b, c, h, w) float32 to (b, d).
        transform: for images, converts an RGB image to the network's (c, h, w) input, and must be
            picklable (worker processes run it). For prompts, maps b prompts and the device to
            (b, m) features.
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
        digest = {"sha256": digest_of(network)} if network.state_dict() else {}
        settings = {**settings, **digest, "precision": precision}
        # Some libraries return tuples, which JSON reads back as lists.
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.network = network.eval().requires_grad_(False).to(device)

    def batches(self, items: Sequence[T]) -> Iterator[Sequence[T]]:
        """Split items into batches; ValueError if there are none."""
        if not len(items):
            raise ValueError("there is nothing to embed")
        return (items[i : i + self.batch_size] for i in range(0, len(items), self.batch_size))

    @contextmanager
    def precision(self) -> Iterator[None]:
        """Context for running the network; ValueError if it fails."""
        try:
            with isolated(), torch.autocast("cuda", torch.float16, enabled=self._half):
                yield
        except Exception as error:  # libraries raise errors of every kind
            raise ValueError(f"the embedder {self.name} failed: {reason(error)}") from error


class NetworkEmbedder(EmbeddingNetwork):
    """An image embedder that runs a network."""

    def embed(self, images: Sequence[Image.Image]) -> Tensor:
        """(n, d) float32 features of n >= 1 images of any size and mode, on the CPU."""
        features = []
        for batch in self.batches(images):
            with float32_by_default():
                transformed = [self.transform(to_rgb(image)) for image in batch]
            features.append(self.encode(transformed))
        return torch.cat(features)

    def encode(self, images: Sequence[Any]) -> Tensor:
        """(b, d) float32 features of b transformed images, tensors or arrays, on the CPU."""
        pixels = torch.stack([torch.as_tensor(image, device="cpu") for image in images])
        with self.precision():
            return self.network(pixels.to(self.device, torch.float32)).float().cpu()


def digest_of(network: nn.Module) -> str:
    """SHA-256 of a network's weights and their names."""
    digest = hashlib.sha256()
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
