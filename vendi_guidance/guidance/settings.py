"""The settings of guidance, defined once: name, type, default, range, typical values, help.

Each of the two algorithms has its settings: `Rounds` and `Published`. The arguments of
`VendiGuidance`, the guided pipelines' `diversity_*` arguments and the command line's options derive
from their fields. A test compares the table in docs/dial.md with them.
"""

import logging
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, InitVar, dataclass, field, fields, replace
from functools import cache
from inspect import Parameter, signature
from numbers import Real
from textwrap import TextWrapper
from typing import Any

from vendi_guidance.checks import check_count
from vendi_guidance.guidance.objectives import OBJECTIVES, MedianGaussian, Objective
from vendi_guidance.guidance.spaces import SPACES, Space
from vendi_guidance.kernels.standard import Gaussian

logger = logging.getLogger(__name__)

LARGEST_SCALE = 1e6
"""A move of this length replaces the latent altogether; a much longer one overflows."""

STRENGTH = 0.5
"""The default of the dial. docs/comparison.md shows its results and those of other strengths."""

FIRST_MOVE = 2.65
"""The default `Rounds.scale`, at that strength."""

SIGMA_SHARE = 0.7
"""The automatic `sigma_latent`, as a share of the median distance."""

SIGMA_PROMPT = 0.3
"""The published bandwidth, for unit-length pooled CLIP embeddings; they are about 1 apart."""


PROPOSALS = ("gradient", "prompt")
"""What can propose moves: see `engine.PROPOSERS`."""


class _NotGiven:
    """Marks an argument that was not given, where None is a valid value."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Any = _NotGiven()


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
    scale: float
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

    def _check_all(self) -> None:
        for setting in fields(self):
            _check(setting.name, getattr(self, setting.name), setting.metadata)

    def changed(
        self, preset: str | None = None, strength: float = NOT_GIVEN, **changes: Any
    ) -> "Rounds | Published":
        """These settings, or those of a preset, with changes by name; NOT_GIVEN is no change.

        A setting that only the other algorithm has selects that algorithm, with its defaults: a
        strength selects `Rounds`, `every` selects `Published`.

        Args:
            strength: position of the dial, applied before the changes.
            changes: `rounds=0`, the older way to ask for `Published`, keeps the common settings.

        Raises:
            ValueError: an unknown preset, a value out of its range, or a preset and a strength.
            TypeError: an unknown name.
        """
        if preset is not None and preset not in PRESETS:
            raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
        if unknown := changes.keys() - SETTINGS.keys():
            known = ", ".join(["strength", *SETTINGS])
            raise TypeError(f"there is no setting {min(unknown)!r}: the settings are {known}")
        dialled = {} if strength is NOT_GIVEN else dial(strength)
        if preset is not None and dialled.get("scale"):
            raise ValueError(
                f"preset {preset!r} has a scale instead of a strength, got strength {strength!r}"
            )
        given = {name: value for name, value in changes.items() if value is not NOT_GIVEN}
        base: Any = PRESETS[preset] if preset else self
        kind: Any
        if "rounds" in given:
            kind = Published if given["rounds"] == 0 else Rounds
            kept = _names(kind) & _names(type(base))
            base = kind(**{name: getattr(base, name) for name in kept})
        elif preset is None:
            kind = _meant(type(self), {*given, "rounds"} if dialled.get("scale") else given)
            base = base if kind is type(base) else kind()
        if given.get("rounds") == 0:
            del given["rounds"]
            _say_what_replaces_rounds_0()
        for name in given.keys() - _names(type(base)):
            value, setting = given.pop(name), SETTINGS[name][0]
            _check(name, value, setting.metadata)
            if value != setting.default:
                logger.warning("%s=%r has no effect on %s", name, value, type(base).__name__)
        return replace(base, **{**dialled, **given})

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
        strength (float): The dial, from 0 to 1 (the most variety). It sets `scale`.
        {settings}

    Raises:
        ValueError: a value out of its range, named in the message.

    Example:
        >>> Rounds(strength=1).scale, Rounds(level=0.3).budget
        (5.3, None)
    """

    strength: InitVar[float] = NOT_GIVEN
    scale: float = _setting(
        FIRST_MOVE,
        "The length of the first move, in units of the distance between the predictions for a "
        "prompt. The dial sets it. 0 turns guidance off: the stock pipeline, bit for bit.",
        range=(0, LARGEST_SCALE),
        typical="1.3 to 5.3",
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
        least=0,  # for the keyword and the option, where 0 stands for `Published`
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

    def __post_init__(self, strength: float) -> None:
        if strength is not NOT_GIVEN:
            object.__setattr__(self, "scale", dial(strength)["scale"])
        self._check_all()
        if self.rounds == 0:
            raise ValueError("rounds must be at least 1, got 0: guidance without is Published()")

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

    def __post_init__(self) -> None:
        self._check_all()


def settings_of(
    objective: str | Settings, preset: str | None, **changes: Any
) -> Rounds | Published:
    """The settings that the arguments of `VendiGuidance` mean. `objective` may be settings."""
    if not isinstance(objective, Settings):
        return Rounds().changed(preset, objective=objective, **changes)
    if preset is not None:
        raise ValueError(f"preset {preset!r} has settings of its own, got {objective!r}")
    return objective.changed(**changes)


def _names(kind: type[Settings]) -> set[str]:
    return {setting.name for setting in fields(kind)}


def _by_name() -> dict[str, list[Field[Any]]]:
    """The fields of both algorithms by name: two where a name means something else in each."""
    found: dict[str, list[Field[Any]]] = {}
    for setting in (*fields(Rounds), *fields(Published)):
        ones = found.setdefault(setting.name, [])
        if setting.metadata["help"] not in [it.metadata["help"] for it in ones]:
            ones.append(setting)
    return found


SETTINGS = _by_name()
"""All settings, by name."""


def _meant(kind: type[Settings], given: Iterable[str]) -> type[Settings]:
    """The algorithm that is the only one with one of these settings, or `kind`."""
    both = _names(Rounds) & _names(Published)
    for one in (Rounds, Published):
        if (_names(one) - both) & {*given}:
            return one
    return kind


@cache  # once
def _say_what_replaces_rounds_0() -> None:
    logger.warning(
        "rounds=0 is the older way to ask for guidance as published: write "
        'VendiGuidance(Published(every=...)) instead, or preset="published"'
    )


def dial(strength: float) -> dict[str, Any]:
    """The settings for a strength, by name. 0 is the stock pipeline, 1 the most variety.

    Raises:
        ValueError: strength outside [0, 1].
    """
    if not isinstance(strength, Real) or not 0 <= float(strength) <= 1:
        raise ValueError(
            f"strength must be between 0, no guidance, and 1, the most variety, got {strength!r}"
        )
    return {"scale": FIRST_MOVE * float(strength) / STRENGTH}


PRESETS = {"published": Published()}
"""`published` is Jalali et al. (AISTATS 2026), appendix E."""


def show_settings(function: Any, prefix: str = "", more: Sequence[Parameter] = ()) -> list[str]:
    """Add `more` parameters and all settings that a function does not name to its signature.

    They replace its `**kwargs`; with a prefix to their names they precede it. Returns their names.
    """
    own = signature(function)
    ours = [*more]
    for setting, (it, *_) in SETTINGS.items():
        if (name := prefix + setting) not in own.parameters:
            kind = Parameter.KEYWORD_ONLY
            ours.append(Parameter(name, kind, default=NOT_GIVEN, annotation=it.type))
    listed = list(own.parameters.values())
    rest = [listed.pop()] if listed[-1].kind is Parameter.VAR_KEYWORD else []
    function.__signature__ = own.replace(parameters=[*listed, *ours, *(rest if prefix else [])])
    return [it.name for it in ours]


def shown(value: Any, about: Mapping[str, Any]) -> str:
    """A setting's value, as text."""
    return about["none"] if value is None else f"{value:g}" if isinstance(value, float) else value


def described(about: Mapping[str, Any], default: Any) -> str:
    """Help, default, valid and typical values of a setting, as text."""
    text = f"{about['help']} Default: {shown(default, about)}. Valid: {_limits(about)}."
    return f"{text} Typical: {about['typical']}." if about["typical"] else text


def describe(prefix: str = "", kind: type[Settings] | None = None) -> str:
    """The settings as the Args section of a docstring.

    Args:
        kind: one algorithm, or None for both.
    """
    named = SETTINGS if kind is None else {it.name: [it] for it in fields(kind)}
    indent: Any = {"initial_indent": 8 * " ", "subsequent_indent": 12 * " "}
    wrapper, lines = TextWrapper(100, **indent, break_on_hyphens=False), []
    for name, ones in named.items():
        kind_of_value = ones[0].metadata["type"].__name__
        texts = (described(it.metadata, it.default) for it in ones)
        lines.append(wrapper.fill(f"{prefix}{name} ({kind_of_value}): {' '.join(texts)}"))
    return "\n".join(lines)


Rounds.__doc__ = (Rounds.__doc__ or "").format(settings=describe(kind=Rounds).strip())
Published.__doc__ = (Published.__doc__ or "").format(settings=describe(kind=Published).strip())
