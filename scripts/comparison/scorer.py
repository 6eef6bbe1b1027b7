"""What a run of the comparison is judged by: numbers from its pictures alone.

*Named* pictures are those whose prompt says which look to draw. A run's matched set takes, for
every picture that shows what was asked, the named one of the same concept, vendor and tone: so it
has the run's own mix of looks, drawn without any push, and how far it lies from the training
pictures is what the model itself loses.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from scripts.demo.emoji import SIZE, TONES, VENDORS, Emoji, load_sheets
from scripts.demo.judge import SIGMA_IMAGE, SIGMA_PROMPT, load_text_embedder
from vendi_guidance.features.base import PromptEmbedder
from vendi_guidance.features.probe import Looks, Probe, load_probe
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.scores.functional import conditional_vendi, vendi
from vendi_guidance.scores.manifold import manifold_scores, nearest_distance
from vendi_guidance.scores.references import (
    in_batch_similarity,
    kernel_distance,
    looks_by_prompt,
    prompt_fidelity,
)

NEIGHBOURS = 5
KERNELS = (Gaussian(SIGMA_IMAGE), Gaussian(SIGMA_PROMPT))
FEATURES = ("probe", "pixels")

Look = tuple[str, str, str]
"""A concept, a vendor and a tone."""

Values = dict[str, float | None]
"""Of a run's measures; None where there is nothing to measure."""


class Measure(NamedTuple):
    """How a number is shown.

    Attributes:
        title: above its column.
        form: as `format` takes it.
        best: "high", "low", or "" where neither is better.
    """

    title: str
    form: str
    best: str


MEASURES = {
    "fidelity": Measure("prompt fidelity", ".3f", "high"),
    "looks": Measure("looks per prompt", ".2f", "high"),
    "look_entropy": Measure("entropy of looks", ".2f", "high"),
    "in_batch_similarity": Measure("in-batch similarity", ".3f", "low"),
    "conditional_vendi": Measure("Conditional-Vendi", ".2f", "high"),
    "vendi": Measure("Vendi", ".1f", "high"),
    "seconds_per_image": Measure("seconds per image", ".3f", "low"),
    "tones_as_named": Measure("tones as named", ".3f", "high"),
} | {
    f"{features}_{name}": Measure(f"{title}, {features}", form, best)
    for features in FEATURES
    for name, title, form, best in (
        ("nearest_distance", "nearest distance", ".3g", "low"),
        ("nearest_named", "nearest distance of named", ".3g", ""),
        ("nearest_ratio", "nearest ratio", ".3f", "low"),
        ("kernel_distance", "kernel distance", ".3g", "low"),
        ("kernel_named", "kernel distance of named", ".3g", ""),
        ("kernel_ratio", "kernel ratio", ".3f", "low"),
        ("kernel_noise", "noise of the kernel distance", ".2g", ""),
        ("recall", "recall", ".3f", "high"),
        ("coverage", "coverage", ".3f", "high"),
    )
}

DISTANCES = tuple(f"{kind}_{name}" for kind in FEATURES for name in ("nearest", "kernel"))

RATIOS = tuple(f"{distance}_ratio" for distance in DISTANCES)

RESAMPLES = 16
"""Of training pictures, to see how far a kernel distance varies by chance."""


@dataclass(frozen=True)
class Judge:
    """Measures runs.

    Attributes:
        probe: says what pictures show, and gives one of the two kinds of features.
        text: gives features of prompts.
        training: the pictures that the model was trained on.
    """

    probe: Probe
    text: PromptEmbedder
    training: Emoji
    _known: dict[tuple[str, ...], dict[str, Tensor]] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, probe: Path, text: Path, training: Path) -> "Judge":
        """From their folders, of which `text` is an SDXL's.

        Raises:
            ValueError: something is damaged, or the training pictures are not of all that the
                probe knows.
            FileNotFoundError: something is missing.
        """
        judge = cls(load_probe(probe), load_text_embedder(text), load_sheets(training))
        missing = set(judge.probe.names[0]) - set(judge.training.concepts)
        if missing:
            raise ValueError(
                f"there are no training pictures of {min(missing)!r} in {training}, which the "
                f"probe in {probe} knows"
            )
        return judge

    def features(self, images: Sequence[Image.Image]) -> dict[str, Tensor]:
        """(n, d) of n pictures, by kind."""
        return {"probe": self.probe.embed(images), "pixels": pixels(images)}

    def measure(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[str],
        named: Mapping[Look, Image.Image],
        seconds: float,
    ) -> Values:
        """All of `MEASURES`, of pictures whose prompts name no look.

        Training pictures are those of the concepts asked for.

        Args:
            images: n pictures, more than `NEIGHBOURS`.
            prompts: the n concepts asked for.
            named: a picture of each look of these concepts, drawn by name.
            seconds: that drawing all n took.
        """
        seen, own, t = self.probe.looks(images), self.features(images), self.text.embed(prompts)
        looks = looks_by_prompt(prompts, prompts, seen)
        values: Values = {
            "fidelity": prompt_fidelity(prompts, seen),
            "looks": fmean(looks.values()),
            "look_entropy": look_entropy(prompts, seen),
            "in_batch_similarity": in_batch_similarity(own["probe"], prompts),
            "conditional_vendi": float(conditional_vendi(own["probe"], t, *KERNELS)),
            "vendi": float(vendi(own["probe"], KERNELS[0])),
            "seconds_per_image": seconds / len(images),
            "tones_as_named": None,
        }
        matched = self._matched_features(correct_looks(prompts, seen), named)
        for kind, reference in self._references(prompts).items():
            distances = _distances(own[kind], matched.get(kind), reference)
            manifold = manifold_scores(own[kind], reference, NEIGHBOURS)
            distances |= {"recall": manifold.recall, "coverage": manifold.coverage}
            distances["kernel_noise"] = kernel_noise(reference, len(images))
            values |= {f"{kind}_{name}": value for name, value in distances.items()}
        return {name: values[name] for name in MEASURES}

    def _matched_features(
        self, looks: Sequence[Look], named: Mapping[Look, Image.Image]
    ) -> dict[str, Tensor]:
        """(n, d) of the named picture of each of n looks, by kind; none for less than two."""
        if len(looks) < 2:
            return {}
        places = {look: place for place, look in enumerate(dict.fromkeys(looks))}
        features = self.features([named[look] for look in places])
        rows = [places[look] for look in looks]
        return {kind: of[rows] for kind, of in features.items()}

    def _references(self, prompts: Sequence[str]) -> dict[str, Tensor]:
        """Features of the training pictures of some concepts, by kind."""
        concepts = tuple(dict.fromkeys(prompts))
        if concepts not in self._known:
            self._known[concepts] = self.features(self.training_pictures(concepts))
        return self._known[concepts]

    def training_pictures(self, concepts: Sequence[str]) -> list[Image.Image]:
        """All looks of some concepts."""
        rows = [self.training.concepts.index(concept) for concept in concepts]
        looks = self.training.pixels[rows].flatten(0, 2).permute(0, 2, 3, 1)
        return [Image.fromarray(look.numpy()) for look in looks]

    def share_as_named(
        self, images: Sequence[Image.Image], named: Sequence[tuple[str | None, ...]]
    ) -> float | None:
        """The share of pictures in which the probe sees what was named; None for no pictures.

        Args:
            images: n pictures.
            named: concept, vendor and tone of each; None where that was left open.
        """
        if not images:
            return None
        found = zip(*self.probe.looks(images), strict=True)
        return fmean(
            all(name in (None, part) for name, part in zip(names, look, strict=True))
            for names, look in zip(named, found, strict=True)
        )


def looks_of(concepts: Sequence[str]) -> list[Look]:
    """All looks of some concepts."""
    return [(c, vendor, tone) for c in concepts for vendor in VENDORS for tone in TONES]


def pixels(images: Sequence[Image.Image]) -> Tensor:
    """(n, 3 x 64 x 64) of n pictures, in [-1, 1]."""
    arrays = [np.asarray(image.convert("RGB").resize((SIZE, SIZE))) for image in images]
    return torch.from_numpy(np.stack(arrays)).flatten(1) / 127.5 - 1


def correct_looks(prompts: Sequence[str], seen: Looks) -> list[Look]:
    """What those pictures show that show the concept asked for."""
    found = zip(prompts, zip(*seen, strict=True), strict=True)
    return [look for prompt, look in found if prompt == look[0]]


def look_entropy(prompts: Sequence[str], seen: Looks) -> float:
    """How many looks a prompt's pictures have, each counted by how even the looks are.

    exp H of the shares of the looks among a prompt's pictures that show the concept asked for, 0
    where none does; the mean over prompts.
    """
    counts = {prompt: Counter[Look]() for prompt in prompts}
    for look in correct_looks(prompts, seen):
        counts[look[0]][look] += 1
    return math.fsum(_effective_number(of) for of in counts.values()) / len(counts)


def _effective_number(of: Counter[Look]) -> float:
    counts, total = list(of.values()), of.total()
    return math.exp(-sum(n / total * math.log(n / total) for n in counts)) if total else 0.0


def kernel_noise(reference: Tensor, count: int) -> float:
    """The standard deviation over samples of `count` pictures, drawn from the reference itself, of
    their kernel distance from it: what lies closer than that is no difference."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(reference), (RESAMPLES, count), generator=generator)
    return stdev(kernel_distance(reference[rows], reference) for rows in drawn)


def _distances(own: Tensor, matched: Tensor | None, reference: Tensor) -> Values:
    """How far pictures lie from the training pictures, and beside the matched set."""
    values: Values = {}
    for name, distance in (("nearest", nearest_distance), ("kernel", kernel_distance)):
        value = distance(own, reference)
        beside = None if matched is None else distance(matched, reference)
        values[f"{name}_distance"], values[f"{name}_named"] = value, beside
        values[f"{name}_ratio"] = value / beside if beside is not None and beside > 0 else None
    return values
