"""The measures of a trial, from its images alone.

*Looks* are counted among the images of prompts that leave the look open. *Named kept* is the share
of the other prompts' images that show all that was named.

*Named* images are those whose prompt says which look to draw. A trial's matched set has, for every
image that shows what was asked, the named one of the same look. So it has the
trial's own mix of looks, generated without guidance, and its distance from the training pictures is
the model's own error.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
import transformers
from PIL import Image
from torch import Tensor

from scripts.comparison.measures import KEPT, MEASURES, Scores, Values
from scripts.comparison.prompts import Prompt
from scripts.demo.emoji import KERNELS, SIZE
from scripts.demo.world import World, load_world
from vendi_guidance.evaluation.labels import looks_by_group, prompt_fidelity
from vendi_guidance.features.base import Labels, PromptEmbedder
from vendi_guidance.features.probe import Look, Probe, load_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.scores.alignment import in_batch_similarity
from vendi_guidance.scores.functional import conditional_vendi, vendi
from vendi_guidance.scores.manifold import manifold_scores, nearest_distance
from vendi_guidance.scores.references import kernel_distance

NEIGHBOURS = 5

RESAMPLES = 16
"""Samples of training pictures, for the standard deviation of a kernel distance."""


@dataclass(frozen=True)
class Scorer:
    """Measures trials.

    Attributes:
        probe: says what pictures show, and gives one of the two kinds of features.
        text: gives features of prompts.
        training: the pictures that the model was trained on.
    """

    probe: Probe
    text: PromptEmbedder
    training: World
    _known: dict[tuple[str, ...], dict[str, Tensor]] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, probe: Path, text: Path, training: Path) -> "Scorer":
        """From their folders, of which `text` has an SDXL's second text encoder.

        Raises:
            ValueError: a file is damaged, or a concept that the probe knows has no training
                pictures.
            FileNotFoundError: a file is missing.
        """
        transformers.utils.logging.disable_progress_bar()
        scorer = cls(load_probe(probe), open_prompt_embedder(f"sdxl:{text}"), load_world(training))
        missing = set(scorer.probe.concepts) - set(scorer.training.concepts)
        if missing:
            raise ValueError(
                f"there are no training pictures of {min(missing)!r} in {training}, which the "
                f"probe in {probe} knows"
            )
        return scorer

    def features(self, images: Sequence[Image.Image]) -> dict[str, Tensor]:
        """(n, d) features of n images, by kind."""
        return {"probe": self.probe.embed(images), "pixels": pixels(images)}

    def measure(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[Prompt],
        named: Mapping[Look, Image.Image],
        seconds: float,
        evaluations: int,
    ) -> Scores:
        """All of `MEASURES`; distances and diversity from the images whose prompts are open.

        The training pictures compared with are those of the concepts that these ask for.

        Args:
            images: n pictures, of open prompts more than `NEIGHBOURS`.
            prompts: what each was asked for.
            named: an image of each look of the concepts of open prompts.
            seconds: that generating all n took.
            evaluations: of the network, for all n.
        """
        pairs = list(zip(images, prompts, strict=True))
        kept = self.kept([pair for pair in pairs if not pair[1].is_open])
        own = [image for image, prompt in pairs if prompt.is_open]
        values, by_prompt = self._open(own, [p.concept for p in prompts if p.is_open], named)
        by_prompt[KEPT] = list(kept.values())
        values |= {
            KEPT: fmean(kept.values()) if kept else None,
            "seconds_per_image": seconds / len(images),
            "evaluations": evaluations / len(images),
        }
        return Scores({name: values[name] for name in MEASURES}, by_prompt)

    def kept(self, pairs: Sequence[tuple[Image.Image, Prompt]]) -> dict[Prompt, float]:
        """For each prompt, the share of its images in which the probe sees all that it names."""
        if not pairs:
            return {}
        found = self.probe.looks([image for image, _ in pairs])
        shown: dict[Prompt, list[bool]] = {}
        for (_, prompt), look in zip(pairs, found, strict=True):
            as_asked = [name in (None, part) for name, part in zip(prompt.look, look, strict=True)]
            shown.setdefault(prompt, []).append(all(as_asked))
        return {prompt: fmean(of) for prompt, of in shown.items()}

    def _open(
        self,
        images: Sequence[Image.Image],
        prompts: Sequence[str],
        named: Mapping[Look, Image.Image],
    ) -> tuple[Values, dict[str, list[float | None]]]:
        """The measures of images whose prompts are concepts alone, and some by prompt."""
        own, t = self.features(images), self.text.embed(prompts)
        seen = self.probe.looks_of(own["probe"])
        labels = Labels(prompts, [look[0] for look in seen], [look[1:] for look in seen])
        rows = {p: [row for row, other in enumerate(prompts) if other == p] for p in prompts}
        by_prompt: dict[str, list[float | None]] = {
            "fidelity": [prompt_fidelity(labels.take(some)) for some in rows.values()],
            "looks": [float(count) for count in looks_by_group(prompts, labels).values()],
            "look_entropy": [*look_entropies(prompts, seen)],
        }
        values: Values = {
            "fidelity": prompt_fidelity(labels),
            "looks": fmean(looks_by_group(prompts, labels).values()),
            "look_entropy": fmean(look_entropies(prompts, seen)),
            "in_batch_similarity": in_batch_similarity(own["probe"], prompts),
            "conditional_vendi": float(conditional_vendi(own["probe"], t, *KERNELS)),
            "vendi": float(vendi(own["probe"], KERNELS[0])),
        }
        looks = [look for look in correct_looks(prompts, seen) if look in named]
        matched = self._matched_features(looks, named)
        for kind, reference in self._references(prompts).items():
            distances = _distances(own[kind], matched.get(kind), reference)
            manifold = manifold_scores(own[kind], reference, NEIGHBOURS)
            distances |= {"recall": manifold.recall, "coverage": manifold.coverage}
            distances["kernel_noise"] = kernel_noise(reference, len(images))
            values |= {f"{kind}_{name}": value for name, value in distances.items()}
            by_prompt[f"{kind}_nearest_distance"] = [
                nearest_distance(own[kind][some], reference) for some in rows.values()
            ]
            correct = [[row for row, look in enumerate(looks) if look[0] == p] for p in rows]
            by_prompt[f"{kind}_nearest_named"] = [
                nearest_distance(matched[kind][some], reference) if some and matched else None
                for some in correct
            ]
        return values, by_prompt

    def _matched_features(
        self, looks: Sequence[Look], named: Mapping[Look, Image.Image]
    ) -> dict[str, Tensor]:
        """(n, d) features of the named image of each look, by kind; empty for n < 2."""
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
            self._known[concepts] = self.features(self.training.images(concepts))
        return self._known[concepts]


def pixels(images: Sequence[Image.Image]) -> Tensor:
    """(n, 3 x 64 x 64) of n pictures, in [-1, 1]."""
    arrays = [np.asarray(image.convert("RGB").resize((SIZE, SIZE))) for image in images]
    return torch.from_numpy(np.stack(arrays)).flatten(1) / 127.5 - 1


def correct_looks(prompts: Sequence[str], seen: Sequence[Look]) -> list[Look]:
    """The looks of the images that show the concept asked for."""
    return [look for prompt, look in zip(prompts, seen, strict=True) if prompt == look[0]]


def look_entropies(prompts: Sequence[str], seen: Sequence[Look]) -> list[float]:
    """The effective number of looks of each prompt.

    It is exp H of the shares of the looks among a prompt's images that show the concept asked for,
    0 where none does.
    """
    counts = {prompt: Counter[Look]() for prompt in prompts}
    for look in correct_looks(prompts, seen):
        counts[look[0]][look] += 1
    return [_effective_number(of) for of in counts.values()]


def _effective_number(of: Counter[Look]) -> float:
    counts, total = list(of.values()), of.total()
    return math.exp(-sum(n / total * math.log(n / total) for n in counts)) if total else 0.0


def kernel_noise(reference: Tensor, count: int) -> float:
    """The standard deviation of the kernel distance of `count` pictures, drawn from the reference
    itself, from the reference: smaller distances mean no difference."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(reference), (RESAMPLES, count), generator=generator)
    return stdev(kernel_distance(reference[rows], reference) for rows in drawn)


def _distances(own: Tensor, matched: Tensor | None, reference: Tensor) -> Values:
    """Distances from the training pictures, and their ratios to those of the matched set."""
    values: Values = {}
    for name, distance in (("nearest", nearest_distance), ("kernel", kernel_distance)):
        value = distance(own, reference)
        beside = None if matched is None else distance(matched, reference)
        values[f"{name}_distance"], values[f"{name}_named"] = value, beside
        values[f"{name}_ratio"] = value / beside if beside is not None and beside > 0 else None
    return values
