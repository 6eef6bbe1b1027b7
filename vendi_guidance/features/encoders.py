"""Differentiable image encoders for `ImageSpace` (see docs/pipelines.md).

Preprocessing runs on tensors, so that gradients flow through it. Its results differ from those of
the models' own libraries, which process 8-bit images, only by rounding.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import CenterCrop, InterpolationMode, Normalize, Resize
from torchvision.transforms.functional import pil_modes_mapping

from vendi_guidance.features.images import image_features, load_dinov2
from vendi_guidance.features.open_clip import load_open_clip


class ImageEncoder(torch.nn.Module):
    """A frozen model in eval mode, with its preprocessing: resize, crop, normalize.

    Args:
        model: takes (b, 3, h, w) normalized images.
        mean, std: normalization of the three channels, for pixels in [0, 1].
        size: length of the shorter edge after resizing, or (height, width).
        crop: (height, width) of the center crop; None does not crop.
        interpolation: mode of resizing, which is antialiased.
        read: extracts (b, m) features from the model's output; None returns the output as it is.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        mean: Sequence[float],
        std: Sequence[float],
        size: int | tuple[int, int],
        crop: tuple[int, int] | None = None,
        interpolation: InterpolationMode = InterpolationMode.BICUBIC,
        read: Callable[[Any], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.model, self.read = model, read
        self.resize = Resize(size, interpolation, antialias=True)
        self.crop = torch.nn.Identity() if crop is None else CenterCrop(crop)
        self.normalize = Normalize(mean, std)
        self.requires_grad_(False).eval()

    def preprocess(self, images: Tensor) -> Tensor:
        """Convert (b, 3, h, w) images in [-1, 1] to the model's input."""
        pixels = self.resize((images + 1) / 2).clamp(0, 1)  # bicubic interpolation overshoots
        return self.normalize(self.crop(pixels))

    def forward(self, images: Tensor) -> Tensor:
        """(b, m) features of (b, 3, h, w) images in [-1, 1]."""
        output = self.model(self.preprocess(images))
        return output if self.read is None else self.read(output)


def open_clip_encoder(name: str, pretrained: str | None) -> ImageEncoder:
    """The image encoder of a CLIP model, loaded by open_clip_torch.

    Args:
        name: an OpenCLIP model, such as "ViT-B-32", or "hf-hub:NAME", or a folder.
        pretrained: OpenCLIP's tag of the weights, such as "laion2b_s34b_b79k"; None takes the first
            that it lists. Must be None for the hub and for folders.

    Raises:
        ImportError: open_clip_torch is not installed.
        FileNotFoundError: the weights are missing; the message says how to fetch them.
        ValueError: the model is unknown, has no safetensors, or its preprocessing is not supported.

    Example:
        >>> from vendi_guidance.features import open_clip_encoder
        >>> encoder = open_clip_encoder("ViT-B-32", "laion2b_s34b_b79k")  # doctest: +SKIP
    """
    clip = load_open_clip(name if pretrained is None else f"{name}/{pretrained}")
    config = clip.preprocessing
    size, mode = config["size"], config["resize_mode"]
    height, width = (size, size) if isinstance(size, int) else size
    if mode != "squash" and (mode != "shortest" or height != width):
        raise ValueError(
            f"{name} resizes images to {height}x{width} in mode {mode!r}, which is not supported: "
            "use `ImageEncoder` or your own module"
        )
    crop, interpolation = (height, width), InterpolationMode(config["interpolation"])
    resize_to = crop if mode == "squash" else height
    settings = config["mean"], config["std"], resize_to, crop, interpolation
    return ImageEncoder(clip.model.visual, *settings, image_features)


def dinov2_encoder(name_or_path: str | PathLike[str]) -> ImageEncoder:
    """A DINOv2 model; its feature is the class token after the last layer norm.

    Args:
        name_or_path: a folder or a repository on the hub, such as "facebook/dinov2-base". Its
            image processor's configuration determines the preprocessing.

    Raises:
        FileNotFoundError: the weights are missing; the message says how to fetch them.
        ValueError: the preprocessing is not supported.

    Example:
        >>> from vendi_guidance.features import dinov2_encoder
        >>> encoder = dinov2_encoder("facebook/dinov2-base")  # doctest: +SKIP
    """
    model, processor = load_dinov2(name_or_path)
    edge = processor.do_resize and processor.size.get("shortest_edge")
    if not (edge and processor.do_normalize):
        raise ValueError(
            f"the preprocessing of {name_or_path} is not supported (size {processor.size}): use "
            "`ImageEncoder` or your own module"
        )
    crop = processor.crop_size if processor.do_center_crop else None
    crop = crop and (crop["height"], crop["width"])
    mode = {number: mode for mode, number in pil_modes_mapping.items()}[processor.resample]
    settings = processor.image_mean, processor.image_std, edge, crop, mode
    return ImageEncoder(model, *settings, attrgetter("pooler_output"))
