"""Scores of a batch, and the features, kernels and labels that they are computed from."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from math import exp
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.features.base import Labels
from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.parts import Part
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.scores.alignment import (
    group_vendi,
    in_batch_similarity,
    pairwise_distance,
    projection_spreads,
    seed_identifiability,
)
from vendi_guidance.scores.entropy import Entropy, normalised_entropy
from vendi_guidance.scores.functional import EXACT, Parts
from vendi_guidance.scores.groups import rows_by_label, shuffled
from vendi_guidance.scores.references import frechet_distance, kernel_distance, manifold_scores

MOST = 4000  # images of which entropies of order 1 are computed, in about ten seconds each
NEIGHBOURS = 5  # k of the balls in precision, recall, density and coverage


def scores_of(h_x: float, h_joint: float = 0.0, h_t: float | None = None) -> dict[str, float]:
    """The Vendi score of these entropies, and its two factors if there are prompts."""
    if h_t is None:
        return {"vendi": exp(h_x)}
    return {
        "vendi": exp(h_x),
        "conditional_vendi": exp(h_joint - h_t),
        "information_vendi": exp(h_x + h_t - h_joint),
    }


def most_for(truncation: int | None) -> int:
    """Images of which entropies of order 1 are computed: enough for this truncation to matter."""
    return max(MOST, 2 * (truncation or 0))


@dataclass(frozen=True, eq=False)
class ScoreInputs:
    """The inputs of all scores of n images; scores without their inputs are left out."""

    x: Tensor  # (n, d) features of the images
    kernel_x: Kernel
    t: Tensor | None = None  # (n, m) features of the prompts
    kernel_t: Kernel | None = None
    prompts: Sequence[str] | None = None
    truncation: int | None = None  # how many eigenvalues the truncated scores keep
    labels: Labels | None = None  # at least one prompt asks for a known label
    reference: Tensor | None = None  # (m, d) features of real images
    group_size: int | None = None  # images in a group of in-group Vendi
    clip: tuple[Tensor, Tensor] | None = None  # (n, d) features of images and prompts by one CLIP
    seeds: Sequence[Hashable] | None = None
    # (n,) numbers of the images, by the score that is their mean; NaN if an image has none
    columns: Mapping[str, Tensor] = field(default_factory=dict)
    # of each attribute, the rows of the images whose prompts leave it open, and (m, values)
    # probabilities of its values in them
    left_open: Sequence[tuple[Tensor, Tensor]] = ()

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Tensor) -> "ScoreInputs":
        """The inputs of a subset of the images, given by (b,) row numbers."""
        kept: dict[str, Any] = {"t": None if self.t is None else self.t[rows]}
        kept["columns"] = {name: column[rows] for name, column in self.columns.items()}
        for name in ("prompts", "seeds"):
            if (column := getattr(self, name)) is not None:
                kept[name] = [column[row] for row in rows.tolist()]
        if self.clip is not None:
            kept["clip"] = (self.clip[0][rows], self.clip[1][rows])
        if self.labels is not None:
            kept["labels"] = self.labels.take(rows.tolist())
        if self.left_open:
            place = torch.full((len(self),), -1, device="cpu")
            place[rows] = torch.arange(len(rows), device="cpu")
            moved = [(place[own], p) for own, p in self.left_open]
            kept["left_open"] = [(own[own >= 0], p[own >= 0]) for own, p in moved]
        return replace(self, x=self.x[rows], **kept)

    def vendi_scores(self, entropy: Entropy) -> dict[str, float]:
        """The Vendi score, exp H(X), and its two factors if there are prompts.

        H(X) = H(X|T) + I(X;T): what the model adds, and what the prompts explain.
        """
        if self.t is None or self.kernel_t is None:
            return scores_of(float(EXACT.entropies(self.x, [Part(self.kernel_x)], entropy)[0]))
        rows = torch.cat([self.x, self.t], dim=1)
        parts = Parts.of(self.kernel_x, self.kernel_t, self.x.shape[1])
        if entropy.is_collision:  # in one pass
            h_x, h_t, h_joint = map(float, EXACT.entropies(rows, parts, entropy))
            return scores_of(h_x, h_joint, h_t)
        h_x, h_joint = map(float, EXACT.entropies(rows, [parts.x, parts.joint], entropy))
        # distinct prompts, weighted by their shares, have the nonzero eigenvalues of K_T/n
        prompts, counts = torch.unique(self.t, dim=0, return_counts=True)
        shares = counts.double() / len(self.t)
        [h_t] = map(float, EXACT.entropies(prompts, [Part(self.kernel_t)], entropy, shares))
        return scores_of(h_x, h_joint, h_t)

    @isolated()
    def scores(self) -> dict[str, float]:
        """All scores that these inputs allow, by their names in `measures.MEASURES`; those of order
        1 are of at most `most_for` images, those of order 2 of all."""
        most = most_for(self.truncation)
        some = self if len(self) <= most else self.take(self._some(most))
        found = some.vendi_scores(Entropy())
        if self.truncation is not None:
            truncated = some.vendi_scores(Entropy(truncation=self.truncation))
            found |= {f"truncated_{name}": value for name, value in truncated.items()}
        order_2 = self.vendi_scores(Entropy(order=2))
        found |= {name.replace("vendi", "rke"): value for name, value in order_2.items()}
        return found | dict(self._by_prompt()) | dict(self.against_reference())

    def _some(self, most: int) -> Tensor:
        """The sorted rows of the images of prompts chosen at random, this many in all."""
        groups = [*rows_by_label(self.prompts or range(len(self)), len(self)).values()]
        rows = [*chain.from_iterable(groups[i] for i in shuffled(len(groups)).tolist())]
        return torch.tensor(sorted(rows[:most]), device="cpu")

    def _by_prompt(self) -> Iterator[tuple[str, float]]:
        if self.prompts is not None and self.x.any(1).all():
            x, prompts = self.x, self.prompts
            found = {
                "in_batch_similarity": in_batch_similarity(x, prompts),
                "pairwise_distance": pairwise_distance(x, prompts),
            }
            if self.group_size is not None:
                found["group_vendi"] = group_vendi(x, prompts, self.group_size)
            if self.seeds is not None:
                found["seed_identifiability"] = seed_identifiability(x, self.seeds, prompts)
            yield from ((name, value) for name, value in found.items() if value is not None)
        if self.clip is not None and self.prompts is not None:
            spreads = projection_spreads(*self.clip, self.prompts)
            yield from zip(("spread_along_text", "spread_beside_text"), spreads or (), strict=False)
        if self.labels is not None and (fidelity := prompt_fidelity(self.labels)) is not None:
            yield "fidelity", fidelity
            if self.prompts is not None:
                yield "looks_per_prompt", fmean(looks_by_group(self.prompts, self.labels).values())
        if entropies := [normalised_entropy(p.sum(0)) for _, p in self.left_open if len(p)]:
            yield "grade", fmean(entropies)
        means = {name: float(column.nanmean()) for name, column in self.columns.items()}
        yield from ((name, mean) for name, mean in means.items() if mean == mean)

    def against_reference(self) -> Iterator[tuple[str, float]]:
        """Names and values of the scores that compare the images with real ones."""
        if self.reference is None:
            return
        fewest = min(len(self), len(self.reference))
        if fewest >= 2:
            yield "kernel_distance", kernel_distance(self.x, self.reference)
            yield "frechet_distance", frechet_distance(self.x, self.reference)
        if fewest > NEIGHBOURS:
            yield from manifold_scores(self.x, self.reference, NEIGHBOURS)._asdict().items()


def prompt_fidelity(labels: Labels) -> float | None:
    """The share of images that show what their prompt asks for, among those whose prompt asks for a
    known label; None without any."""
    correct = [asked == shown for asked, shown, _ in zip(*labels, strict=True) if asked is not None]
    return sum(correct) / len(correct) if correct else None


def looks_by_group(groups: Sequence[Hashable], labels: Labels) -> dict[Hashable, int]:
    """The number of distinct correct variants in each group, given n groups and n labels.

    Images whose prompt asks for no known label are left out.
    """
    looks: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
    for group, asked, shown, variant in zip(groups, *labels, strict=True):
        if asked is not None:
            looks[group] |= {variant} if shown == asked else set()
    return {group: len(found) for group, found in looks.items()}
