"""The entries of a comparison: methods at their strengths."""

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
from vendi_guidance.comparison.selection import Select
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.runs.runner import Generated, Sampler
from vendi_guidance.runs.sweep import rows_counted

UNGUIDED = "unguided"
OURS = "ours"
UNDISTILLED = "undistilled-first"


@dataclass(frozen=True)
class MethodFamily:
    """A method at any strength.

    Attributes:
        title: display name.
        knob: the setting that serves as the strength.
        strengths: the strengths compared by default, ascending.
        kind: the method's class.
        fixed: other settings whose values differ from the class's defaults.
    """

    title: str
    knob: str
    strengths: tuple[float, ...]
    kind: type[Method] = Method
    fixed: dict[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> list[str]:
        """The names of all settings except the strength."""
        return [one.name for one in fields(self.kind) if one.name != self.knob]


FAMILIES = {
    OURS: MethodFamily("Vendi guidance", "diversity", (0.25, 0.5, 1.0)),
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
"""By name on the command line. The unguided run is always part of the comparison."""

USUAL = (OURS, "seed-variance", "limited-interval", "select")


@dataclass(frozen=True)
class Entry:
    """A method at a strength, which is one run.

    Attributes:
        family: a key of `FAMILIES`, or `UNGUIDED`.
        strength: None for `UNGUIDED`.
        settings: (name, value) of each setting that overrides the family's.
    """

    family: str
    strength: float | None = None
    settings: tuple[tuple[str, float], ...] = ()

    @property
    def name(self) -> str:
        """The name of the run's folder."""
        if self.strength is None:
            return self.family
        settings = [f"{name}-{value:.10g}" for name, value in self.settings]
        return "-".join([self.family, f"{self.strength:.10g}", *settings])

    @property
    def curve(self) -> str:
        """Display name of the method with its settings, without the strength."""
        settings = [f"{name} {value:g}" for name, value in self.settings]
        return ", ".join([FAMILIES[self.family].title, *settings])

    @property
    def title(self) -> str:
        """Display name of the entry."""
        if self.strength is None:
            return UNGUIDED
        return f"{self.curve} ({FAMILIES[self.family].knob} {self.strength:g})"

    @property
    def diversity(self) -> dict[str, Any]:
        """Settings of `VendiGuidance`."""
        return {"diversity": self.strength if self.family == OURS else 0.0}

    def build(self) -> Method:
        """Create the method.

        Raises:
            ValueError: the strength or a setting is out of range, or the method lacks the setting.
        """
        if self.strength is None:
            return Method()
        family, strength = FAMILIES[self.family], self.strength
        try:
            if self.family == OURS:
                Rounds(diversity=strength)
                return Method()
            if float(strength).is_integer():
                strength = int(strength)
            return family.kind(**{family.knob: strength, **family.fixed, **dict(self.settings)})
        except ValueError as error:
            raise ValueError(f"{self.family}={self.strength:g}: {error}") from None

    def sampler(self) -> Sampler:
        """How a run generates the images of this entry."""
        about: dict[str, Any] = {"method": self.family}
        if self.strength is not None:
            about["method_strength"] = self.strength
        about |= {f"method_{name}": value for name, value in self.settings}
        return Sampler(partial(_generate, self.build()), about)


def _generate(method: Method, pipe: Any, arguments: dict[str, Any]) -> Generated:
    """Generate images with a method, given the arguments of a pipeline call."""
    undistilled = pipe.guidance.undistilled
    # if both exist, guidance_scale is an input of a guidance-distilled network (see `sampling_of`)
    scale_name = "true_cfg_scale" if "true_cfg_scale" in arguments else "guidance_scale"

    def generate(samples: Sequence[Sample], steps: int | None = None) -> list[Image]:
        prompts = [sample.prompt for sample in samples]
        generators = [torch.Generator().manual_seed(sample.seed) for sample in samples]
        call = PipelineCall(pipe, prompts, generators, undistilled, scale_name)
        options: dict[str, Any] = {**arguments, "prompt": prompts, "generator": generators}
        if steps is not None:
            options["num_inference_steps"] = steps
        with method.attached(call) as extra:
            return pipe(**options | extra).images

    seeds = [generator.initial_seed() for generator in arguments["generator"]]
    with rows_counted(pipe, undistilled) as rows:
        images = method.images(generate, list(map(Sample, arguments["prompt"], seeds)))
    return Generated(images, sum(rows))


def entries_of(methods: Sequence[str]) -> list[Entry]:
    """The unguided entry, followed by those of the methods given by `--method`.

    Args:
        methods: names in `FAMILIES`, optionally with strengths and settings, such as
            "ours=0.25,0.5" or "seed-variance=8:stop=0.5:tokens_from=0.25".

    Raises:
        ValueError: a method, strength or setting is invalid.
    """
    found = [Entry(UNGUIDED)]
    for spec in methods:
        head, *assignments = spec.split(":")
        name, _, values = head.partition("=")
        if name not in FAMILIES:
            raise ValueError(
                f"--method must be one of {', '.join(FAMILIES)}, got {spec!r}"
                f"{nearest(name, FAMILIES)}"
            )
        strengths: Sequence[float] = FAMILIES[name].strengths
        if values:
            try:
                strengths = [float(value) for value in values.split(",")]
            except ValueError:
                raise ValueError(f"--method {spec!r}: strengths are numbers, such as 4,8") from None
        settings = tuple(sorted(_setting(spec, name, text) for text in assignments))
        if len(dict(settings)) < len(settings):
            raise ValueError(f"--method {spec!r} gives a setting more than once: give it once")
        found += [Entry(name, strength, settings) for strength in strengths]
    for entry in found:
        entry.build()
    return list(dict.fromkeys(found))


def _setting(spec: str, family: str, assignment: str) -> tuple[str, float]:
    """Parse the part NAME=VALUE of a `--method`; ValueError if the family has no such setting."""
    name, _, text = assignment.partition("=")
    known = FAMILIES[family].settings
    if name not in known:
        has = f"the settings of {family} are {', '.join(known)}" if known else "it has no settings"
        raise ValueError(f"--method {spec!r}: {has}, got {name!r}{nearest(name, known)}")
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, int | float):
        raise ValueError(f"--method {spec!r}: {name} is a number, true or false, got {text!r}")
    return name, value
