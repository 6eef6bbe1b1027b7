"""A scheduler's steps in one call, and the clean latents that they predict: pipelines do not keep
these, but they follow from a step's sample, level and network output."""

import copy
import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from vendi_guidance.adapter.arguments import SLACK
from vendi_guidance.adapter.levels import Reader, owner_of
from vendi_guidance.adapter.patching import Patch
from vendi_guidance.guidance.step import Level, Prediction, where_finite

CORRECTORS = ("SASolverScheduler", "UniPCMultistepScheduler")
"""Schedulers that correct each step from a stored copy of the sample before it."""


class StepTaken(NamedTuple):
    """The arguments of a scheduler's step: (b, ...) sample and model output."""

    sample: Tensor
    output: Tensor


class _Record(threading.local):
    """What a thread's steps of a scheduler were."""

    key: object = None
    steps = 0
    first: Tensor | None = None
    last: tuple[Any, dict[str, Any]] | None = None
    prediction: Prediction | None = None


class Watch(Reader):
    """Records the last step of a scheduler in one call: `with Watch(scheduler) as watch`.

    Other calls may share the scheduler and the network. A call's own steps are those of one thread,
    until the schedule is set again, and not those while the watch is paused. Before `settle` says
    which thread that is, each thread sees its own steps. With second-order schedulers, each of the
    two evaluations at a noise level is a step.
    """

    def __init__(self, scheduler: Any) -> None:
        super().__init__(scheduler)
        self._parameters = inspect.signature(type(scheduler).step)
        self._patches = (
            Patch(scheduler, "step", self._wrap, self.is_here),
            Patch(scheduler, "set_timesteps", self._begin, self.is_here),
        )
        self._record = _Record()
        self._thread: int | None = None
        self._listed: tuple[Tensor | None, object, list[float]] = (None, 0, [])
        self._is_paused = self._is_over = self._was_timed = False

    def start(self) -> "Watch":
        for patch in self._patches:
            patch.apply()
        return self

    def stop(self) -> None:
        """Restore the scheduler and forget its last step."""
        for patch in self._patches:
            patch.remove()
        vars(self._record).clear()

    def settle(self) -> None:
        """The call is that of this thread, and has made a step since."""
        self._thread = threading.get_ident()
        self._was_timed = self.steps > 0 and self.is_timed

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While this context lasts, steps and evaluations belong to other calls. An error ends this
        one."""
        self._is_paused = True
        try:
            yield
        except BaseException:
            self._is_over = True
            raise
        finally:
            self._is_paused = False

    def is_here(self) -> bool:
        """Whether the current code may belong to the call."""
        is_own = self._thread in (None, threading.get_ident())
        return is_own and not self._is_paused and not self._is_over

    def follows(self, scheduler: Any) -> bool:
        """Whether this watch sees the call's steps of the scheduler that the pipeline has now."""
        return scheduler is self.scheduler and not self._is_over

    def __enter__(self) -> "Watch":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def key(self) -> tuple[object, int]:
        """Differs from step to step, and from call to call."""
        return self._record.key, self._record.steps

    @property
    def steps(self) -> int:
        return self._record.steps

    @property
    def first(self) -> Tensor | None:
        """(b, ...) the sample of the first step."""
        return self._record.first

    @property
    def step(self) -> StepTaken:
        """The scheduler's arguments at the last step."""
        given = self._known[1]
        return StepTaken(given["sample"], given["model_output"])

    @property
    def prediction(self) -> Prediction:
        """The last step's prediction, computed on first access."""
        if self._record.prediction is None:
            denoised = self.denoise(*self.step, self.levels[0])
            self._record.prediction = Prediction(denoised, *self.levels[1])
        return self._record.prediction

    def prediction_of(self, latents: Tensor) -> Prediction:
        """The last step's prediction; ValueError also if it does not have the latents' shape."""
        prediction = self.prediction
        if prediction.denoised.shape != latents.shape:
            raise ValueError(
                f"the scheduler predicts latents of shape {tuple(prediction.denoised.shape)}, the "
                f'pipeline has {tuple(latents.shape)}: use preset="published", which needs '
                "no prediction"
            )
        return prediction

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

    @property
    def ahead(self) -> list[float]:
        """The noise-to-signal ratios at which the remaining steps begin."""
        timesteps, last_made = self._timesteps, self.timestep
        distances = [abs(timestep - last_made) for timestep in timesteps]
        nearest = [i for i, distance in enumerate(distances) if distance == min(distances)]
        # Second-order schedulers list a timestep twice: their counter tells which one it is. A call
        # that begins midway may count from 0: then the counter is not among the nearest.
        stepped, _ = self._known
        last = getattr(stepped, "step_index", getattr(stepped, "counter", 0)) - 1
        position = last if last in nearest else nearest[-1]
        _, ratio_at = self.clock()
        return [ratio_at(timestep) for timestep in timesteps[position + 1 :]]

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        """Make a multistep scheduler continue as if all earlier steps had predicted these (b, ...)
        clean latents and noise. Samples where they are not finite keep their own history."""
        scheduler = self.scheduler
        match owner_of(scheduler).__name__:
            case "PNDMScheduler":
                output = self.output(clean, noise, self.levels[0])
                scheduler.ets = [where_finite(output, old) for old in scheduler.ets]
            case "LMSDiscreteScheduler":
                derivatives = scheduler.derivatives
                scheduler.derivatives = [where_finite(noise, old) for old in derivatives]
        if hasattr(scheduler, "lower_order_nums"):
            scheduler.lower_order_nums = 0

    @property
    def _known(self) -> tuple[Any, dict[str, Any]]:
        if self._record.last is None:
            raise RuntimeError("no step of the scheduler has been watched yet")
        given = self._record.last[1]
        timestep, schedule = given["timestep"], self.scheduler.timesteps
        if isinstance(timestep, Tensor) and timestep.numel() == 1:
            at = timestep.storage_offset() - schedule.storage_offset()
            own, other = (it.untyped_storage().data_ptr() for it in (schedule, timestep))
            is_own = own == other and schedule.is_contiguous() and 0 <= at < len(schedule)
            given["timestep"] = self._timesteps[at] if is_own else timestep.item()
        return self._record.last

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
        """A call begins by setting the schedule: this one, or another one once this has settled."""
        if self._thread is None:
            self._record.key, self._record.steps, self._record.first = object(), 0, None
        self._is_over = self._thread is not None
        return set_timesteps

    def _wrap(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            try:
                result = inner(*args, **kwargs)
            except BaseException:
                self._is_over = True  # the network may serve another call
                raise
            given = self._parameters.bind(self.scheduler, *args, **kwargs).arguments
            record = self._record
            if record.first is None or record.first.shape != given["sample"].shape:
                record.first = given["sample"]
            record.last = (copy.copy(self.scheduler), given)  # a shallow copy shares its tensors
            record.prediction = None
            record.steps += 1
            return result

        return step


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
