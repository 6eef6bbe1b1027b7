"""Noise of a call's generators: fresh noise for latents, and prompts nearby."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vendi_guidance.guidance.step import Generator


def fresh_noise(generator: Generator, like: Tensor) -> Tensor:
    """Drawn where its generator is: one on the CPU gives every device the same noise.

    Args:
        generator: one for all rows of `like`, or one for each.
    """
    if isinstance(generator, Sequence):
        if len(generator) > 1:
            rows = zip(like.split(1), generator, strict=True)
            return torch.cat([fresh_noise(one, row) for row, one in rows])
        [generator] = generator
    place = like.device if generator is None else generator.device
    noise = torch.randn(like.shape, generator=generator, device=place, dtype=like.dtype)
    return noise.to(like.device)


def each_of(generator: Generator, count: int) -> list[Generator]:
    """The generator of each sample: its own, or the one that all share."""
    if isinstance(generator, Sequence) and len(generator) > 1:
        return [*generator]
    return [generator] * count


def prompt_nearby(
    tokens: Tensor, sigma: float, generator: Generator = None, mask: Tensor | None = None
) -> Tensor:
    """The embeddings of a prompt near this one: e + sigma |e| / sqrt(width) N(0, I) for a token e.

    So noise of sigma 1 is about as long as the token itself. Where a token is zeros, as pipelines
    put them in place of a text encoder that is left out, |e| is the mean of the others'.

    Args:
        tokens: (rows, t, ..., width) all of one sample; its rows get the same noise.
        sigma: at least 0.
        generator: one.
        mask: (t,) True for tokens that the network reads; others stay, and use up no noise, so that
            the result does not depend on how far a batch is padded.

    Returns:
        A new tensor in the shape and dtype of `tokens`.

    Example:
        >>> tokens = torch.randn(1, 77, 768)
        >>> near = prompt_nearby(tokens, 0.5)
        >>> round(float((near - tokens).norm() / tokens.norm()), 1)
        0.5
    """
    read = slice(None) if mask is None else mask.to(tokens.device)
    counted = tokens[:, read].float()
    noise = fresh_noise(generator, counted[:1])
    norm = torch.linalg.vector_norm(counted, dim=-1, keepdim=True)
    norm = norm.where(norm > 0, norm.sum() / (norm > 0).sum().clamp(min=1))
    near = tokens.clone()
    near[:, read] = (counted + sigma * norm / tokens.shape[-1] ** 0.5 * noise).to(tokens.dtype)
    return near
