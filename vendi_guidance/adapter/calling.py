"""How a pipeline of diffusers is called so that guidance takes part, and its call while it runs.

A pipeline tells its callback neither its generator nor which of several calls it belongs to, and
hooks of a network or a scheduler get even less. The frame of the pipeline's `__call__` on the stack
of its thread has both.
"""

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
    """Raise unless guidance can take part in a call of the pipeline.

    Raises:
        TypeError: it is no pipeline.
        ValueError: its call does not take a callback, or ignores it.
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
    """How many steps the pipeline's call has."""
    count = getattr(pipeline, "num_timesteps", None)
    if count is not None:
        return count
    # the older `callback` counts two evaluations of a scheduler of order 2 as one step
    each = pipeline.scheduler.order if family_of(pipeline).is_in_place else 1
    return -(-len(pipeline.scheduler.timesteps) // each)


def is_finished(pipeline: Any) -> bool:
    """Whether the pipeline's call ends with finished latents, not with some left to a refiner."""
    return not 0 < (getattr(pipeline, "denoising_end", None) or 1) < 1


def arguments(
    pipeline: Any,
    guide: Callback,
    inputs: Sequence[str],
    callback: Callback | None = None,
    callback_inputs: Sequence[str] | None = None,
) -> dict[str, Any]:
    """The arguments of a call that is guided.

    Args:
        pipeline: that will be called.
        guide: the callback of guidance.
        inputs: the tensors that it needs.
        callback: of the user's, called after it; PixArt's are `callback(step, timestep, latents)`.
        callback_inputs: the tensors that this gets; None is what diffusers gives it.
    """
    if family_of(pipeline).is_in_place:
        return {"callback": _in_place(pipeline, guide, callback), "callback_steps": 1}
    if isinstance(callback, (PipelineCallback, MultiPipelineCallbacks)):
        callback_inputs = callback.tensor_inputs
    theirs = ["latents"] if callback_inputs is None else callback_inputs
    return {
        "callback_on_step_end": guide if callback is None else then(guide, callback, theirs),
        "callback_on_step_end_tensor_inputs": list(dict.fromkeys([*inputs, *theirs])),
    }


def then(guide: Callback, callback: Callback, inputs: Sequence[str]) -> Callback:
    """Guidance first, then a callback of the user's, which sees guided latents.

    diffusers' own composition hands every callback all tensors instead of those it asks for, its
    `inputs`, and loses the changes of earlier callbacks that a later one does not return.
    """

    def both(pipeline: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        guided = guide(pipeline, step, timestep, tensors) or tensors
        asked = {name: guided[name] for name in inputs}
        return {**guided, **(callback(pipeline, step, timestep, asked) or {})}

    return both


def _in_place(pipeline: Any, guide: Callback, callback: Callback | None) -> Callback:
    """The older callback, which gets no prompts: they are variables of the call."""

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
        pipeline: counts as a pipeline, whatever its class.
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
    """A variable of the pipeline's running call; None where it has none of that name."""
    for frame in running_calls(pipeline):
        if frame.f_locals.get("self") is pipeline and name in frame.f_locals:
            return frame.f_locals[name]
    return None


class RunningCall:
    """One call of a pipeline: the first one in which `is_here` is asked.

    Other pipelines may share its network and even its scheduler, in other threads or from within a
    callback. A denoising loop outside any pipeline counts as a call too, until its scheduler gets
    other timesteps.
    """

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline
        self._known: tuple[int, Any] | None = None

    def is_here(self) -> bool:
        """Whether the code that asks was called by this call."""
        scheduler, calls = self._pipeline.scheduler, [*running_calls(self._pipeline)]
        if calls and getattr(calls[0].f_locals["self"], "scheduler", None) is not scheduler:
            return False  # another pipeline, called from a callback
        own = (it for it in calls if it.f_locals["self"] is self._pipeline)
        call: Any = next(own, None) if calls else getattr(scheduler, "timesteps", None)
        if call is None:
            return False
        self._known = self._known or (get_ident(), call)
        return self._known[0] == get_ident() and self._known[1] is call
