"""Embedders of images by name: well-known networks, each with its library's preprocessing."""

from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import AutoImageProcessor, AutoModel, PreTrainedModel

from vendi_guidance.checks import optional_import
from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.features.network import NetworkEmbedder, Parts, open_parts
from vendi_guidance.features.open_clip import load_open_clip
from vendi_guidance.features.probe import load_probe, probe_pixels
from vendi_guidance.features.weights import all_weights, model_folder


def open_image_embedder(spec: str, *, device: str = "cpu", batch_size: int = 64) -> ImageEmbedder:
    """An embedder of images by its name.

    Args:
        spec: a kind and, after a colon, which one:

            - `probe:FOLDER`: the demo's `Probe`;
            - `dinov2[:FOLDER_OR_NAME]`: the class token of DINOv2, by transformers; also its
              successors with a pooled output;
            - `clip[:MODEL[/PRETRAINED]]`: the image half of a CLIP or SigLIP, of unit length; MODEL
              and PRETRAINED by OpenCLIP's names, or `hf-hub:NAME`, or a folder;
            - `timm:NAME`: the last features of any timm model, by timm's name, the hub's, or in a
              folder; `timm:inception_v3.tv_in1k` is not the network of published FIDs, which was
              trained in TensorFlow;
            - `pixels[:SIZE]`: the image itself, resized to SIZE x SIZE, 32 x 32 by default.

            All weights are safetensors.
        device: where it computes; half precision on a GPU.
        batch_size: how many images at once.

    Raises:
        ValueError: another kind, weights that do not fit it, or batch_size < 1.
        FileNotFoundError: the weights are missing; the message says how to fetch them.
        ImportError: the library it needs is not installed.

    Example:
        >>> from PIL import Image
        >>> from vendi_guidance import open_image_embedder
        >>> embedder = open_image_embedder("pixels:4")
        >>> embedder.embed([Image.new("RGB", (64, 64), "red")]).shape
        torch.Size([1, 48])
    """
    kind, parts = open_parts("image", KINDS, spec)
    return NetworkEmbedder(kind, *parts, device, batch_size)


def _probe(folder: str) -> Parts:
    return {"weights": folder}, load_probe(folder).body, probe_pixels


def processed(image: Image.Image, processor: Any) -> Tensor:
    return processor(image, return_tensors="pt")["pixel_values"][0]


class Pooled(nn.Module):
    """The pooled output of a vision model of transformers: of DINOv2, its class token."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(pixel_values=pixels).pooler_output


def load_dinov2(name: str | PathLike[str]) -> tuple[Any, Any]:
    """A vision model of transformers in float32, and its image processor."""
    folder = model_folder(str(name))
    with all_weights(PreTrainedModel):
        model = AutoModel.from_pretrained(folder, use_safetensors=True, dtype=torch.float32)
    return model, AutoImageProcessor.from_pretrained(folder)


def _dinov2(which: str) -> Parts:
    name = which or "facebook/dinov2-large"
    model, processor = load_dinov2(name)
    # the processor's settings as they are saved: JSON values
    settings = {"weights": name, "preprocessing": processor.to_dict()}
    return settings, Pooled(model), partial(processed, processor=processor)


class ImageHalf(nn.Module):
    """The image half of an OpenCLIP model, features of unit length."""

    def __init__(self, visual: nn.Module) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, pixels: Tensor) -> Tensor:
        return nn.functional.normalize(image_features(self.visual(pixels)).float(), dim=-1)


def image_features(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """The features in an OpenCLIP image tower's output; some towers return their tokens too."""
    return output[0] if isinstance(output, tuple) else output


def _clip(which: str) -> Parts:
    clip = load_open_clip(which)
    settings = {"weights": clip.name, "preprocessing": clip.preprocessing, "unit_length": True}
    return settings, ImageHalf(clip.model.visual), clip.transform


def _timm(name: str) -> Parts:
    timm = optional_import("timm", "timm", "timm:NAME")
    repository: Any = name
    if not Path(name).is_dir() and "/" not in name:
        config = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
        repository = getattr(config, "hf_hub_id", None)
        if repository is None:
            raise ValueError(f"timm has no weights for a model named {name!r}")
    folder = model_folder(repository)
    # of a folder, timm prefers some pickles to safetensors of another name
    files = folder.glob("*.safetensors")
    file = min(files, key=lambda file: (file.name != "model.safetensors", file.name))
    only = {"source": "", "file": str(file), "custom_load": False}
    model = timm.create_model(f"local-dir:{folder}", pretrained=True, pretrained_cfg_overlay=only)
    model.reset_classifier(0)  # asked for no classifier, timm would also load incomplete weights
    how = timm.data.resolve_model_data_config(model)
    transform = timm.data.create_transform(**how, is_training=False)
    return {"weights": name, "preprocessing": how}, model, transform


def shrunk(image: Image.Image, size: int) -> Tensor:
    """An image as `size` x `size` pixels in [0, 1]."""
    pixels = np.array(image.resize((size, size), Image.Resampling.BICUBIC))
    return torch.from_numpy(pixels).permute(2, 0, 1) / 255


def _pixels(size: str) -> Parts:
    if size and (not size.isdecimal() or int(size) < 1):
        raise ValueError(f"the SIZE of pixels:SIZE must be at least 1, got {size!r}")
    side = int(size or 32)
    return {"size": side}, nn.Flatten(), partial(shrunk, size=side)


KINDS: dict[str, Callable[[str], Parts]] = {
    "probe": _probe,
    "dinov2": _dinov2,
    "clip": _clip,
    "timm": _timm,
    "pixels": _pixels,
}
