"""No window whatsoever makes a gradient NaN or infinite."""

import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.guidance.test_objectives import objectives
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.scores.linalg import FLOAT64_UP_TO

pytestmark = pytest.mark.slow

M = 6
STORAGE = st.sampled_from([torch.float16, torch.bfloat16, torch.float32])


@st.composite
def situations(draw):
    """Latents in flight and their prompts, as awkward as they come, and a window of others."""
    most = draw(st.sampled_from([3] * 40 + [40] * 54 + [200] * 5 + [1000]))  # mostly few samples
    n, b, d = draw(st.integers(0, most)), draw(st.integers(1, 8)), draw(st.sampled_from([64, 256]))
    r = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))

    def around(centres, width, spread):
        centres = torch.randn(centres, width, generator=r)
        chosen = torch.randint(len(centres), (n + b,), generator=r)
        return centres[chosen] + spread * torch.randn(n + b, width, generator=r)

    z = around(draw(st.integers(1, 20)), d, draw(st.sampled_from([0, 1e-4, 1e-2, 1, 1])))
    lengths = 10 ** (8 * torch.rand(n + b, 1, generator=r) - 4)
    z = lengths * z / torch.linalg.vector_norm(z, dim=1, keepdim=True)
    z[: draw(st.integers(0, n + b))] = z[:1]  # duplicates
    if draw(st.integers(0, 19)) == 0:
        z[-1:] = 0
    order = torch.randperm(n + b, generator=r)  # duplicates anywhere
    latents = z.to(draw(STORAGE)).view(n + b, 4, d // 4)[order]
    prompts = around(draw(st.integers(1, 12)), M, draw(st.sampled_from([0, 0.01, 1])))[order]
    window = SlidingWindow(max(1, n), dtype=draw(STORAGE))
    if n:
        window.append(latents[b:], prompts[b:])
    return latents[:b], prompts[:b], window


@settings(max_examples=1000, deadline=None, derandomize=True, database=None)
@given(situations(), st.sampled_from([None, None, 1, 5, 100]))
def test_gradients_are_finite_for_a_thousand_random_windows(situation, truncation):
    for name, objective in objectives(truncation=truncation).items():
        ascent = objective.gradient(*situation)
        assert torch.isfinite(ascent.gradient).all(), name
        assert 0.9 < ascent.score < 1.01 * (len(situation[0]) + len(situation[2])), name


@pytest.mark.parametrize("name", ["conditional-rke", "conditional-vendi"])  # all that others do
def test_a_window_too_large_for_double_precision_works(name):
    r, n = torch.Generator().manual_seed(0), FLOAT64_UP_TO + 4
    latents = torch.randn(n, 4, 16, generator=r).half()
    prompts = torch.randn(12, M, generator=r)[torch.randint(12, (n,), generator=r)]
    window = SlidingWindow(n, dtype=torch.float16)
    window.append(latents[4:], prompts[4:])
    ascent = objectives()[name].gradient(latents[:4], prompts[:4], window)
    assert torch.isfinite(ascent.gradient).all()
    assert (ascent.gradient.flatten(1).norm(dim=1) > 0).all() and 1 < ascent.score < n
