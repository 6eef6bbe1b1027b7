"""The demo models, and what each is judged with."""

from pathlib import Path
from typing import Any, NamedTuple

from diffusers import StableDiffusion3Pipeline, StableDiffusionXLPipeline
from vendi_guidance.pipelines.vendi_guided_pixart_sigma import VendiGuidedPixArtSigmaPipeline

from vendi_guidance import VendiGuidance
from vendi_guidance.guidance.mixins import DiversityGuided
from vendi_guidance.runs.models import load_model


class DemoModel(NamedTuple):
    """How a model is used, and the names of the assets that it is judged with.

    Attributes:
        pipeline: its class; one that is guided only where the stock one takes no callback.
        probe: knows what its pictures show.
        pictures: it was trained on these.
        prompts: concepts that are reported on.
        named: prompts that name some of their looks.
        steps, guidance_scale: what it is usually called with.
    """

    pipeline: Any
    probe: str
    pictures: str
    prompts: str
    named: str
    steps: int
    guidance_scale: float


EMOJI = ("demo-probe", "demo-pictures", "prompts/demo.txt", "prompts/named.txt")
LETTERS = (
    "demo-letters-probe",
    "demo-letters",
    "prompts/letters.txt",
    "prompts/letters-named.txt",
)

MODELS = {
    "demo-sdxl": DemoModel(StableDiffusionXLPipeline, *EMOJI, 16, 5.0),
    "demo-sdxl-turbo": DemoModel(StableDiffusionXLPipeline, *EMOJI, 4, 1.0),
    "demo-pixart": DemoModel(VendiGuidedPixArtSigmaPipeline, *EMOJI, 16, 4.0),
    "demo-flow": DemoModel(StableDiffusion3Pipeline, *LETTERS, 16, 4.0),
}
"""By the names of their folders."""


def demo_model(folder: Path) -> DemoModel:
    """The demo model in a folder; a model of your own is judged as the demo SDXL."""
    return MODELS.get(folder.resolve().name, MODELS["demo-sdxl"])


def load_demo(folder: Path, dtype: str, device: str) -> Any:
    """Its pipeline, unguided.

    Raises:
        ValueError: it cannot be loaded; the message says why.
    """
    pipe = load_model(demo_model(folder).pipeline, folder, dtype, device)
    if isinstance(pipe, DiversityGuided):
        pipe.guidance = VendiGuidance(strength=0)
    return pipe
