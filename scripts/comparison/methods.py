"""The methods that are compared; a further one is a function and an entry in `METHODS`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import Any, NamedTuple

from PIL.Image import Image

from scripts.comparison.call import Call
from scripts.comparison.initial_noise import contrastive_noise, diverse_start, pink_noise
from scripts.comparison.models import LOG, MODELS
from scripts.comparison.prompt_noise import cads, prompt_mixture, seed_variance
from scripts.comparison.sampling import base_first, limited_interval, particle_guidance
from scripts.comparison.selection import group_inference, select
from vendi_guidance.guidance.settings import DIVERSITY

UNGUIDED, OURS = "unguided", "ours"


def using(**settings: Any) -> Callable[[Call, float], list[Image]]:
    """Guidance at the dial's value, with these settings."""
    return lambda call, value: call.images(**settings)


def published(call: Call, scale: float) -> list[Image]:
    """Guidance as published: Conditional-RKE at every tenth step (Jalali et al., AISTATS 2026)."""
    return call.images(diversity_preset="published", diversity_scale=scale)


@dataclass(frozen=True)
class Method:
    """A method at several values.

    Attributes:
        values: compared values of the method's strength, ascending.
        images: generates a batch with the method at a value; by default the pipeline's own call.
        setting: the setting of `VendiGuidance` that takes the value; without one, guidance is off.
        needs: what only some models have, "cfg" or "lora"; empty if the method works with all.
        is_usual: whether it is compared unless methods are named.
    """

    values: tuple[float, ...]
    images: Callable[[Call, float], list[Image]] = lambda call, value: call.images()
    setting: str = ""
    needs: str = ""
    is_usual: bool = True


METHODS = {
    UNGUIDED: Method((0.0,), setting="diversity"),
    OURS: Method((0.25, 0.5, 0.75, 1.0), setting="diversity"),
    "limited-interval": Method((0.05, 0.3, 0.6), limited_interval, needs="cfg"),  # 0.05: one step
    "low-cfg": Method(
        (2.5, 3.5),
        lambda call, scale: call.images(guidance_scale=scale),
        needs="cfg",
        is_usual=False,
    ),
    "seed-variance": Method((8.0, 16.0), seed_variance),
    "cads": Method((0.25, 0.5, 1.0), cads),
    "particle-guidance": Method((5.0, 20.0), particle_guidance),
    "select": Method((2.0, 4.0), select),
    "select-low-cfg": Method((4.0,), partial(select, guidance_scale=2.0), needs="cfg"),  # tuned
    "base-first": Method((1.0, 2.0, 4.0), base_first, needs="lora"),
    "published": Method((0.03, 0.1, 0.3), published, is_usual=False),
    # values are the papers', or in our units; choices.jsonl has those that were searched
    "divin": Method((1.0, 10.0), diverse_start, needs="cfg", is_usual=False),
    "prompt-mog": Method((0.5, 1.0), prompt_mixture, is_usual=False),
    "group-inference": Method((2.0, 4.0), group_inference, is_usual=False),
    "pink-noise": Method((0.2, 0.5), pink_noise, is_usual=False),
    "contrastive-noise": Method((0.01, 0.1), contrastive_noise, is_usual=False),
    "ours-alone": Method((0.5, 1.0), using(diversity_undistilled=None), "diversity", "lora", False),
    "with-base": Method(
        (0.5, 1.0), using(diversity_undistilled="adapters"), "diversity", "lora", False
    ),
    "rounds": Method((0.5,), using(diversity_proposal="gradient"), "diversity", "cfg", False),
    "default": Method((DIVERSITY,), setting="diversity", is_usual=False),
    "level": Method(
        (0.1, 0.15, 0.2, 0.3, 0.4), using(diversity_proposal="gradient"), "level", is_usual=False
    ),
}
"""By name. Every comparison has the unguided run."""


class Entry(NamedTuple):
    """A method at a value.

    Attributes:
        settings: further settings of `VendiGuidance`.
        about: what else its runs' folders are named after.
    """

    method: str
    value: float
    settings: tuple[tuple[str, Any], ...] = ()
    about: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        if self.method == UNGUIDED:
            return self.method
        further = (f"{name}={value}" for name, value in self.settings)
        return "-".join([self.method, f"{self.value:g}", *further, *self.about])

    @property
    def diversity(self) -> dict[str, Any]:
        """Settings of `VendiGuidance`."""
        setting = METHODS[self.method].setting
        return {setting or "diversity": self.value if setting else 0.0, **dict(self.settings)}

    def sample(self, pipe: Any, arguments: dict[str, Any]) -> list[Image]:
        """The images of a batch of this entry's run: a `Sampler`."""
        seeds = [generator.initial_seed() for generator in arguments["generator"]]
        call = Call(pipe, arguments["prompt"], seeds, arguments)
        return METHODS[self.method].images(call, self.value)


def entries_of(model: str, names: Sequence[str]) -> list[Entry]:
    """The unguided entry, and those of the named methods, or of the usual ones, that work with a
    demo model."""
    demo = MODELS[model]
    has = {"": True, "cfg": demo.guidance_scale > 1, "lora": bool(demo.base)}
    usual = [name for name, method in METHODS.items() if method.is_usual]
    found = [UNGUIDED, *(name for name in names or usual if has[METHODS[name].needs])]
    return [Entry(name, value) for name in dict.fromkeys(found) for value in METHODS[name].values]


def best_of(model: str, names: Sequence[str]) -> list[Entry]:
    """The unguided entry, the default, and the named methods, or all, each at the largest value
    that kept the limits of `choose` on the model's tuning prompts; none if all exceeded them."""
    tried = {}
    for line in map(json.loads, LOG.read_text("utf-8").splitlines()):
        entry = Entry(line["method"], line["value"])
        other = entry.method == "default" or line["constants"] or "guidance_scale" in line
        if entry.method not in (names or METHODS) or line["model"] != model or other:
            continue
        if line["settings"] == entry.diversity:
            tried[entry] = line["exceeded"]
    kept = dict(sorted(entry[:2] for entry, exceeded in tried.items() if not exceeded))
    return [Entry(UNGUIDED, 0.0), *starmap(Entry, ({"default": DIVERSITY} | kept).items())]
