"""The prediction of clean latents that a diffusers scheduler makes at each step.

A sample of known noise level and the network's output for it give a prediction of x0 (for
velocities: Salimans & Ho, 2022), which pipelines do not keep.
"""

import copy
import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vendi_guidance.guidance.step import Level, Prediction
from vendi_guidance.patching import Patch


class StepTaken(NamedTuple):
    """What a scheduler was given at a step: (b, ...) sample and model output."""

    sample: Tensor
    output: Tensor


class Watch:
    """Records a scheduler's last step while it is on: `with Watch(scheduler) as watch`.

    The scheduler's results do not change; deep copies of it are not watched. Where one noise level
    takes two evaluations of the network, each is a step here.

    Args:
        scheduler: of a class in `FAMILIES`, or of a subclass without a `step` of its own.
        is_here: asked at each step; where it is False the step belongs to another call.

    Attributes:
        steps: how many steps there have been since the start.

    Raises:
        ValueError: the prediction of this scheduler, or with its settings, is not known.
    """

    def __init__(self, scheduler: Any, is_here: Callable[[], bool] = lambda: True) -> None:
        self._reader = _Reader.of(scheduler)
        self._parameters = inspect.signature(type(scheduler).step)
        self.scheduler = scheduler
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
    def has_seen(self) -> bool:
        """Whether there has been a step since the start."""
        return self._last is not None

    @property
    def step(self) -> StepTaken:
        """What the scheduler was given at the last step."""
        _, given = self._known
        return StepTaken(given["sample"], given["model_output"])

    @property
    def prediction(self) -> Prediction:
        """Of the last step, computed when first asked for; ValueError if its level is not known."""
        if self._prediction is None:
            denoised = self._reader.denoise(*self.step, self.levels[0])
            self._prediction = Prediction(denoised, *self.levels[1])
        return self._prediction

    @property
    def levels(self) -> tuple[Level, Level]:
        """Before and after the last step; ValueError if they are not known."""
        return self._reader.levels(*self._known)

    def denoise(self, sample: Tensor, output: Tensor) -> Tensor:
        """x0 from another sample at the level before the last step, and its model output."""
        return self._reader.denoise(sample, output, self.levels[0])

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        """Let a multistep scheduler take the next step as if all before had found these.

        Args:
            clean, noise: (b, ...) of which its last sample should have been the mixture.
        """
        scheduler = self.scheduler
        match _owner(scheduler).__name__:
            case "PNDMScheduler":
                output = self._reader.output(clean, noise, self.levels[0])
                scheduler.ets = [output.to(self.step.output.dtype)] * len(scheduler.ets)
            case "LMSDiscreteScheduler":
                scheduler.derivatives = [noise] * len(scheduler.derivatives)
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
    match _owner(scheduler).__name__:
        case "UniPCMultistepScheduler":
            spared = scheduler.last_sample is None
            return spared or scheduler.step_index - 1 in scheduler.disable_corrector
        case "DPMSolverSinglestepScheduler":
            return scheduler.order_list[scheduler.step_index or 0 :][:1] == [1]
        case "SASolverScheduler":
            return scheduler.last_sample is None
        case "PNDMScheduler":
            runge_kutta = scheduler.counter < len(scheduler.prk_timesteps)
            return scheduler.counter % 4 == 0 if runge_kutta else scheduler.counter != 1
    return getattr(scheduler, "state_in_first_order", True)


def can_continue(scheduler: Any) -> bool:
    """Whether the next step can start from the latents as they are now."""
    return _has_corrector(scheduler) or continues(scheduler)


def _has_corrector(scheduler: Any) -> bool:
    return _owner(scheduler).__name__ in ("UniPCMultistepScheduler", "SASolverScheduler")


def continue_from_here(scheduler: Any) -> None:
    """Make the next step start from the latents as they are now, where it `can_continue`."""
    if _has_corrector(scheduler) and not continues(scheduler):
        scheduler.last_sample = None  # omits one correction


class _Reader(NamedTuple):
    """How to read one scheduler: an entry of `FAMILIES`, and what its network predicts."""

    numbers: Callable[[Any, Any], tuple[Any, Any]]
    level: str
    predicts: str

    @classmethod
    def of(cls, scheduler: Any) -> "_Reader":
        owner = _owner(scheduler)
        if owner.__name__ not in FAMILIES or not owner.__module__.startswith("diffusers."):
            raise _unknown(owner.__name__)
        numbers, level = FAMILIES[owner.__name__]
        config = scheduler.config
        if level == "flow":  # only flows, whatever its config took over from another scheduler's
            if config.get("invert_sigmas"):
                raise _unknown(f"{owner.__name__} with invert_sigmas")
            return cls(numbers, level, "flow_prediction")
        flows = level == "scaled sigma" and config.use_flow_sigmas
        level = "flow" if flows else level
        velocity = "flow_prediction" if flows else "v_prediction"
        if config.prediction_type not in (velocity, "epsilon", "sample", "original_sample"):
            sigmas = "with" if flows else "without"
            kind = f"{sigmas} flow sigmas and prediction_type {config.prediction_type!r}"
            raise _unknown(f"{owner.__name__} {kind}")
        return cls(numbers, level, config.prediction_type)

    def levels(self, scheduler: Any, given: dict[str, Any]) -> tuple[Level, Level]:
        """Before and after a step, from the scheduler after it and the step's arguments."""
        if given.get("s_churn") or given.get("per_token_timesteps") is not None:
            raise _unknown(f"{type(scheduler).__name__} with s_churn or per_token_timesteps")
        before, after = self.numbers(scheduler, given["timestep"])
        return LEVELS[self.level](float(before)), LEVELS[self.level](float(after))

    def denoise(self, sample: Tensor, output: Tensor, level: Level) -> Tensor:
        """x0 from a sample at a level, and the model's output for it."""
        signal, noise = level
        sample = sample.to(torch.promote_types(sample.dtype, torch.float32))
        output = output[:, : sample.shape[1]].to(sample.dtype)  # then a learned variance
        match self.predicts:
            case "epsilon":
                return (sample - noise * output) / signal
            case "v_prediction":  # the velocity belongs to the sample scaled to unit variance
                norm = math.hypot(signal, noise)
                return (signal / norm**2) * sample - (noise / norm) * output
            case "flow_prediction":
                return sample - noise * output
            case _:
                return output

    def output(self, clean: Tensor, noise: Tensor, level: Level) -> Tensor:
        """The model output from which `denoise` makes these."""
        match self.predicts:
            case "epsilon":
                return noise
            case "v_prediction":
                norm = math.hypot(*level)
                return (level.signal * noise - level.noise * clean) / norm
            case "flow_prediction":
                return noise - clean
            case _:
                return clean


def _owner(scheduler: Any) -> type:
    """The class that `step` comes from."""
    kind = type(scheduler)
    return next((base for base in kind.__mro__ if "step" in vars(base)), kind)


def _unknown(what: str) -> ValueError:
    return ValueError(
        f'no denoised prediction is known for {what}: use preset="published", which needs none, '
        "or another scheduler"
    )


LEVELS: dict[str, Callable[[float], Level]] = {
    "sigma": lambda sigma: Level(1.0, sigma),
    "scaled sigma": lambda sigma: Level(1 / math.hypot(1, sigma), sigma / math.hypot(1, sigma)),
    "flow": lambda sigma: Level(1 - sigma, sigma),
    "alpha_bar": lambda alpha_bar: Level(math.sqrt(alpha_bar), math.sqrt(1 - alpha_bar)),
}
"""Signal and noise, from the number by which a family of schedulers states its noise level."""


# Of a scheduler that has just made a step at a timestep: sigma or alpha_bar before and after it.


def _listed(scheduler: Any, timestep: Any) -> tuple[Any, Any]:
    return scheduler.sigmas[scheduler.step_index - 1], scheduler.sigmas[scheduler.step_index]


def _kdpm2(scheduler: Any, timestep: Any, shift: int = 1) -> tuple[Any, Any]:
    index = scheduler.step_index - 1
    if scheduler.state_in_first_order:  # the second half has just been made
        return scheduler.sigmas_interpol[index + shift - 1], scheduler.sigmas[index]
    return scheduler.sigmas[index], scheduler.sigmas_interpol[index + shift]


def _dpm_sde(scheduler: Any, timestep: Any) -> tuple[Any, Any]:
    before, after = _listed(scheduler, timestep)
    if scheduler.mid_point_sigma is not None:  # the first half has just been made
        return before, scheduler.mid_point_sigma
    if after > 0:  # the second half; the last step has no halves
        before = math.sqrt(scheduler.sigmas[scheduler.step_index - 2] * before)
    return before, after


def _down(scheduler: Any, timestep: Any, stride: int) -> tuple[Any, Any]:
    table, target = scheduler.alphas_cumprod, int(timestep) - stride
    return table[int(timestep)], table[target] if target >= 0 else scheduler.final_alpha_cumprod


def _stride(scheduler: Any) -> int:
    return scheduler.config.num_train_timesteps // scheduler.num_inference_steps


def _ddim(scheduler: Any, timestep: Any) -> tuple[Any, Any]:
    return _down(scheduler, timestep, _stride(scheduler))  # even if the next timestep is another


def _pndm(scheduler: Any, timestep: Any) -> tuple[Any, Any]:
    stride, made = _stride(scheduler), scheduler.counter - 1
    if made < len(scheduler.prk_timesteps):  # Runge-Kutta: half a stride, stay, half a stride, stay
        stride = 0 if made % 2 else stride // 2
    elif made == 1:  # the first step made again, from its start to the same end
        stride = 0
    return _down(scheduler, timestep, stride)


def _next(scheduler: Any, timestep: Any, index: int, final: Any) -> tuple[Any, Any]:
    table, following = scheduler.alphas_cumprod, scheduler.timesteps[index : index + 1].tolist()
    return table[int(timestep)], table[following[0]] if following else final


def _ddpm(scheduler: Any, timestep: Any) -> tuple[Any, Any]:
    index = int((scheduler.timesteps == timestep).nonzero()[0]) + 1
    return _next(scheduler, timestep, index, 1.0)


def _lcm(scheduler: Any, timestep: Any) -> tuple[Any, Any]:
    # its boundary scalings, which mix less than 1e-4 of the sample in, are left out
    return _next(scheduler, timestep, scheduler.step_index, 1.0)


def _tcd(scheduler: Any, timestep: Any) -> tuple[Any, Any]:
    return _next(scheduler, timestep, scheduler.step_index, scheduler.alphas_cumprod[0])


FAMILIES: dict[str, tuple[Callable[..., Any], str]] = {
    "DDIMScheduler": (_ddim, "alpha_bar"),
    "DDPMScheduler": (_ddpm, "alpha_bar"),
    "DEISMultistepScheduler": (_listed, "scaled sigma"),
    "DPMSolverMultistepScheduler": (_listed, "scaled sigma"),
    "DPMSolverSDEScheduler": (_dpm_sde, "sigma"),
    "DPMSolverSinglestepScheduler": (_listed, "scaled sigma"),
    "EulerAncestralDiscreteScheduler": (_listed, "sigma"),
    "EulerDiscreteScheduler": (_listed, "sigma"),
    "FlowMatchEulerDiscreteScheduler": (_listed, "flow"),
    "FlowMatchHeunDiscreteScheduler": (_listed, "flow"),
    "HeunDiscreteScheduler": (_listed, "sigma"),
    "KDPM2AncestralDiscreteScheduler": (functools.partial(_kdpm2, shift=0), "sigma"),
    "KDPM2DiscreteScheduler": (_kdpm2, "sigma"),
    "LCMScheduler": (_lcm, "alpha_bar"),
    "LMSDiscreteScheduler": (_listed, "sigma"),
    "PNDMScheduler": (_pndm, "alpha_bar"),
    "TCDScheduler": (_tcd, "alpha_bar"),
    "UniPCMultistepScheduler": (_listed, "scaled sigma"),
}
