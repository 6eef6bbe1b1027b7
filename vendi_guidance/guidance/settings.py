"""The settings of guidance, each said once: its name, type, default, range and help.

`VendiGuidance`, the guided pipelines' `diversity_*` arguments and the command line's options derive
from the fields of `Settings`; a test holds the table in docs/dial.md against them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, signature
from numbers import Real
from textwrap import fill
from typing import Any

from vendi_guidance.checks import check_count
from vendi_guidance.guidance.objectives import OBJECTIVES, MedianGaussian, Objective
from vendi_guidance.guidance.spaces import SPACES, Space
from vendi_guidance.kernels.standard import Gaussian

LARGEST_SCALE = 1e6
"""A step of this length already replaces the latent; a much longer one overflows."""

STRENGTH = 0.5
"""The default of the dial: docs/comparison.md shows what it keeps, and what more costs."""

SIGMA_SHARE = 0.7
"""The automatic `sigma_latent`, as a share of the median distance."""

SIGMA_PROMPT = 0.3
"""The published bandwidth for unit-length pooled CLIP embeddings, which lie about 1 apart."""


class _NotGiven:
    """Stands for an argument that was not given, where None is a value of its own."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = _NotGiven()


def _setting(default: Any, help: str, type: type = float, **about: Any) -> Any:
    """A field of `Settings`, of type float, int (a count of at least 1) or str.

    `about` says what applies: `range`, (least, largest); `above`, the least is excluded; `least`,
    of an int; `choices`, the names allowed; `none`, a word for what None means; `command_line`, not
    offered if False.
    """
    usual = {
        "range": None,
        "least": 1,
        "above": False,
        "choices": None,
        "none": None,
        "command_line": True,
    }
    return field(default=default, metadata={"help": help, "type": type, **usual, **about})


def _check(name: str, value: Any, about: Mapping[str, Any]) -> None:
    """Raise ValueError unless a setting may have this value."""
    if value is None and about["none"] is not None:
        return
    if about["choices"] is not None:
        if not hasattr(value, "view") and value not in about["choices"]:
            raise ValueError(f"{name} must be one of {', '.join(about['choices'])}, got {value!r}")
    elif about["type"] is int:
        check_count(name, value, about["least"])
    else:
        low, high = about["range"]
        try:
            number = float(value) if isinstance(value, Real) else math.nan
        except OverflowError:  # whole numbers may be larger than any float
            number = math.inf
        in_range = low <= number <= high and number != math.inf
        if not in_range or (about["above"] and value == low):
            limits = f"between {low:g} and {high:g}"
            if math.isinf(high):
                limits = f"finite and {'greater than' if about['above'] else 'at least'} {low:g}"
            raise ValueError(f"{name} must be {limits}, got {value!r}")


@dataclass(frozen=True)
class Settings:
    """How guidance moves latents. The defaults are those of the default strength.

    Raises:
        ValueError: a value out of its range, named in the message.
    """

    objective: str = _setting(
        "conditional-vendi",
        'The score to raise. "conditional-rke" and "conditional-vendi" compare samples of similar '
        'prompts, "rke" and "vendi" all samples.',
        str,
        choices=tuple(OBJECTIVES),
    )
    scale: float = _setting(
        2.65,
        "The length of a guidance step. In rounds: of the first one, in distances between the "
        "predictions for similar prompts. Without rounds: as a share of the norm of the latents. 0 "
        "turns guidance off: the stock pipeline, bit for bit.",
        range=(0, LARGEST_SCALE),
    )
    rounds: int = _setting(
        8,
        "How many times the denoising step at the noise level `level` is repeated. Each round adds "
        "fresh noise and a guidance step, whose length falls to 0, and evaluates the network. "
        "CFG is off until then. Calls of few steps have fewer rounds and candidates, so that the "
        "evaluations of the network at most double, and longer guidance steps instead. 0 is "
        "guidance as published, without rounds.",
        int,
        least=0,
    )
    candidates: int = _setting(
        2,
        "How many draws of noise a round tries for each sample, to keep the one that differs most "
        "from the others. Each is one evaluation of the network.",
        int,
    )
    level: float = _setting(
        0.2,
        "The noise level of the rounds: noise to signal, divided by the square root of the number "
        "of elements of a latent. Higher is earlier: it keeps more of what prompts say, and "
        "decides less.",
        range=(0, math.inf),
        above=True,
    )
    cfg: float = _setting(
        0.5,
        "The share of classifier-free guidance (CFG) after the rounds: a scale w becomes "
        "1 + cfg (w - 1). CFG restores what prompts say, and draws samples together. Below a "
        "noise-to-signal ratio of 0.75 CFG is off, whatever `cfg` is.",
        range=(0, 1),
    )
    every: int = _setting(
        10,
        "With rounds=0, guide every N-th denoising step, the first one included, the last one "
        "never. Where the scheduler would discard a change, guidance waits for the next step that "
        "keeps it.",
        int,
    )
    space: str | Space = _setting(  # noqa: RUF009
        "denoised",
        'What is compared: "latent", the noisy latents, as published; "denoised", the predicted '
        "clean latents. In Python also an ImageSpace(encoder).",
        str,
        choices=tuple(SPACES),
    )
    sigma_latent: float | None = _setting(
        None,
        "The bandwidth of the Gaussian kernel on unit-length latents, or on what space compares. "
        f"Automatic is {SIGMA_SHARE} times the median distance between samples of similar prompts.",
        range=(0, math.inf),
        above=True,
        none="automatic",
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

    def changed(
        self, preset: str | None = None, strength: float = NOT_GIVEN, **changes: Any
    ) -> "Settings":
        """These settings, or those of a preset, with changes by name; NOT_GIVEN is no change.

        Args:
            strength: sets what the dial sets, before the changes.

        Raises:
            ValueError: an unknown preset, a value out of its range, or a preset and a strength.
            TypeError: an unknown name.
        """
        if preset is not None and preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
        if unknown := changes.keys() - vars(self).keys():
            known = ", ".join(vars(self))
            raise TypeError(f"there is no setting {min(unknown)!r}: the settings are {known}")
        dialled = {} if strength is NOT_GIVEN else dial(strength)
        if preset is not None and dialled.get("scale"):
            raise ValueError(
                f"preset {preset!r} has a scale instead of a strength, got strength {strength!r}"
            )
        given = {name: value for name, value in changes.items() if value is not NOT_GIVEN}
        return replace(PRESETS[preset] if preset else self, **{**dialled, **given})

    @property
    def needs_prediction(self) -> bool:
        """Whether the scheduler's prediction of clean latents is read."""
        return self.rounds > 0 or self.build_space().needs_prediction

    @property
    def is_conditional(self) -> bool:
        """Whether the objective compares prompts."""
        return self.objective.startswith("conditional")

    def build_objective(self, sigma_prompt: float) -> Objective:
        """The objective, its prompt kernel of bandwidth `sigma_prompt`."""
        latent = (
            MedianGaussian(SIGMA_SHARE) if not self.sigma_latent else Gaussian(self.sigma_latent)
        )
        kernels = [latent, Gaussian(sigma_prompt)][: 1 + self.is_conditional]
        truncation = [self.truncation] if self.objective.endswith("vendi") else []
        return OBJECTIVES[self.objective](*kernels, *truncation)

    def build_space(self) -> Space:
        """The space where samples are compared."""
        return SPACES[self.space] if isinstance(self.space, str) else self.space


def dial(strength: float) -> dict[str, Any]:
    """What the dial sets, by name, from 0, the stock pipeline, to 1, the most variety.

    Raises:
        ValueError: strength outside [0, 1].
    """
    if not isinstance(strength, Real) or not 0 <= float(strength) <= 1:
        raise ValueError(
            f"strength must be between 0, no guidance, and 1, the most variety, got {strength!r}"
        )
    return {"scale": Settings.scale * float(strength) / STRENGTH}


PRESETS = {
    "published": Settings(
        objective="conditional-rke", scale=0.03, rounds=0, space="latent", sigma_latent=0.8
    )
}
"""`published` is Jalali et al. (AISTATS 2026), appendix E."""


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
