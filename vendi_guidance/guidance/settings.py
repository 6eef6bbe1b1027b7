"""The settings of guidance, each said once: its name, type, default, range and help.

`VendiGuidance`, the guided pipelines' `diversity_*` arguments and the command line's options derive
from the fields of `Settings`; a test holds the README's table against them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, signature
from numbers import Real
from textwrap import fill
from typing import Any

from vendi_guidance.checks import check_count
from vendi_guidance.guidance.objectives import OBJECTIVES, Objective
from vendi_guidance.guidance.spaces import SPACES, Space
from vendi_guidance.kernels.standard import Gaussian

SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda _share: 1.0,
    "linear": lambda share: 1 - share,
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
}

LARGEST_SCALE = 1e6
"""A step of this length already replaces the latent; a much longer one overflows."""

CFG_START = 0.3
"""The automatic `cfg_start`: about the share that Kynkäänniemi et al. (NeurIPS 2024) leave out."""

SIGMA_PROMPT = 0.3
"""The published bandwidth for unit-length pooled CLIP embeddings, which lie about 1 apart."""


class _NotGiven:
    """Stands for an argument that was not given, where None is a value of its own."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = _NotGiven()


def _setting(default: Any, help: str, type: type = float, **about: Any) -> Any:
    """A field of `Settings`, of type float, int (a count of at least 1) or str.

    `about` says what applies: `range`, (least, largest); `above`, the least is excluded; `choices`,
    the names allowed; `none`, a word for what None means; `command_line`, not offered if False.
    """
    usual = {"range": None, "above": False, "choices": None, "none": None, "command_line": True}
    return field(default=default, metadata={"help": help, "type": type, **usual, **about})


def _check(name: str, value: Any, about: Mapping[str, Any]) -> None:
    """Raise ValueError unless a setting may have this value."""
    if value is None and about["none"] is not None:
        return
    if about["choices"] is not None:
        is_custom = (name == "schedule" and callable(value)) or hasattr(value, "view")
        if not is_custom and value not in about["choices"]:
            raise ValueError(f"{name} must be one of {', '.join(about['choices'])}, got {value!r}")
    elif about["type"] is int:
        check_count(name, value)
    else:
        low, high = about["range"]
        in_range = isinstance(value, Real) and low <= float(value) <= high and value != math.inf
        if not in_range or (about["above"] and value == low):
            limits = f"between {low:g} and {high:g}"
            if math.isinf(high):
                limits = f"finite and {'greater than' if about['above'] else 'at least'} {low:g}"
            raise ValueError(f"{name} must be {limits}, got {value!r}")


@dataclass(frozen=True)
class Settings:
    """How guidance moves latents. The defaults are the preset "standard".

    Raises:
        ValueError: a value out of its range, named in the message.
    """

    objective: str = _setting(
        "conditional-rke",
        'The score to raise. "conditional-rke" and "conditional-vendi" compare samples of similar '
        'prompts, "rke" and "vendi" all samples.',
        str,
        choices=tuple(OBJECTIVES),
    )
    scale: float = _setting(
        4.0,
        "The length of a guidance step, in the unit of step_rule. 0 turns guidance off: the stock "
        "pipeline, bit for bit.",
        range=(0, LARGEST_SCALE),
    )
    every: int = _setting(
        1,
        "Guide every N-th denoising step, the first one included, the last one never. Where the "
        "scheduler would discard a change, guidance waits for the next step that keeps it.",
        int,
    )
    start: float = _setting(0.0, "The share of the steps where guidance begins.", range=(0, 1))
    stop: float = _setting(0.3, "The share of the steps where guidance ends.", range=(0, 1))
    schedule: str | Callable[[float], float] = _setting(  # noqa: RUF009
        "constant",
        "How scale changes between start and stop: constant, or down to 0. In Python also a "
        "function of the share of the way, 0 to 1, that returns a factor.",
        str,
        choices=tuple(SCHEDULES),
    )
    step_rule: str = _setting(
        "signal",
        'The unit of scale. "normalized", as published: the norm of the latents. "adaptive": that '
        "times the sample's largest similarity to another sample of a similar prompt, from 0 to 1. "
        '"signal": as adaptive, with the norm of the clean part of the latents, which is small at '
        "the first steps.",
        str,
        choices=("normalized", "adaptive", "signal"),
    )
    space: str | Space = _setting(  # noqa: RUF009
        "denoised",
        'What is compared: "latent", the noisy latents, as published; "denoised", the predicted '
        "clean latents. In Python also an ImageSpace(encoder).",
        str,
        choices=tuple(SPACES),
    )
    center: str | None = _setting(
        None,
        'The mean to subtract from what is compared: "prompt", of samples of similar prompts; '
        '"global", of all samples.',
        str,
        choices=("prompt", "global"),
        none="none",
    )
    renoise_start: float = _setting(
        0.1,
        "The share of the steps where renoising begins: at each step, the noise in the latents is "
        "replaced by fresh noise before guidance moves them, so that the model can correct what "
        "guidance distorted.",
        range=(0, 1),
    )
    renoise_stop: float = _setting(
        0.3,
        "The share of the steps where renoising ends. Equal to renoise_start: no renoising.",
        range=(0, 1),
    )
    renoise_shrink: float = _setting(
        0.0,
        "How far renoising moves each predicted image towards the mean prediction for similar "
        "prompts, 0 to 1. It cancels the drift away from the mean and keeps the repulsion between "
        "samples.",
        range=(0, 1),
    )
    cfg_start: float | None = _setting(
        None,
        "The share of the steps before classifier-free guidance (CFG) begins; until then its scale "
        "is 1 and negative prompts have no effect. Automatic is 0.3 in pipelines that look up "
        "their guidance scale at each step, and 0 in all others.",
        range=(0, 1),
        none="automatic",
    )
    sigma_latent: float = _setting(
        0.35,
        "The bandwidth of the Gaussian kernel on unit-length latents, or on what space compares.",
        range=(0, math.inf),
        above=True,
    )
    sigma_prompt: float | None = _setting(
        None,
        "The bandwidth of the Gaussian kernel on unit-length prompt embeddings. Automatic is the "
        "published 0.3 for pooled CLIP embeddings, and 0.3 times the median distance between the "
        "prompts seen for others, fixed once there are ten.",
        range=(0, math.inf),
        above=True,
        none="automatic",
    )
    truncation: int | None = _setting(
        None, "How many eigenvalues the two Vendi objectives keep.", int, none="all"
    )
    beta: float = _setting(
        0.5,
        "The weight of the exemplars: how much of the score against them is subtracted.",
        range=(0, math.inf),
        command_line=False,
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check(setting.name, getattr(self, setting.name), setting.metadata)
        for start, stop in (("start", "stop"), ("renoise_start", "renoise_stop")):
            first, last = getattr(self, start), getattr(self, stop)
            if first > last:
                raise ValueError(f"{start} must not exceed {stop}, got {first} and {last}")

    def changed(self, preset: str | None = None, **changes: Any) -> "Settings":
        """These settings, or those of a preset, with changes by name; NOT_GIVEN is no change.

        Raises:
            ValueError: an unknown preset, or a value out of its range.
            TypeError: an unknown name.
        """
        if preset is not None and preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
        if unknown := changes.keys() - vars(self).keys():
            known = ", ".join(vars(self))
            raise TypeError(f"there is no setting {min(unknown)!r}: the settings are {known}")
        given = {name: value for name, value in changes.items() if value is not NOT_GIVEN}
        return replace(PRESETS[preset] if preset else self, **given)

    @property
    def needs_prediction(self) -> bool:
        """Whether the scheduler's prediction of clean latents is read."""
        renoises = self.renoise_start < self.renoise_stop
        return renoises or self.step_rule == "signal" or self.build_space().needs_prediction

    @property
    def is_conditional(self) -> bool:
        """Whether the objective compares prompts."""
        return self.objective.startswith("conditional")

    def build_objective(self, sigma_prompt: float) -> Objective:
        """The objective, its prompt kernel of bandwidth `sigma_prompt`."""
        kernels = [Gaussian(self.sigma_latent), Gaussian(sigma_prompt)][: 1 + self.is_conditional]
        truncation = [self.truncation] if self.objective.endswith("vendi") else []
        return OBJECTIVES[self.objective](*kernels, *truncation)

    def build_space(self) -> Space:
        """The space where samples are compared."""
        return SPACES[self.space] if isinstance(self.space, str) else self.space

    def scale_at(self, share: float) -> float:
        """The scale after this share of all steps, start <= share < stop."""
        schedule = SCHEDULES[self.schedule] if isinstance(self.schedule, str) else self.schedule
        return self.scale * schedule((share - self.start) / (self.stop - self.start))


PRESETS = {
    "standard": Settings(),
    "varied": Settings(
        objective="conditional-vendi",
        scale=0.4,
        stop=0.8,
        schedule="linear",
        step_rule="normalized",
        renoise_start=0.3,
        renoise_stop=0.8,
        renoise_shrink=0.15,
        cfg_start=0.8,
        sigma_latent=0.5,
    ),
    "published": Settings(
        scale=0.03,
        every=10,
        stop=1.0,
        step_rule="normalized",
        space="latent",
        renoise_start=0.0,
        renoise_stop=0.0,
        cfg_start=0.0,
        sigma_latent=0.8,
    ),
}
"""`standard` keeps more of what a prompt says; `varied` drew the most different images in
docs/comparison.md, but loses details of the prompt and leaves CFG off for most of the steps;
`published` is Jalali et al. (AISTATS 2026), appendix E."""


def show_settings(function: Any, prefix: str = "", more: Sequence[Parameter] = ()) -> list[str]:
    """Let a function's signature list `more` parameters and all settings that it does not name.

    They replace its `**kwargs`, or with a prefix to their names precede it. Returns their names.
    """
    own = signature(function)
    ours = [*more]
    for it in fields(Settings):
        if (name := prefix + it.name) not in own.parameters:
            kind = Parameter.KEYWORD_ONLY
            ours.append(Parameter(name, kind, default=NOT_GIVEN, annotation=it.type))
    listed = list(own.parameters.values())
    rest = [listed.pop()] if listed[-1].kind is Parameter.VAR_KEYWORD else []
    function.__signature__ = own.replace(parameters=[*listed, *ours, *(rest if prefix else [])])
    return [it.name for it in ours]


def describe(prefix: str = "") -> str:
    """The settings as the Args section of a docstring: name, default and help of each."""
    lines = []
    for setting in fields(Settings):
        about = setting.metadata
        default = about["none"] if setting.default is None else setting.default
        text = f"{prefix}{setting.name} (default {default}): {about['help']}"
        lines.append(fill(text, 100, initial_indent=8 * " ", subsequent_indent=12 * " "))
    return "\n".join(lines)


Settings.__doc__ = f"{Settings.__doc__}\n    Args:\n{describe()}\n"
