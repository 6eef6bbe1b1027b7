"""Measures a demo model by its probe, for the model card."""

from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import torch
from diffusers import DiffusionPipeline
from PIL.Image import Image
from tqdm import tqdm

from scripts.comparison.models import MODELS
from scripts.demo.cards import write_card
from scripts.demo.training import Training, save_half
from vendi_guidance.evaluation.inputs import looks_by_group, prompt_fidelity
from vendi_guidance.features.base import Labels
from vendi_guidance.features.probe import load_probe
from vendi_guidance.storage.prompt_files import open_prompts

BATCH = 64


class Measured(NamedTuple):
    """Scores of a model's images, generated without diversity guidance.

    Attributes:
        fidelity: share of images of open prompts that show the prompt's concept.
        looks: distinct correct looks of a prompt's images, mean over open prompts.
        named: share of images of named prompts that show everything the prompt names.
        dtype: precision of the model.
    """

    fidelity: float
    looks: float
    named: float
    dtype: str


def measure(
    pipeline: DiffusionPipeline,
    model: str,
    sampling: dict[str, Any],
    assets: Path,
    each: tuple[int, int] = (16, 8),
) -> Measured:
    """Generate images of a demo model's prompts and score them by its probe.

    Args:
        model: a name in `MODELS`.
        sampling: arguments of the pipeline's call.
        assets: folder of probes and prompts.
        each: number of images of each open and each named prompt.
    """
    pipeline.set_progress_bar_config(disable=True)
    demo = MODELS[model]
    probe = load_probe(assets / demo.probe)

    def label(file: str, count: int) -> tuple[list[str], Labels]:
        prompts = [prompt for prompt in open_prompts(str(assets / file)) for _ in range(count)]
        generator = torch.Generator().manual_seed(0)
        images: list[Image] = []
        for start in tqdm(range(0, len(prompts), BATCH), desc=file, unit="batch"):
            part = prompts[start : start + BATCH]
            images += pipeline(part, generator=generator, **sampling).images
        return prompts, probe.labels(probe.embed(images), prompts)

    prompts, labels = label(demo.prompts, each[0])
    named = prompt_fidelity(label(demo.named, each[1])[1])
    looks = fmean(looks_by_group(prompts, labels).values())
    dtype = str(pipeline.dtype).removeprefix("torch.")
    return Measured(prompt_fidelity(labels) or 0.0, looks, named or 0.0, dtype)


def save_measured(
    pipeline: DiffusionPipeline,
    model: str,
    sampling: dict[str, Any],
    training: Training,
    **values: Any,
) -> None:
    """Save a pipeline in half precision, with a model card that has the saved pipeline's scores.

    Args:
        model, sampling: see `measure`.
        values: further values for the card's template.
    """
    folder = training.assets / model
    save_half(pipeline, folder)
    saved = type(pipeline).from_pretrained(folder, dtype=training.dtype).to(training.device)
    title = f"{sampling['num_inference_steps']} steps, CFG scale {sampling['guidance_scale']:g}"
    measured = {title: measure(saved, model, sampling, training.assets)}
    write_card(folder, measured=measured, sampling=sampling, training=training, **values)
