"""The arguments that guide a call of a diffusers pipeline."""

import math
from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

from diffusers import ModularPipeline
from torch import Tensor

from vendi_guidance.adapter.families import family_of

Callback = Callable[..., dict[str, Any] | None]


def check_pipeline(pipeline: Any) -> None:
    """Raise unless guidance can guide calls of the pipeline.

    Raises:
        TypeError: it is not a pipeline.
        ValueError: it takes no callback, ignores what the callback returns, or gives it no prompts.
    """
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
    if family.is_in_place and not hasattr(pipeline, "encoded"):
        raise ValueError(
            f"{kind} gives its callback no prompts: use "
            f"VendiGuided{family.beginning}(**pipe.components)"
        )
    if not callable(pipeline) or family.is_in_place:
        return
    if "callback_on_step_end" not in signature(type(pipeline).__call__).parameters:
        raise ValueError(f"{kind} takes no callback_on_step_end, which guidance needs")


def count_steps(pipeline: Any) -> int:
    """The number of steps of the pipeline's call."""
    count = getattr(pipeline, "num_timesteps", None)
    if count is not None:
        return count
    # the older `callback` counts the two evaluations of a second-order scheduler as one step
    order = pipeline.scheduler.order if family_of(pipeline).is_in_place else 1
    return math.ceil(len(pipeline.scheduler.timesteps) / order)


def is_finished(pipeline: Any) -> bool:
    """Whether the pipeline's call ends with finished latents, not with some for a refiner."""
    return not 0 < (getattr(pipeline, "denoising_end", None) or 1) < 1


def arguments(
    pipeline: Any,
    guide: Callback,
    inputs: Sequence[str],
    callback: Callback | None = None,
    callback_inputs: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The arguments of a guided call of the pipeline.

    Args:
        pipeline: the pipeline that will be called.
        guide: guidance's callback.
        inputs: names of the tensors that `guide` needs.
        callback: the user's callback, called after `guide`; for PixArt, it takes (step, timestep,
            latents).
        callback_inputs: names of the tensors that `callback` gets; None is diffusers' default.
    """
    if family_of(pipeline).is_in_place:
        return {"callback": _in_place(pipeline, guide, callback), "callback_steps": 1}
    user_inputs = ["latents"] if callback_inputs is None else callback_inputs
    return {
        "callback_on_step_end": guide if callback is None else then(guide, callback, user_inputs),
        "callback_on_step_end_tensor_inputs": list(dict.fromkeys([*inputs, *user_inputs])),
    }


def then(guide: Callback, callback: Callback, inputs: Sequence[str]) -> Callback:
    """A callback that calls `guide`, then the user's `callback` with the guided latents.

    `MultiPipelineCallbacks` of diffusers cannot be used. It passes all tensors to each callback,
    not only its `inputs`, and loses changes that a later callback does not return.
    """

    def both(pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        guided = guide(pipeline, step, timestep, tensors) or tensors
        asked = {name: guided[name] for name in inputs}
        return {**guided, **(callback(pipeline, step, timestep, asked) or {})}

    return both


def _in_place(pipeline: Any, guide: Callback, callback: Callback | None) -> Callback:
    """A callback for PixArt, which gets no prompts: its guided classes record them."""

    def on_step(step: int, timestep: Any, latents: Tensor) -> None:
        tensors = {"latents": latents, **pipeline.encoded}
        guided = (guide(pipeline, step, timestep, tensors) or tensors)["latents"]
        if guided is not latents:
            latents.copy_(guided)
        if callback is not None:
            callback(step, timestep, latents)

    return on_step
