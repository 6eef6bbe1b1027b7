"""Time of a guidance step compared with reading the window, and of a guided call with a stock one.

Samples have the size of SDXL's latents at 1024 px, 65,536 numbers. A guidance step must read the
window's matrix twice, for similarities and for the gradient; the Vendi objectives also decompose a
matrix with a row for each sample. The baseline is this linear algebra alone: two products with the
window's matrix, and eigh in the objective's precision. Work that the window does once per batch and
bandwidth is not timed on either side.

The space "latent" is the published setting. In "denoised", the scheduler's predictions are compared
with a bandwidth that follows their distances. Whole calls of the demo SDXL are compared with the
stock pipeline.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from scripts.benchmarks.measuring import Pair, in_mebibytes, in_seconds, measure, table
from vendi_guidance import VendiGuidedSDXLPipeline
from vendi_guidance.guidance.budget import CANDIDATES
from vendi_guidance.guidance.objectives import OBJECTIVES, MedianGaussian
from vendi_guidance.guidance.settings import DIVERSITY, SIGMA_SHARE
from vendi_guidance.guidance.spaces import SPACES
from vendi_guidance.guidance.step import Prediction
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.runs.loading import choose
from vendi_guidance.runs.plan import AUTO
from vendi_guidance.scores.linalg import FLOAT64_UP_TO
from vendi_guidance.storage.assets import asset

LATENT, POOLED = (4, 128, 128), 1280
KERNEL_LATENT, KERNEL_PROMPT = Gaussian(0.8), Gaussian(0.3)
KERNELS: dict[str, Gaussian | MedianGaussian] = {
    "latent": KERNEL_LATENT,
    "denoised": MedianGaussian(SIGMA_SHARE),
}
CLUSTERS, ROWS_AT_ONCE = 50, 64

Call = Callable[[int, float], Any]
"""Generates a batch of a given size at a given diversity."""


class Samples:
    """Reproducible random samples around random centres."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(0)
        self.centres = self.normal(CLUSTERS, *LATENT), self.normal(CLUSTERS, POOLED)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """(count, 4, 128, 128) latents and (count, 1280) prompt embeddings."""
        latents, prompts = self.centres
        chosen = torch.randint(CLUSTERS, (count,), generator=self.generator, device=self.device)
        return latents[chosen] + self.normal(count, *LATENT), prompts[chosen]

    def window(self, size: int) -> SlidingWindow:
        """A full window in single precision."""
        window = SlidingWindow(size, dtype=torch.float32)
        for start in tqdm(range(0, size, ROWS_AT_ONCE), desc="filling the window", leave=False):
            window.append(*self.draw(min(ROWS_AT_ONCE, size - start)))
        return window


@dataclass
class Step:
    """One guidance step, and the linear algebra that it needs at least."""

    name: str
    space: str
    window: SlidingWindow
    latents: Tensor
    prompts: Tensor

    def __post_init__(self) -> None:
        self.is_conditional = self.name.startswith("conditional")
        kernel_prompt = KERNEL_PROMPT if self.is_conditional else None
        self.objective = OBJECTIVES[self.name](KERNELS[self.space], kernel_prompt)

    def run(self) -> Tensor:
        """(b, ...) gradient with respect to the latents."""
        # the step uses a prediction but does not make it
        prediction = Prediction(self.latents, signal=0.9, noise=0.4)
        view = SPACES[self.space].view(None, self.latents, prediction)
        ascent = self.objective.gradient(view.features, self.prompts, self.window)
        if self.space == "denoised":
            candidates = torch.stack([view.features] * CANDIDATES)
            self.objective.choose(candidates, self.prompts, self.window)
        return view.pull_back(ascent.gradient)

    def baseline(self) -> Callable[[], Any]:
        """Two products with the window's matrix, and for Vendi an eigendecomposition."""
        stored = self.window.features
        f = self.latents.flatten(1).to(stored)
        weights = torch.ones(len(f), len(stored)).to(stored)
        matrix = self.kernel_matrix() if self.name.endswith("vendi") else None

        def necessary() -> None:
            stored @ f.T
            weights @ stored
            if matrix is not None:
                torch.linalg.eigh(matrix)

        return necessary

    def kernel_matrix(self) -> Tensor:
        """K_Z∘K_T / n, in the precision that the objective decomposes it in."""
        f = torch.nn.functional.normalize(self.latents.flatten(1))
        products = torch.cat([self.window.products(f), f @ f.T], dim=1)
        upper = torch.cat([self.window.inner_products, products[:, : -len(f)].T], dim=1)
        matrix = KERNEL_LATENT.on_sphere(torch.cat([upper, products]))
        if self.is_conditional and self.window.prompts is not None:
            prompts = torch.cat([self.window.prompts, self.prompts])
            matrix *= KERNEL_PROMPT.gram(torch.nn.functional.normalize(prompts))
        return (matrix.double() if len(matrix) <= FLOAT64_UP_TO else matrix) / len(matrix)


CALL_TITLES = "call", "batch", "seconds", "peak MiB", "not guided, s", "ratio"
STEP_TITLES = (
    *("window", "batch", "two products, s", "RKE", "Conditional-RKE"),
    *("with `eigh`, s", "Vendi", "Conditional-Vendi"),
)
PAIRS = ("rke", "conditional-rke"), ("vendi", "conditional-vendi")
"""Objectives with the same baseline."""
WINDOWS, BATCHES = (300, 1_000, 5_000), (1, 4, 8)


def tables(windows: Sequence[int], batches: Sequence[int], device: torch.device) -> Iterator[str]:
    """For each space a table of steps, as multiples of their baselines."""
    samples = Samples(device)
    lines: dict[str, list[list[object]]] = {space: [] for space in KERNELS}
    for size in tqdm(windows, unit="window", leave=False):
        window = samples.window(size)
        for batch, (space, rows) in product(batches, lines.items()):
            latents, prompts = samples.draw(batch)
            cells: list[object] = [f"{size:,}", batch]
            for names in PAIRS:
                steps = [Step(name, space, window, latents, prompts) for name in names]
                pairs = [measured(step, device) for step in steps]
                least = min(pair.baseline.seconds for pair in pairs)
                cells += [in_seconds(least), *(pair.ratio for pair in pairs)]
            rows.append(cells)
    for space, rows in lines.items():
        yield f"Space `{space}`:"
        yield table(STEP_TITLES, rows, 0)


def measured(step: Step, device: torch.device) -> Pair:
    """Measure a step and its baseline."""
    step.run()  # the window's work per batch is not timed
    return Pair(*measure([step.run, step.baseline()], device, least=2, most=40))


def calls(device: torch.device, batches: Sequence[int] = (1, 8, 16)) -> str:
    """A table of calls of the demo SDXL at the default diversity, compared with stock calls."""
    call = demo_call(device)
    rows: list[list[object]] = []
    call(1, DIVERSITY)  # warm-up
    for batch in batches:
        functions = [partial(call, batch, diversity) for diversity in (DIVERSITY, 0)]
        pair = Pair(*measure(functions, device, least=3, most=9))
        times = in_seconds(pair.run.seconds), in_mebibytes(pair.run.peak)
        rows.append(
            [
                "16 steps of the demo SDXL",
                batch,
                *times,
                in_seconds(pair.baseline.seconds),
                pair.ratio,
            ]
        )
    return table(CALL_TITLES, rows, 1)


def demo_call(device: torch.device) -> Call:
    folder = asset("demo-sdxl")
    dtype = getattr(torch, choose(AUTO, str(device), Path(folder))[0])
    pipe = VendiGuidedSDXLPipeline.from_pretrained(folder, dtype=dtype).to(device)
    pipe.set_progress_bar_config(disable=True)
    sampling = {"num_inference_steps": 16, "guidance_scale": 5.0, "diversity_memory": "call"}
    return lambda batch, diversity: pipe(["waving hand"] * batch, diversity=diversity, **sampling)
