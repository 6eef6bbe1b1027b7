"""What one step of guidance costs, beside reading the window and, on a GPU, beside the model.

Samples have the size of SDXL's latents at 1024 px, 65,536 numbers. A guidance step must read the
window's matrix twice, once for similarities and once for the gradient; the Vendi pair also has to
decompose a matrix of as many rows as there are samples. Both are measured beside it in the same
run, in turn: the two products with the window's matrix (as stored; on a CPU in single precision),
and eigh in the precision that the objective uses. What the window computes once for a batch of
pictures is left out on both sides.

The space "latent" is the published setting; "denoised" takes the mean of like prompts off what the
scheduler predicts. The last two rows compare with SDXL itself, its UNet of random weights in half
precision: one step of it, and a call of 50 steps, guided every 10, latents in and latents out.

\b
  scripts/benchmarks/guidance.py                                 all rows, half an hour on a laptop
  scripts/benchmarks/guidance.py --window 300                    the published window, a minute
  scripts/benchmarks/guidance.py --objective conditional-rke --window 1000 --batch 4 --dtype float16
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import click
import torch
from diffusers import (
    DPMSolverMultistepScheduler,
    StableDiffusionXLPipeline,
    UNet2DConditionModel,
)
from torch import Tensor
from tqdm import tqdm

from scripts.benchmarks.measuring import (
    Measured,
    default_device,
    in_mebibytes,
    in_seconds,
    machine,
    measure,
)
from vendi_guidance.commands.cli import Command
from vendi_guidance.guidance.callback import VendiGuidance
from vendi_guidance.guidance.objectives import OBJECTIVES, Objective
from vendi_guidance.guidance.prediction import Prediction
from vendi_guidance.guidance.spaces import SPACES
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.linalg import FLOAT64_UP_TO

LATENT, POOLED, TOKENS = (4, 128, 128), 1280, (77, 2048)
KERNEL_LATENT, KERNEL_PROMPT = Gaussian(0.8), Gaussian(0.3)
CLUSTERS, ROWS_AT_ONCE = 50, 64
STEPS, EVERY, WINDOW, BATCH = 50, 10, 300, 4  # of the call of SDXL
CENTERS = {"latent": None, "denoised": "prompt"}
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
    """Samples around some centres, always the same ones for a device."""

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
        """A full one."""
        window = SlidingWindow(size, dtype=dtype)
        for start in tqdm(range(0, size, ROWS_AT_ONCE), desc="filling the window", leave=False):
            window.append(*self.draw(min(ROWS_AT_ONCE, size - start)))
        return window


@dataclass
class Step:
    """One step of guidance, and what it cannot avoid."""

    name: str
    space: str
    window: SlidingWindow
    latents: Tensor
    prompts: Tensor

    @property
    def objective(self) -> Objective:
        kernels = {"kernel_latent": KERNEL_LATENT}
        if self.is_conditional:
            kernels["kernel_prompt"] = KERNEL_PROMPT
        return OBJECTIVES[self.name](**kernels)

    @property
    def is_conditional(self) -> bool:
        return self.name.startswith("conditional")

    @property
    def has_spectrum(self) -> bool:
        return self.name.endswith("vendi")

    def run(self) -> Tensor:
        """(b, ...) the gradient in the latents."""
        # what the scheduler predicts is not part of the step, but its use is
        prediction = Prediction(self.latents, signal=0.9, noise=0.4)
        view = SPACES[self.space].view(None, self.latents, prediction)
        center = CENTERS[self.space]
        ascent = self.objective.gradient(view.features, self.prompts, self.window, center)
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
        """Of the UNet for a batch, with and without prompts."""
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


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.option(
    "--objective",
    "names",
    multiple=True,
    type=click.Choice(list(OBJECTIVES)),
    default=list(OBJECTIVES),
    show_default="all",
    help="What is ascended; may be given more than once.",
)
@click.option(
    "--window",
    "sizes",
    multiple=True,
    type=click.IntRange(min=1),
    default=(300, 1_000, 5_000),
    help="How many samples are remembered, all of them there; may be given more than once.",
)
@click.option(
    "--batch",
    "batches",
    multiple=True,
    type=click.IntRange(min=1),
    default=(1, 4, 8),
    help="How many samples are in flight; may be given more than once.",
)
@click.option(
    "--dtype",
    type=click.Choice(list(DTYPES)),
    default="float32",
    help="What the window stores; latents in flight are in single precision.",
)
@click.option("--device", type=torch.device, default=default_device, show_default="a GPU, else cpu")
def main(
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    batches: tuple[int, ...],
    dtype: str,
    device: torch.device,
) -> None:
    click.echo(f"{machine(device)}; windows in {dtype}\n")
    click.echo("| window | batch | step | seconds | peak MiB | beside it | seconds | ratio |")
    click.echo("|--:|--:|---|--:|--:|---|--:|--:|")
    samples = Samples(device)
    for size in sizes:
        window = samples.window(size, DTYPES[dtype])
        cases = list(product(batches, names, CENTERS))
        for batch, name, space in tqdm(cases, unit="row", leave=False):
            click.echo(row(Step(name, space, window, *samples.draw(batch)), device))
    if device.type == "cuda":
        window = samples.window(WINDOW, DTYPES[dtype])
        step = Step(names[0], "latent", window, *samples.draw(BATCH))
        for line in beside_sdxl(Model(device, torch.float16, SDXL), step, device):
            click.echo(line)
    else:
        for what in (f"{names[0]}, latent", call_name(names[0])):
            cells = [WINDOW, BATCH, what, "not measured", "", "SDXL, on a GPU only", "", ""]
            click.echo(line_of(cells))


def row(step: Step, device: torch.device) -> str:
    """A line of the table."""
    step.run()  # what the window computes once for a batch
    run, beside = measure([step.run, step.beside()], device, least=2, most=40)
    what = "two products + eigh" if step.has_spectrum else "two products"
    return compared(
        len(step.window), len(step.latents), f"{step.name}, {step.space}", run, what, beside
    )


def beside_sdxl(model: Model, step: Step, device: torch.device) -> list[str]:
    """Lines of the table that compare with the model's own time."""
    step.run()
    ours, unet = measure([step.run, model.step], device, least=3)
    guidance = VendiGuidance(
        step.name,
        preset="published",
        every=EVERY,
        window=step.window,
        prompt_input="add_text_embeds",
    )
    model.call(guidance)
    guided, plain = measure([lambda: model.call(guidance), model.call], device, least=2)
    size = WINDOW, BATCH
    return [
        compared(*size, f"{step.name}, latent", ours, "SDXL's UNet, once", unet),
        compared(*size, call_name(step.name), guided, "the same, not guided", plain),
    ]


def call_name(name: str) -> str:
    return f"{STEPS} steps of SDXL, {name} every {EVERY}"


def compared(
    window: int, batch: int, what: str, run: Measured, beside_name: str, beside: Measured
) -> str:
    return line_of(
        [
            f"{window:,}",
            batch,
            what,
            in_seconds(run.seconds),
            in_mebibytes(run.peak),
            beside_name,
            in_seconds(beside.seconds),
            f"{run.seconds / beside.seconds:.2f}",
        ]
    )


def line_of(cells: list[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
