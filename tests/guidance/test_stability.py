"""No window whatsoever makes a gradient NaN or infinite."""

import pytest
import torch

from vendi_guidance.guidance.objectives import (
    OBJECTIVES,
    RKE,
    ConditionalRKE,
    ConditionalVendi,
    Vendi,
)
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.linalg import FLOAT64_UP_TO

M = 6
ROUNDS, WINDOWS = 40, 50
STORAGE = [torch.float16, torch.bfloat16, torch.float32]


def objectives(truncation):
    latent, prompt = Gaussian(0.8), Gaussian(0.3)
    return {
        "vendi": Vendi(latent, truncation),
        "rke": RKE(latent),
        "conditional-vendi": ConditionalVendi(latent, prompt, truncation),
        "conditional-rke": ConditionalRKE(latent, prompt),
    }


class Draw:
    """Random latents in half precision, and prompts, as awkward as they come."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def number(self, low, high):
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def one_of(self, choices):
        return choices[self.number(0, len(choices) - 1)]

    def normal(self, *shape):
        return torch.randn(*shape, generator=self.generator)

    def latents(self, n, d):
        """Around few or many centres, more or less closely, from 1e-4 to 1e4 long."""
        centres = self.normal(self.number(1, 20), d)
        chosen = torch.randint(len(centres), (n,), generator=self.generator)
        spread = self.one_of([0, 1e-4, 1e-2, 1, 1])
        z = centres[chosen] + spread * self.normal(n, d)
        lengths = 10 ** (8 * torch.rand(n, 1, generator=self.generator) - 4)
        z = lengths * z / torch.linalg.vector_norm(z, dim=1, keepdim=True)
        z[: self.number(0, n)] = z[:1]  # duplicates
        if self.number(0, 19) == 0:
            z[-1:] = 0
        return z.half().view(n, 4, d // 4)

    def prompts(self, n):
        kinds = self.normal(self.number(1, 12), M)
        chosen = torch.randint(len(kinds), (n,), generator=self.generator)
        return kinds[chosen] + self.one_of([0, 0.01, 1]) * self.normal(n, M)


def random_size(draw):
    """Mostly few samples, now and then up to 1,000."""
    return draw.number(0, draw.one_of([3] * 40 + [40] * 54 + [200] * 5 + [1000]))


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_gradients_are_finite_for_two_thousand_random_windows(round_):
    for seed in range(WINDOWS * round_, WINDOWS * (round_ + 1)):
        draw = Draw(seed)
        n, b, d = random_size(draw), draw.number(1, 8), draw.one_of([64, 128, 256])
        latents, prompts = draw.latents(n + b, d), draw.prompts(n + b)
        order = torch.randperm(n + b, generator=draw.generator)  # duplicates anywhere
        latents, prompts = latents[order], prompts[order]
        window = SlidingWindow(max(1, n), dtype=draw.one_of(STORAGE))
        if n:
            window.append(latents[b:], prompts[b:])
        for name, objective in objectives(draw.one_of([None, None, 1, 5, 100])).items():
            ascent = objective.gradient(latents[:b], prompts[:b], window)
            assert torch.isfinite(ascent.gradient).all(), (seed, name)
            assert 0.9 < ascent.score < 1.01 * (n + b), (seed, name)


@pytest.mark.parametrize("name", list(OBJECTIVES))
def test_a_window_too_large_for_double_precision_works(name):
    draw, n = Draw(0), FLOAT64_UP_TO + 4
    latents, prompts = draw.normal(n, 4, 16).half(), draw.prompts(n)
    window = SlidingWindow(n, dtype=torch.float16)
    window.append(latents[4:], prompts[4:])
    ascent = objectives(None)[name].gradient(latents[:4], prompts[:4], window)
    assert (
        torch.isfinite(ascent.gradient).all() and (ascent.gradient.flatten(1).norm(dim=1) > 0).all()
    )
    assert 1 < ascent.score < n
