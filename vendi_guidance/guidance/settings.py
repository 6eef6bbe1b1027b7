"""The settings of guidance, defined once: name, type, default, range, typical values, help.

Each of the two algorithms has its settings: `Rounds` and `Published`. The arguments of
`VendiGuidance`, the guided pipelines' arguments and the command line's options derive from their
fields. A test compares the table in docs/dial.md with them.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, signature
from numbers import Real
from textwrap import TextWrapper
from typing import Any

from vendi_guidance.checks import check_count
from vendi_guidance.guidance.objectives import OBJECTIVES, MedianGaussian, Objective
from vendi_guidance.guidance.spaces import SPACES, Space
from vendi_guidance.kernels.standard import Gaussian

LARGEST_SCALE = 1e6
"""A move of this length replaces the latent altogether; a much longer one overflows."""

DIVERSITY = 0.5
"""The default of the dial. docs/comparison.md shows its results and those of other values."""

SIGMA_SHARE = 0.7
"""The automatic `sigma_latent`, as a share of the median distance."""

SIGMA_PROMPT = 0.3
"""The published bandwidth, for unit-length pooled CLIP embeddings; they are about 1 apart."""

PROPOSALS = ("gradient", "prompt")
"""What can propose moves: see `engine.PROPOSERS`."""


def _setting(default: Any, help: str, type: type = float, **about: Any) -> Any:
    """A field of settings, of type float, int or str.

    `about` may have: `range`, the (least, largest) float; `above`, True to exclude the least;
    `least`, of an int, 1 by default; `choices`, the names allowed; `none`, what None means;
    `typical`, the values in use; `command_line`, False for a setting without an option.
    """
    usual = {
        "range": None,
        "least": 1,
        "above": False,
        "choices": None,
        "none": None,
        "typical": None,
        "command_line": True,
    }
    return field(default=default, metadata={"help": help, "type": type, **usual, **about})


def _check(name: str, value: Any, about: Mapping[str, Any]) -> None:
    """Raise ValueError unless this is a valid value of the setting."""
    if value is None and about["none"] is not None:
        return
    if about["choices"] is not None:
        if not hasattr(value, "view") and value not in about["choices"]:
            raise ValueError(f"{name} must be {_limits(about)}, got {value!r}")
    elif about["type"] is int:
        check_count(name, value, about["least"])
    else:
        low, high = about["range"][0], min(about["range"][1], sys.float_info.max)
        in_range = isinstance(value, Real) and low <= value <= high
        if not in_range or (about["above"] and value == low):
            raise ValueError(f"{name} must be {_limits(about)}, got {value!r}")


def _limits(about: Mapping[str, Any]) -> str:
    """The valid values of a setting, as text."""
    if about["choices"] is not None:
        return f"one of {', '.join(about['choices'])}"
    if about["type"] is int:
        return f"at least {about['least']}"
    low, high = about["range"]
    if math.isinf(high):
        return f"finite and {'greater than' if about['above'] else 'at least'} {low:g}"
    return f"between {low:g} and {high:g}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of both algorithms: the score, and the space in which it compares samples."""

    objective: str = _setting(
        "conditional-vendi",
        'The score to raise. "conditional-rke" and "conditional-vendi" compare samples of similar '
        'prompts, "rke" and "vendi" all samples.',
        str,
        choices=tuple(OBJECTIVES),
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
        "The weight of the exemplars' score, which is subtracted.",
        range=(0, math.inf),
        command_line=False,
    )

    def __post_init__(self) -> None:
        for setting in fields(self):
            _check(setting.name, getattr(self, setting.name), setting.metadata)

    @property
    def is_off(self) -> bool:
        """Whether guidance does nothing, so that the pipeline is the stock one."""
        raise NotImplementedError

    @property
    def needs_prediction(self) -> bool:
        """Whether guidance needs the step's prediction of clean latents."""
        return self.build_space().needs_prediction

    @property
    def is_conditional(self) -> bool:
        """Whether the objective compares prompts."""
        return self.objective.startswith("conditional")

    def build_objective(self, sigma_prompt: float) -> Objective:
        """The objective, with a prompt kernel of bandwidth `sigma_prompt`."""
        sigma = self.sigma_latent
        latent = Gaussian(sigma) if sigma else MedianGaussian(SIGMA_SHARE)
        prompt = Gaussian(sigma_prompt) if self.is_conditional else None
        truncation = [self.truncation] if self.objective.endswith("vendi") else []
        return OBJECTIVES[self.objective](latent, prompt, *truncation)

    def build_space(self) -> Space:
        """The space in which samples are compared."""
        return SPACES[self.space] if isinstance(self.space, str) else self.space


@dataclass(frozen=True, kw_only=True)
class Rounds(Settings):
    """Guidance in rounds at one noise level, each answered by the network: `guidance.rounds`.

    Args:
        {settings}

    Raises:
        ValueError: a value out of its range, named in the message.

    Example:
        >>> Rounds(diversity=1).diversity, Rounds(level=0.3).budget
        (1, None)
    """

    diversity: float = _setting(
        DIVERSITY,
        "The dial: 0 is the stock pipeline, bit for bit, 1 the most variety. It sets how far "
        "images move, relative to the distance between the network's predictions for a prompt.",
        range=(0, 1),
    )
    budget: float | None = _setting(
        None,
        "Evaluations of the network in a call, as a multiple of the stock call's. Rounds use what "
        "the steps before them, and those with less classifier-free guidance (CFG), save: at least "
        "8 evaluations, so that short calls take more than the budget, and at most 16 times the "
        "budget. Without CFG they come on top: up to 16, and no more than the call has steps; in "
        "calls of up to 9 steps two, or four where the undistilled network makes the rounds.",
        range=(0, math.inf),
        above=True,
        typical="0.8 to 1.5",
        none="0.8, rising to 1.5 in the upper half of the dial",
    )
    rounds: int | None = _setting(
        None,
        "How many times the denoising step at the noise level `level` is repeated. Each round adds "
        "fresh noise and a move, shorter from round to round, and evaluates the network. CFG is "
        "off before the rounds. Calls that cannot afford this number have fewer, longer moves.",
        int,
        typical="4 to 12",
        none="what the budget allows",
    )
    candidates: int | None = _setting(
        None,
        "How many noises a round tries for each sample. It keeps the one whose prediction differs "
        "most from the other samples'. Each takes one evaluation of the network.",
        int,
        typical="1 to 3",
        none="2, or 3 where the budget pays for more than 16 evaluations in rounds",
    )
    level: float = _setting(
        0.2,
        "The noise level of the rounds: the noise-to-signal ratio, divided by the square root of "
        "the number of elements of a latent. A higher level is earlier in the schedule: it keeps "
        "more of what prompts say, and images differ less.",
        range=(0, math.inf),
        above=True,
        typical="0.05 to 0.4",
    )
    cfg: float = _setting(
        0.5,
        "The share of classifier-free guidance (CFG) after the rounds: a scale w becomes "
        "1 + cfg (w - 1). CFG restores what prompts say, and makes samples more alike. Below a "
        "noise-to-signal ratio of 0.75 CFG is off, whatever `cfg` is.",
        range=(0, 1),
        typical="0.25 to 1",
    )
    proposal: str | None = _setting(
        None,
        'What proposes moves: "gradient", the gradient of the score; or "prompt", the prediction '
        "for a perturbed prompt, which takes two evaluations of the network. Automatic is the "
        "prompt in calls of up to 9 steps without CFG, whose networks undo moves along a gradient, "
        "unless an undistilled network predicts in the rounds.",
        str,
        choices=PROPOSALS,
        none="automatic",
    )

    @property
    def is_off(self) -> bool:
        return self.diversity == 0

    @property
    def needs_prediction(self) -> bool:
        return True


def _with_default(name: str, default: Any) -> Any:
    """A common setting, with another default."""
    return field(default=default, metadata=Settings.__dataclass_fields__[name].metadata)


@dataclass(frozen=True, kw_only=True)
class Published(Settings):
    """Guidance as published, at every N-th denoising step: `guidance.published`.

    The defaults are those of Jalali et al. (AISTATS 2026), appendix E.

    Args:
        {settings}

    Raises:
        ValueError: a value out of its range, named in the message.

    Example:
        >>> Published(every=5).scale, Published().objective
        (0.03, 'conditional-rke')
    """

    objective: str = _with_default("objective", "conditional-rke")
    space: str | Space = _with_default("space", "latent")  # noqa: RUF009
    sigma_latent: float | None = _with_default("sigma_latent", 0.8)
    scale: float = _setting(
        0.03,
        "As published: the length of each guidance step, as a share of the norm of the latents. 0 "
        "turns guidance off.",
        range=(0, LARGEST_SCALE),
        typical="0.01 to 0.1",
    )
    every: int = _setting(
        10,
        "As published: guide every N-th denoising step, the first one included, the last one "
        "never. Where the scheduler would discard a change, guidance waits for the next step that "
        "keeps it.",
        int,
        typical="5 to 10",
    )

    @property
    def is_off(self) -> bool:
        return self.scale == 0


PRESETS = {"published": Published()}
"""`published` is Jalali et al. (AISTATS 2026), appendix E."""

SETTINGS = {"diversity": Rounds.__dataclass_fields__["diversity"]} | {
    it.name: it for it in (*fields(Published), *fields(Rounds))
}
"""The settings of both algorithms by name, with the defaults of `Rounds` where they differ."""


def adjusted(
    settings: Rounds | Published,
    changes: Mapping[str, Any],
    preset: str | None = None,
    typed: Callable[[str], str] = str,
) -> Rounds | Published:
    """The settings, or those of a preset, with changes.

    Args:
        changes: new values, by name.
        typed: the user's spelling of a name, for messages.

    Raises:
        ValueError: an unknown preset, or a value out of its range.
        TypeError: a setting does not exist, or only the other algorithm has it.
    """
    if preset is not None:
        if preset not in PRESETS:
            known = ", ".join(PRESETS)
            raise ValueError(f"{typed('preset')} must be one of {known}, got {preset!r}")
        settings = PRESETS[preset]
    for name, value in changes.items():
        if name not in SETTINGS:
            known = ", ".join(map(typed, SETTINGS))
            raise TypeError(f"there is no setting {name!r}: the settings are {known}")
        if not hasattr(settings, name):
            _refuse(name, value, settings, preset, typed)
        _check(typed(name), value, SETTINGS[name].metadata)
    return replace(settings, **changes)


def _refuse(
    name: str, value: Any, settings: Settings, preset: str | None, typed: Callable[[str], str]
) -> None:
    """Raise TypeError for a setting that only the other algorithm has, with the remedy."""
    own, other = (
        ("Rounds", "Published") if isinstance(settings, Rounds) else ("Published", "Rounds")
    )
    given = f'{typed("preset")}="published"'
    if own == "Rounds":
        remedy = f"add {given}"
    elif preset is not None:
        remedy = f"leave out {given}"
    else:
        remedy = f"leave it out, or use Rounds({name}={value!r})"
    raise TypeError(f"{typed(name)} is a setting of {other}, not of {own}: {remedy}")


def with_prefix(name: str) -> str:
    """The name of a setting in calls of guided pipelines and in the metadata of runs: the dial is
    `diversity`, the others have the prefix `diversity_`."""
    return name if name == "diversity" else f"diversity_{name}"


def show_settings(
    function: Any, named: Callable[[str], str] = str, more: Sequence[Parameter] = ()
) -> list[str]:
    """Add `more` parameters and all settings, by the names `named`, to a function's signature.

    They replace `**changes`, if it has it. Returns their names.
    """
    own = signature(function)
    ours = [*more] + [
        Parameter(named(name), Parameter.KEYWORD_ONLY, default=..., annotation=it.type)
        for name, it in SETTINGS.items()
    ]
    listed = [it for it in own.parameters.values() if it.name != "changes"]
    rest = [listed.pop()] if listed[-1].kind is Parameter.VAR_KEYWORD else []
    function.__signature__ = own.replace(parameters=[*listed, *ours, *rest])
    return [it.name for it in ours]


def shown(value: Any, about: Mapping[str, Any]) -> str:
    """A setting's value, as text."""
    return about["none"] if value is None else f"{value:g}" if isinstance(value, float) else value


def described(about: Mapping[str, Any], default: Any) -> str:
    """Help, default, valid and typical values of a setting, as text."""
    text = f"{about['help']} Default: {shown(default, about)}. Valid: {_limits(about)}."
    return f"{text} Typical: {about['typical']}." if about["typical"] else text


def describe(named: Callable[[str], str] = str, kind: type[Settings] | None = None) -> str:
    """The settings, by the names `named`, as the Args section of a docstring.

    Args:
        kind: one algorithm, or None for both.
    """
    settings = SETTINGS.values() if kind is None else fields(kind)
    indent: Any = {"initial_indent": 8 * " ", "subsequent_indent": 12 * " "}
    wrapper = TextWrapper(100, **indent, break_on_hyphens=False)
    return "\n".join(
        wrapper.fill(
            f"{named(it.name)} ({it.metadata['type'].__name__}): "
            + described(it.metadata, it.default)
        )
        for it in settings
    ).strip()


Rounds.__doc__ = (Rounds.__doc__ or "").format(settings=describe(kind=Rounds))
Published.__doc__ = (Published.__doc__ or "").format(settings=describe(kind=Published))
