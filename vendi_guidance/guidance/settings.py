"""The settings of the two algorithms, `Rounds` and `Published`, each said once.

The fields and their descriptions make the arguments of `VendiGuidance` and of guided pipelines, the
command line's options, and the table in docs/dial.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from vendi_guidance.guidance.objectives import OBJECTIVES, MedianGaussian, Objective
from vendi_guidance.guidance.setting import Spelling, complete_docstring, setting, settings_of
from vendi_guidance.guidance.spaces import SPACES, Space
from vendi_guidance.kernels.standard import Gaussian

DIVERSITY = 0.5
"""The default of the dial. docs/results.md shows its results and those of other values."""

SIGMA_SHARE = 0.7
"""The automatic `sigma_latent`, as a share of the median distance."""

SIGMA_PROMPT = 0.3
"""The published bandwidth, for unit-length pooled CLIP embeddings; they are about 1 apart."""

PROPOSALS = ("gradient", "prompt", "steps")
"""What can propose moves."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of both algorithms: the score, and the space in which it compares samples.

    Args:
        objective: The score to raise. "conditional-rke" and "conditional-vendi" compare samples of
            similar prompts, "rke" and "vendi" all samples.
        space: What is compared: "latent", the noisy latents, as published; "denoised", the
            predicted clean latents. In Python also an ImageSpace(encoder).
        sigma_latent: The bandwidth of the Gaussian kernel on unit-length latents, or on what space
            compares. Automatic is 0.7 times the median distance between samples of similar prompts.
        sigma_prompt: The bandwidth of the Gaussian kernel on unit-length prompt embeddings.
            Automatic is the published 0.3 for pooled CLIP embeddings, and 0.3 times the median
            distance between the prompts seen for others, fixed once there are ten.
        truncation: How many eigenvalues the two Vendi objectives keep.
        beta: The weight of the exemplars' score, which is subtracted.
    """

    objective: str = setting("conditional-vendi", str, choices=tuple(OBJECTIVES))
    space: str | Space = setting("denoised", str, choices=tuple(SPACES))  # noqa: RUF009
    sigma_latent: float | None = setting(None, above=True, none="automatic")
    sigma_prompt: float | None = setting(None, above=True, none="automatic")
    truncation: int | None = setting(None, int, least=1, none="all")
    beta: float = setting(0.5, has_option=False)

    def __post_init__(self) -> None:
        for it in fields(self):
            replace(it.metadata["setting"], name=it.name).check(getattr(self, it.name))

    @property
    def needs_prediction(self) -> bool:
        """Whether guidance needs the step's prediction of clean latents."""
        return isinstance(self, Rounds) or self.build_space().needs_prediction

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
        diversity: The dial: 0 is the stock pipeline, bit for bit, 1 the most variety. In rounds the
            default has nearly all of it.
        rounds: How many times the denoising step at the noise level `level` is repeated. Each round
            adds fresh noise and a move, shorter from round to round, and evaluates the network. CFG
            is off before the rounds. Calls that cannot afford this number have fewer. Automatic is
            16 times the dial, and 4 with an undistilled network.
        level: The noise level of the rounds: the noise-to-signal ratio, divided by the square root
            of the number of elements of a latent. A higher level is earlier in the schedule: it
            keeps more of what prompts say, and images differ less.
        cfg: The share of classifier-free guidance (CFG) after the rounds: a scale w becomes
            1 + cfg (w - 1). CFG restores what prompts say, and makes samples more alike. Below a
            noise-to-signal ratio of 0.75 CFG is off, whatever `cfg` is.
        proposal: What proposes moves: "gradient", the gradient of the score; "prompt", the
            prediction for a perturbed prompt, which takes two evaluations of the network; or
            "steps", the gradient at the call's own steps, without rounds and with all of CFG.
            Automatic is the steps where rounds would lose what prompts say, and above 9 steps in
            joint networks, unless `rounds` is set; else the prompt in calls of up to 9 steps
            without CFG, whose networks undo moves along a gradient, unless an undistilled network
            predicts in the rounds.

    Raises:
        ValueError: a value out of its range, named in the message.

    Example:
        >>> Rounds(diversity=1).diversity, Rounds(level=0.3).rounds
        (1, None)
    """

    diversity: float = setting(DIVERSITY, most=1)
    rounds: int | None = setting(None, int, least=1, typical="4 to 12", none="automatic")
    level: float = setting(0.2, above=True, typical="0.05 to 0.4")
    cfg: float = setting(0.5, most=1, typical="0.25 to 1")
    proposal: str | None = setting(None, str, choices=PROPOSALS, none="automatic")

    @property
    def is_off(self) -> bool:
        """Whether guidance does nothing, so that the pipeline is the stock one."""
        return self.diversity == 0

    @property
    def wants_rounds(self) -> bool:
        """Whether rounds are asked for, whatever the network: by name or by their number."""
        is_counted = self.proposal is None and self.rounds is not None
        return self.proposal == "gradient" or is_counted


@dataclass(frozen=True, kw_only=True)
class Published(Settings):
    """Guidance as published, gradient ascent at every N-th denoising step (Jalali et al., AISTATS
    2026, equation 14; defaults of appendix E):

        z <- z + eta grad_z Score(z_1..n | t_1..n),

    with the gradient of each sample rescaled to the length eta |z|, and the norm of z kept.

    Args:
        scale: As published: the length of each guidance step, as a share of the norm of the
            latents. 0 turns guidance off.
        every: As published: guide every N-th denoising step, the first one included, the last one
            never. Where the scheduler would discard a change, guidance waits for the next step that
            keeps it.

    Raises:
        ValueError: a value out of its range, named in the message.

    Example:
        >>> Published(every=5).scale, Published().objective
        (0.03, 'conditional-rke')
    """

    objective: str = setting("conditional-rke", str, choices=tuple(OBJECTIVES))
    space: str | Space = setting("latent", str, choices=tuple(SPACES))  # noqa: RUF009
    sigma_latent: float | None = setting(0.8, above=True, none="automatic")
    scale: float = setting(0.03, typical="0.01 to 0.1")
    every: int = setting(10, int, least=1, typical="5 to 10")

    @property
    def is_off(self) -> bool:
        """See `Rounds.is_off`."""
        return self.scale == 0


PRESETS = {"published": Published()}

SETTINGS = {"diversity": settings_of(Rounds)["diversity"]}
SETTINGS |= settings_of(Published) | settings_of(Rounds)
"""The settings of both algorithms by name, with the defaults of `Rounds` where they differ."""

complete_docstring(Rounds)
complete_docstring(Published)


def with_prefix(name: str) -> str:
    """The name of a setting in calls of guided pipelines and in the metadata of runs: the dial is
    `diversity`, the others have the prefix `diversity_`."""
    return name if name == "diversity" else f"diversity_{name}"


def adjusted(
    settings: Rounds | Published,
    changes: Mapping[str, Any],
    preset: str | None = None,
    typed: Spelling = str,
) -> Rounds | Published:
    """The settings, or those of a preset, with changes. ValueError for an unknown preset or a value
    out of its range, TypeError for a setting that only the other algorithm has, or none, and for
    settings of another type; `typed` is the user's spelling of names, for messages."""
    if not isinstance(settings, Rounds | Published):
        raise TypeError(f"settings must be Rounds(...) or Published(...), got {settings!r}")
    if preset is not None and preset not in PRESETS:
        known = ", ".join(PRESETS)
        raise ValueError(f"{typed('preset')} must be one of {known}, got {preset!r}")
    base = settings if preset is None else PRESETS[preset]
    own, other = ("Rounds", "Published") if isinstance(base, Rounds) else ("Published", "Rounds")
    for name, value in changes.items():
        if name not in SETTINGS:
            known = ", ".join(map(typed, SETTINGS))
            raise TypeError(f"there is no setting {name!r}: the settings are {known}")
        if not hasattr(base, name):
            published = f'{typed("preset")}="published"'
            remedy = f"leave out {published}, or use Rounds({name}={value!r})"
            if own == "Rounds":
                remedy = f"add {published}"
            raise TypeError(f"{typed(name)} is a setting of {other}, not of {own}: {remedy}")
        SETTINGS[name].check(value, typed)
    return replace(base, **changes)
