"""Differentiable image encoders for `ImageSpace` (see docs/pipelines.md): well-known models.

Preprocessing works on tensors, so that gradients pass; that of the models' libraries, on images of
8 bits, differs by rounding.
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
    """A model with its preprocessing: resize, crop, normalise. In eval mode, weights frozen.

    Args:
        model: (b, 3, h, w) normalised images to its output.
        mean, std: of the three channels, for pixels from 0 to 1.
        size, interpolation: of resizing, antialiased: the shorter edge, or height and width.
        crop: height and width of a center crop; None does not crop.
        read: the model's output to (b, m) features; None takes the output itself.
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
        """(b, 3, h, w) images in [-1, 1] to the model's input."""
        pixels = self.resize((images + 1) / 2).clamp(0, 1)  # bicubic interpolation overshoots
        return self.normalize(self.crop(pixels))

    def forward(self, images: Tensor) -> Tensor:
        """(b, 3, h, w) images in [-1, 1] to (b, m) features."""
        output = self.model(self.preprocess(images))
        return output if self.read is None else self.read(output)


def open_clip_encoder(name: str, pretrained: str | None) -> ImageEncoder:
    """The image half of a CLIP, by OpenCLIP's names; needs open_clip_torch.

    Args:
        name, pretrained: by OpenCLIP's names, such as "ViT-B-32" and "laion2b_s34b_b79k", where
            None is the first that it lists; or "hf-hub:NAME" or a folder, and None.

    Raises:
        ImportError: open_clip_torch is not installed.
        FileNotFoundError: the weights are missing; the message says how to fetch them.
        ValueError: an unknown model, no safetensors of it, or preprocessing that is not covered.

    Example:
        >>> from vendi_guidance import open_clip_encoder
        >>> encoder = open_clip_encoder("ViT-B-32", "laion2b_s34b_b79k")  # doctest: +SKIP
    """
    clip = load_open_clip(name if pretrained is None else f"{name}/{pretrained}")
    how = clip.preprocessing
    size, mode = how["size"], how["resize_mode"]
    height, width = (size, size) if isinstance(size, int) else size
    if mode != "squash" and (mode != "shortest" or height != width):
        raise ValueError(
            f"{name} resizes images to {height}x{width} in mode {mode!r}, which is not supported: "
            "use `ImageEncoder`, or a module of your own"
        )
    resize_to = (height, width) if mode == "squash" else height
    settings = how["mean"], how["std"], resize_to, (height, width)
    interpolation = InterpolationMode(how["interpolation"])
    return ImageEncoder(clip.model.visual, *settings, interpolation, image_features)


def dinov2_encoder(name_or_path: str | PathLike[str]) -> ImageEncoder:
    """The class token of DINOv2 after the last layer norm, preprocessed as the model's folder says.

    Args:
        name_or_path: a folder or a repository on the hub, such as "facebook/dinov2-base".

    Raises:
        FileNotFoundError: the weights are missing; the message says how to fetch them.
        ValueError: preprocessing that is not covered.

    Example:
        >>> from vendi_guidance import dinov2_encoder
        >>> encoder = dinov2_encoder("facebook/dinov2-base")  # doctest: +SKIP
    """
    model, how = load_dinov2(name_or_path)
    if not (how.do_resize and how.do_normalize and how.size.get("shortest_edge")):
        raise ValueError(
            f"the preprocessing of {name_or_path} is not supported (size {how.size}): use "
            "`ImageEncoder`, or a module of your own"
        )
    crop = (how.crop_size["height"], how.crop_size["width"]) if how.do_center_crop else None
    interpolation = {number: mode for mode, number in pil_modes_mapping.items()}[how.resample]
    mean, std, size = how.image_mean, how.image_std, how.size["shortest_edge"]
    return ImageEncoder(model, mean, std, size, crop, interpolation, attrgetter("pooler_output"))
