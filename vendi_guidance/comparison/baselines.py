"""Baselines: other ways to get diverse images of a prompt.

Each method is a dataclass of its settings.

Sources: Kynkäänniemi et al. (NeurIPS 2024), Corso et al. (ICLR 2024), and Gandikota & Bau
(arXiv:2503.10637). Methods that add noise to prompt embeddings are in `embedding_noise`, methods
that select from a larger pool of images in `selection`.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler
from torch import Tensor

from vendi_guidance.checks import check_count
from vendi_guidance.comparison.methods import (
    Method,
    PipelineCall,
    check_not_negative,
    check_shares,
)
from vendi_guidance.comparison.network import Evaluation, PerStep
from vendi_guidance.scores.groups import rows_by_label

LEAST_SIGMA = 1.0
"""Particle guidance is off below this noise level (noise over signal)."""


@dataclass(frozen=True)
class LimitedInterval(PerStep):
    """Classifier-free guidance in an interval of the steps, the conditional prediction elsewhere.

    As in the paper, the unconditional prediction is computed only inside the interval.

    Args:
        start, stop: the interval, as fractions of the steps. The paper uses noise levels, for SDXL
            0.28 to 5.42. That is 0.18 to 0.92 for 50 Euler steps, and 0.28 to 0.96 for the demo
            model's 25.

    Raises:
        ValueError: not 0 <= start <= stop <= 1; when used, the pipeline runs without CFG.
    """

    start: float = 0.2
    stop: float = 0.9

    def __post_init__(self) -> None:
        check_shares(start=self.start, stop=self.stop)

    def evaluate(self, evaluation: Evaluation) -> Any:
        is_on = self.start <= evaluation.done < self.stop
        return evaluation.output() if is_on else evaluation.output_without_cfg()


@dataclass(frozen=True)
class UndistilledFirst(PerStep):
    """The undistilled network at the first steps, then the distilled (few-step) one.

    A distilled network decides at its first step what the image shows; the undistilled one does
    not. The number of evaluations and the scale of CFG (usually off) stay those of the call.

    Args:
        steps: number of steps with the undistilled network.

    Raises:
        ValueError: steps < 1; when used, the given undistilled network does not fit, or none is
            given and the pipeline has no LoRA to switch off.
    """

    steps: int = 1

    def __post_init__(self) -> None:
        check_count("steps", self.steps)

    def evaluate(self, evaluation: Evaluation) -> Any:
        is_first = evaluation.step < self.steps
        return evaluation.output_of_undistilled() if is_first else evaluation.output()


@dataclass(frozen=True)
class ParticleGuidance(Method):
    """The samples of a prompt repel each other, within a batch only.

    The paper adds the gradient of a fixed log potential (`repulsion`) to the score. The authors'
    code for Stable Diffusion, followed here, subtracts scale x sigma x repulsion from the predicted
    noise while sigma >= 1, with latents scaled to unit variance; sigma is noise over signal.

    A callback cannot change the predicted noise. Instead, it moves the latents before each step so
    that the step's result is the one the changed noise would give, provided that the prediction
    itself stays the same. The first step is unchanged, because sigma may be infinite there.

    For n samples of d values, the gradient's norm is about log(n) / sqrt(d) and the latents' norm
    grows with sqrt(d): at twice the height and width, the same effect takes four times the scale.

    Args:
        scale: the authors' coefficient.

    Raises:
        ValueError: scale < 0 or not finite; when used, the scheduler is neither DDIM's nor Euler's.
    """

    scale: float = 3.0

    def __post_init__(self) -> None:
        check_not_negative("scale", self.scale)

    @contextmanager
    def attached(self, call: PipelineCall) -> Iterator[dict[str, Any]]:
        kind = type(call.pipe.scheduler)
        if not issubclass(kind, DDIMScheduler | EulerDiscreteScheduler):
            raise ValueError(
                "particle guidance needs a DDIMScheduler or an EulerDiscreteScheduler, "
                f"got {kind.__name__}"
            )
        rows_by_prompt = rows_by_label(call.prompts, len(call.prompts))
        groups = [rows for rows in rows_by_prompt.values() if len(rows) > 1]

        def repel(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            if step + 1 == pipe.num_timesteps:
                return {}
            signal, noise = _level(pipe.scheduler, step + 1)
            if noise < LEAST_SIGMA * signal:
                return {}
            next_signal, next_noise = _level(pipe.scheduler, step + 2)
            step_size = self.scale * noise * (noise / signal - next_noise / next_signal)
            latents = tensors["latents"]
            # squared distances overflow in half precision
            dtype = torch.promote_types(latents.dtype, torch.float32)
            x = latents.flatten(1).to(dtype) / math.hypot(signal, noise)
            gradient = torch.zeros_like(x)
            for rows in groups:
                gradient[rows] = repulsion(x[rows])
            moved = latents + step_size * gradient.view_as(latents)
            return {"latents": moved.to(latents.dtype)}

        hook = {"callback_on_step_end": repel, "callback_on_step_end_tensor_inputs": ["latents"]}
        yield hook if groups else {}


def repulsion(x: Tensor) -> Tensor:
    """The gradient of log Phi = -sum over pairs exp(-|a - b|^2 / h), with h held constant.

    The bandwidth h is the median squared distance divided by log n, as in the paper. The authors'
    code has a bandwidth for each sample and divides by log(n - 1).

    Args:
        x: (n, d), n > 1.

    Returns:
        (n, d); 0 if half of all pairs are duplicates, so that h is 0.
    """
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    first, second = torch.triu_indices(len(x), len(x), offset=1)
    h = distances[first, second].median() / math.log(len(x))
    if h == 0:
        return torch.zeros_like(x)
    weights = (-distances / h).exp()
    return 2 / h * (weights.sum(dim=1, keepdim=True) * x - weights @ x)


def _level(scheduler: DDIMScheduler | EulerDiscreteScheduler, step: int) -> tuple[float, float]:
    """(a, s) of the latents a x0 + s eps before a step; `step` may be the number of steps."""
    if isinstance(scheduler, EulerDiscreteScheduler):
        return 1.0, float(scheduler.sigmas[step])
    if step == len(scheduler.timesteps):
        alpha_bar = float(scheduler.final_alpha_cumprod)
    else:
        alpha_bar = float(scheduler.alphas_cumprod[int(scheduler.timesteps[step])])
    return math.sqrt(alpha_bar), math.sqrt(1 - alpha_bar)
