"""The methods compared, and the settings that each is tuned over."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scripts.comparison import baselines
from scripts.comparison.sampling import Call, Method
from vendi_guidance import VendiGuidance

UNGUIDED = "unguided"
OTHER_SCALE = "classifier-free-scale"
PUBLISHED = "vendi-as-published"
UNCONDITIONAL = "ours-unconditional"
CONDITIONAL = "ours-conditional"


class Guided(Method):
    """Vendi guidance as one of the methods, for one trial: all its calls share the window.

    Args:
        settings: of `VendiGuidance`, by name.
    """

    def __init__(self, **settings: Any) -> None:
        self.guidance = VendiGuidance(**{"prompt_input": "add_text_embeds"} | settings)

    def changes(self, call: Call) -> dict[str, Any]:
        return self.guidance.on(call.pipe, call.generators, call.guidance_scale)


METHODS: dict[str, type[Method]] = {
    UNGUIDED: baselines.Unguided,
    OTHER_SCALE: baselines.Unguided,
    **baselines.METHODS,
    PUBLISHED: Guided,
    UNCONDITIONAL: Guided,
    CONDITIONAL: Guided,
}
"""By their names in tables and figures."""


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
        return METHODS[self.method](**self.settings)

    def in_words(self) -> str:
        """The settings: "scale 0.4, stop 0.3"."""
        given = self.settings
        if self.method in (UNGUIDED, OTHER_SCALE):
            given = {"classifier-free scale": self.guidance_scale}
        return ", ".join(
            f"{name.replace('_', ' ')} {'none' if value is None else value}"
            for name, value in given.items()
        )


OURS = {
    "space": "denoised",
    "step_rule": "adaptive",
    "scale": 1.4,
    "schedule": "linear",
    "sigma_latent": 0.5,
    "every": 1,
    "stop": 0.8,
    "renoise_start": 0.3,
    "renoise_stop": 0.8,
    "renoise_shrink": 0.15,
    "cfg_start": 0.8,
}
"""Adaptive steps that decay; CFG off until 0.8; noise redrawn around predictions that are shrunk
towards their mean."""

VARIED = OURS | {"step_rule": "normalized", "scale": 0.4}
"""With the published step rule: `preset="varied"`."""

UNSHRUNK = OURS | {"sigma_latent": 0.3, "renoise_shrink": 0.0}
"""Without shrinking, a narrower kernel is best."""

SPACES_AND_STEPS = [
    VARIED,
    OURS,
    VARIED | {"space": "latent", "scale": 0.2, "sigma_latent": 0.8},
    OURS | {"space": "latent", "sigma_latent": 0.8},
]
"""Both of these step rules in both spaces."""

PUBLISHED_BASE = {"preset": "published", "objective": "conditional-vendi"}
"""Jalali et al. (AISTATS 2026), appendix E: on noisy latents, at all steps."""


def _with(objective: str, given: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"objective": objective} | one for one in given]


def _changed(**values: Sequence[Any]) -> list[dict[str, Any]]:
    """Ours, with one setting at a time changed."""
    return [OURS | {name: value} for name, others in values.items() for value in others]


SWEEPS: dict[str, list[dict[str, Any]]] = {
    "limited-interval": [{"start": start, "stop": 1.0} for start in (0.3, 0.5, 0.6)],
    "cads": [
        *({"scale": scale} for scale in (0.25, 1.0)),
        {"scale": 0.25, "tau1": 0.4, "tau2": 0.8},
    ],
    "seed-variance": [
        *({"strength": strength} for strength in (24.0, 8.0, 16.0, 32.0)),
        {"strength": 24.0, "stop": 0.3},
    ],
    "particle-guidance": [{"scale": scale} for scale in (5.0, 10.0, 20.0)],
    PUBLISHED: [
        PUBLISHED_BASE,
        PUBLISHED_BASE | {"scale": 0.1, "every": 2},
        PUBLISHED_BASE | {"scale": 0.2, "every": 2},
    ],
    UNCONDITIONAL: [
        *_with("vendi", [*SPACES_AND_STEPS, UNSHRUNK]),
        *_with("rke", SPACES_AND_STEPS),
    ],
    CONDITIONAL: [
        *_with("conditional-vendi", [*SPACES_AND_STEPS, UNSHRUNK]),
        *_with("conditional-rke", SPACES_AND_STEPS),
        *_with(
            "conditional-vendi",
            _changed(
                scale=(1.0, 2.0),
                stop=(0.5,),
                renoise_stop=(0.6,),
                renoise_shrink=(0.0,),
                cfg_start=(0.6,),
                every=(2,),
            ),
        ),
        {"preset": "standard"},
    ],
}
"""Settings by method, the best one first. Ours: every objective with these spaces and step rules,
then `OURS` with one setting at a time changed."""

OTHER_SCALES = (3.0, 2.0, 1.0)


def sweep(guidance_scale: float, methods: Sequence[str], quick: bool) -> list[Candidate]:
    """The candidates of each method, the unguided first.

    Args:
        guidance_scale: of classifier-free guidance, for all but the method that changes it.
        methods: of `METHODS`; the unguided is always included, as the baseline.
        quick: the first setting of each.
    """
    found = [Candidate(UNGUIDED, {}, guidance_scale)]
    for method in METHODS:
        if method not in methods or method == UNGUIDED:
            continue
        if method == OTHER_SCALE:
            tried = [Candidate(method, {}, one) for one in OTHER_SCALES if one != guidance_scale]
        else:
            tried = [Candidate(method, given, guidance_scale) for given in SWEEPS[method]]
        found += tried[:1] if quick else tried
    return found
