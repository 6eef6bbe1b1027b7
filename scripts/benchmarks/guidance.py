"""Time of a guidance step compared with reading the window, and of a guided call with a stock one.

Samples have the size of SDXL's latents at 1024 px, 65,536 numbers. A guidance step must read the
window's matrix twice, for similarities and for the gradient; the Vendi objectives also decompose a
matrix with a row for each sample. The baseline is this linear algebra alone: two products with the
window's matrix, and eigh in the objective's precision, of another kernel matrix of that size. Work
that the window does once per batch and bandwidth is not timed on either side.

The space "latent" is the published setting. In "denoised", the scheduler's predictions are compared
with a bandwidth that follows their distances.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import product

import torch
from torch import Tensor

from scripts.benchmarks.measuring import POOLED, Measured, Task, measure, random_samples, ratio
from vendi_guidance.guidance.objectives import OBJECTIVES, MedianGaussian
from vendi_guidance.guidance.samples import ROWS_AT_ONCE, unit_rows
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import SIGMA_SHARE
from vendi_guidance.guidance.spaces import SPACES
from vendi_guidance.guidance.step import Prediction, Step
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.linalg import to_precise

KERNEL_LATENT, KERNEL_PROMPT = Gaussian(0.8), Gaussian(0.3)
KERNELS: dict[str, Gaussian | MedianGaussian] = {
    "latent": KERNEL_LATENT,
    "denoised": MedianGaussian(SIGMA_SHARE),
}

PAIRS = ("rke", "conditional-rke"), ("vendi", "conditional-vendi")
"""Objectives with the same baseline."""


def tasks(device: torch.device, tiny: bool) -> Iterator[Task]:
    """Steps as multiples of their baselines, a table for each space."""
    for size, batch, space in product((8,) if tiny else (300, 5_000), (1, 8), KERNELS):
        about = {"window": size, "batch": batch}
        yield Task(f"Steps in the space `{space}`", about, partial(row, space, size, batch, device))


@lru_cache(maxsize=1)
def filled(size: int, device: torch.device) -> SlidingWindow:
    window = SlidingWindow(size)
    for start in range(0, size, ROWS_AT_ONCE):
        window.append(*random_samples(min(ROWS_AT_ONCE, size - start), device))
    return window


def row(space: str, size: int, batch: int, device: torch.device) -> dict[str, object]:
    samples, cells = random_samples(batch, device), dict[str, object]()
    for names, baseline in zip(PAIRS, ("two products, s", "with `eigh`, s"), strict=True):
        pairs = [measured(name, space, filled(size, device), *samples) for name in names]
        cells[baseline] = min(least.seconds for _, least in pairs)
        cells |= {name: ratio(*pair) for name, pair in zip(names, pairs, strict=True)}
    return cells


def measured(
    name: str, space: str, window: SlidingWindow, latents: Tensor, prompts: Tensor
) -> list[Measured]:
    """Measure a step with this objective, and its baseline."""
    sigma = KERNEL_PROMPT if name.startswith("conditional") else None
    objective = OBJECTIVES[name](KERNELS[space], sigma)
    score = Score(objective, SPACES[space], window, None, 0.0, lambda finite: None)
    # the step uses a prediction but does not make it
    step = Step(0, 1, latents, prompts=prompts, prediction=Prediction(latents, 0.9, 0.4))

    def move() -> None:
        score.move(latents, score.gradient(step), 0.03)

    move()  # the window's work per batch is not timed
    functions = move, linear_algebra(window, latents, with_eigh=name.endswith("vendi"))
    return measure(functions, latents.device, least=2, most=40)


def linear_algebra(window: SlidingWindow, latents: Tensor, with_eigh: bool) -> Callable[[], None]:
    """Two products with the window's matrix, and the eigendecomposition of a kernel matrix."""
    stored, f = window.features, latents.flatten(1)
    weights = torch.ones(len(f), len(stored)).to(stored)
    items = unit_rows(torch.randn(len(stored) + len(f), POOLED, device=stored.device))
    matrix = to_precise(KERNEL_LATENT.gram(items) / len(items)) if with_eigh else None

    def necessary() -> None:
        stored @ f.T
        weights @ stored
        if matrix is not None:
            torch.linalg.eigh(matrix)

    return necessary
