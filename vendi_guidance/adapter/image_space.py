"""Comparison of samples by an image encoder's features of their decoded predictions."""

from collections.abc import Sequence
from typing import Any

import torch
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.adapter.vae import decode, encode, frozen, vae_of
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.spaces import Space, View
from vendi_guidance.guidance.step import Prediction
from vendi_guidance.kernels.precision import full_precision
from vendi_guidance.storage.images import to_rgb


class ImageSpace(Space):
    """The space of an image encoder's features of decoded predictions.

    Images are decoded and encoded one at a time, and once more for the gradient, because autograd
    stores gigabytes for a decoder at 1024 pixels. A guided step takes as long as about four
    decodings of each image, the end of a call as long as one.

    Args:
        encoder: maps (b, 3, h, w) images in [-1, 1] to (b, m) features, on the pipeline's device;
            see `dinov2_encoder` and `open_clip_encoder`.
        size: height and width of the images, for pipelines that pack their latents: Flux, Chroma
            and Qwen-Image.

    Raises:
        TypeError: the encoder is not a module.

    Example:
        >>> from torch import nn
        >>> from vendi_guidance import VendiGuidedSDXLPipeline
        >>> from vendi_guidance.adapter import ImageSpace
        >>> space = ImageSpace(nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten()))
        >>> pipe = VendiGuidedSDXLPipeline.from_pretrained("assets/demo-sdxl")
        >>> settings = {"num_inference_steps": 2, "diversity_space": space, "diversity_rounds": 1}
        >>> images = pipe(["waving hand"] * 2, **settings).images
        >>> pipe.guidance.window.features.shape
        torch.Size([2, 192])
    """

    needs_prediction = True

    def __init__(self, encoder: torch.nn.Module, size: tuple[int, int] | None = None) -> None:
        if not isinstance(encoder, torch.nn.Module):
            raise TypeError(f"the encoder must be a torch.nn.Module, got {encoder!r:.80}")
        self.encoder = encoder
        self.size = size

    def view(self, pipeline: Any, latents: Tensor, prediction: Prediction | None) -> View:
        if prediction is None:
            raise ValueError("the image space needs the scheduler's prediction, got none")
        denoised, signal = prediction.denoised, prediction.signal

        def pull_back(gradient: Tensor) -> Tensor:
            rows = zip(denoised.split(1), gradient.split(1), strict=True)
            return torch.cat([self._pull_back(pipeline, *row) for row in rows]) / signal

        return View(self.remember(pipeline, denoised), pull_back)

    @torch.no_grad()
    def remember(self, pipeline: Any, latents: Tensor) -> Tensor:
        with frozen(vae_of(pipeline), self.encoder):
            images = (decode(pipeline, one, self.size) for one in latents.split(1))
            return torch.cat([*map(self._encode, images)])

    @torch.no_grad()
    def of_pictures(self, images: Tensor) -> Tensor:
        """(n, m) features of finished images, (n, 3, h, w) in [-1, 1]."""
        return torch.cat([self._encode(one) for one in images.split(1)])

    def _encode(self, images: Tensor) -> Tensor:
        weight = next(self.encoder.parameters(), images)
        with full_precision():
            return self.encoder(images.to(weight).clamp(-1, 1))

    def _pull_back(self, pipeline: Any, denoised: Tensor, gradient: Tensor) -> Tensor:
        """The gradient in one sample's predicted latents, from the (1, m) one in its features."""
        with frozen(vae_of(pipeline), self.encoder), torch.enable_grad():
            z = denoised.clone().requires_grad_()  # a clone: inference tensors have no gradient
            features = self._encode(decode(pipeline, z, self.size))
            # scale the gradient to a maximum of 1, because half precision loses small values
            largest = gradient.abs().amax()
            largest = largest.where(largest > 0, 1)
            with full_precision():
                [pulled] = torch.autograd.grad(features, z, (gradient / largest).to(features))
        return pulled * largest.to(pulled)


@torch.no_grad()
def exemplar_features(
    pipeline: Any,
    images: Sequence[Image],
    space: str | Space = "latent",
    size: tuple[int, int] | None = None,
) -> Tensor:
    """Features of images, for `VendiGuidance(space=space, exemplars=...)`.

    Args:
        pipeline: the pipeline to guide; it preprocesses and encodes the images.
        images: n >= 1 images of any mode.
        space: the space that samples are compared in.
        size: height and width of the images to generate; None is the size of the first image.

    Returns:
        (n, ...) features: of the images themselves for an `ImageSpace`, else of their latents.

    Raises:
        ValueError: the pipeline has no VAE or does not generate images, there are no images, or the
            space is unknown.
        TypeError: these are no images.

    Example:
        >>> from PIL import Image
        >>> from vendi_guidance import VendiGuidance, VendiGuidedSDXLPipeline
        >>> from vendi_guidance.adapter import exemplar_features
        >>> pipe = VendiGuidedSDXLPipeline.from_pretrained("assets/demo-sdxl")
        >>> exemplars = exemplar_features(pipe, [Image.new("RGB", (64, 64), "red")])
        >>> exemplars.shape
        torch.Size([1, 4, 16, 16])
        >>> guidance = VendiGuidance(space="latent", exemplars=exemplars)
    """
    vae, space = vae_of(pipeline), Rounds(space=space).build_space()
    if not len(images):
        raise ValueError("exemplar_features needs at least one image, got none")
    if not all(isinstance(it, Image) for it in images):
        raise TypeError(f"exemplar_features needs PIL images, got {images!r:.80}")
    if not hasattr(pipeline, "image_processor"):
        raise ValueError(f"{type(pipeline).__name__} does not generate images")
    height, width = size or (None, None)
    pixels = pipeline.image_processor.preprocess([to_rgb(image) for image in images], height, width)
    if isinstance(space, ImageSpace):
        return space.of_pictures(pixels)
    with frozen(vae):
        latents = torch.cat([encode(pipeline, one) for one in pixels.split(1)])
    return space.remember(pipeline, latents)
