"""The demo models, with the probe and prompts that each is judged with."""

from pathlib import Path
from typing import Any, NamedTuple

from diffusers import DiffusionPipeline

OPEN, NAMED = "open", "named"
"""Prompts that leave the look open, and prompts that name part of it."""
IMAGES = {OPEN: 16, NAMED: 8}  # of each prompt
BATCH = 16
LOG = Path(__file__).with_name("choices.jsonl")  # of `choose`


class DemoModel(NamedTuple):
    """Default sampling settings of a model, and the names of the assets that it is judged with.

    Attributes:
        probe: classifier of its images.
        prompts, named: prompts that leave the look open, and prompts that name part of it.
        tuning, named_tuning: further ones of both kinds, on which settings are chosen.
        base: the model that this one is a LoRA of; empty for a whole model.
    """

    probe: str
    prompts: str
    named: str
    tuning: str
    named_tuning: str
    steps: int
    guidance_scale: float
    base: str = ""


EMOJI = ("demo-probe", "demo", "named", "emoji-tuning", "emoji-named-tuning")
PHOTOS = ("demo-photos-probe", "photos", "photos-named", "photos-tuning", "photos-named-tuning")
FACES = ("demo-faces-probe", "faces", "faces-named", "faces-tuning", "faces-tuning-named")

MODELS = {  # by the name of the folder
    "demo-photos": DemoModel(*PHOTOS, 16, 5.0),
    "demo-photos-turbo-lora": DemoModel(*PHOTOS, 4, 1.0, "demo-photos"),
    "demo-photos-tuned-lora": DemoModel(*PHOTOS, 16, 5.0, "demo-photos"),
    "demo-photos-tuned-turbo-lora": DemoModel(*PHOTOS, 4, 1.0, "demo-photos-tuned-lora"),
    "demo-sdxl": DemoModel(*EMOJI, 16, 5.0),
    "demo-sdxl-turbo-lora": DemoModel(*EMOJI, 4, 1.0, "demo-sdxl"),
    "demo-pixart": DemoModel(*EMOJI, 16, 4.0),
    "demo-faces": DemoModel(*FACES, 16, 4.0),
    "demo-faces-turbo-lora": DemoModel(*FACES, 4, 1.0, "demo-faces"),
}


def merged(name: str, assets: Path) -> Any:
    """The pipeline of a demo model; a LoRA is merged into the network of its base."""
    base = MODELS[name].base
    if not base:
        return DiffusionPipeline.from_pretrained(assets / name)
    pipeline = merged(base, assets)
    pipeline.load_lora_weights(assets / name)
    pipeline.fuse_lora()
    pipeline.unload_lora_weights()
    return pipeline
