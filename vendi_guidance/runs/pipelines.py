"""Which class serves a model, from its `model_index.json`, and why some cannot be served."""

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
"""Arguments for what has to be given besides a prompt."""

FRAMES = ("num_frames", "frames", "video_length")
"""Arguments that only makers of videos have."""


def stock_class(name: str) -> type[DiffusionPipeline]:
    """The pipeline of diffusers with this name, if it makes images of prompts alone.

    Raises:
        ValueError: there is none, or a run cannot be made with it; the message says why.
        ImportError: it needs a library that is not installed.
    """
    kind = getattr(diffusers, name, None)
    if isinstance(kind, DummyObject):
        is_there = {it: f"is_{it}_available" for it in vars(kind)["_backends"]}
        lacking = " and ".join(
            library
            for library, check in is_there.items()
            if not getattr(diffusers.utils, check, lambda: True)()
        )
        raise ImportError(
            f"the model cannot be used: {name} needs {lacking}: pip install {lacking}"
        )
    if not (isinstance(kind, type) and issubclass(kind, DiffusionPipeline)):
        raise ValueError(
            f"the model cannot be used: there is no {name!r} in diffusers {diffusers.__version__}; "
            "a newer version may have it"
        )
    if reason := _refusal(kind):
        raise ValueError(f"the model cannot be used: {name} {reason}")
    return kind


def guided_class(stock: type[DiffusionPipeline]) -> type[Any]:
    """The guided pipeline of a stock one: our own class of it, or one that attaches the callback
    to each call."""
    for guided in GUIDED:
        if guided.stock is stock:
            return guided
    return type(f"VendiGuided{stock.__name__}", (DiversityGuided, stock), {"prompt_input": None})


def _refusal(kind: type[DiffusionPipeline]) -> str | None:
    """Why no run can be made with a pipeline."""
    taken = signature(kind.__call__).parameters
    # diffusers lists pipelines of ControlNets among those that make images of prompts alone, too
    listed = kind in AUTO_TEXT2IMAGE_PIPELINES_MAPPING.values() and "Control" not in kind.__name__
    if kind._load_connected_pipes:
        return "runs two pipelines in turn: guide the second of them from Python"
    if any(name in taken for name in FRAMES):
        return "makes videos, and a run writes images: guide it from Python (docs/pipelines.md)"
    if "prompt" not in taken:
        return f"takes no prompt, but {', '.join([*taken][1:4])}"
    given = [name for name in taken if name in IMAGES and not listed]
    given += [
        name
        for name, one in taken.items()
        if one.kind is Parameter.POSITIONAL_OR_KEYWORD and one.default is Parameter.empty
    ]
    given = [name for name in given if name not in ("self", "prompt")]
    if given:
        return f"needs {given[0]} besides a prompt: guide it from Python (docs/pipelines.md)"
    if not {"num_inference_steps", "height"} <= taken.keys() or "Prior" in kind.__name__:
        return "does not make images"
    has_own_class = any(guided.stock is kind for guided in GUIDED)
    if not has_own_class and "callback_on_step_end" not in taken:
        return "takes no callback_on_step_end, which guidance needs"
    if family_of(kind).ignores_callback:
        return "ignores what its callback returns, so that guidance has no effect"
    return None
