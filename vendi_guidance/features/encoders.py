"""Image encoders for `ImageSpace`: well-known models behind their own preprocessing.

Preprocessing is done on tensors, so that gradients pass; what the models' libraries do to pictures
of whole numbers differs by rounding. `docs/pipelines.md` shows their use.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any

import torch
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.functional import center_crop, normalize, pil_modes_mapping, resize
from transformers import AutoImageProcessor, Dinov2Model


class ImageEncoder(torch.nn.Module):
    """A model behind its preprocessing: resize, crop, normalise. In eval mode, its weights frozen.

    Args:
        model: (b, 3, h, w) normalised images to its output.
        mean, std: for the three channels, of pixels from 0 to 1.
        size: what to resize to: the shorter edge, or height and width.
        crop: height and width to crop from the middle; None is not to crop.
        interpolation: for resizing; antialiased.
        read: the features, (b, m), in the model's output; None is the output itself.
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
        self.model = model
        self.mean, self.std = list(mean), list(std)
        self.size, self.crop = size, crop
        self.interpolation = interpolation
        self.read = read
        self.requires_grad_(False).eval()

    def preprocess(self, images: Tensor) -> Tensor:
        """(b, 3, h, w) images in [-1, 1] to what the model takes."""
        pixels = (images + 1) / 2
        size = [self.size] if isinstance(self.size, int) else list(self.size)
        pixels = resize(pixels, size, self.interpolation, antialias=True)
        pixels = pixels.clamp(0, 1)  # bicubic curves overshoot
        if self.crop is not None:
            pixels = center_crop(pixels, list(self.crop))
        return normalize(pixels, self.mean, self.std)

    def forward(self, images: Tensor) -> Tensor:
        """(b, 3, h, w) images in [-1, 1] to (b, m) features."""
        output = self.model(self.preprocess(images))
        return output if self.read is None else self.read(output)


def open_clip_encoder(name: str, pretrained: str | None) -> ImageEncoder:
    """The image half of a CLIP, by OpenCLIP's names; needs open_clip_torch.

    Args:
        name, pretrained: as `open_clip.create_model` takes them, such as "ViT-B-32" and
            "laion2b_s34b_b79k"; pretrained=None is random weights.

    Raises:
        ImportError: open_clip_torch is not installed.
        ValueError: preprocessing that is not covered.
    """
    try:
        import open_clip
    except ImportError:
        raise ImportError("open_clip_encoder needs OpenCLIP: pip install open_clip_torch") from None
    visual = open_clip.create_model(name, pretrained).visual
    how = visual.preprocess_cfg
    size = how["size"]
    height, width = (size, size) if isinstance(size, int) else size
    if how["resize_mode"] == "squash":
        resize_to: int | tuple[int, int] = (height, width)
    elif how["resize_mode"] == "shortest" and height == width:
        resize_to = height
    else:
        raise ValueError(
            f"{name} resizes pictures to {height}x{width} by {how['resize_mode']!r}, which is not "
            "covered here: wrap open_clip's model in a module of your own"
        )
    return ImageEncoder(
        visual,
        how["mean"],
        how["std"],
        resize_to,
        (height, width),
        InterpolationMode(how["interpolation"]),
        read=_first,
    )


def dinov2_encoder(name_or_path: str | PathLike[str]) -> ImageEncoder:
    """DINOv2's class token after the last layer norm, preprocessed as the model's folder says.

    Args:
        name_or_path: as `from_pretrained` takes it, such as "facebook/dinov2-base".

    Raises:
        ValueError: preprocessing that is not covered.
    """
    how = AutoImageProcessor.from_pretrained(name_or_path)
    if not (how.do_resize and how.do_normalize and how.size.get("shortest_edge")):
        raise ValueError(
            f"{name_or_path} prepares pictures in a way not covered here: {how.size}; wrap the "
            "model in a module of your own"
        )
    crop = (how.crop_size["height"], how.crop_size["width"]) if how.do_center_crop else None
    interpolations = {number: mode for mode, number in pil_modes_mapping.items()}
    return ImageEncoder(
        Dinov2Model.from_pretrained(name_or_path),
        how.image_mean,
        how.image_std,
        how.size["shortest_edge"],
        crop,
        interpolations[how.resample],
        read=lambda output: output.pooler_output,
    )


def _first(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    """Without the tokens that some visual towers return as well."""
    return output[0] if isinstance(output, tuple) else output
