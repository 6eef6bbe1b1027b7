"""Fresh noise: on latents, and on the embeddings of prompts.

Each sample's noise is seeded by the signs of the latents with which its call began. Signs survive
whatever differs between programs: dtype, memory format, and the scale of the initial noise. So
equal initial noise gives equal images in each of them, a sample does not depend on its place in
the batch, and no generator has to be passed.
"""

from collections import Counter
from hashlib import blake2b

import torch
from torch import Tensor

from vendi_guidance.guidance.samples import as_rows, unit_rows


class Noise:
    """Fresh noise for each sample of a call, drawn on the CPU, so that devices agree.

    Copies, which have the same first latents and the same prompt, get different noise: else they
    would stay copies of one image. The k-th copy in a batch always gets the same noise.

    Args:
        first: (b, ...) latents with which the call began; read from their device once.
        prompts: (b, m) embeddings, or None if all prompts count as the same.

    Example:
        >>> first = torch.randn(2, 4, 8, 8)
        >>> both, last = Noise(first), Noise(0.1 * first[1:].half())
        >>> torch.equal(both.like(first)[1:], last.like(first[1:]))
        True
    """

    def __init__(self, first: Tensor, prompts: Tensor | None = None) -> None:
        signs = first.signbit().flatten(1).byte()
        known = signs
        if prompts is not None:  # whole numbers, since rounding depends on the batch
            rounded = (100 * unit_rows(as_rows(prompts))).nan_to_num().round().char()
            known = torch.cat([signs, rounded.view(torch.uint8).to(signs.device)], dim=1)
        copies: Counter[bytes] = Counter()
        self._generators = []
        for row in known.cpu().numpy():
            copy = copies[row.tobytes()]
            copies[row.tobytes()] += 1
            digest = blake2b(row[: signs.shape[1]].tobytes(), digest_size=7, salt=b"%d" % copy)
            seed = int.from_bytes(digest.digest(), "big")
            self._generators.append(torch.Generator().manual_seed(seed))

    def like(self, latents: Tensor) -> Tensor:
        """Standard normal noise in the shape, dtype and place of latents: (b, ...)."""
        shape = latents.shape[1:]
        rows = [torch.randn(shape, generator=it, dtype=torch.float32) for it in self._generators]
        return torch.stack(rows).to(latents)

    def on_prompt(self, tokens: Tensor, sample: int, mask: Tensor | None, sigma: float) -> Tensor:
        """`perturbed_prompt` with noise of its own for each sample."""
        return perturbed_prompt(tokens, sigma, self._generators[sample], mask)


def perturbed_prompt(
    tokens: Tensor, sigma: float, generator: torch.Generator, mask: Tensor | None = None
) -> Tensor:
    """Perturb a prompt: e + sigma |e| / sqrt(width) N(0, I) for the embedding e of each token.

    With sigma = 1 the noise is about as long as the embedding. For tokens of zeros, which pipelines
    use in place of an omitted text encoder, |e| is the mean norm of the other tokens.

    Args:
        tokens: (rows, t, ..., width) of one sample; all rows get the same noise.
        sigma: at least 0.
        generator: of the noise, on the CPU.
        mask: (t,) True for the tokens that the network reads. The others stay as they are and draw
            no noise, so that the result does not depend on padding.

    Returns:
        A new tensor in the shape and dtype of `tokens`.

    Example:
        >>> tokens = torch.randn(1, 77, 768)
        >>> near = perturbed_prompt(tokens, 0.5, torch.Generator())
        >>> round(float((near - tokens).norm() / tokens.norm()), 1)
        0.5
    """
    read = slice(None) if mask is None else mask.to(tokens.device)
    counted = tokens[:, read].float()
    noise = torch.randn(counted[:1].shape, generator=generator, dtype=torch.float32).to(counted)
    norm = torch.linalg.vector_norm(counted, dim=-1, keepdim=True)
    norm = norm.where(norm > 0, norm.sum() / (norm > 0).sum().clamp(min=1))
    near = tokens.clone()
    near[:, read] = (counted + sigma * norm / tokens.shape[-1] ** 0.5 * noise).to(tokens.dtype)
    return near
