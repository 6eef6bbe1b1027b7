"""How a model is sampled: what was asked for, else what suits the model.

Distilled models take few steps and no classifier-free guidance (CFG). Neither `model_index.json`
nor the signature of the pipeline says so, but names and a few configurations do.
"""

import json
import re
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

from diffusers import DiffusionPipeline
from diffusers.utils import is_bs4_available, is_ftfy_available

from vendi_guidance.adapter.families import family_of
from vendi_guidance.runs.options import RunOptions

FEW_STEPS: tuple[tuple[str, int, float | None], ...] = (
    ("z-image-turbo", 9, 0.0),
    ("sana-sprint|sana_sprint", 2, None),
    ("turbo|schnell", 4, 0.0),
    ("lightning", 4, 0.0),
    ("lcm|latent-consistency", 4, 1.0),
    ("demo-sdxl", 16, 5.0),
)
"""Patterns of models' names, their number of steps and their scale, None for the pipeline's own:
what the models' cards say. The number in a name such as "sdxl-lightning-8step" comes first."""


@dataclass(frozen=True)
class Sampling:
    """Arguments of a pipeline's calls.

    Attributes:
        steps: `num_inference_steps`.
        guidance_scale: of CFG; None where the pipeline has none.
        scale_name: the pipeline's argument for it.
        negative_prompt: of every image, or None.
        height, width: of the images; None for the model's own.
        remarks: what was not given, where it comes from and what changes it; and whether a negative
            prompt has no effect.
        clean_caption: False where a PixArt could not clean captions, and would say so each time.
    """

    steps: int
    guidance_scale: float | None
    scale_name: str
    negative_prompt: str | None
    height: int | None
    width: int | None
    remarks: tuple[str, ...]
    clean_caption: bool | None = None

    def arguments(self, prompts: list[str]) -> dict[str, Any]:
        """The arguments by name, for an image of each prompt."""
        negative = None if self.negative_prompt is None else [self.negative_prompt] * len(prompts)
        named = {self.scale_name: self.guidance_scale, "height": self.height, "width": self.width}
        always = {"prompt": prompts, "num_inference_steps": self.steps}
        others = {"negative_prompt": negative, "clean_caption": self.clean_caption}
        return always | _without_none(named | others)

    @property
    def about(self) -> dict[str, Any]:
        """What is said of the images, by the names of the options."""
        said = {"steps": self.steps, "guidance_scale": self.guidance_scale}
        rest = {"negative_prompt": self.negative_prompt, "height": self.height, "width": self.width}
        return said | _without_none(rest)


def sampling_of(stock: type[DiffusionPipeline], folder: Path, asked: RunOptions) -> Sampling:
    """How to call a model: as given, else as its name, its parts or its pipeline's signature say.

    Args:
        stock: its pipeline.
        folder: where it is.

    Raises:
        ValueError: something is given that the pipeline does not take, or nothing says how many
            steps.
    """
    taken = signature(stock.__call__).parameters
    steps, guidance_scale = asked.steps, asked.guidance_scale
    negative_prompt = asked.negative_prompt
    scale_name = "guidance_scale"
    if "true_cfg_scale" in taken and (scale_name not in taken or not taken[scale_name].default):
        scale_name = "true_cfg_scale"  # the other is an input of networks with distilled guidance
    wanted = {scale_name: guidance_scale, "negative_prompt": negative_prompt}
    for argument in _without_none(wanted).keys() - taken.keys():
        option = "guidance-scale" if argument == scale_name else "negative-prompt"
        raise ValueError(f"{stock.__name__} takes no {argument}: leave --{option} out")
    usual_steps = taken["num_inference_steps"].default
    usual_scale = taken[scale_name].default if scale_name in taken else None
    no_cfg = family_of(stock).no_cfg
    source = f"the defaults of {stock.__name__}"
    if few := _by_name(asked.lora or "") or _by_name(asked.model) or _by_parts(folder):
        usual_steps, scale, why = few
        if scale is not None and scale_name in taken:
            usual_scale = no_cfg if scale == 1 else scale
        source = f"usual for {why}"
    if steps is None and not isinstance(usual_steps, int):
        raise ValueError(f"{stock.__name__} has no usual number of steps: give --steps")
    chosen = []
    if steps is None:
        steps = usual_steps
        chosen.append(f"{steps} steps" if steps > 1 else "1 step")
    if guidance_scale is None and usual_scale is not None:
        guidance_scale = usual_scale
        chosen.append(f"guidance scale {usual_scale:g}" + " (no CFG)" * (usual_scale <= no_cfg))
    if scale_name == "true_cfg_scale" and (guidance_scale or 0) > 1:
        negative_prompt = negative_prompt or " "  # without one, these pipelines leave CFG out
    change = "--steps and --guidance-scale change it"
    remarks = [f"{', '.join(chosen)}: {source}; {change}"] if chosen else []
    is_input = scale_name == "guidance_scale" and "true_cfg_scale" in taken  # as in Flux
    without_cfg = guidance_scale is not None and (is_input or guidance_scale <= no_cfg)
    if negative_prompt and without_cfg:
        remarks.append("--negative-prompt has no effect: these images are made without CFG")
    size = (asked.height, asked.width)
    can_clean = "clean_caption" not in taken or (is_bs4_available() and is_ftfy_available())
    clean = None if can_clean else False
    return Sampling(
        steps, guidance_scale, scale_name, negative_prompt, *size, tuple(remarks), clean
    )


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _by_name(name: str) -> tuple[int, float | None, str] | None:
    own = 1 if Path(name).is_dir() else 2  # a hub name has an owner; of a file the folder tells too
    last = "/".join(Path(name).parts[-own:]).lower()
    for pattern, steps, scale in FEW_STEPS:
        if found := re.search(pattern, last):
            counted = re.search(r"(\d+)[-_]?steps?\b", last)
            return int(counted[1]) if counted else steps, scale, f"models named {found[0]!r}"
    return None


def _by_parts(folder: Path) -> tuple[int, float | None, str] | None:
    index = read_config(folder / "model_index.json")
    scheduler = read_config(folder / "scheduler" / "scheduler_config.json")
    if scheduler.get("_class_name") == "LCMScheduler":
        embeds = read_config(folder / "unet" / "config.json").get("time_cond_proj_dim")
        return 4, None if embeds else 1.0, "models with an LCMScheduler"
    if index.get("is_distilled") is True:
        is_krea = index.get("_class_name") == "Krea2Pipeline"
        return 8 if is_krea else 4, 1.0, "distilled models"
    network = read_config(folder / "transformer" / "config.json")
    is_flux = network.get("_class_name") == "FluxTransformer2DModel"
    if is_flux and network.get("guidance_embeds") is False:
        return 4, 0.0, "Flux without guidance embeddings"
    return None


def read_config(path: Path) -> dict[str, Any]:
    """A configuration; empty where there is none that can be read, which loading will tell."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}
