"""The pipeline class for a model, by the name in its `model_index.json`."""

from inspect import Parameter, signature
from typing import Any

import diffusers
from diffusers import DiffusionPipeline
from diffusers.pipelines.auto_pipeline import AUTO_TEXT2IMAGE_PIPELINES_MAPPING
from diffusers.utils import DummyObject

from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.mixins import DiversityGuided
from vendi_guidance.pipelines.vendi_guided_flux import VendiGuidedFluxPipeline
from vendi_guidance.pipelines.vendi_guided_pixart_alpha import VendiGuidedPixArtAlphaPipeline
from vendi_guidance.pipelines.vendi_guided_pixart_sigma import VendiGuidedPixArtSigmaPipeline
from vendi_guidance.pipelines.vendi_guided_sdxl import VendiGuidedSDXLPipeline

GUIDED: tuple[type[DiversityGuided], ...] = (
    VendiGuidedSDXLPipeline,
    VendiGuidedPixArtAlphaPipeline,
    VendiGuidedPixArtSigmaPipeline,
    VendiGuidedFluxPipeline,
)
IMAGES = ("image", "images", "mask_image", "control_image", "video", "control_video")
"""Arguments of pipelines that need more than a prompt."""

FRAMES = ("num_frames", "frames", "video_length")
"""Arguments of pipelines that generate videos."""


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
    for guided in GUIDED:
        if guided.stock is stock:
            return guided
    return type(f"VendiGuided{stock.__name__}", (DiversityGuided, stock), {"prompt_input": None})


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
    has_own_class = any(guided.stock is kind for guided in GUIDED)
    if not has_own_class and "callback_on_step_end" not in taken:
        return "takes no callback_on_step_end, which guidance needs"
    if family_of(kind).perturbs_attention:
        return "perturbs attention (PAG), which guidance does not support"
    if family_of(kind).ignores_callback:
        return "ignores what its callback returns, so guidance would have no effect"
    return None
