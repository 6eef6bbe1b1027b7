"""The noise levels of a scheduler's steps, and the timestep of any level, in its schedule or not.

Velocities follow Salimans & Ho (2022).
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vendi_guidance.guidance.step import Level

ROUNDING = 1e-3
"""Rounding error of timesteps, which schedulers compute in float32."""


class Reader:
    """Reads the noise levels, timesteps and predictions of one scheduler, of a class in
    `SCHEDULERS` or of a subclass that does not override `step`; ValueError for others."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        owner = owner_of(scheduler)
        name = owner.__name__
        if name not in SCHEDULERS or not owner.__module__.startswith("diffusers."):
            raise _unknown(name)
        self._numbers, unit = SCHEDULERS[name]
        config = scheduler.config
        if unit == "flow" and config.get("invert_sigmas"):
            raise _unknown(f"{name} with invert_sigmas")
        flows = unit == "scaled sigma" and config.use_flow_sigmas
        self.unit = "flow" if flows else unit
        # `from_config` may have copied another scheduler's prediction type
        self.predicts = "flow_prediction" if unit == "flow" else config.prediction_type
        velocity = "flow_prediction" if self.unit == "flow" else "v_prediction"
        if self.predicts not in (velocity, "epsilon", "sample", "original_sample"):
            sigmas = "with" if flows else "without"
            raise _unknown(f"{name} {sigmas} flow sigmas and prediction_type {self.predicts!r}")

    def levels_of(self, stepped: Any, given: dict[str, Any]) -> tuple[Level, Level]:
        """The levels before and after a step, given the scheduler right after it and the arguments
        of `step`."""
        if given.get("s_churn") or given.get("per_token_timesteps") is not None:
            raise _unknown(f"{type(stepped).__name__} with s_churn or per_token_timesteps")
        before, after = self._numbers(stepped, given["timestep"])
        return LEVELS[self.unit](float(before)), LEVELS[self.unit](float(after))

    def at(self, ratio: float) -> Level:
        """The level with this noise-to-signal ratio, in the scheduler's units. Ratios above the
        highest one of training give that one."""
        highest = math.inf if self.unit == "flow" else float(_trained(self.scheduler)[-1])
        ratio = min(ratio, highest)
        signal, noise = (0.0, 1.0) if ratio == math.inf else (1.0, ratio)
        size = {"sigma": signal, "flow": signal + noise}.get(self.unit, math.hypot(signal, noise))
        return Level(signal / size, noise / size)

    def timestep_at(self, level: Level) -> float:
        """The scheduler's timestep for any level, in its schedule or not. Schedulers with whole
        timesteps get a whole one, because networks distilled to few steps know no others."""
        timestep = self._time_of(level)
        if self.scheduler.timesteps.is_floating_point():
            return timestep
        # flows were rounded down
        return math.floor(timestep + ROUNDING) if self.unit == "flow" else round(timestep)

    def _time_of(self, level: Level) -> float:
        config = self.scheduler.config
        if self.unit == "flow":  # a shift changes only which timesteps the schedule has
            return level.noise / sum(level) * config.num_train_timesteps
        trained = _trained(self.scheduler)
        ratio = min(level.ratio, float(trained[-1]))
        if config.get("timestep_type") == "continuous" and self.predicts == "v_prediction":
            return 0.25 * math.log(ratio)
        # interpolate angles: unlike ratios and their logarithms, they are finite without signal
        return float(np.interp(math.atan(ratio), np.arctan(trained), np.arange(len(trained))))

    def input_scale(self, level: Level) -> float:
        """The factor of `scale_model_input` at this level."""
        return 1.0 if self.unit == "flow" else 1 / math.hypot(*level)

    def denoise(self, sample: Tensor, output: Tensor, level: Level) -> Tensor:
        """x0 from a sample at a level and the model's output for it; float32 or float64."""
        signal, noise = level
        sample = sample.to(torch.promote_types(sample.dtype, torch.float32))
        output = output[:, : sample.shape[1]].to(sample.dtype)  # without a learned variance
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
        """The model output for which `denoise` returns `clean`: the inverse of `denoise`."""
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


def owner_of(scheduler: Any) -> type:
    """The class that defines the scheduler's `step`."""
    kind = type(scheduler)
    return next((base for base in kind.__mro__ if "step" in vars(base)), kind)


def _trained(scheduler: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The noise-to-signal ratio of each training timestep."""
    alphas = scheduler.alphas_cumprod.double().cpu().numpy()
    with np.errstate(divide="ignore"):  # the last alpha may be 0: no signal
        return np.asarray(np.sqrt((1 - alphas) / alphas))


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
"""Unit of a scheduler's noise levels -> signal and noise of a number in that unit."""


# Each of these functions gets a scheduler right after a step, and the step's timestep. It returns
# sigma or alpha_bar before and after the step.


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


def _pndm(scheduler: Any, timestep: Any) -> tuple[Any, Any]:
    stride, made = _stride(scheduler), scheduler.counter - 1
    if made < len(scheduler.prk_timesteps):  # Runge-Kutta: half a stride, stay, half a stride, stay
        stride = 0 if made % 2 else stride // 2
    elif made == 1:  # the first step made again, from its start to the same end
        stride = 0
    return _down(scheduler, timestep, stride)


def _next(scheduler: Any, timestep: Any, final: Any = 1.0) -> tuple[Any, Any]:
    # LCM's boundary scalings are ignored: they mix in less than 1e-4 of the sample
    table, timesteps = scheduler.alphas_cumprod, scheduler.timesteps.tolist()
    following = timesteps[timesteps.index(int(timestep)) + 1 :]
    return table[int(timestep)], table[following[0]] if following else final


SCHEDULERS: dict[str, tuple[Callable[..., Any], str]] = {
    "DDIMScheduler": (lambda it, at: _down(it, at, _stride(it)), "alpha_bar"),  # whatever is next
    "DDPMScheduler": (_next, "alpha_bar"),
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
    "LCMScheduler": (_next, "alpha_bar"),
    "LMSDiscreteScheduler": (_listed, "sigma"),
    "PNDMScheduler": (_pndm, "alpha_bar"),
    "TCDScheduler": (lambda it, at: _next(it, at, it.alphas_cumprod[0]), "alpha_bar"),
    "UniPCMultistepScheduler": (_listed, "scaled sigma"),
}
