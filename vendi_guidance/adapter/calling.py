"""The arguments that guide a call of a diffusers pipeline, and the call while it runs.

Callbacks do not get the generator of the pipeline's call and cannot tell concurrent calls apart;
neither can wrappers of a network or a scheduler. Both can be read from the frame of the pipeline's
`__call__` on the stack of its thread.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from threading import get_ident
from types import FrameType
from typing import Any

from diffusers import DiffusionPipeline, ModularPipeline
from diffusers.callbacks import MultiPipelineCallbacks, PipelineCallback
from torch import Tensor

from vendi_guidance.adapter.families import family_of

Callback = Callable[..., dict[str, Any] | None]


def check_pipeline(pipeline: Any) -> None:
    """Raise unless guidance can guide calls of the pipeline.

    Raises:
        TypeError: it is not a pipeline.
        ValueError: it takes no callback, or ignores what the callback returns.
    """
    if isinstance(pipeline, type) or not hasattr(pipeline, "scheduler"):
        raise TypeError(
            "guidance.on needs the diffusers pipeline that will be called, loaded and with a "
            f"scheduler, got {pipeline!r}"
        )
    kind = type(pipeline).__name__
    if isinstance(pipeline, ModularPipeline):
        raise ValueError(f"{kind} is modular and takes no callbacks: use guide_loops on its blocks")
    if family_of(pipeline).ignores_callback:
        raise ValueError(
            f"{kind} ignores what its callback returns, so that guidance would have no effect"
        )
    if not callable(pipeline) or family_of(pipeline).is_in_place:
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
    if isinstance(callback, (PipelineCallback, MultiPipelineCallbacks)):
        callback_inputs = callback.tensor_inputs
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
    """A callback for PixArt, which gets no prompts: they are local variables of the call."""

    def on_step(step: int, timestep: Any, latents: Tensor) -> None:
        names = ("prompt_embeds", "prompt_attention_mask")
        tensors = {"latents": latents, **{name: local_of(pipeline, name) for name in names}}
        guided = (guide(pipeline, step, timestep, tensors) or tensors)["latents"]
        if guided is not latents:
            latents.copy_(guided)
        if callback is not None:
            callback(step, timestep, latents)

    return on_step


def running_calls(pipeline: Any = None) -> Iterator[FrameType]:
    """The pipeline calls in progress on this thread, the innermost first.

    Args:
        pipeline: an object that counts as a pipeline, whatever its class.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__call__":
            caller = frame.f_locals.get("self")
            if caller is not None and (
                caller is pipeline or isinstance(caller, (DiffusionPipeline, ModularPipeline))
            ):
                yield frame
        frame = frame.f_back


def local_of(pipeline: Any, name: str) -> Any:
    """A local variable of the pipeline's running call; None if there is none of that name."""
    for frame in running_calls(pipeline):
        if frame.f_locals.get("self") is pipeline and name in frame.f_locals:
            return frame.f_locals[name]
    return None


class RunningCall:
    """One call of a pipeline: the first one that calls `is_here`.

    It is told apart from calls of other pipelines that share its network or even its scheduler, in
    other threads or within a callback. A denoising loop outside any pipeline counts as a call too,
    until `set_timesteps` starts another one.
    """

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._known: tuple[int, Any] | None = None

    def is_here(self) -> bool:
        """Whether the current code runs within this call."""
        scheduler, calls = self._pipeline.scheduler, [*running_calls(self._pipeline)]
        if calls and getattr(calls[0].f_locals["self"], "scheduler", None) is not scheduler:
            return False  # another pipeline, called from a callback
        own = (frame for frame in calls if frame.f_locals["self"] is self._pipeline)
        call: Any = next(own, None) if calls else getattr(scheduler, "timesteps", None)
        if call is None:
            return False
        self._known = self._known or (get_ident(), call)
        return self._known[0] == get_ident() and self._known[1] is call
