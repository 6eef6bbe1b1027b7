"""Differentiable decoding of latents and encoding of images, in the sampler's units.

Latents are scaled as diffusers' pipelines do before they decode. They are (n, c, h, w), or packed
into (n, patches, c) as in Flux, Chroma and Qwen-Image.
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers.utils.torch_utils import get_module_execution_device
from torch import Tensor


def decode(pipeline: Any, latents: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """Decode latents to (n, 3, height, width) images in [-1, 1], at times slightly outside. Call it
    within `frozen(pipeline.vae)`; packed latents need the size of the images."""
    vae, z = vae_of(pipeline), latents
    if z.ndim == 3 and packs(pipeline):
        if size is None:
            raise ValueError(
                f"{type(pipeline).__name__} packs its latents: give the images' size as well, "
                "such as ImageSpace(encoder, size=(1024, 1024))"
            )
        z = pipeline._unpack_latents(z, *size, pipeline.vae_scale_factor)
    elif z.ndim != 4:
        raise ValueError(
            f"how {type(pipeline).__name__} decodes latents of shape {tuple(z.shape)} is not "
            'known here: use space="denoised"'
        )
    shift, scale = _units(vae, z)
    z = (z * scale + shift).to(get_module_execution_device(vae), vae.dtype)
    images = vae.decode(z, return_dict=False)[0]
    return images.squeeze(2) if images.ndim == 5 else images


def encode(pipeline: Any, images: Tensor) -> Tensor:
    """Encode (n, 3, h, w) images in [-1, 1] to latents in the sampler's units: the mean of the
    VAE's distribution. Call it within `frozen(pipeline.vae)`."""
    vae = vae_of(pipeline)
    is_video = "temperal_downsample" in vae.config  # Qwen-Image's VAE; sic
    images = images.to(get_module_execution_device(vae), vae.dtype)
    encoded = vae.encode(images[:, :, None] if is_video else images)
    z = encoded.latent_dist.mode() if hasattr(encoded, "latent_dist") else encoded.latent
    shift, scale = _units(vae, z)
    z = (z - shift) / scale
    if packs(pipeline):
        n, channels, (height, width) = len(z), z.shape[1], z.shape[-2:]
        return pipeline._pack_latents(z, n, channels, height, width)
    return z


@contextmanager
def frozen(*modules: Any) -> Iterator[None]:
    """While this context lasts, weights of the modules need no gradients, and a VAE that overflows
    in float16 is in float32."""
    trained = [p for module in modules for p in module.parameters() if p.requires_grad]
    overflow = (m for m in modules if getattr(getattr(m, "config", None), "force_upcast", False))
    halves = [module for module in overflow if module.dtype == torch.float16]
    has_grad = torch.is_grad_enabled()  # leaving inference mode switches gradients on
    with torch.inference_mode(False), torch.set_grad_enabled(has_grad):
        try:
            for p in trained:
                p.requires_grad_(False)
            for module in halves:
                module.to(torch.float32)
            yield
        finally:
            for module in halves:
                module.to(torch.float16)
            for p in trained:
                p.requires_grad_(True)


def vae_of(pipeline: Any) -> Any:
    """The pipeline's VAE; ValueError if it has none."""
    if getattr(pipeline, "vae", None) is None:
        raise ValueError(f'{type(pipeline).__name__} has no VAE: use space="denoised"')
    return pipeline.vae


def packs(pipeline: Any) -> bool:
    """Whether the pipeline packs its latents as Flux does."""
    unpack = getattr(pipeline, "_unpack_latents", None)
    names = ["latents", "height", "width", "vae_scale_factor"]
    return unpack is not None and list(inspect.signature(unpack).parameters) == names


def _units(vae: Any, z: Tensor) -> tuple[Tensor | float, Tensor | float]:
    """The shift and the scale that are applied to latents before decoding."""
    config = vae.config
    scale = 1 / (config.get("scaling_factor") or 1.0)
    mean, std = config.get("latents_mean"), config.get("latents_std")
    if mean is None or std is None:
        return config.get("shift_factor") or 0.0, scale
    channels = (1, -1, *[1] * (z.ndim - 2))
    return z.new_tensor(mean).view(channels), z.new_tensor(std).view(channels) * scale
