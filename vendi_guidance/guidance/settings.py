"""How guidance moves latents: what can be set, and what is set unless asked otherwise."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from vendi_guidance.guidance.objectives import OBJECTIVES, ConditionalVendi, Objective
from vendi_guidance.guidance.spaces import SPACES, Space
from vendi_guidance.kernels.standard import Gaussian

STEP_RULES = ("normalized", "adaptive", "signal")
CENTERS = ("prompt", "global")
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _share: 1.0,
    "linear": lambda share: 1 - share,
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
}

MOST_SCALE = 1e6
"""Already this throws away all that a latent was; far more overflows."""

CFG_START = 0.3
"""Where classifier-free guidance starts unless said otherwise, in pipelines where it can wait."""

SIGMA_PROMPT = 0.3
"""The published bandwidth for unit-length pooled CLIP embeddings, which lie about 1 apart."""


def _check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _check_shares(name: str, start: float, name_of_stop: str, stop: float) -> None:
    if not 0 <= start <= stop <= 1:
        raise ValueError(
            f"{name} and {name_of_stop} are shares of the steps, 0 <= {name} <= {name_of_stop} "
            f"<= 1, got {start} and {stop}"
        )


@dataclass(frozen=True)
class Settings:
    """How guidance moves latents; see `VendiGuidance` for each field."""

    scale: float
    every: int
    sigma_latent: float
    objective: str = "conditional-rke"
    sigma_prompt: float | None = None
    truncation: int | None = None
    start: float = 0.0
    stop: float = 1.0
    schedule: str | Callable[[float], float] = "constant"
    step_rule: str = "normalized"
    space: str | Space = "latent"
    center: str | None = None
    renoise_start: float = 0.0
    renoise_stop: float = 0.0
    renoise_shrink: float = 0.0
    cfg_start: float | None = None
    beta: float = 0.5

    def __post_init__(self) -> None:
        _check_choice("objective", self.objective, OBJECTIVES)
        if not 0 <= self.scale <= MOST_SCALE:
            raise ValueError(
                f"scale must be between 0 (no guidance) and {MOST_SCALE:g}, got {self.scale}"
            )
        if not isinstance(self.every, int) or self.every < 1:
            raise ValueError(f"every must be a whole number of at least 1, got {self.every}")
        _check_shares("start", self.start, "stop", self.stop)
        _check_shares("renoise_start", self.renoise_start, "renoise_stop", self.renoise_stop)
        if not 0 <= self.renoise_shrink <= 1:
            raise ValueError(
                f"renoise_shrink is a share of the way, between 0 and 1, got {self.renoise_shrink}"
            )
        if not callable(self.schedule):
            _check_choice("schedule", self.schedule, SCHEDULES)
        _check_choice("step_rule", self.step_rule, STEP_RULES)
        if not hasattr(self.space, "view"):
            _check_choice("space", self.space, SPACES)
        if self.center is not None:
            _check_choice("center", self.center, CENTERS)
        if self.cfg_start is not None and not 0 <= self.cfg_start <= 1:
            raise ValueError(
                f"cfg_start is a share of the steps, between 0 and 1, got {self.cfg_start}"
            )
        if not (math.isfinite(self.beta) and self.beta >= 0):
            raise ValueError(f"beta must be finite and at least 0, got {self.beta}")
        # refuse a bad sigma or truncation now, in use or not, rather than at some later step
        ConditionalVendi(
            Gaussian(self.sigma_latent),
            Gaussian(SIGMA_PROMPT if self.sigma_prompt is None else self.sigma_prompt),
            self.truncation,
        )

    def but(self, preset: str | None = None, **given: Any) -> "Settings":
        """These, or those of a preset, with what is given and not None in their place."""
        if preset is not None:
            _check_choice("preset", preset, PRESETS)
        changes = {name: value for name, value in given.items() if value is not None}
        return replace(PRESETS[preset] if preset else self, **changes)

    @property
    def needs_prediction(self) -> bool:
        """Whether the scheduler has to be listened to."""
        return (
            self.build_space().needs_prediction
            or self.renoise_start < self.renoise_stop
            or self.step_rule == "signal"
        )

    @property
    def is_conditional(self) -> bool:
        return self.objective.startswith("conditional")

    def build_objective(self, sigma_prompt: float) -> Objective:
        """The objective named, its prompt kernel of this bandwidth."""
        given: dict[str, Any] = {"kernel_latent": Gaussian(self.sigma_latent)}
        if self.is_conditional:
            given["kernel_prompt"] = Gaussian(sigma_prompt)
        if self.objective.endswith("vendi"):
            given["truncation"] = self.truncation
        return OBJECTIVES[self.objective](**given)

    def build_space(self) -> Space:
        return SPACES[self.space] if isinstance(self.space, str) else self.space

    def scale_at(self, share: float) -> float:
        """`scale` after this share of all steps, start <= share < stop."""
        schedule = SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule
        return self.scale * schedule((share - self.start) / (self.stop - self.start))


PRESETS = {
    "standard": Settings(
        scale=4.0,
        every=1,
        sigma_latent=0.35,
        step_rule="signal",
        space="denoised",
        stop=0.3,
        renoise_start=0.1,
        renoise_stop=0.3,
    ),
    "varied": Settings(
        objective="conditional-vendi",
        scale=0.4,
        every=1,
        sigma_latent=0.5,
        schedule="linear",
        space="denoised",
        stop=0.8,
        renoise_start=0.3,
        renoise_stop=0.8,
        renoise_shrink=0.15,
        cfg_start=0.8,
    ),
    "published": Settings(scale=0.03, every=10, sigma_latent=0.8, cfg_start=0.0),
}
"""`varied` drew most looks in docs/comparison.md, but loses more of what prompts say, and has
classifier-free guidance rest for longer than large models may bear; `standard` is for these, and
has it rest for the share of the steps that Kynkäänniemi et al. (NeurIPS 2024) leave without it;
`published` is Jalali et al. (AISTATS 2026), appendix E."""
