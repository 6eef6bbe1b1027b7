"""The pipeline class for a model, by the name in its `model_index.json`, and how a run calls it:
with the parameters that are given, else with defaults that suit the model.

Distilled models need few steps and no classifier-free guidance (CFG). Neither `model_index.json`
nor the pipeline's signature identifies them, but their names and some configurations do.
"""

import re
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import diffusers
from diffusers import DiffusionPipeline
from diffusers.pipelines.auto_pipeline import AUTO_TEXT2IMAGE_PIPELINES_MAPPING
from diffusers.utils import DummyObject, is_bs4_available, is_ftfy_available

from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.mixins import DiversityGuided
from vendi_guidance.pipelines.vendi_guided_flux import VendiGuidedFluxPipeline
from vendi_guidance.pipelines.vendi_guided_pixart_alpha import VendiGuidedPixArtAlphaPipeline
from vendi_guidance.pipelines.vendi_guided_pixart_sigma import VendiGuidedPixArtSigmaPipeline
from vendi_guidance.pipelines.vendi_guided_sdxl import VendiGuidedSDXLPipeline
from vendi_guidance.runs.plan import RunOptions, Sampling
from vendi_guidance.storage.files import read_object

PIXART = VendiGuidedPixArtAlphaPipeline, VendiGuidedPixArtSigmaPipeline
GUIDED: dict[type[DiffusionPipeline], type[Any]] = {
    guided.stock: guided for guided in (VendiGuidedSDXLPipeline, *PIXART, VendiGuidedFluxPipeline)
}
"""Our pipelines by their stock classes."""

IMAGES = ("image", "images", "mask_image", "control_image", "video", "control_video")
"""Arguments of pipelines that need more than a prompt."""

FRAMES = ("num_frames", "frames", "video_length")  # arguments of pipelines that generate videos
LCM = "lcm|latent-consistency"
"""Pattern of the names of models and LoRAs that an `LCMScheduler` samples."""

FEW_STEPS: tuple[tuple[str, int, float | None], ...] = (
    ("z-image-turbo", 9, 0.0),
    ("sana-sprint|sana_sprint", 2, None),
    ("turbo|schnell", 4, 0.0),
    ("lightning", 4, 0.0),
    (LCM, 4, 1.0),
    ("demo-sdxl|demo-photos", 16, 5.0),
)
"""Pattern of a model's name, number of steps and guidance scale (None: the pipeline's default), as
the model cards recommend. A number of steps in a name ("sdxl-lightning-8step") takes precedence."""


def stock_class(name: str) -> type[DiffusionPipeline]:
    """The diffusers pipeline with this name. ValueError if there is none, or it cannot be used in a
    run; ImportError if it needs a library that is not installed."""
    kind = getattr(diffusers, name, None)
    if isinstance(kind, DummyObject):
        libraries = " and ".join(vars(kind)["_backends"])
        raise ImportError(f"the model cannot be used: {name} needs {libraries}: pip install them")
    if not (isinstance(kind, type) and issubclass(kind, DiffusionPipeline)):
        raise ValueError(
            f"the model cannot be used: diffusers {diffusers.__version__} has no {name!r}; a newer "
            "version may have it"
        )
    if reason := _refusal(kind):
        raise ValueError(f"the model cannot be used: {name} {reason}")
    return kind


def guided_class(stock: type[DiffusionPipeline]) -> type[Any]:
    """The guided class for a stock pipeline: ours if there is one, else a subclass that attaches
    the guidance callback to each call."""
    name = f"VendiGuided{stock.__name__}"
    return GUIDED.get(stock) or type(name, (DiversityGuided, stock), {"prompt_input": None})


def _refusal(kind: type[DiffusionPipeline]) -> str | None:
    """Why a pipeline cannot be used in a run, as the end of a sentence; None if it can."""
    taken = signature(kind.__call__).parameters
    # diffusers lists ControlNet pipelines as text-to-image, too
    listed = kind in AUTO_TEXT2IMAGE_PIPELINES_MAPPING.values() and "Control" not in kind.__name__
    if kind._load_connected_pipes:
        return "runs two pipelines in turn: guide the second of them from Python"
    if any(name in taken for name in FRAMES):
        return "generates videos, not images: guide it from Python (docs/pipelines.md)"
    if "prompt" not in taken:
        return f"takes no prompt, but {', '.join([*taken][1:4])}"
    for name, parameter in [*taken.items()][1:]:
        is_required = parameter.default is Parameter.empty and name not in ("prompt", "kwargs")
        if is_required or (name in IMAGES and not listed):
            return f"needs {name} besides a prompt: guide it from Python (docs/pipelines.md)"
    if not {"num_inference_steps", "height"} <= taken.keys() or "Prior" in kind.__name__:
        return "does not generate images"
    if kind not in GUIDED and "callback_on_step_end" not in taken:
        return "takes no callback_on_step_end, which guidance needs"
    if family_of(kind).perturbs_attention:
        return "perturbs attention (PAG), which guidance does not support"
    if family_of(kind).ignores_callback:
        return "ignores what its callback returns, so guidance would have no effect"
    return None


def sampling_of(stock: type[DiffusionPipeline], folder: Path, options: RunOptions) -> Sampling:
    """The sampling parameters of a run. Defaults come from the name of its model, else from the
    model's configuration, else from the signature of the pipeline. ValueError if the pipeline does
    not take a given option, or has no default number of steps."""
    taken = signature(stock.__call__).parameters
    steps, guidance_scale = options.steps, options.guidance_scale
    negative_prompt = options.negative_prompt
    scale_name = "guidance_scale"
    if "true_cfg_scale" in taken and (scale_name not in taken or not taken[scale_name].default):
        scale_name = "true_cfg_scale"  # guidance_scale is an input of guidance-distilled networks
    given = _without_none({scale_name: guidance_scale, "negative_prompt": negative_prompt})
    for argument in given.keys() - taken.keys():
        option = "guidance-scale" if argument == scale_name else "negative-prompt"
        raise ValueError(f"{stock.__name__} takes no {argument}: leave --{option} out")
    default_steps = taken["num_inference_steps"].default
    default_scale = taken[scale_name].default if scale_name in taken else None
    no_cfg = family_of(stock).no_cfg
    source = f"the defaults of {stock.__name__}"
    if few_steps := _by_name(options.lora or "") or _by_name(options.model) or _by_parts(folder):
        default_steps, scale, kind = few_steps
        if scale is not None and scale_name in taken:
            default_scale = no_cfg if scale == 1 else scale
        source = f"usual for {kind}"
    chosen = []
    if steps is None:
        steps = default_steps
        if not isinstance(steps, int):
            raise ValueError(f"{stock.__name__} has no usual number of steps: give --steps")
        chosen.append(f"{steps} steps" if steps > 1 else "1 step")
    if guidance_scale is None and default_scale is not None:
        guidance_scale = default_scale
        chosen.append(f"guidance scale {default_scale:g}" + " (no CFG)" * (default_scale <= no_cfg))
    if scale_name == "true_cfg_scale" and (guidance_scale or 0) > 1:
        negative_prompt = negative_prompt or " "  # these pipelines skip CFG without one
    change = "--steps and --guidance-scale change it"
    remarks = [f"{', '.join(chosen)}: {source}; {change}"] if chosen else []
    is_input = scale_name == "guidance_scale" and "true_cfg_scale" in taken  # as in Flux
    without_cfg = guidance_scale is not None and (is_input or guidance_scale <= no_cfg)
    if negative_prompt and without_cfg:
        remarks.append("--negative-prompt has no effect: images are generated without CFG")
    if options.guidance_scale and is_input and _has_no_guidance_embeddings(folder):
        remarks.append("--guidance-scale has no effect: this Flux has no guidance embeddings")
    others = {"negative_prompt": negative_prompt, "height": options.height, "width": options.width}
    given = _without_none(others)
    call = {"num_inference_steps": steps, **_without_none({scale_name: guidance_scale}), **given}
    if "clean_caption" in taken and not (is_bs4_available() and is_ftfy_available()):
        call["clean_caption"] = False  # otherwise PixArt warns that libraries are missing
    about = {"steps": steps, "guidance_scale": guidance_scale, **given}
    return Sampling(call, about, tuple(remarks))


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def name_of(model: str) -> str:
    """What names a model or LoRA: a hub's name includes its owner, that of a file its folder."""
    count = 1 if Path(model).is_dir() else 2
    return "/".join(Path(model).parts[-count:]).lower()


def _by_name(model: str) -> tuple[int, float | None, str] | None:
    last = name_of(model)
    for pattern, steps, scale in FEW_STEPS:
        if found := re.search(pattern, last):
            named = re.search(r"(\d+)[-_]?steps?\b", last)
            return int(named[1]) if named else steps, scale, f"models named {found[0]!r}"
    return None


def _by_parts(folder: Path) -> tuple[int, float | None, str] | None:
    index = read_object(folder / "model_index.json")
    scheduler = read_object(folder / "scheduler" / "scheduler_config.json")
    if scheduler.get("_class_name") == "LCMScheduler":
        # such a U-Net takes the scale as an input
        embeds_scale = read_object(folder / "unet" / "config.json").get("time_cond_proj_dim")
        return 4, None if embeds_scale else 1.0, "models with an LCMScheduler"
    if index.get("is_distilled") is True:
        is_krea = index.get("_class_name") == "Krea2Pipeline"
        return 8 if is_krea else 4, 1.0, "distilled models"
    if _has_no_guidance_embeddings(folder):
        return 4, 0.0, "Flux without guidance embeddings"
    return None


def _has_no_guidance_embeddings(folder: Path) -> bool:
    network = read_object(folder / "transformer" / "config.json")
    is_flux = network.get("_class_name") == "FluxTransformer2DModel"
    return is_flux and network.get("guidance_embeds") is False
