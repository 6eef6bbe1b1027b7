"""A scheduler's steps in one call, and the clean latents that they predict: pipelines do not keep
these, but they follow from a step's sample, level and network output."""

import copy
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any, NamedTuple

from torch import Tensor

from vendi_guidance.adapter.arguments import SLACK
from vendi_guidance.adapter.levels import Reader, owner_of
from vendi_guidance.adapter.patching import patched
from vendi_guidance.guidance.step import Level, Prediction, where_finite

CORRECTORS = ("SASolverScheduler", "UniPCMultistepScheduler")
"""Schedulers that correct each step from a stored copy of the sample before it."""


class StepTaken(NamedTuple):
    """The arguments of a scheduler's step: (b, ...) sample and model output."""

    sample: Tensor
    output: Tensor


class Watch(Reader):
    """Records the last step of a scheduler in one call: `with Watch(scheduler) as watch`.

    Other calls may share the scheduler and the network. A call's own steps are those of the thread
    that entered the context, until the schedule is set again, and not those of calls that the
    user's callback makes. With second-order schedulers, each of the two evaluations at a noise
    level is a step.

    Args:
        end: called when an error ends the call.

    Attributes:
        thread: the one that entered the context.
        is_on: False while steps and evaluations belong to other calls of that thread.
        steps: how many the call has made.
        key: differs from step to step.
        first: (b, ...) the sample of the first step.
    """

    def __init__(self, scheduler: Any, end: Callable[[], None] = lambda: None) -> None:
        super().__init__(scheduler)
        self._end = end
        self._parameters = inspect.signature(type(scheduler).step)
        self.steps = 0
        self.key = 0
        self.first: Tensor | None = None
        self._last: tuple[Any, dict[str, Any]] | None = None
        self._prediction: Prediction | None = None
        self._listed: tuple[Tensor | None, object, list[float]] = (None, 0, [])
        self.thread: int | None = None  # outside of the context
        self.is_on, self._was_timed = True, False
        self._undo = ExitStack()

    def __enter__(self) -> "Watch":
        self.thread = get_ident()
        self._undo.enter_context(patched(self.scheduler, "step", self._wrap))
        self._undo.enter_context(patched(self.scheduler, "set_timesteps", self._begin))
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the scheduler and forget its last step."""
        self._undo.close()
        self.thread = self._last = self._prediction = self.first = None

    def settle(self) -> None:
        """Note whether the last step `is_timed`, before a user's callback changes the schedule."""
        self._was_timed = self.steps > 0 and self.is_timed

    @contextmanager
    def ending(self) -> Iterator[None]:
        """An error within this context ends the call: its network may serve another one."""
        try:
            yield
        except BaseException:
            self._end()
            raise

    @property
    def is_here(self) -> bool:
        """Whether a step or an evaluation now belongs to the call."""
        return self.thread == get_ident() and self.is_on

    @property
    def step(self) -> StepTaken:
        """The scheduler's arguments at the last step."""
        given = self._known[1]
        return StepTaken(given["sample"], given["model_output"])

    @property
    def prediction(self) -> Prediction:
        """The last step's prediction, computed on first access."""
        if self._prediction is None:
            denoised = self.denoise(*self.step, self.levels[0])
            self._prediction = Prediction(denoised, *self.levels[1])
        return self._prediction

    @property
    def levels(self) -> tuple[Level, Level]:
        """The noise levels before and after the last step."""
        return self.levels_of(*self._known)

    @property
    def timestep(self) -> float:
        """The scheduler's timestep at the last step."""
        given = self._known[1]["timestep"]
        return float(given.flatten()[0] if isinstance(given, Tensor) else given)

    @property
    def is_timed(self) -> bool:
        """Whether timesteps are those of their levels, at the last step or at an earlier one, after
        which the user's callback changed the schedule."""
        slack = SLACK * self.scheduler.config.num_train_timesteps
        return self._was_timed or abs(self.timestep - self.timestep_at(self.levels[0])) <= slack

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        """Make a multistep scheduler continue as if all earlier steps had predicted these (b, ...)
        clean latents and noise. Samples where they are not finite keep their own history."""
        scheduler, config = self.scheduler, self.scheduler.config

        def all_as(new: Tensor, known: list[Any]) -> list[Any]:
            return [old if old is None else where_finite(new, old) for old in known]

        match owner_of(scheduler).__name__:
            case "PNDMScheduler":
                output = self.output(clean, noise, self.levels[0])
                scheduler.ets = all_as(output, scheduler.ets)
            case "LMSDiscreteScheduler":
                scheduler.derivatives = all_as(noise, scheduler.derivatives)
            case _ if hasattr(scheduler, "model_outputs"):
                is_clean = config.get("predict_x0", "++" in config.get("algorithm_type", ""))
                outputs = scheduler.model_outputs
                scheduler.model_outputs = all_as(clean if is_clean else noise, outputs)

    @property
    def _known(self) -> tuple[Any, dict[str, Any]]:
        if self._last is None:
            raise RuntimeError("no step of the scheduler has been watched yet")
        given = self._last[1]
        timestep, schedule = given["timestep"], self.scheduler.timesteps
        if isinstance(timestep, Tensor) and timestep.numel() == 1:
            at = timestep.storage_offset() - schedule.storage_offset()
            own, other = (it.untyped_storage().data_ptr() for it in (schedule, timestep))
            is_own = own == other and schedule.is_contiguous() and 0 <= at < len(schedule)
            given["timestep"] = self._timesteps[at] if is_own else timestep.item()
        return self._last

    @property
    def _timesteps(self) -> list[float]:
        """The schedule's timesteps. The device is asked again where they have changed."""
        given = self.scheduler.timesteps
        # inference tensors do not count their changes
        version = object() if given.is_inference() else given._version
        if self._listed[0] is not given or self._listed[1] != version:
            self._listed = given, version, given.tolist()
        return self._listed[2]

    def _begin(self, set_timesteps: Callable[..., Any]) -> Callable[..., Any]:
        """A call begins by setting the schedule: another one once this has made a step."""
        if self.is_here:
            self.key += 1
            self.is_on = self.steps == 0
        return set_timesteps

    def _wrap(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            with self.ending():
                result = inner(*args, **kwargs)
            given = self._parameters.bind(self.scheduler, *args, **kwargs).arguments
            if self.first is None or self.first.shape != given["sample"].shape:
                self.first = given["sample"]
            self._last = (copy.copy(self.scheduler), given)  # a shallow copy shares its tensors
            self._prediction = None
            self.steps += 1
            self.key += 1
            return result

        return step if self.is_here else inner


def can_continue(scheduler: Any) -> bool:
    """Whether the next step can start from changed latents, not from a stored sample, as after the
    first half of a second-order step: then changes of the latents are lost or even reversed.
    Correctors can, after `continue_from_here`. Undefined after the last step.
    """
    match owner_of(scheduler).__name__:
        case "DPMSolverSinglestepScheduler":
            return scheduler.order_list[scheduler.step_index or 0 :][:1] == [1]
        case "PNDMScheduler":
            runge_kutta = scheduler.counter < len(scheduler.prk_timesteps)
            return scheduler.counter % 4 == 0 if runge_kutta else scheduler.counter != 1
    return getattr(scheduler, "state_in_first_order", True)


def continue_from_here(scheduler: Any) -> None:
    """Make the next step start from changed latents, of a scheduler that `can_continue`."""
    if owner_of(scheduler).__name__ in CORRECTORS:
        scheduler.last_sample = None  # skips one correction
