"""What is compared: methods at their strengths."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
from PIL.Image import Image

from vendi_guidance.checks import nearest
from vendi_guidance.comparison.baselines import (
    LimitedInterval,
    ParticleGuidance,
    UndistilledFirst,
)
from vendi_guidance.comparison.embedding_noise import CADS, SeedVariance
from vendi_guidance.comparison.methods import Method, PipelineCall, Sample
from vendi_guidance.comparison.network import rows_counted
from vendi_guidance.comparison.selection import Select
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.runs.runner import Generated, Sampler

UNGUIDED = "unguided"
OURS = "ours"
UNDISTILLED = "undistilled-first"


@dataclass(frozen=True)
class MethodFamily:
    """A method, which is a curve over its strength.

    Attributes:
        title: for people.
        knob: the setting that is its strength.
        strengths: what is compared unless other ones are asked for, from weak to strong.
        kind: its class.
        fixed: its other settings, where they are not the defaults of the class.
    """

    title: str
    knob: str
    strengths: tuple[float, ...]
    kind: type[Method] = Method
    fixed: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> list[str]:
        """The names of all but its strength."""
        return [one.name for one in fields(self.kind) if one.name != self.knob]


FAMILIES = {
    OURS: MethodFamily("Vendi guidance", "strength", (0.25, 0.5, 1.0)),
    "seed-variance": MethodFamily("seed-variance noise", "strength", (8.0, 16.0), SeedVariance),
    "limited-interval": MethodFamily(
        "limited interval", "start", (0.3, 0.6), LimitedInterval, {"stop": 1.0}
    ),
    "select": MethodFamily("select from more", "pool", (4,), Select),
    "select-previews": MethodFamily(
        "select from previews", "pool", (4,), Select, {"preview_steps": 4}
    ),
    "cads": MethodFamily("CADS", "scale", (0.25, 0.5, 1.0), CADS),
    "particle-guidance": MethodFamily("particle guidance", "scale", (5.0, 20.0), ParticleGuidance),
    UNDISTILLED: MethodFamily("undistilled at first", "steps", (1,), UndistilledFirst),
}
"""By their names on the command line; the unguided is always compared."""

USUAL = (OURS, "seed-variance", "limited-interval", "select")


@dataclass(frozen=True)
class Entry:
    """A method at a strength: one run.

    Attributes:
        family: one of `FAMILIES`, or `UNGUIDED`.
        strength: None for the unguided.
        settings: other ones than the family's own, (name, value) each.
    """

    family: str
    strength: float | None = None
    settings: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """Of its run's folder."""
        if self.strength is None:
            return self.family
        words = [self.family, f"{self.strength:.10g}"]
        return "-".join(words + [f"{name}-{value:.10g}" for name, value in self.settings])

    @property
    def curve(self) -> str:
        """For people: a method and its settings, whatever its strength."""
        settings = [f"{name} {value:g}" for name, value in self.settings]
        return ", ".join([FAMILIES[self.family].title, *settings])

    @property
    def title(self) -> str:
        """For people."""
        if self.strength is None:
            return UNGUIDED
        return f"{self.curve} ({FAMILIES[self.family].knob} {self.strength:g})"

    @property
    def diversity(self) -> dict[str, Any]:
        """Settings of guidance."""
        return {"strength": self.strength if self.family == OURS else 0.0}

    def build(self) -> Method:
        """The method.

        Raises:
            ValueError: the strength or a setting is out of its range, or not the method's.
        """
        if self.strength is None:
            return Method()
        family, strength = FAMILIES[self.family], self.strength
        try:
            if self.family == OURS:
                Rounds(strength=strength)
                return Method()
            if float(strength).is_integer():
                strength = int(strength)
            return family.kind(**{family.knob: strength, **family.fixed, **dict(self.settings)})
        except ValueError as error:
            raise ValueError(f"{self.family}={self.strength:g}: {error}") from None

    def sampler(self) -> Sampler:
        """How its images are made."""
        about: dict[str, Any] = {"method": self.family}
        if self.strength is not None:
            about["method_strength"] = self.strength
        about |= {f"method_{name}": value for name, value in self.settings}
        return Sampler(partial(_generate, self.build()), about)


def _generate(method: Method, pipe: Any, arguments: dict[str, Any]) -> Generated:
    """The images of a method, for the arguments of a pipeline's call."""
    undistilled = pipe.guidance.undistilled
    # where it is not the scale that networks with distilled guidance are given: see `sampling_of`
    scale_name = "true_cfg_scale" if "true_cfg_scale" in arguments else "guidance_scale"

    def generate(samples: Sequence[Sample], steps: int | None = None) -> list[Image]:
        prompts = [sample.prompt for sample in samples]
        generators = [torch.Generator().manual_seed(sample.seed) for sample in samples]
        call = PipelineCall(pipe, prompts, generators, undistilled, scale_name)
        changed: dict[str, Any] = {"prompt": prompts, "generator": generators}
        if steps is not None:
            changed["num_inference_steps"] = steps
        with method.attached(call) as given:
            return pipe(**{**arguments, **changed, **given}).images

    seeds = [generator.initial_seed() for generator in arguments["generator"]]
    with rows_counted(pipe, undistilled) as rows:
        images = method.images(generate, list(map(Sample, arguments["prompt"], seeds)))
    return Generated(images, sum(rows))


def entries_of(methods: Sequence[str]) -> list[Entry]:
    """The unguided, then the methods asked for.

    Args:
        methods: names in `FAMILIES`, with strengths and settings if not the usual ones:
            "ours=0.25,0.5" or "seed-variance=8:stop=0.5:tokens_from=0.25".

    Raises:
        ValueError: there is no such method, strength or setting.
    """
    found = [Entry(UNGUIDED)]
    for asked in methods:
        head, *texts = asked.split(":")
        name, _, given = head.partition("=")
        if name not in FAMILIES:
            raise ValueError(
                f"--method must be one of {', '.join(FAMILIES)}, got {asked!r}"
                f"{nearest(name, FAMILIES)}"
            )
        try:
            strengths = [float(text) for text in given.split(",")] if given else []
        except ValueError:
            raise ValueError(f"--method {asked!r}: strengths are numbers, such as 4,8") from None
        settings = tuple(sorted(_setting(asked, name, text) for text in texts))
        if len(dict(settings)) < len(settings):
            raise ValueError(f"--method {asked!r} gives a setting more than once: give it once")
        found += [
            Entry(name, strength, settings) for strength in strengths or FAMILIES[name].strengths
        ]
    for entry in found:
        entry.build()
    return list(dict.fromkeys(found))


def _setting(asked: str, family: str, text: str) -> tuple[str, float]:
    """The setting that a part of `--method` names; ValueError if it is none of the method's."""
    (name, _, given), known = text.partition("="), FAMILIES[family].settings
    if name not in known:
        has = f"the settings of {family} are {', '.join(known)}" if known else "it has no settings"
        raise ValueError(f"--method {asked!r}: {has}, got {name!r}{nearest(name, known)}")
    try:
        value = json.loads(given)
    except ValueError:
        value = None
    if not isinstance(value, int | float):
        raise ValueError(f"--method {asked!r}: {name} is a number, true or false, got {given!r}")
    return name, value
