"""Time of a guidance step compared with reading the window, and of a guided call with a stock one.

Samples have the size of SDXL's latents at 1024 px, 65,536 numbers. A guidance step must read the
window's matrix twice, for similarities and for the gradient; the Vendi objectives also decompose a
matrix with a row for each sample. The baseline is this linear algebra alone: two products with the
window's matrix, and eigh in the objective's precision, of another kernel matrix of that size. Work
that the window does once per batch and bandwidth is not timed on either side.

The space "latent" is the published setting. In "denoised", the scheduler's predictions are compared
with a bandwidth that follows their distances.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import torch
from torch import Tensor
from tqdm import tqdm

from scripts.benchmarks.measuring import (
    POOLED,
    Measured,
    in_seconds,
    measure,
    random_samples,
    ratio,
    table,
)
from vendi_guidance.guidance.objectives import OBJECTIVES, MedianGaussian
from vendi_guidance.guidance.samples import ROWS_AT_ONCE, unit_rows
from vendi_guidance.guidance.settings import SIGMA_SHARE
from vendi_guidance.guidance.spaces import SPACES
from vendi_guidance.guidance.step import Prediction
from vendi_guidance.guidance.ways.budget import CANDIDATES
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.linalg import to_precise

KERNEL_LATENT, KERNEL_PROMPT = Gaussian(0.8), Gaussian(0.3)
KERNELS: dict[str, Gaussian | MedianGaussian] = {
    "latent": KERNEL_LATENT,
    "denoised": MedianGaussian(SIGMA_SHARE),
}

STEP_TITLES = (
    *("window", "batch", "two products, s", "RKE", "Conditional-RKE"),
    *("with `eigh`, s", "Vendi", "Conditional-Vendi"),
)
PAIRS = ("rke", "conditional-rke"), ("vendi", "conditional-vendi")
"""Objectives with the same baseline."""
WINDOWS, BATCHES = (300, 1_000, 5_000), (1, 4, 8)


def tables(windows: Sequence[int], batches: Sequence[int], device: torch.device) -> Iterator[str]:
    """For each space a table of steps, as multiples of their baselines; after each window and batch
    size."""
    lines: dict[str, list[list[object]]] = {space: [] for space in KERNELS}
    for size in tqdm(windows, unit="window", leave=False):
        window = SlidingWindow(size)
        for start in range(0, size, ROWS_AT_ONCE):
            window.append(*random_samples(min(ROWS_AT_ONCE, size - start), device))
        for batch, (space, rows) in product(batches, lines.items()):
            samples = random_samples(batch, device)
            cells: list[object] = [f"{size:,}", batch]
            for names in PAIRS:
                pairs = [measured(name, space, window, *samples) for name in names]
                least = min(baseline.seconds for _, baseline in pairs)
                cells += [in_seconds(least), *(ratio(*pair) for pair in pairs)]
            rows.append(cells)
            yield "\n\n".join(
                f"Space `{space}`:\n\n{table(STEP_TITLES, rows, 0)}"
                for space, rows in lines.items()
            )


def measured(
    name: str, space: str, window: SlidingWindow, latents: Tensor, prompts: Tensor
) -> list[Measured]:
    """Measure a step with this objective, and its baseline."""
    sigma = KERNEL_PROMPT if name.startswith("conditional") else None
    objective = OBJECTIVES[name](KERNELS[space], sigma)
    # the step uses a prediction but does not make it
    prediction = Prediction(latents, signal=0.9, noise=0.4)

    def step() -> Tensor:
        view = SPACES[space].view(None, latents, prediction)
        ascent = objective.gradient(view.features, prompts, window)
        if space == "denoised":
            candidates = torch.stack([view.features] * CANDIDATES)
            objective.choose(candidates, prompts, window)
        return view.pull_back(ascent.gradient)

    step()  # the window's work per batch is not timed
    functions = step, linear_algebra(window, latents, with_eigh=name.endswith("vendi"))
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
