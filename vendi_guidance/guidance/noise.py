"""Noise from a call's generators: on latents, and on the embeddings of prompts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from vendi_guidance.guidance.step import Generator


def fresh_noise(generator: Generator, like: Tensor) -> Tensor:
    """Standard normal noise in the shape, dtype and place of `like`.

    It is drawn on the generator's device: a CPU generator gives every device the same noise.

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
    """A generator for each sample: its own, or the one that all share."""
    if isinstance(generator, Sequence) and len(generator) > 1:
        return [*generator]
    return [generator] * count


def perturbed_prompt(
    tokens: Tensor, sigma: float, generator: Generator = None, mask: Tensor | None = None
) -> Tensor:
    """Perturb a prompt: e + sigma |e| / sqrt(width) N(0, I) for the embedding e of each token.

    With sigma = 1 the noise is about as long as the embedding. For tokens of zeros, which pipelines
    use in place of an omitted text encoder, |e| is the mean norm of the other tokens.

    Args:
        tokens: (rows, t, ..., width) of one sample; all rows get the same noise.
        sigma: at least 0.
        generator: of the noise.
        mask: (t,) True for the tokens that the network reads. The others stay as they are and draw
            no noise, so that the result does not depend on padding.

    Returns:
        A new tensor in the shape and dtype of `tokens`.

    Example:
        >>> tokens = torch.randn(1, 77, 768)
        >>> near = perturbed_prompt(tokens, 0.5)
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
