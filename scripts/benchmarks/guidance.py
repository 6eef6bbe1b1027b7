"""The time of one guidance step, beside reading the window and, on a GPU, beside the model.

Samples have the size of SDXL's latents at 1024 px, 65,536 numbers. A guidance step must read the
window's matrix twice, for similarities and for the gradient; the Vendi objectives also decompose a
matrix with a row for each sample. Both are timed beside it in turn: the two products with the
window's matrix (as stored; on a CPU in single precision), and eigh in the objective's precision.
What the window computes once per batch and bandwidth is left out on both sides.

The space "latent" is the published setting; in "denoised", the scheduler's predictions are
compared, with a bandwidth that follows their distances. On a GPU, two more rows compare with SDXL
itself, random weights in half precision: one UNet step, and a call of 50 steps, guided every 10,
latents in and latents out.

\b
  python -m scripts.benchmarks.guidance                          all rows, half an hour on a laptop
  python -m scripts.benchmarks.guidance --window 300             the published window, a minute
  python -m scripts.benchmarks.guidance --objective rke --window 1000 --batch 4 --dtype float16
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import click
import torch
from diffusers import DPMSolverMultistepScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from torch import Tensor
from tqdm import tqdm

from scripts.benchmarks.measuring import (
    Pair,
    device_option,
    in_mebibytes,
    in_seconds,
    line_of,
    machine,
    measure,
    several,
)
from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.commands.cli import Command
from vendi_guidance.guidance.objectives import OBJECTIVES, MedianGaussian, Objective
from vendi_guidance.guidance.settings import SIGMA_SHARE, Rounds
from vendi_guidance.guidance.spaces import SPACES
from vendi_guidance.guidance.step import Prediction
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.linalg import FLOAT64_UP_TO

LATENT, POOLED, TOKENS = (4, 128, 128), 1280, (77, 2048)
KERNEL_LATENT, KERNEL_PROMPT = Gaussian(0.8), Gaussian(0.3)
KERNELS = {"latent": KERNEL_LATENT, "denoised": MedianGaussian(SIGMA_SHARE)}
CLUSTERS, ROWS_AT_ONCE = 50, 64
STEPS, EVERY, WINDOW, BATCH = 50, 10, 300, 4  # of the call of SDXL
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}

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

    def window(self, size: int, dtype: torch.dtype) -> SlidingWindow:
        """A full window."""
        window = SlidingWindow(size, dtype=dtype)
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
            candidates = torch.stack([view.features] * Rounds.candidates)
            self.objective.choose(candidates, self.prompts, self.window)
        return view.pull_back(ascent.gradient)

    def beside(self) -> Callable[[], Any]:
        """Two products with the window's matrix, and for the Vendi pair an eigendecomposition."""
        stored = self.window.features
        if stored.device.type == "cpu":
            stored = stored.float()  # products of halves take a CPU seconds
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

    def __init__(self, device: torch.device, dtype: torch.dtype, config: dict[str, Any]) -> None:
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)  # never in single precision, which takes 10 GB
        try:
            with device:
                unet = UNet2DConditionModel(**config).eval()
        finally:
            torch.set_default_dtype(before)
        self.pipeline = StableDiffusionXLPipeline(
            vae=None,
            text_encoder=None,
            text_encoder_2=None,
            tokenizer=None,
            tokenizer_2=None,
            unet=unet,
            scheduler=DPMSolverMultistepScheduler(
                beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012
            ),
            add_watermarker=False,
        )
        self.pipeline.set_progress_bar_config(disable=True)
        self.tokens, self.pooled, self.latents = (
            torch.randn(BATCH, *shape, device=device, dtype=dtype)
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


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@several("--objective", "names", click.Choice(list(OBJECTIVES)), OBJECTIVES, "What is ascended.")
@several("--window", "sizes", click.IntRange(1), (300, 1_000, 5_000), "Samples remembered.")
@several("--batch", "batches", click.IntRange(1), (1, 4, 8), "Samples in flight.")
@click.option(
    "--dtype",
    type=click.Choice(list(DTYPES)),
    default="float32",
    help="What the window stores; latents in flight are in single precision.",
)
@device_option
def main(
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    batches: tuple[int, ...],
    dtype: str,
    device: torch.device,
) -> None:
    click.echo("\n".join([f"{machine(device)}; windows in {dtype}", "", *HEAD]))
    samples = Samples(device)
    for size in sizes:
        window = samples.window(size, DTYPES[dtype])
        cases = list(product(batches, names, KERNELS))
        for batch, name, space in tqdm(cases, unit="row", leave=False):
            step = Step(name, space, window, *samples.draw(batch))
            what = "two products + eigh" if step.has_spectrum else "two products"
            click.echo(compared(size, batch, f"{name}, {space}", what, measured(step, device)))
    if device.type == "cuda":
        click.echo("\n".join(model_lines(device, names[0], DTYPES[dtype])))


def measured(step: Step, device: torch.device, seconds: float = 10) -> Pair:
    """A step, and the linear algebra that it needs.

    Args:
        seconds: after which no further round begins, but for the second.
    """
    step.run()  # what the window computes once per batch
    return Pair(*measure([step.run, step.beside()], device, seconds, least=2, most=40))


def model_lines(
    device: torch.device, name: str = "conditional-rke", dtype: torch.dtype = torch.float32
) -> list[str]:
    """Lines of the table that compare with SDXL's own time.

    Args:
        name: the objective.
        dtype: what the window stores.
    """
    samples, model = Samples(device), Model(device, torch.float16, SDXL)
    step = Step(name, "latent", samples.window(WINDOW, dtype), *samples.draw(BATCH))
    step.run()
    own = Pair(*measure([step.run, model.step], device, least=3))
    guidance = VendiGuidance(
        name, preset="published", every=EVERY, window=step.window, prompt_input="add_text_embeds"
    )
    model.call(guidance)
    call = Pair(*measure([lambda: model.call(guidance), model.call], device, least=2))
    what = f"{STEPS} steps of SDXL, {name} every {EVERY}"
    return [
        compared(WINDOW, BATCH, f"{name}, latent", "SDXL's UNet, once", own),
        compared(WINDOW, BATCH, what, "the same, not guided", call),
    ]


def compared(window: int, batch: int, what: str, beside_name: str, pair: Pair) -> str:
    """A line of the table."""
    return line_of(
        [
            f"{window:,}",
            batch,
            what,
            in_seconds(pair.run.seconds),
            in_mebibytes(pair.run.peak),
            beside_name,
            in_seconds(pair.beside.seconds),
            pair.ratio,
        ]
    )


if __name__ == "__main__":
    main()
