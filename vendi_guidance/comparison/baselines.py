"""What people use today to get different images of one prompt: the baselines.

Each method is a dataclass of its settings.

Sources: Kynkäänniemi et al. (NeurIPS 2024), Corso et al. (ICLR 2024), and Gandikota & Bau
(arXiv:2503.10637). Methods that add noise to the prompts' embeddings are in `embedding_noise`,
those that generate more images than are needed in `selection`.
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
"""Particle guidance leaves samples alone that are less noisy than this."""


@dataclass(frozen=True)
class LimitedInterval(PerStep):
    """Classifier-free guidance in the middle of the steps, the conditional prediction elsewhere.

    As in the paper, the unconditional prediction is not computed where it is not needed.

    Args:
        start, stop: shares of the steps between which guidance is on. The paper gives noise levels,
            for SDXL 0.28 to 5.42: from 0.18 to 0.92 of 50 Euler steps, and from 0.28 to 0.96 of
            the 25 of the demo model.

    Raises:
        ValueError: not 0 <= start <= stop <= 1; on use, the pipeline is called without CFG.
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
    """The undistilled network at the first steps, then the one distilled to few steps.

    A distilled network settles at its first step what an image shows; the other leaves it open. The
    evaluations are as many as without it, and CFG is the call's, mostly none.

    Args:
        steps: how many.

    Raises:
        ValueError: steps < 1; on use, the pipeline has no LoRA to switch off, and no undistilled
            network is given, or one that does not fit.
    """

    steps: int = 1

    def __post_init__(self) -> None:
        check_count("steps", self.steps)

    def evaluate(self, evaluation: Evaluation) -> Any:
        is_first = evaluation.step < self.steps
        return evaluation.output_of_undistilled() if is_first else evaluation.output()


@dataclass(frozen=True)
class ParticleGuidance(Method):
    """The samples of a prompt in a batch repel one another, but not those of other batches.

    The paper adds the gradient of a fixed log potential, `repulsion`, to the score; its authors'
    code for Stable Diffusion subtracts scale x sigma x repulsion from the predicted noise, only
    at sigma >= 1: sigma is noise over signal, and latents are compared at unit variance. So here.

    A callback cannot change a prediction. Instead, before each step but the first, it moves the
    latents so that the step ends where the changed noise would end it, assuming that the predicted
    noise stays the same. The first step is unchanged; sigma may be infinite there.

    From d numbers a latent, the gradient is about log(n) / sqrt(d) long for n samples, so that
    latents twice as high and wide need four times the scale for the same share of their norm.

    Args:
        scale: the authors' coefficient.

    Raises:
        ValueError: scale < 0 or not finite; on use, a scheduler other than DDIM's and Euler's,
            whose noise levels are not known here.
    """

    scale: float = 3.0

    def __post_init__(self) -> None:
        check_not_negative("scale", self.scale)

    @contextmanager
    def attached(self, call: PipelineCall) -> Iterator[dict[str, Any]]:
        kind = type(call.pipe.scheduler)
        if not issubclass(kind, DDIMScheduler | EulerDiscreteScheduler):
            raise ValueError(
                "particle guidance takes a DDIMScheduler or an EulerDiscreteScheduler, "
                f"got {kind.__name__}"
            )
        of_prompts = rows_by_label(call.prompts, len(call.prompts)).values()
        crowds = [rows for rows in of_prompts if len(rows) > 1]

        def repel(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            if step + 1 == pipe.num_timesteps:
                return {}
            signal, noise = _level(pipe.scheduler, step + 1)
            if noise < LEAST_SIGMA * signal:
                return {}
            next_signal, next_noise = _level(pipe.scheduler, step + 2)
            length = self.scale * noise * (noise / signal - next_noise / next_signal)
            latents = tensors["latents"]
            dtype = torch.promote_types(latents.dtype, torch.float32)  # distances overflow in half
            x = latents.flatten(1).to(dtype) / math.hypot(signal, noise)
            push = torch.zeros_like(x)
            for rows in crowds:
                push[rows] = repulsion(x[rows])
            moved = latents + length * push.view_as(latents)
            return {"latents": moved.to(latents.dtype)}

        given = {"callback_on_step_end": repel, "callback_on_step_end_tensor_inputs": ["latents"]}
        yield given if crowds else {}


def repulsion(x: Tensor) -> Tensor:
    """The gradient of log Phi = -sum over pairs exp(-|a - b|^2 / h), h held.

    The bandwidth h is the median squared distance over log n, as in the paper; its authors' code
    has one for each sample, over log(n - 1).

    Args:
        x: (n, d), n > 1.

    Returns:
        (n, d); 0 where half of all pairs are duplicates.
    """
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    first, second = torch.triu_indices(len(x), len(x), offset=1)
    h = distances[first, second].median() / math.log(len(x))
    if h == 0:
        return torch.zeros_like(x)
    weights = (-distances / h).exp()
    return 2 / h * (weights.sum(dim=1, keepdim=True) * x - weights @ x)


def _level(scheduler: DDIMScheduler | EulerDiscreteScheduler, step: int) -> tuple[float, float]:
    """(a, s) before a step, or after the last: latents there are a x0 + s eps."""
    if isinstance(scheduler, EulerDiscreteScheduler):
        return 1.0, float(scheduler.sigmas[step])
    if step == len(scheduler.timesteps):
        alpha_bar = float(scheduler.final_alpha_cumprod)
    else:
        alpha_bar = float(scheduler.alphas_cumprod[int(scheduler.timesteps[step])])
    return math.sqrt(alpha_bar), math.sqrt(1 - alpha_bar)
