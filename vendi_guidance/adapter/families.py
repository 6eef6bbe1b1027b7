"""Peculiarities of pipeline families, a row each with its reason. Others do as most do."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from diffusers import ModularPipeline
from torch import nn


@dataclass(frozen=True)
class Family:
    """Pipelines with a common prefix in the name of their class or of one of its bases."""

    beginning: str  # the prefix
    prompts_first: bool = False  # rows of prompts precede those of negative prompts
    latents_last: bool = False  # other channels or tokens precede the latents
    is_in_place: bool = False  # has only the older `callback`, which changes latents in place
    ignores_callback: bool = False  # the callback's return value has no effect
    tokens_per_frame: bool = False  # prompt embeddings have a row for each frame of a video
    pools_language_model: bool = False  # pooled embeddings are a language model's, not CLIP's
    layers_first: bool = False  # in embeddings, before the batch: no rounds
    perturbs_attention: bool = False  # cannot be guided
    returns_prediction: bool = False  # of the last step, not the latents after the callback
    no_cfg: float = 1.0  # the largest guidance scale without CFG


OTHERS = Family("")

# pipelines with `prompts_first` concatenate prompts and negative prompts in this order
FAMILIES = (
    # perturbed-attention guidance (PAG): rows of prompts cannot be evaluated alone, because some
    # layers expect the perturbed rows too; first, as each such pipeline is of another family too
    Family("PAGMixin", perturbs_attention=True),
    Family("AnimateDiff", tokens_per_frame=True),  # the UNet's rows are frames
    Family("HiDream", layers_first=True),
    Family("Kolors", pools_language_model=True),  # encodes prompts with ChatGLM alone
    Family("Krea2", no_cfg=0.0),  # a scale w adds w times the difference, not w - 1
    Family("LatentConsistencyModel", returns_prediction=True),
    Family("LuminaPipeline", prompts_first=True),
    Family("PixArtAlphaPipeline", is_in_place=True),  # has no callback_on_step_end
    Family("PixArtSigmaPipeline", is_in_place=True),  # nor has it
    Family("PRXPipeline", ignores_callback=True),  # calls its callback and drops the result
    Family("QwenImage21", latents_last=True),  # condition tokens come first
    Family("StableCascade", prompts_first=True),
    Family("StableDiffusionInstructPix2Pix", prompts_first=True),  # [prompt, image, neither]
    Family("Wuerstchen", prompts_first=True),
    Family("ZImage", prompts_first=True, no_cfg=0.0),  # joins lists; scales as Krea 2 does
)


def family_of(pipeline: Any) -> Family:
    """The row of a pipeline or its class."""
    kind = pipeline if isinstance(pipeline, type) else type(pipeline)
    names = [base.__name__ for base in kind.__mro__]
    rows = (row for row in FAMILIES if any(name.startswith(row.beginning) for name in names))
    return next(rows, OTHERS)


def check_pipeline(pipeline: Any, is_guided: bool) -> None:
    """Raise TypeError for what is no pipeline, ValueError for one that guidance cannot guide, or
    if it `is_guided` at all."""
    if isinstance(pipeline, type) or not hasattr(pipeline, "scheduler"):
        raise TypeError(
            "guidance.on needs the diffusers pipeline that will be called, loaded and with a "
            f"scheduler, got {pipeline!r}"
        )
    kind, family = type(pipeline).__name__, family_of(pipeline)
    if isinstance(pipeline, ModularPipeline):
        raise ValueError(f"{kind} is modular and takes no callbacks: use guide_loops on its blocks")
    if family.ignores_callback:
        raise ValueError(
            f"{kind} ignores what its callback returns, so that guidance would have no effect"
        )
    if family.is_in_place and not hasattr(pipeline, "in_place"):
        raise ValueError(
            f"{kind} gives its callback no prompts: use "
            f"VendiGuided{family.beginning}(**pipe.components)"
        )
    if getattr(pipeline, "free_init_enabled", False):
        raise ValueError(
            f"{kind} has FreeInit on, which makes a video several times, each from the one before: "
            "call disable_free_init()"
        )
    if is_guided:
        check_attention(pipeline)
    if not callable(pipeline) or family.is_in_place:
        return
    if "callback_on_step_end" not in signature(type(pipeline).__call__).parameters:
        raise ValueError(f"{kind} takes no callback_on_step_end, which guidance needs")


def check_attention(pipeline: Any) -> None:
    """Raise ValueError for a pipeline that perturbs attention."""
    kind = type(pipeline).__name__
    if family_of(pipeline).perturbs_attention:
        raise ValueError(
            f"{kind} perturbs attention (PAG), which guidance does not support: use "
            f"{kind.replace('PAG', '')}"
        )


def check_caches(pipeline: Any, networks: Iterable[nn.Module]) -> None:
    """Raise ValueError if a network reuses what its layers returned at earlier steps."""
    modules = (module for network in networks for module in network.modules())
    for registry in (getattr(module, "_diffusers_hook", None) for module in modules):
        for hook in getattr(registry, "hooks", {}).values():
            if hook._is_stateful:
                raise ValueError(
                    f"{type(pipeline).__name__} has a cache between steps ({type(hook).__name__}), "
                    "which would answer guidance with the outputs of other latents: call "
                    'disable_cache() on its network, or use preset="published"'
                )


def count_steps(pipeline: Any) -> int:
    """The number of steps of the pipeline's call."""
    count = getattr(pipeline, "num_timesteps", None)
    if count is not None:
        return count
    # the older `callback` counts the two evaluations of a second-order scheduler as one step
    order = pipeline.scheduler.order if family_of(pipeline).is_in_place else 1
    return math.ceil(len(pipeline.scheduler.timesteps) / order)


def has_fixed_end(pipeline: Any) -> bool:
    """Whether latents that change after the last step are lost, or change what a mask keeps: the
    pipeline mixes that in before its callback, if the network does not get the masked image."""
    if family_of(pipeline).returns_prediction:
        return True
    # not `or`: what `torch.compile` returns has no truth value
    network = getattr(pipeline, "unet", getattr(pipeline, "transformer", None))
    config = getattr(network, "config", {})
    channels = config.get("in_channels", 0), config.get("out_channels") or config.get("in_channels")
    has_mask = "mask_image" in signature(type(pipeline).__call__).parameters
    return has_mask and channels[0] <= channels[1]


def is_finished(pipeline: Any) -> bool:
    """Whether the pipeline's call ends with finished latents, not with some for a refiner."""
    return not 0 < (getattr(pipeline, "denoising_end", None) or 1) < 1
