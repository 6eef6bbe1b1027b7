"""Image embedders by name: well-known networks, each with its library's preprocessing."""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import AutoImageProcessor, AutoModel, PreTrainedModel

from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.features.network import NetworkEmbedder, Parts, open_parts
from vendi_guidance.features.open_clip import load_open_clip
from vendi_guidance.features.probe import load_probe, probe_pixels
from vendi_guidance.features.weights import all_weights, model_folder
from vendi_guidance.storage.messages import optional_import


def open_image_embedder(spec: str, *, device: str = "cpu", batch_size: int = 64) -> ImageEmbedder:
    """Open an image embedder by name.

    Args:
        spec: the kind and, after a colon, the model:

            - `probe:FOLDER`: the demo's `Probe`;
            - `dinov2[:FOLDER_OR_NAME]`: the class token of DINOv2, loaded by transformers; also
              works for its successors that have a pooled output;
            - `clip[:MODEL[/PRETRAINED]]`: the image encoder of a CLIP or SigLIP model, features of
              unit length; MODEL and PRETRAINED are OpenCLIP's names, or `hf-hub:NAME`, or a folder;
            - `timm:NAME`: the features before the classifier of a timm model; NAME is timm's, a
              repository on the hub, or a folder. `timm:inception_v3.tv_in1k` is not the network
              of published FIDs, which was trained in TensorFlow;
            - `pixels[:SIZE]`: the pixels of the image, resized to SIZE x SIZE (default 32 x 32).

            All weights are safetensors.
        device: where the network runs; on a GPU in half precision.
        batch_size: number of images per batch.

    Raises:
        ValueError: the kind is unknown, the weights do not match it, or batch_size < 1.
        FileNotFoundError: the weights are missing; the message says how to fetch them.
        ImportError: a library that the kind needs is not installed.

    Example:
        >>> from PIL import Image
        >>> from vendi_guidance.features import open_image_embedder
        >>> embedder = open_image_embedder("pixels:4")
        >>> embedder.embed([Image.new("RGB", (64, 64), "red")]).shape
        torch.Size([1, 48])
    """
    kind, parts = open_parts("image", KINDS, spec)
    return NetworkEmbedder(kind, *parts, device, batch_size)


def _probe(folder: str) -> Parts:
    probe = load_probe(folder)
    return {"weights": folder}, probe.body, partial(probe_pixels, size=probe.size)


def _process(image: Image.Image, processor: Any) -> Tensor:
    return processor(image, return_tensors="pt")["pixel_values"][0]


class _Features(nn.Module):
    """The features that `read` finds in a model's output."""

    def __init__(self, model: nn.Module, read: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.model, self.read = model, read

    def forward(self, pixels: Tensor) -> Tensor:
        return self.read(self.model(pixels))


def load_dinov2(name: str | PathLike[str]) -> tuple[Any, Any]:
    """Load a transformers vision model in float32, and its image processor."""
    folder = model_folder(str(name))
    with all_weights(PreTrainedModel):
        model = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=torch.float32)
    return model, AutoImageProcessor.from_pretrained(folder)


def _dinov2(name: str) -> Parts:
    name = name or "facebook/dinov2-large"
    model, processor = load_dinov2(name)
    settings = {"weights": name, "preprocessing": processor.to_dict()}
    network = _Features(model, attrgetter("pooler_output"))
    return settings, network, partial(_process, processor=processor)


def image_features(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The features in the output of an OpenCLIP image tower; some towers also return tokens."""
    return output[0] if isinstance(output, tuple) else output


def _unit_features(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return nn.functional.normalize(image_features(output).float(), dim=-1)


def _clip(name: str) -> Parts:
    clip = load_open_clip(name)
    settings = {"weights": clip.name, "preprocessing": clip.preprocessing, "unit_length": True}
    return settings, _Features(clip.model.visual, _unit_features), clip.transform


def _timm(name: str) -> Parts:
    timm = optional_import("timm", "timm", "timm:NAME")
    repository: Any = name
    if not Path(name).is_dir() and "/" not in name:
        listed = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
        repository = getattr(listed, "hf_hub_id", None)
        if repository is None:
            raise ValueError(f"timm has no weights for a model named {name!r}")
    folder = model_folder(repository)
    # Name the file: in a folder, timm prefers some pickles to safetensors with other names.
    files = folder.glob("*.safetensors")
    file = min(files, key=lambda file: (file.name != "model.safetensors", file.name))
    overlay = {"source": "", "file": str(file), "custom_load": False}
    source = f"local-dir:{folder}"
    model = timm.create_model(source, pretrained=True, pretrained_cfg_overlay=overlay)
    model.reset_classifier(0)  # not num_classes=0, for which timm loads incomplete files too
    config = timm.data.resolve_model_data_config(model)
    transform = timm.data.create_transform(**config, is_training=False)
    return {"weights": name, "preprocessing": config}, model, transform


def resized(image: Image.Image, size: int) -> Tensor:
    pixels = np.array(image.resize((size, size), Image.Resampling.BICUBIC))
    return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255


def _pixels(size: str) -> Parts:
    if size and (not size.isdecimal() or int(size) < 1):
        raise ValueError(f"the SIZE of pixels:SIZE must be an integer of at least 1, got {size!r}")
    side = int(size or 32)
    return {"size": side}, nn.Flatten(), partial(resized, size=side)


KINDS: dict[str, Callable[[str], Parts]] = {
    "probe": _probe,
    "dinov2": _dinov2,
    "clip": _clip,
    "timm": _timm,
    "pixels": _pixels,
}
