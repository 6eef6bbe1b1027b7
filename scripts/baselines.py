"""What people use today to get different pictures out of an SDXL: what we compare ours with.

Each method is a dataclass of its settings. Its `arguments` are those of a call of the stock
`StableDiffusionXLPipeline`, `pipe(**method.arguments(...), num_inference_steps=25)`.

Sources: Kynkäänniemi et al. (NeurIPS 2024), Sadat et al. (ICLR 2024), Corso et al. (ICLR 2024), and
the ComfyUI node SeedVarianceEnhancer (github.com/ChangeTheConstants).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler, StableDiffusionXLPipeline
from torch import Tensor

HARDLY = math.nextafter(1.0, 2.0)
"""A guidance scale for the conditional prediction: diffusers compares it with 1 and goes on
computing both predictions, for which it has doubled its embeddings; beside tensors it is 1."""


class Call(NamedTuple):
    """What `Method.arguments` is given."""

    pipe: StableDiffusionXLPipeline
    prompts: list[str]
    generators: list[torch.Generator]
    guidance_scale: float


class Method(ABC):
    """A way to sample."""

    def arguments(
        self,
        pipe: StableDiffusionXLPipeline,
        prompts: list[str],
        generators: list[torch.Generator],
        guidance_scale: float,
    ) -> dict[str, Any]:
        """The keyword arguments of a call, all but the number of steps.

        Args:
            pipe: what will be called.
            prompts: one for each sample.
            generators: one for each sample, from which only the pipeline draws. The method's own
                noise is seeded by their `initial_seed()`, so it depends on the sample alone.
            guidance_scale: of classifier-free guidance.

        Raises:
            ValueError: prompts and generators differ in number.
        """
        if len(prompts) != len(generators):
            raise ValueError(
                "every prompt takes a generator of its own, "
                f"got {len(prompts)} prompts and {len(generators)} generators"
            )
        plain = {"prompt": prompts, "generator": generators, "guidance_scale": guidance_scale}
        return plain | self.changes(Call(pipe, prompts, generators, guidance_scale))

    @abstractmethod
    def changes(self, call: Call) -> dict[str, Any]:
        """What to call the pipeline with beside, or instead of, what was given."""


@dataclass(frozen=True)
class Unguided(Method):
    """Classifier-free guidance only."""

    def changes(self, call: Call) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class LimitedInterval(Method):
    """Classifier-free guidance in the middle of the steps, the conditional prediction elsewhere.

    The paper leaves the unconditional prediction out where it is not needed; here it is computed
    all the same.

    Args:
        start, stop: shares of the steps between which guidance is on. The paper gives noise levels,
            for SDXL 0.28 to 5.42: from 0.18 to 0.92 of 50 Euler steps, and from 0.28 to 0.96 of
            the 25 of the demo model.

    Raises:
        ValueError: not 0 <= start <= stop <= 1.
    """

    start: float = 0.2
    stop: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop <= 1:
            raise ValueError(
                "start and stop are shares of the steps, 0 <= start <= stop <= 1, "
                f"got {self.start} and {self.stop}"
            )

    def changes(self, call: Call) -> dict[str, Any]:
        if call.guidance_scale <= 1:
            return {}  # diffusers does not guide at all

        def scale_at(done: float) -> float:
            return call.guidance_scale if self.start <= done < self.stop else HARDLY

        def change_scale(
            pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]
        ) -> dict[str, Any]:
            done = (step + 1) / pipe.num_timesteps
            # at the end, what a call without this callback leaves behind
            pipe._guidance_scale = scale_at(done) if done < 1 else call.guidance_scale
            return {}

        return {
            "guidance_scale": scale_at(0),
            "callback_on_step_end": change_scale,
            "callback_on_step_end_tensor_inputs": [],
        }


@dataclass(frozen=True)
class CADS(Method):
    """Condition-annealed sampling: noise on the prompt's embeddings, less and less of it.

    Time t falls from 1 at the first step, linearly in the steps, towards 0. The tokens and the
    pooled embedding y of each sample become sqrt(gamma) y + scale sqrt(1 - gamma) n, with n drawn
    anew from N(0, 1) at each step, and get back the mean and standard deviation of y; the negative
    ones stay. At t >= tau2 there is nothing left of the prompt, however small scale is above 0.

    Args:
        scale: of the noise, beside entries of the embeddings; 0 is no noise and no annealing.
        tau1: the time from which on gamma is 1 and y is left alone.
        tau2: the time until which gamma is 0; linear between the two.
        psi: how much of the result is brought back to mean and deviation, 0 to 1.

    Raises:
        ValueError: scale < 0 or not finite; not 0 <= tau1 <= tau2 <= 1; psi outside [0, 1].
    """

    scale: float = 0.25
    tau1: float = 0.6
    tau2: float = 0.9
    psi: float = 1.0

    def __post_init__(self) -> None:
        _check_not_negative("scale", self.scale)
        if not 0 <= self.tau1 <= self.tau2 <= 1:
            raise ValueError(
                f"tau1 and tau2 are times, 0 <= tau1 <= tau2 <= 1, got {self.tau1} and {self.tau2}"
            )
        _check_share("psi", self.psi)

    def gamma(self, t: float) -> float:
        """How much of the condition is left at time t, 0 to 1."""
        if t <= self.tau1:
            return 1.0
        if t >= self.tau2:
            return 0.0
        return (self.tau2 - t) / (self.tau2 - self.tau1)

    def anneal(self, y: Tensor, noise: Tensor, gamma: float) -> Tensor:
        """What the network sees of embeddings y: (n, ...), each sample by its own statistics."""
        if gamma == 1:
            return y
        noised = math.sqrt(gamma) * y + self.scale * math.sqrt(1 - gamma) * noise
        mean, std = _moments(y)
        noised_mean, noised_std = _moments(noised)
        rescaled = (noised - noised_mean) / noised_std * std + mean
        return self.psi * rescaled + (1 - self.psi) * noised

    def changes(self, call: Call) -> dict[str, Any]:
        if self.scale == 0:
            return {}

        def anneal(plain: Condition, step: int, done: float) -> Condition:
            gamma, own = self.gamma(1 - done), _own(call, step)
            return Condition(*(self.anneal(y, _draw(torch.randn, y, own), gamma) for y in plain))

        return _conditioned(call, anneal)


@dataclass(frozen=True)
class SeedVariance(Method):
    """Noise on the prompt's embeddings at the first steps, the same at each, then none.

    What users of Z-Image do. In the node, `strength` is in the units of the embeddings, 15 to 30
    for Z-Image; here in their standard deviations, of the tokens and of the pooled embedding each.

    Args:
        strength: noise is uniform between -strength and strength standard deviations.
        share: of the entries that get noise, each by chance.
        stop: the share of the steps after which there is none.

    Raises:
        ValueError: strength < 0 or not finite; share or stop outside [0, 1].
    """

    strength: float = 8.0
    share: float = 0.5
    stop: float = 0.2

    def __post_init__(self) -> None:
        _check_not_negative("strength", self.strength)
        _check_share("share", self.share)
        _check_share("stop", self.stop)

    def changes(self, call: Call) -> dict[str, Any]:
        def vary(plain: Condition, step: int, done: float) -> Condition:
            if done >= self.stop:
                return plain
            own = _own(call)
            return Condition(*(y + self._noise(y, own) for y in plain))

        return _conditioned(call, vary)

    def _noise(self, y: Tensor, own: list[torch.Generator]) -> Tensor:
        uniform = 2 * _draw(torch.rand, y, own) - 1
        chosen = _draw(torch.rand, y, own) < self.share
        return self.strength * _moments(y)[1] * uniform * chosen


@dataclass(frozen=True)
class ParticleGuidance(Method):
    """The samples of a prompt in a batch repel one another; it knows no other batches.

    The paper adds the gradient of a fixed log potential, `repulsion`, to the score; its authors'
    code for Stable Diffusion takes scale x sigma x repulsion off the noise predicted, at sigma >= 1
    only: sigma is noise over signal, and latents are compared at unit variance. So here.

    A callback cannot change a prediction. Before each step but the first, it moves the latents by
    what makes that step end where it would have ended, were the noise predicted for them still the
    same. The first step stays as it is, and sigma may be infinite there.

    From d numbers a latent, the gradient is about log(n) / sqrt(d) long for n samples, so that
    latents twice as high and wide need four times the scale for the same share of their norm.

    Args:
        scale: the authors' coefficient.
        least_sigma: samples less noisy than this are left alone.

    Raises:
        ValueError: scale or least_sigma < 0 or not finite; on use, a scheduler other than DDIM's
            and Euler's, whose noise levels are not known here.
    """

    scale: float = 3.0
    least_sigma: float = 1.0

    def __post_init__(self) -> None:
        _check_not_negative("scale", self.scale)
        _check_not_negative("least_sigma", self.least_sigma)

    def changes(self, call: Call) -> dict[str, Any]:
        kind = type(call.pipe.scheduler)
        if not issubclass(kind, DDIMScheduler | EulerDiscreteScheduler):
            raise ValueError(
                "particle guidance takes a DDIMScheduler or an EulerDiscreteScheduler, "
                f"got {kind.__name__}"
            )
        of_prompt: dict[str, list[int]] = {}
        for row, prompt in enumerate(call.prompts):
            of_prompt.setdefault(prompt, []).append(row)
        crowds = [rows for rows in of_prompt.values() if len(rows) > 1]

        def repel(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
            if step + 1 == pipe.num_timesteps:
                return {}
            signal, noise = _level(pipe.scheduler, step + 1)
            if noise < self.least_sigma * signal:
                return {}
            next_signal, next_noise = _level(pipe.scheduler, step + 2)
            length = self.scale * noise * (noise / signal - next_noise / next_signal)
            latents = tensors["latents"]
            dtype = torch.promote_types(latents.dtype, torch.float32)  # squares overflow in half
            x = latents.flatten(1).to(dtype) / math.hypot(signal, noise)
            push = torch.zeros_like(x)
            for rows in crowds:
                push[rows] = repulsion(x[rows])
            moved = latents + length * push.view_as(latents)
            return {"latents": moved.to(latents.dtype)}

        if not crowds:
            return {}
        return {
            "callback_on_step_end": repel,
            "callback_on_step_end_tensor_inputs": ["latents"],
        }


METHODS: dict[str, type[Method]] = {
    "unguided": Unguided,
    "limited-interval": LimitedInterval,
    "cads": CADS,
    "seed-variance": SeedVariance,
    "particle-guidance": ParticleGuidance,
}


def repulsion(x: Tensor) -> Tensor:
    """The gradient of log Phi = -sum over pairs exp(-|a - b|^2 / h), h held.

    The bandwidth h is the median squared distance over log n, as in the paper; its authors' code
    has one for each sample, over log(n - 1).

    Args:
        x: (n, d), n > 1.

    Returns:
        (n, d); 0 where half of all pairs are duplicates.
    """
    squares = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").square()
    first, second = torch.triu_indices(len(x), len(x), offset=1)
    h = squares[first, second].median() / math.log(len(x))
    if h == 0:
        return torch.zeros_like(x)
    weights = (-squares / h).exp()
    return 2 / h * (weights.sum(dim=1, keepdim=True) * x - weights @ x)


class Condition(NamedTuple):
    """What tells the network of the prompts.

    Attributes:
        tokens: (n, tokens, width) embeddings.
        pooled: (n, width) embeddings.
    """

    tokens: Tensor
    pooled: Tensor


@torch.no_grad()
def _conditioned(
    call: Call, change: Callable[[Condition, int, float], Condition]
) -> dict[str, Any]:
    """A call that goes by changed embeddings.

    Args:
        change: from the prompts' own embeddings, the number of a step and the share of the steps
            that come before it, what the network shall see at that step.
    """
    tokens, negative_tokens, pooled, negative_pooled = call.pipe.encode_prompt(
        call.prompts, do_classifier_free_guidance=call.guidance_scale > 1
    )
    plain = Condition(tokens, pooled)

    def seen(step: int, done: float) -> Condition:
        return Condition(*(new.to(tokens.dtype) for new in change(plain, step, done)))

    def renew(pipe: Any, step: int, timestep: Any, tensors: dict[str, Any]) -> dict[str, Any]:
        new = seen(step + 1, (step + 1) / pipe.num_timesteps)
        negative = {name: rows[: -len(call.prompts)] for name, rows in tensors.items()}
        return {
            "prompt_embeds": torch.cat([negative["prompt_embeds"], new.tokens]),
            "add_text_embeds": torch.cat([negative["add_text_embeds"], new.pooled]),
        }

    first = seen(0, 0.0)
    return {
        "prompt": None,
        "prompt_embeds": first.tokens,
        "pooled_prompt_embeds": first.pooled,
        "negative_prompt_embeds": negative_tokens,
        "negative_pooled_prompt_embeds": negative_pooled,
        "callback_on_step_end": renew,
        "callback_on_step_end_tensor_inputs": ["prompt_embeds", "add_text_embeds"],
    }


def _own(call: Call, *key: int) -> list[torch.Generator]:
    """A generator for each sample that depends on its seed and the key, and shares no noise with
    the one given."""
    states = [
        np.random.SeedSequence(one.initial_seed(), spawn_key=key).generate_state(1, np.uint64)
        for one in call.generators
    ]
    return [torch.Generator().manual_seed(int(state[0])) for state in states]


def _draw(distribution: Callable[..., Tensor], y: Tensor, own: list[torch.Generator]) -> Tensor:
    """As many numbers as y has, each sample's from its own generator, float32."""
    return torch.stack([distribution(y.shape[1:], generator=one) for one in own]).to(y.device)


def _moments(y: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and standard deviation of each sample's numbers, to go with y."""
    dims = tuple(range(1, y.ndim))
    return y.mean(dim=dims, keepdim=True), y.std(dim=dims, keepdim=True)


def _level(scheduler: DDIMScheduler | EulerDiscreteScheduler, step: int) -> tuple[float, float]:
    """(a, s) before a step, or after the last: latents there are a x0 + s eps."""
    if isinstance(scheduler, EulerDiscreteScheduler):
        return 1.0, float(scheduler.sigmas[step])
    if step == len(scheduler.timesteps):
        alpha_bar = float(scheduler.final_alpha_cumprod)
    else:
        alpha_bar = float(scheduler.alphas_cumprod[int(scheduler.timesteps[step])])
    return math.sqrt(alpha_bar), math.sqrt(1 - alpha_bar)


def _check_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be finite and at least 0, got {value}")


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value}")
