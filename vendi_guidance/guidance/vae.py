"""Between a pipeline's latents and pictures, differentiably, in the units the sampler works in.

The scalings are those that diffusers' pipelines apply before they decode. Covered are latents of
shape (n, c, h, w), and those that Flux, Chroma and Qwen-Image pack into (n, patches, c).
"""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from diffusers.utils.torch_utils import get_module_execution_device
from torch import Tensor


def decode(pipeline: Any, latents: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """Pictures of latents, (n, 3, height, width), from -1 (black) to 1, a little beyond at times.

    Args:
        pipeline: with a `vae`, to be called within `undisturbed(pipeline.vae)`.
        latents: as the sampler leaves them.
        size: height and width of the pictures, of which packed latents do not tell.

    Raises:
        ValueError: it is not known how this pipeline decodes.
    """
    vae, z = vae_of(pipeline), latents
    if z.ndim == 3 and packs(pipeline):
        if size is None:
            raise ValueError(
                f"{type(pipeline).__name__} packs its latents: give the pictures' size as well, "
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
    """Latents of pictures, in the units of finished ones; the VAE's mean, nothing drawn.

    Args:
        pipeline: with a `vae`, to be called within `undisturbed(pipeline.vae)`.
        images: (n, 3, h, w) in [-1, 1].

    Raises:
        ValueError: it is not known how this pipeline decodes.
    """
    vae = vae_of(pipeline)
    film = "temperal_downsample" in vae.config  # so spelt by Qwen-Image's, for films of one frame
    images = images.to(get_module_execution_device(vae), vae.dtype)
    encoded = vae.encode(images[:, :, None] if film else images)
    z = encoded.latent_dist.mode() if hasattr(encoded, "latent_dist") else encoded.latent
    shift, scale = _units(vae, z)
    z = (z - shift) / scale
    if packs(pipeline):
        n, channels, (height, width) = len(z), z.shape[1], z.shape[-2:]
        return pipeline._pack_latents(z, n, channels, height, width)
    return z


@contextmanager
def undisturbed(*modules: Any) -> Iterator[None]:
    """Within, modules compute no gradients for their weights, and a VAE that overflows in half
    precision is in single precision; afterwards all is as it was."""
    trained = [p for module in modules for p in module.parameters() if p.requires_grad]
    with torch.inference_mode(False):
        halves = [module for module in modules if _overflows(module)]
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
    """The pipeline's VAE.

    Raises:
        ValueError: it has none.
    """
    vae = getattr(pipeline, "vae", None)
    if vae is None:
        raise ValueError(
            f'{type(pipeline).__name__} has no VAE to decode with: use space="denoised"'
        )
    return vae


def packs(pipeline: Any) -> bool:
    """Whether its latents are packed as Flux does it."""
    unpack = getattr(pipeline, "_unpack_latents", None)
    names = ["latents", "height", "width", "vae_scale_factor"]
    return unpack is not None and list(inspect.signature(unpack).parameters) == names


def _overflows(module: Any) -> bool:
    config = getattr(module, "config", {})
    return getattr(config, "force_upcast", False) and module.dtype == torch.float16


def _units(vae: Any, z: Tensor) -> tuple[Tensor | float, Tensor | float]:
    """What to add to latents after multiplying them, before they are decoded."""
    config = vae.config
    scale = 1 / (config.get("scaling_factor") or 1.0)
    mean, std = config.get("latents_mean"), config.get("latents_std")
    if mean is None or std is None:
        return config.get("shift_factor") or 0.0, scale
    channels = (1, -1, *[1] * (z.ndim - 2))
    return z.new_tensor(mean).view(channels), z.new_tensor(std).view(channels) * scale
