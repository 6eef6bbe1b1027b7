"""The prediction of clean latents that a diffusers scheduler makes at each step.

A sample of known noise level and the network's output for it give a prediction of x0 (for
velocities: Salimans & Ho, 2022), which pipelines do not keep.
"""

import copy
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vendi_guidance.adapter.levels import Reader, owner_of
from vendi_guidance.guidance.step import Level, Prediction, where_finite
from vendi_guidance.patching import Patch

CORRECTORS = ("SASolverScheduler", "UniPCMultistepScheduler")
"""Schedulers that correct a step by the sample before it, which they store."""


class StepTaken(NamedTuple):
    """What a scheduler was given at a step: (b, ...) sample and model output."""

    sample: Tensor
    output: Tensor


class Watch(Reader):
    """Records a scheduler's last step while it is on: `with Watch(scheduler) as watch`.

    The scheduler's results do not change; deep copies of it are not watched. Where one noise level
    takes two evaluations of the network, each is a step here.

    Args:
        scheduler: of a class in `FAMILIES`, or of a subclass without a `step` of its own.
        is_here: asked at each step; where it is False the step belongs to another call.

    Attributes:
        steps: how many steps there have been since the start.
    """

    def __init__(self, scheduler: Any, is_here: Callable[[], bool] = lambda: True) -> None:
        super().__init__(scheduler)
        self._parameters = inspect.signature(type(scheduler).step)
        self.is_here = is_here
        self.steps = 0
        self._patch = Patch(scheduler, "step", self._wrap, is_here)
        self._last: tuple[Any, dict[str, Any]] | None = None
        self._prediction: Prediction | None = None

    def start(self) -> "Watch":
        """Record each step from now on; a second start does nothing."""
        self._patch.apply()
        return self

    def stop(self) -> None:
        """Leave the scheduler as it was and forget its step; a second stop does nothing."""
        self._patch.remove()
        self._last = self._prediction = None
        self.steps = 0

    def __enter__(self) -> "Watch":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def step(self) -> StepTaken:
        """What the scheduler was given at the last step."""
        _, given = self._known
        return StepTaken(given["sample"], given["model_output"])

    @property
    def prediction(self) -> Prediction:
        """Of the last step, computed when first asked for; ValueError if its level is not known."""
        if self._prediction is None:
            denoised = self.denoise(*self.step, self.levels[0])
            self._prediction = Prediction(denoised, *self.levels[1])
        return self._prediction

    @property
    def levels(self) -> tuple[Level, Level]:
        """Before and after the last step; ValueError if they are not known."""
        return self.levels_of(*self._known)

    @property
    def timestep(self) -> float:
        """The scheduler's, of the last step."""
        _, given = self._known
        return float(torch.as_tensor(given["timestep"]).flatten()[0])

    @property
    def ahead(self) -> list[float]:
        """The noise-to-signal ratios at which the steps after the last one begin."""
        timesteps = self.scheduler.timesteps.tolist()
        away = [abs(one - self.timestep) for one in timesteps]
        nearest = [index for index, one in enumerate(away) if one == min(away)]
        # those that make two steps at a timestep list it twice; a call may begin midway
        stepped, _ = self._known
        made = getattr(stepped, "step_index", getattr(stepped, "counter", 0))
        here = made - 1 if made - 1 in nearest else nearest[-1]
        return [*map(self.clock()[1], timesteps[here + 1 :])]

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        """Let a multistep scheduler take the next step as if all before had found these.

        Args:
            clean, noise: (b, ...) of which its last sample should have been the mixture. Samples
                where they are not finite keep what the scheduler found.
        """
        scheduler = self.scheduler
        match owner_of(scheduler).__name__:
            case "PNDMScheduler":
                output = self.output(clean, noise, self.levels[0])
                scheduler.ets = [where_finite(output, old) for old in scheduler.ets]
            case "LMSDiscreteScheduler":
                found = scheduler.derivatives
                scheduler.derivatives = [where_finite(noise, old) for old in found]
        if hasattr(scheduler, "lower_order_nums"):
            scheduler.lower_order_nums = 0

    @property
    def _known(self) -> tuple[Any, dict[str, Any]]:
        if self._last is None:
            raise RuntimeError("no step of the scheduler has been watched yet")
        return self._last

    def _wrap(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **kwargs: Any) -> Any:
            result = inner(*args, **kwargs)
            given = self._parameters.bind(self.scheduler, *args, **kwargs).arguments
            self._last = (copy.copy(self.scheduler), given)  # the tensors are shared
            self._prediction = None
            self.steps += 1
            return result

        return step


def continues(scheduler: Any) -> bool:
    """Whether the next step starts from the sample that the last one returned.

    If not, it starts from one stored earlier, and a change of the latents in between is lost or
    even reversed: after the first half of a step in two halves, and at every step of UniPC with its
    corrector. Undefined after the last step.
    """
    match owner_of(scheduler).__name__:
        case name if name in CORRECTORS:
            spared = getattr(scheduler, "disable_corrector", ())
            return scheduler.last_sample is None or scheduler.step_index - 1 in spared
        case "DPMSolverSinglestepScheduler":
            return scheduler.order_list[scheduler.step_index or 0 :][:1] == [1]
        case "PNDMScheduler":
            runge_kutta = scheduler.counter < len(scheduler.prk_timesteps)
            return scheduler.counter % 4 == 0 if runge_kutta else scheduler.counter != 1
    return getattr(scheduler, "state_in_first_order", True)


def can_continue(scheduler: Any) -> bool:
    """Whether the next step can start from the latents as they are now."""
    return owner_of(scheduler).__name__ in CORRECTORS or continues(scheduler)


def continue_from_here(scheduler: Any) -> None:
    """Make the next step start from the latents as they are now, where it `can_continue`."""
    if owner_of(scheduler).__name__ in CORRECTORS:
        scheduler.last_sample = None  # omits one correction
