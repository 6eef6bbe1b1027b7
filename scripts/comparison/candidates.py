"""The methods compared: the strengths of each, and the other settings that it is tuned over."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from vendi_guidance import VendiGuidance
from vendi_guidance.comparison import baselines
from vendi_guidance.comparison.embedding_noise import CADS, SeedVariance
from vendi_guidance.comparison.entries import FAMILIES, OURS, UNGUIDED
from vendi_guidance.comparison.methods import Call, Method
from vendi_guidance.comparison.selection import Select, SelectPreviews
from vendi_guidance.guidance.mixins import DiversityGuided
from vendi_guidance.guidance.settings import STRENGTH

OURS_KNOB = "strength"
OURS_STRENGTHS = (0.25, 0.5, 1.0)
"""Of ours, from weak to strong; the last one is ours at its strongest."""

OURS_DEFAULT = STRENGTH

CFG_KNOB = "guidance_scale"
"""The strength of methods that are the classifier-free scale itself: the lower, the stronger."""


class Guided(Method):
    """Vendi guidance as one of the methods, for one trial: all its calls share the window.

    Args:
        settings: of `VendiGuidance`, by name.
    """

    def __init__(self, **settings: Any) -> None:
        self.guidance = VendiGuidance(**settings)

    @contextmanager
    def attached(self, call: Call) -> Iterator[dict[str, Any]]:
        pipe = call.pipe
        if not isinstance(pipe, DiversityGuided):
            yield self.guidance.on(pipe, call.generators)
            return
        resting, pipe.guidance = pipe.guidance, self.guidance
        try:
            yield {}
        finally:
            pipe.guidance = resting


@dataclass(frozen=True)
class Candidate:
    """A method with settings.

    Attributes:
        method: one of `METHODS`.
        settings: what it is made with, JSON values.
        guidance_scale: of classifier-free guidance.
    """

    method: str
    settings: dict[str, Any]
    guidance_scale: float

    def build(self) -> Method:
        """The method, with an empty window."""
        return METHODS[self.method].kind(**self.settings)

    @property
    def strength(self) -> Any:
        """Its place on the method's curve; None for the unguided."""
        knob = METHODS[self.method].knob
        return self.guidance_scale if knob == CFG_KNOB else self.settings.get(knob)

    @property
    def other_settings(self) -> dict[str, Any]:
        """The settings but its strength."""
        knob = METHODS[self.method].knob
        return {name: value for name, value in self.settings.items() if name != knob}

    def in_words(self) -> str:
        """The settings: "scale 0.4, stop 0.3"."""
        given = self.settings
        if METHODS[self.method].knob == CFG_KNOB:
            given = {"CFG scale": self.guidance_scale} | given
        return ", ".join(
            f"{name.replace('_', ' ')} {'none' if value is None else value}"
            for name, value in given.items()
        )


@dataclass(frozen=True)
class Family:
    """A method, which is a curve over its strength.

    Attributes:
        kind: its class.
        knob: the setting that is its strength, or `CFG_KNOB`.
        strengths: values of the knob, from weak to strong.
        settings: other settings, of which the sweep chooses; the first are used untuned.
    """

    kind: type[Method]
    knob: str = CFG_KNOB
    strengths: tuple[Any, ...] = ()
    settings: tuple[dict[str, Any], ...] = ({},)

    @property
    def middle(self) -> Any:
        """The strength at which the other settings are compared."""
        return self.strengths[len(self.strengths) // 2]


STRENGTHS = {name: family.strengths for name, family in FAMILIES.items()}
"""As `vendi-guidance compare` has them."""

PUBLISHED = {"preset": "published", "objective": "conditional-vendi"}
"""Jalali et al. (AISTATS 2026), appendix E."""

METHODS: dict[str, Family] = {
    UNGUIDED: Family(baselines.Unguided),
    "classifier-free-scale": Family(baselines.Unguided, CFG_KNOB, (3.0, 1.0)),
    "limited-interval": Family(
        baselines.LimitedInterval, "start", STRENGTHS["limited-interval"], ({"stop": 1.0},)
    ),
    "cads": Family(CADS, "scale", STRENGTHS["cads"], ({}, {"tau1": 0.4, "tau2": 0.8})),
    "seed-variance": Family(
        SeedVariance, "strength", STRENGTHS["seed-variance"], ({}, {"stop": 0.3})
    ),
    "seed-variance-tokens": Family(
        SeedVariance,
        "strength",
        STRENGTHS["seed-variance"],
        ({"pooled": False}, {"pooled": False, "stop": 0.3}),
    ),
    "particle-guidance": Family(
        baselines.ParticleGuidance, "scale", STRENGTHS["particle-guidance"]
    ),
    "select": Family(Select, CFG_KNOB, (2.0, 1.0), ({"pool": 4},)),
    "select-previews": Family(SelectPreviews, CFG_KNOB, (2.0,), ({"pool": 4, "preview_steps": 4},)),
    "vendi-as-published": Family(
        Guided, "scale", (0.03, 0.2), (PUBLISHED, PUBLISHED | {"every": 2})
    ),
    OURS: Family(Guided, OURS_KNOB, OURS_STRENGTHS),
}
"""By their names in tables and figures; ours is the last."""

ABLATIONS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one candidate": {"candidates": 1},
    "all of CFG afterwards": {"cfg": 1.0},
    "unconditional objective": {"objective": "vendi"},
}
"""Changes of ours, drawn with the tuning prompts alone."""


def at(method: str, strength: Any, settings: dict[str, Any], guidance_scale: float) -> Candidate:
    """A method at a strength, one of its family's.

    Args:
        settings: the other ones.
        guidance_scale: of classifier-free guidance, unless that is the strength.
    """
    knob = METHODS[method].knob
    if knob == CFG_KNOB:
        return Candidate(method, settings, strength)
    return Candidate(method, settings | {knob: strength}, guidance_scale)


def unguided(guidance_scale: float) -> Candidate:
    return Candidate(UNGUIDED, {}, guidance_scale)


def ours(strength: Any, guidance_scale: float) -> Candidate:
    return at(OURS, strength, METHODS[OURS].settings[0], guidance_scale)


def sweep(guidance_scale: float, methods: Sequence[str]) -> list[Candidate]:
    """The unguided, then the other settings of each method that has a choice of them."""
    families = {name: METHODS[name] for name in methods if len(METHODS[name].settings) > 1}
    return [unguided(guidance_scale)] + [
        at(name, family.middle, settings, guidance_scale)
        for name, family in families.items()
        for settings in family.settings
    ]


def curve(
    method: str, settings: dict[str, Any], guidance_scale: float, quick: bool
) -> list[Candidate]:
    """A method at all its strengths, from weak to strong; nothing for the unguided.

    Args:
        guidance_scale: of the model; where it is 1, there is no classifier-free guidance to change.
        quick: the middle strength, and of ours the default and the strongest.
    """
    strengths = METHODS[method].strengths
    if quick:
        of_ours = tuple(dict.fromkeys((OURS_DEFAULT, *OURS_STRENGTHS[-1:])))
        strengths = of_ours if method == OURS else (METHODS[method].middle,)
    kind, has_cfg = METHODS[method].kind, guidance_scale > 1
    if not has_cfg and METHODS[method].knob == CFG_KNOB:
        strengths = (guidance_scale,)
    if not has_cfg and kind is baselines.LimitedInterval:
        strengths = ()
    if kind is baselines.Unguided:  # at its own scale it is the unguided
        strengths = tuple(scale for scale in strengths if scale != guidance_scale)
    return [at(method, strength, settings, guidance_scale) for strength in strengths]


def ablations(guidance_scale: float) -> dict[str, Candidate]:
    """Ours at its default with each of the changes, by their names."""
    plain = ours(OURS_DEFAULT, guidance_scale)
    return {
        name: Candidate(OURS, plain.settings | changes, guidance_scale)
        for name, changes in ABLATIONS.items()
    }
