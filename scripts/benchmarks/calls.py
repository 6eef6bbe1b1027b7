"""Time of guided calls compared with stock calls, and where it goes.

The demo SDXL, and networks of the size of known models at 1024 pixels with random weights, whose
prompts are random embeddings and whose latents are not decoded. Phases are timed in a further call,
in which the device finishes each before the next begins. "Rest" is the scheduler, the pipeline and
guidance's hooks.
"""

from collections.abc import Callable, Iterator, Mapping
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
SD_3_5: dict[str, Any] = {  # medium
    "sample_size": 128,
    "pos_embed_max_size": 384,
    "num_layers": 24,
    "num_attention_heads": 24,
    "caption_projection_dim": 1536,
    "dual_attention_layers": tuple(range(13)),
    "qk_norm": "rms_norm",
}
FLUX: dict[str, Any] = {"guidance_embeds": True}
FEW_HEADS = {"num_attention_heads": 2, "num_layers": 1}


class Model(NamedTuple):
    """What a network of a known size needs.

    Attributes:
        pipeline, network, scheduler: names of diffusers' classes.
        config, tiny: the network's configuration, and changes for a trial.
        tokens, width, pooled: the shapes of a prompt's embeddings, (tokens, width) and (pooled,).
        scale: the pipeline's guidance scale.
    """

    pipeline: str
    network: str
    scheduler: str
    config: dict[str, Any]
    tiny: dict[str, Any]
    tokens: int
    width: int
    pooled: int
    scale: float


MODELS = {
    "SDXL": Model(
        *("StableDiffusionXL", "UNet2DConditionModel", "EulerDiscrete", SDXL),
        {
            "block_out_channels": (32, 32, 32),
            "transformer_layers_per_block": 1,
            "attention_head_dim": 4,
            "layers_per_block": 1,
        },
        *(77, 2048, POOLED, 5.0),
    ),
    "SD 3.5": Model(
        *("StableDiffusion3", "SD3Transformer2DModel", "FlowMatchEulerDiscrete", SD_3_5),
        {**FEW_HEADS, "caption_projection_dim": 128, "dual_attention_layers": ()},
        *(333, 4096, 2048, 4.5),
    ),
    "Flux": Model(
        *("Flux", "FluxTransformer2DModel", "FlowMatchEulerDiscrete", FLUX),
        {**FEW_HEADS, "num_single_layers": 1},
        *(512, 4096, 768, 3.5),
    ),
}
COMPILED = {"BasicTransformerBlock", "JointTransformerBlock"}
COMPILED |= {"FluxTransformerBlock", "FluxSingleTransformerBlock"}

PHASES: dict[str, tuple[Any, str]] = {
    "gradient": (Score, "gradient"),
    "move": (Score, "move"),
    "choice": (Score, "choose"),
    "noise": (Noise, "like"),
}
DIALS = {"stock": 0.0, "default": DIVERSITY, "dial 1": 1.0}


class Way(NamedTuple):
    """How a model is called."""

    compiled: bool
    dtype: str
    steps: int
    batch: int
    model: str


def built(network: Any, pipeline: Any, scheduler: Any) -> Any:
    """A pipeline without text encoders and VAE."""
    parts: dict[str, Any] = {"vae": None, "scheduler": scheduler}
    for number in ("", "_2", "_3")[: 3 if "3" in pipeline.__name__ else 2]:
        parts |= {f"text_encoder{number}": None, f"tokenizer{number}": None}
    parts["unet" if "XL" in pipeline.__name__ else "transformer"] = network
    return pipeline(**parts)


@cache
def pipeline_of(name: str, compiled: str, device: torch.device, tiny: bool) -> Any:
    """A model's pipeline in bfloat16, in which `compiled` is a backend of `torch.compile` or ""."""
    model = MODELS[name]
    config = model.config | (model.tiny if tiny else {})
    with device:
        network = getattr(diffusers, model.network)(**config).to(torch.bfloat16).eval()
    for block in network.modules():
        if compiled and type(block).__name__ in COMPILED:
            block.compile(backend=compiled)
    scheduler = getattr(diffusers, f"{model.scheduler}Scheduler")()
    pipe = built(network, getattr(diffusers, f"{model.pipeline}Pipeline"), scheduler)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def called(pipe: Any, given: dict[str, Any], diversity: float) -> Any:
    """Call a pipeline, the stock one for a diversity of 0."""
    guided = VendiGuidance(diversity=diversity, memory="call").on(pipe) if diversity else {}
    return pipe(**given, **guided)


@cache
def demo(device: torch.device) -> Any:
    pipe = diffusers.DiffusionPipeline.from_pretrained(asset("demo-sdxl"), dtype=torch.bfloat16)
    pipe.to(device).set_progress_bar_config(disable=True)
    return pipe


def opened_demo(device: torch.device, batch: int) -> tuple[Any, dict[str, Any]]:
    """The demo SDXL, and how it is called."""
    given = {"prompt": ["waving hand"] * batch, "num_inference_steps": 16, "guidance_scale": 5.0}
    return demo(device), given


def opened(way: Way, device: torch.device, backend: str, tiny: bool) -> tuple[Any, dict[str, Any]]:
    """A model with random weights, and how it is called."""
    pipe = pipeline_of(way.model, backend * way.compiled, device, tiny)
    model, dtype = MODELS[way.model], getattr(torch, way.dtype)
    pipe.to(dtype)
    shapes = {"prompt_embeds": (model.tokens, model.width), "pooled_prompt_embeds": (model.pooled,)}
    few = way.steps < 10  # as distilled networks are called, without CFG
    given: dict[str, Any] = {
        "num_inference_steps": way.steps,
        "output_type": "latent",
        "guidance_scale": 1.0 if few and way.model != "Flux" else model.scale,
    }
    for sign in ("", "negative_")[: 1 if few or way.model == "Flux" else 2]:
        for name, shape in shapes.items():
            one = torch.randn(1, *shape, dtype=dtype, device=device)
            given[f"{sign}{name}"] = one.expand(way.batch, *shape).contiguous()
    if tiny:
        given |= {"height": 128, "width": 128}
    return pipe, given


def tasks(device: torch.device, tiny: bool, known: bool) -> Iterator[Task]:
    """Calls of the demo and, if `known`, of the sizes of known models; those that matter most come
    first: small batches, many steps, bfloat16."""
    for batch in (1,) if tiny else (1, 8, 16):
        about = {"model": "demo", "dtype": "bfloat16", "steps": 16, "batch": batch}
        yield from tasks_of(about, partial(opened_demo, device, batch), device, tiny)
    batches, steps = ((1,), (2,)) if tiny else ((1, 4, 8), (50, 4))
    dtypes, backend = ("bfloat16", "float16")[: 1 if tiny else 2], "eager" if tiny else "inductor"
    ways = product((False, True), dtypes, steps, batches, MODELS if known else ())
    for way in map(Way._make, ways):
        about = {"model": way.model, "dtype": way.dtype, "steps": way.steps, "batch": way.batch}
        about["model"] += ", compiled" * way.compiled
        yield from tasks_of(about, partial(opened, way, device, backend, tiny), device, tiny)


def tasks_of(
    about: dict[str, Any],
    open: Callable[[], tuple[Any, dict[str, Any]]],
    device: torch.device,
    tiny: bool,
) -> Iterator[Task]:
    """The calls of a model with all values of the dial, and at batch 1 their phases."""
    yield Task("Whole calls", about, partial(times, open, device, tiny))
    if about["batch"] == 1 and "compiled" not in about["model"]:
        for title, diversity in DIALS.items():
            phases = partial(phases_of, open, diversity, device)
            yield Task("Phases at batch 1", {**about, "call": title}, phases)


def times(
    open: Callable[[], tuple[Any, dict[str, Any]]], device: torch.device, tiny: bool
) -> dict[str, object]:
    """Seconds and memory of the stock call, and of guided ones as multiples."""
    pipe, given = open()
    called(pipe, given | {"num_inference_steps": 4}, DIVERSITY)  # warm-up
    functions = [partial(called, pipe, given, diversity) for diversity in DIALS.values()]
    stock, *guided = measure(functions, device, budget=0 if tiny else 10, most=9)
    cells: dict[str, object] = {"stock, s": stock.seconds, "stock MiB": stock.peak}
    for title, run in zip([*DIALS][1:], guided, strict=True):
        cells |= {f"{title}, ratio": ratio(run, stock), f"{title} MiB": run.peak}
    return cells


def phases_of(
    open: Callable[[], tuple[Any, dict[str, Any]]], diversity: float, device: torch.device
) -> dict[str, object]:
    """Seconds of a call and of its phases."""
    pipe, given = open()
    network = pipe.unet if hasattr(pipe, "unet") else pipe.transformer
    phases = {"network": (type(network), "forward"), **PHASES}
    with timed(phases, device) as seconds:
        [whole] = measure([partial(called, pipe, given, diversity)], device, most=1)
    return {"seconds": whole.seconds, **seconds, "rest": whole.seconds - sum(seconds.values())}


@contextmanager
def timed(
    phases: Mapping[str, tuple[Any, str]], device: torch.device
) -> Iterator[dict[str, float]]:
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
