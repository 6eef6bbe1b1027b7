"""The running call of a diffusers pipeline, as the stack of its thread shows it.

A pipeline tells its callback neither its generator nor which of several calls it belongs to, and
hooks of a network or a scheduler get even less. The frame of the pipeline's `__call__` has both.
"""

import sys
from collections.abc import Iterator
from threading import get_ident
from types import FrameType
from typing import Any

from diffusers import DiffusionPipeline, ModularPipeline


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
        call = self._here()
        if call is None:
            return False
        if self._known is None:
            self._known = get_ident(), call
        thread, known = self._known
        return thread == get_ident() and call is known

    def _here(self) -> Any:
        """The frame of the pipeline's call, or the timesteps of a loop without a pipeline."""
        calls = list(running_calls(self._pipeline))
        scheduler = self._pipeline.scheduler
        if not calls:
            return getattr(scheduler, "timesteps", None)
        if getattr(calls[0].f_locals["self"], "scheduler", None) is not scheduler:
            return None  # another pipeline, called from a callback
        own = (it for it in calls if it.f_locals["self"] is self._pipeline)
        return next(own, None)
