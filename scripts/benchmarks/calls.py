"""Time of guided calls compared with stock calls, and where it goes.

The demo SDXL, and a network of the size of SDXL at 1024 pixels with random weights, whose prompts
are random embeddings and whose latents are not decoded. Phases are timed in a further call, in
which the device finishes each before the next begins. "Rest" is the scheduler, the pipeline and
guidance's hooks.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import torch
from diffusers import EulerDiscreteScheduler, UNet2DConditionModel

from scripts.benchmarks.measuring import (
    POOLED,
    in_mebibytes,
    in_seconds,
    measure,
    ratio,
    synchronize,
    table,
)
from vendi_guidance import VendiGuidedSDXLPipeline
from vendi_guidance.guidance.noise import Noise
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import DIVERSITY
from vendi_guidance.runs.loading import choose
from vendi_guidance.runs.plan import AUTO
from vendi_guidance.storage.assets import asset

TOKENS, WIDTH = 77, 2048
"""Shape of SDXL's embedding of a prompt."""
SDXL: dict[str, Any] = {
    "sample_size": 128,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (320, 640, 1280),
    "transformer_layers_per_block": [1, 2, 10],
    "attention_head_dim": [5, 10, 20],
    "cross_attention_dim": WIDTH,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": POOLED + 6 * 256,
}
"""Configuration of its network."""

PHASES: dict[str, tuple[Any, str]] = {
    "network": (UNet2DConditionModel, "forward"),
    "gradient": (Score, "gradient"),
    "choice": (Score, "choose"),
    "noise": (Noise, "like"),
}
TITLES = "call", "batch", "seconds", "peak MiB", "not guided, s", "ratio"
PHASE_TITLES = "call", "batch", "diversity", "seconds", *PHASES, "rest"

Call = Callable[[int, float], Any]
"""Generates a batch of this size with this diversity."""


def demo(device: torch.device) -> Call:
    folder = asset("demo-sdxl")
    dtype = getattr(torch, choose(AUTO, str(device), Path(folder))[0])
    pipe = VendiGuidedSDXLPipeline.from_pretrained(folder, dtype=dtype).to(device)
    pipe.set_progress_bar_config(disable=True)
    sampling = {"num_inference_steps": 16, "guidance_scale": 5.0, "diversity_memory": "call"}
    return lambda batch, diversity: pipe(["waving hand"] * batch, diversity=diversity, **sampling)


def sdxl(device: torch.device) -> Call:
    with device:
        network = UNet2DConditionModel(**SDXL).to(torch.bfloat16)
        embeddings = {
            f"{sign}{name}": torch.randn(1, *shape, dtype=torch.bfloat16)
            for sign in ("", "negative_")
            for name, shape in (
                ("prompt_embeds", (TOKENS, WIDTH)),
                ("pooled_prompt_embeds", (POOLED,)),
            )
        }
    scheduler = EulerDiscreteScheduler(1000, 0.00085, 0.012, "scaled_linear")
    empty = dict.fromkeys(("vae", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2"))
    pipe = VendiGuidedSDXLPipeline(**empty, unet=network, scheduler=scheduler)
    pipe.set_progress_bar_config(disable=True)

    def call(batch: int, diversity: float) -> Any:
        given = {name: one.expand(batch, *one.shape[1:]) for name, one in embeddings.items()}
        how = {"output_type": "latent", "diversity_memory": "call", "diversity": diversity}
        return pipe(**given, **how)

    return call


MODELS: dict[str, tuple[Callable[[torch.device], Call], Sequence[int]]] = {
    "16 steps of the demo SDXL": (demo, (1, 8, 16)),
    "50 steps of SDXL's size": (sdxl, (1, 4, 8)),
}
"""Name -> what builds its calls, and batch sizes."""


def tables(name: str, device: torch.device, quick: bool) -> Iterator[str]:
    """Calls of a model at the default diversity next to stock calls, and their phases; after each
    batch size, of which there is one if `quick`."""
    build, batches = MODELS[name]
    call = build(device)
    rows: list[list[object]] = []
    phases: list[list[object]] = []
    for batch in batches[:1] if quick else batches:
        functions = [partial(call, batch, diversity) for diversity in (DIVERSITY, 0)]
        functions[0]()  # warm-up
        run, stock = measure(functions, device, budget=15, least=1, most=9)
        times = in_seconds(run.seconds), in_mebibytes(run.peak), in_seconds(stock.seconds)
        rows.append([name, batch, *times, ratio(run, stock)])
        for diversity, function in zip((DIVERSITY, 0), functions, strict=True):
            with timed_phases(device) as seconds:
                [whole] = measure([function], device, most=1)
            each = [whole.seconds, *seconds.values(), whole.seconds - sum(seconds.values())]
            phases.append([name, batch, diversity, *map(in_seconds, each)])
        yield f"{table(TITLES, rows, 1)}\n\n{table(PHASE_TITLES, phases, 1)}"


@contextmanager
def timed_phases(device: torch.device) -> Iterator[dict[str, float]]:
    """Measures the seconds of each phase while the context lasts."""
    seconds = dict.fromkeys(PHASES, 0.0)

    def timed(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            synchronize(device)
            start = perf_counter()
            result = function(*args, **kwargs)
            synchronize(device)
            seconds[phase] += perf_counter() - start
            return result

        return wrapper

    with ExitStack() as stack:
        for phase, (owner, name) in PHASES.items():
            wrapper = timed(phase, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, wrapper))
        yield seconds
