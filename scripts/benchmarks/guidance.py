"""The time of one guidance step, beside reading the window and, on a GPU, beside the model.

Samples have the size of SDXL's latents at 1024 px, 65,536 numbers. A guidance step must read the
window's matrix twice, for similarities and for the gradient; the Vendi objectives also decompose a
matrix with a row for each sample. Both are timed beside it in turn: the two products with the
window's matrix, and eigh in the objective's precision.
What the window computes once per batch and bandwidth is left out on both sides.

The space "latent" is the published setting; in "denoised", the scheduler's predictions are
compared, with a bandwidth that follows their distances. Whole calls of the demo SDXL are timed
beside the stock call. On a GPU, three more rows compare with SDXL itself, random weights in half
precision: one UNet step, and a call of 50 steps, at the default and guided every 10 as published,
latents in and latents out.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from diffusers import DPMSolverMultistepScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from torch import Tensor
from tqdm import tqdm

from scripts.benchmarks.measuring import (
    Pair,
    in_mebibytes,
    in_seconds,
    line_of,
    measure,
    table,
)
from vendi_guidance import VendiGuidedSDXLPipeline
from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.guidance.objectives import OBJECTIVES, MedianGaussian, Objective
from vendi_guidance.guidance.rounds import USUAL
from vendi_guidance.guidance.settings import SIGMA_SHARE, STRENGTH
from vendi_guidance.guidance.spaces import SPACES
from vendi_guidance.guidance.step import Prediction
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.runs.precision import AUTO, choose
from vendi_guidance.scores.linalg import FLOAT64_UP_TO
from vendi_guidance.storage.assets import asset

LATENT, POOLED, TOKENS = (4, 128, 128), 1280, (77, 2048)
KERNEL_LATENT, KERNEL_PROMPT = Gaussian(0.8), Gaussian(0.3)
KERNELS = {"latent": KERNEL_LATENT, "denoised": MedianGaussian(SIGMA_SHARE)}
CLUSTERS, ROWS_AT_ONCE = 50, 64
OBJECTIVE, STEPS, EVERY, WINDOW, BATCH = "conditional-rke", 50, 10, 300, 4  # of the call of SDXL

SDXL = {
    "sample_size": LATENT[1],
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (320, 640, 1280),
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": TOKENS[1],
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": POOLED + 6 * 256,
}


@dataclass
class Samples:
    """Samples around random centres, the same ones every time on a device."""

    device: torch.device

    def __post_init__(self) -> None:
        self.generator = torch.Generator(self.device).manual_seed(0)
        self.centres = self.normal(CLUSTERS, *LATENT), self.normal(CLUSTERS, POOLED)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        """(count, 4, 128, 128) latents and (count, 1280) prompt embeddings."""
        latents, prompts = self.centres
        chosen = torch.randint(CLUSTERS, (count,), generator=self.generator, device=self.device)
        return latents[chosen] + self.normal(count, *LATENT), prompts[chosen]

    def window(self, size: int) -> SlidingWindow:
        """A full window, in single precision."""
        window = SlidingWindow(size, dtype=torch.float32)
        for start in tqdm(range(0, size, ROWS_AT_ONCE), desc="filling the window", leave=False):
            window.append(*self.draw(min(ROWS_AT_ONCE, size - start)))
        return window


@dataclass
class Step:
    """One guidance step, and the linear algebra that it needs."""

    name: str
    space: str
    window: SlidingWindow
    latents: Tensor
    prompts: Tensor

    @property
    def objective(self) -> Objective:
        kernels = [KERNELS[self.space], KERNEL_PROMPT][: 1 + self.is_conditional]
        return OBJECTIVES[self.name](*kernels)

    @property
    def is_conditional(self) -> bool:
        return self.name.startswith("conditional")

    @property
    def has_spectrum(self) -> bool:
        return self.name.endswith("vendi")

    def run(self) -> Tensor:
        """(b, ...) the gradient in the latents."""
        # the prediction itself is not part of the step, using it is
        prediction = Prediction(self.latents, signal=0.9, noise=0.4)
        view = SPACES[self.space].view(None, self.latents, prediction)
        ascent = self.objective.gradient(view.features, self.prompts, self.window)
        if self.space == "denoised":
            candidates = torch.stack([view.features] * USUAL[1])
            self.objective.choose(candidates, self.prompts, self.window)
        return view.pull_back(ascent.gradient)

    def beside(self) -> Callable[[], Any]:
        """Two products with the window's matrix, and for the Vendi pair an eigendecomposition."""
        stored = self.window.features
        f = self.latents.flatten(1).to(stored)
        weights = torch.ones(len(f), len(stored)).to(stored)
        matrix = self.kernel_matrix() if self.has_spectrum else None

        def necessary() -> None:
            stored @ f.T
            weights @ stored
            if matrix is not None:
                torch.linalg.eigh(matrix)

        return necessary

    def kernel_matrix(self) -> Tensor:
        """K_Z∘K_T / n in the precision in which the objective decomposes it."""
        f = torch.nn.functional.normalize(self.latents.flatten(1))
        products = torch.cat([self.window.products(f), f @ f.T], dim=1)
        matrix = KERNEL_LATENT.on_sphere(bordered(self.window.inner_products, products))
        if self.is_conditional and self.window.prompts is not None:
            prompts = torch.cat([self.window.prompts, self.prompts])
            matrix *= KERNEL_PROMPT.gram(torch.nn.functional.normalize(prompts))
        return (matrix.double() if len(matrix) <= FLOAT64_UP_TO else matrix) / len(matrix)


def bordered(inner: Tensor, border: Tensor) -> Tensor:
    """The symmetric matrix of a block (n, n) and its last rows (b, n + b)."""
    return torch.cat([torch.cat([inner, border[:, : len(inner)].T], dim=1), border])


class Model:
    """SDXL with random weights, latents in and latents out."""

    def __init__(self, device: torch.device) -> None:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float16)  # never in single precision, which takes 10 GB
        try:
            with device:
                unet = UNet2DConditionModel(**SDXL).eval()
        finally:
            torch.set_default_dtype(before)
        scheduler = DPMSolverMultistepScheduler(
            beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012
        )
        absent = ("vae", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2")
        self.pipeline = StableDiffusionXLPipeline(
            **dict.fromkeys(absent), unet=unet, scheduler=scheduler, add_watermarker=False
        )
        self.pipeline.set_progress_bar_config(disable=True)
        self.tokens, self.pooled, self.latents = (
            torch.randn(BATCH, *shape, device=device, dtype=torch.float16)
            for shape in (TOKENS, (POOLED,), LATENT)
        )

    @torch.no_grad()
    def step(self) -> Tensor:
        """One step of the UNet for a batch, with and without prompts."""
        times = torch.ones(2 * BATCH, 6).to(self.pooled)
        added = {"text_embeds": self.pooled.repeat(2, 1), "time_ids": times}
        twice = self.latents.repeat(2, 1, 1, 1)
        tokens = self.tokens.repeat(2, 1, 1)
        return self.pipeline.unet(twice, 500, tokens, added_cond_kwargs=added).sample

    def call(self, guidance: VendiGuidance | None = None) -> Tensor:
        """(4, 4, 128, 128) latents after all steps."""
        return self.pipeline(
            prompt_embeds=self.tokens,
            negative_prompt_embeds=self.tokens,
            pooled_prompt_embeds=self.pooled,
            negative_pooled_prompt_embeds=self.pooled,
            latents=self.latents,
            num_inference_steps=STEPS,
            output_type="latent",
            **({} if guidance is None else guidance.on(self.pipeline)),
        ).images


HEAD = (
    "| window | batch | step | seconds | peak MiB | beside it | seconds | ratio |",
    "|--:|--:|---|--:|--:|---|--:|--:|",
)
TITLES = (
    *("window", "batch", "two products, s", "RKE", "Conditional-RKE"),
    *("with `eigh`, s", "Vendi", "Conditional-Vendi"),
)
PAIRS = ("rke", "conditional-rke"), ("vendi", "conditional-vendi")
"""Objectives that are measured beside the same."""
WINDOWS, BATCHES = (300, 1_000, 5_000), (1, 4, 8)
DEMO_BATCHES, DEMO_STEPS, DEMO_CFG = (1, 8, 16), 16, 5.0


def tables(windows: Sequence[int], batches: Sequence[int], device: torch.device) -> Iterator[str]:
    """For each space a table of steps, as multiples of what they are measured beside."""
    samples = Samples(device)
    lines: dict[str, list[list[object]]] = {space: [] for space in KERNELS}
    for size in tqdm(windows, unit="window", leave=False):
        window = samples.window(size)
        for batch, (space, rows) in product(batches, lines.items()):
            latents, prompts = samples.draw(batch)
            cells: list[object] = [f"{size:,}", batch]
            for names in PAIRS:
                steps = [Step(name, space, window, latents, prompts) for name in names]
                found = [measured(step, device) for step in steps]
                least = min(pair.beside.seconds for pair in found)
                cells += [in_seconds(least), *(pair.ratio for pair in found)]
            rows.append(cells)
    for space, rows in lines.items():
        yield f"Space `{space}`:"
        yield table(TITLES, rows, 0)


def measured(step: Step, device: torch.device) -> Pair:
    """A step, and the linear algebra that it needs."""
    step.run()  # what the window computes once per batch
    return Pair(*measure([step.run, step.beside()], device, least=2, most=40))


def demo_lines(device: torch.device) -> list[str]:
    """Lines of the table of whole calls: the demo SDXL at the default, beside the stock call."""
    folder = asset("demo-sdxl")
    dtype = getattr(torch, choose(AUTO, str(device), Path(folder)).dtype)
    pipe = VendiGuidedSDXLPipeline.from_pretrained(folder, torch_dtype=dtype).to(device)
    pipe.set_progress_bar_config(disable=True)

    def call(batch: int, diversity: float) -> Any:
        return pipe(
            ["waving hand"] * batch,
            num_inference_steps=DEMO_STEPS,
            guidance_scale=DEMO_CFG,
            diversity=diversity,
            diversity_memory="call",
        )

    call(1, STRENGTH)  # what is done once
    lines = []
    for batch in DEMO_BATCHES:
        functions = [partial(call, batch, strength) for strength in (STRENGTH, 0)]
        pair = Pair(*measure(functions, device, least=3, most=9))
        what = f"{DEMO_STEPS} steps of the demo SDXL, the default"
        lines.append(_whole(0, batch, what, "the same, not guided", pair))
    return lines


def model_lines(device: torch.device) -> list[str]:
    """Lines of the table that compare with SDXL's own time."""
    samples, model = Samples(device), Model(device)
    step = Step(OBJECTIVE, "latent", samples.window(WINDOW), *samples.draw(BATCH))
    step.run()
    own = Pair(*measure([step.run, model.step], device, least=3))
    guidance = VendiGuidance(
        OBJECTIVE,
        preset="published",
        every=EVERY,
        window=step.window,
        prompt_input="add_text_embeds",
    )
    rounds = VendiGuidance(memory="call", prompt_input="add_text_embeds")
    calls = partial(model.call, rounds), partial(model.call, guidance), model.call
    model.call(guidance)
    *guided, stock = measure(calls, device, least=2)
    names = "the default", f"{OBJECTIVE} every {EVERY}"
    return [
        _whole(WINDOW, BATCH, f"{OBJECTIVE}, latent", "SDXL's UNet, once", own),
        *(
            _whole(size, BATCH, f"{STEPS} steps of SDXL, {name}", "the same, not guided", pair)
            for size, name, pair in zip(
                (0, WINDOW), names, (Pair(one, stock) for one in guided), strict=True
            )
        ),
    ]


def _whole(window: int, batch: int, what: str, beside: str, pair: Pair) -> str:
    """A line of the table of whole calls."""
    return line_of(
        [
            *(window, batch, what, in_seconds(pair.run.seconds), in_mebibytes(pair.run.peak)),
            *(beside, in_seconds(pair.beside.seconds), pair.ratio),
        ]
    )
