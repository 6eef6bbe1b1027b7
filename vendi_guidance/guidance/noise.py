"""Fresh noise on latents and on prompts, seeded by the signs of a call's first latents.

Signs survive whatever differs between programs: dtype, memory format, and the scale of the initial
noise. So equal initial noise gives equal images in each of them, whatever a sample's place in the
batch.
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
        shape, own = latents.shape[1:], self._generators
        rows = [torch.randn(shape, generator=it, dtype=torch.float32, device="cpu") for it in own]
        return torch.stack(rows).to(latents)

    def on_prompt(self, tokens: Tensor, sample: int, mask: Tensor | None, sigma: float) -> Tensor:
        """`perturbed_prompt` with noise of its own for each sample."""
        return perturbed_prompt(tokens, sigma, self._generators[sample], mask)


def perturbed_prompt(
    tokens: Tensor, sigma: float, generator: torch.Generator, mask: Tensor | None = None
) -> Tensor:
    """Perturb a prompt: e + sigma |e| / sqrt(width) N(0, I) for the embedding e of each token.

    All rows of a sample's tokens, (rows, t, ..., width), get the same noise. Tokens outside the
    mask, (t,), stay as they are and draw no noise, so that the result does not depend on padding.
    For tokens of zeros, which replace an omitted text encoder, |e| is the mean norm of the others.
    """
    read = slice(None) if mask is None else mask.to(tokens.device)
    counted = tokens[:, read].float()
    noise = torch.randn(counted[:1].shape, generator=generator, dtype=torch.float32, device="cpu")
    noise = noise.to(counted)
    norm = torch.linalg.vector_norm(counted, dim=-1, keepdim=True)
    norm = norm.where(norm > 0, norm.sum() / (norm > 0).sum().clamp(min=1))
    near = tokens.clone()
    near[:, read] = (counted + sigma * norm / tokens.shape[-1] ** 0.5 * noise).to(tokens.dtype)
    return near
