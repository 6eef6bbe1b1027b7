"""Time of guided calls compared with stock calls, and where it goes.

The demo SDXL, and networks of the size of known models at 1024 pixels with random weights, whose
prompts are random embeddings and whose latents are not decoded. Phases are timed in a further call,
in which the device finishes each before the next begins. "Rest" is the scheduler, the pipeline and
guidance's hooks.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial, wraps
from itertools import product
from time import perf_counter
from typing import Any, NamedTuple
from unittest.mock import patch

import diffusers
import torch

from scripts.benchmarks.measuring import POOLED, Task, measure, ratio, synchronize
from vendi_guidance import VendiGuidance
from vendi_guidance.guidance.noise import Noise
from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import DIVERSITY
from vendi_guidance.storage.assets import asset

SDXL: dict[str, Any] = {
    "sample_size": 128,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "block_out_channels": (320, 640, 1280),
    "transformer_layers_per_block": [1, 2, 10],
    "attention_head_dim": [5, 10, 20],
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": POOLED + 6 * 256,
}
SD_3_5 = {"sample_size": 128, "pos_embed_max_size": 384, "num_layers": 24, "qk_norm": "rms_norm"}
SD_3_5 |= {"num_attention_heads": 24, "caption_projection_dim": 24 * 64}
SD_3_5["dual_attention_layers"] = tuple(range(13))  # medium


class Size(NamedTuple):
    """Names of a pipeline and its network in diffusers, the network's configuration and what is
    smaller in a trial, the shapes of a prompt's embeddings, and the CFG scale, if any."""

    pipeline: str
    network: str
    config: dict[str, Any]
    tiny: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    scale: float | None


def embeddings(tokens: int, width: int, pooled: int) -> dict[str, tuple[int, ...]]:
    return {"prompt_embeds": (tokens, width), "pooled_prompt_embeds": (pooled,)}


TWO_HEADS = {"num_attention_heads": 2, "num_layers": 1}
SMALL_UNET = {"block_out_channels": (32,) * 3, "transformer_layers_per_block": 1}
SIZES = {
    "SDXL": Size(
        *("StableDiffusionXL", "UNet2DConditionModel", SDXL, SMALL_UNET),
        *(embeddings(77, 2048, POOLED), 5.0),
    ),
    "SD 3.5": Size(
        *("StableDiffusion3", "SD3Transformer2DModel", SD_3_5),
        {**TWO_HEADS, "caption_projection_dim": 128, "dual_attention_layers": ()},
        *(embeddings(333, 4096, 2048), 4.5),
    ),
    "Flux": Size(
        *("Flux", "FluxTransformer2DModel", {"guidance_embeds": True}),
        {**TWO_HEADS, "num_single_layers": 1},
        *(embeddings(512, 4096, 768), None),
    ),
}
COMPILED = {"BasicTransformerBlock", "JointTransformerBlock"}
COMPILED |= {"FluxTransformerBlock", "FluxSingleTransformerBlock"}

PHASES: dict[str, tuple[Any, str]] = {
    "gradient": (Score, "gradient"),
    "move": (Score, "move"),
    "noise": (Noise, "like"),
}
DIALS = {"stock": 0.0, "default": DIVERSITY, "dial 1": 1.0}

Opened = Callable[[], tuple[Any, dict[str, Any]]]
"""Returns a pipeline and the arguments that it is called with."""


@cache
def pipeline_of(name: str, backend: str, device: torch.device, tiny: bool) -> Any:
    """The demo, or a pipeline with random weights whose blocks are compiled if there is a backend
    of `torch.compile`."""
    if name == "demo":
        pipe = diffusers.DiffusionPipeline.from_pretrained(asset("demo-sdxl"), dtype=torch.bfloat16)
    else:
        size = SIZES[name]
        with device:
            network = getattr(diffusers, size.network)(**size.config | (size.tiny if tiny else {}))
        for block in network.to(torch.bfloat16).eval().modules():
            if backend and type(block).__name__ in COMPILED:
                block.compile(backend=backend)
        kind = getattr(diffusers, f"{size.pipeline}Pipeline")
        parts = dict.fromkeys(kind._get_signature_keys(kind)[0])  # no text encoders and VAE
        scheduler = "EulerDiscrete" if "unet" in parts else "FlowMatchEulerDiscrete"
        parts["scheduler"] = getattr(diffusers, f"{scheduler}Scheduler")()
        parts["unet" if "unet" in parts else "transformer"] = network
        pipe = kind(**parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(device)


def tasks(device: torch.device, tiny: bool) -> Iterator[Task]:
    """Calls of the demo and, except on a CPU, of the sizes of known models; those that matter most
    come first: small batches, many steps, bfloat16."""
    batches, steps = ((1,), (2,)) if tiny else ((1, 4, 8), (50, 4))
    dtypes, backend = ("bfloat16", "float16")[: 1 if tiny else 2], "eager" if tiny else "inductor"
    ways = [("", "bfloat16", 16, batch, "demo") for batch in ((1,) if tiny else (1, 8, 16))]
    if tiny or device.type != "cpu":
        ways += product(("", backend), dtypes, steps, batches, SIZES)
    for compiler, dtype, count, batch, name in ways:
        model = f"{name}, compiled" if compiler else name
        about = {"model": model, "dtype": dtype, "steps": count, "batch": batch}

        def opened(about: Any = about, name: str = name, compiler: str = compiler) -> Any:
            pipe = pipeline_of(name, compiler, device, tiny).to(getattr(torch, about["dtype"]))
            return pipe, arguments(name, about["steps"], about["batch"], pipe, tiny)

        yield Task("Whole calls", about, partial(times, opened, device, tiny))
        for title, diversity in DIALS.items() if batch == 1 and not compiler else ():
            phases = partial(phases_of, opened, diversity, device)
            yield Task("Phases at batch 1", {**about, "call": title}, phases)


def arguments(name: str, steps: int, batch: int, pipe: Any, tiny: bool) -> dict[str, Any]:
    """How a pipeline is called: in few steps without CFG, as distilled networks are."""
    if name == "demo":
        prompts = ["waving hand"] * batch
        return {"prompt": prompts, "num_inference_steps": steps, "guidance_scale": 5.0}
    size, given = SIZES[name], {"num_inference_steps": steps, "output_type": "latent"}
    signs = [""]
    if size.scale is not None:
        given["guidance_scale"] = size.scale if steps > 9 else 1.0
        signs += ["negative_"] if steps > 9 else []
    for sign, (key, shape) in product(signs, size.shapes.items()):
        one = torch.randn(1, *shape, dtype=pipe.dtype, device=pipe.device)
        given[f"{sign}{key}"] = one.expand(batch, *shape).contiguous()
    return given | ({"height": 128, "width": 128} if tiny else {})


def called(pipe: Any, given: dict[str, Any], diversity: float) -> Any:
    """Call a pipeline, the stock one for a diversity of 0."""
    guided = VendiGuidance(diversity=diversity, memory="call").on(pipe) if diversity else {}
    return pipe(**given, **guided)


def times(opened: Opened, device: torch.device, tiny: bool) -> dict[str, object]:
    """Seconds and memory of the stock call, and of guided ones as multiples."""
    pipe, given = opened()
    called(pipe, given | {"num_inference_steps": 4}, DIVERSITY)  # warm-up
    functions = [partial(called, pipe, given, diversity) for diversity in DIALS.values()]
    stock, *guided = measure(functions, device, budget=0 if tiny else 10, most=9)
    cells: dict[str, object] = {"stock, s": stock.seconds, "stock MiB": stock.peak}
    for title, run in zip([*DIALS][1:], guided, strict=True):
        cells |= {f"{title}, ratio": ratio(run, stock), f"{title} MiB": run.peak}
    return cells


def phases_of(opened: Opened, diversity: float, device: torch.device) -> dict[str, object]:
    """Seconds of a call and of its phases."""
    pipe, given = opened()
    network = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    with timed({"network": (type(network), "forward"), **PHASES}, device) as seconds:
        [whole] = measure([partial(called, pipe, given, diversity)], device, most=1)
    return {"seconds": whole.seconds, **seconds, "rest": whole.seconds - sum(seconds.values())}


@contextmanager
def timed(phases: dict[str, tuple[Any, str]], device: torch.device) -> Iterator[dict[str, float]]:
    """Measures the seconds of each phase while the context lasts."""
    seconds = dict.fromkeys(phases, 0.0)

    def wrapped(phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
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
        for phase, (owner, name) in phases.items():
            wrapper = wrapped(phase, getattr(owner, name))
            stack.enter_context(patch.object(owner, name, wrapper))
        yield seconds
