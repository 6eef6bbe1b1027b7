"""What a batch is scored by, one row a picture, and its scores; those of some of the rows too."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import exp, fsum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vendi_guidance.features.probe import Looks
from vendi_guidance.kernels.standard import Kernel
from vendi_guidance.kernels.tiles import Part
from vendi_guidance.scores import references as fidelity
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.functional import Parts
from vendi_guidance.scores.manifold import manifold_scores
from vendi_guidance.scores.spectra import Exact, Spectrum

DISTINCT_UP_TO = 4000
"""Up to so many distinct prompts all eigenvalues of their matrix are found."""

NEIGHBOURS = 5
"""How far the balls of precision, recall, density and coverage reach."""


class Entropies(NamedTuple):
    """H(X), and where there are prompts H(T) and H(X, T), in nats.

    H(X) = H(X|T) + I(X;T): what the model adds by itself, and what the prompts bring about.
    """

    x: float
    t: float | None = None
    joint: float | None = None

    def scores(self) -> dict[str, float]:
        """The Vendi score, and where there are prompts the two that multiply to it."""
        found = {"vendi": exp(self.x)}
        if self.t is not None and self.joint is not None:
            found["conditional_vendi"] = exp(self.joint - self.t)
            found["information_vendi"] = exp(self.x + self.t - self.joint)
        return found


@dataclass(frozen=True, eq=False)
class Evidence:
    """A batch of n pictures, as far as scores can see it.

    Attributes:
        x: (n, d) features of the pictures.
        kernel_x: how alike two pictures are.
        t: (n, m) features of their prompts, if they have prompts.
        kernel_t: how alike two prompts are.
        groups: n labels; pictures of one label belong together, as those of one prompt do.
        truncation: of the truncated Vendi scores; None leaves these out.
        clip: (n,) of each picture 100 max(cos, 0) with its prompt.
        asked, seen: which concept each prompt asks for, and what a probe sees (see `fidelity`).
        seconds: (n,) what each picture took.
        reference: (m, d) features of real pictures.
    """

    x: Tensor
    kernel_x: Kernel
    t: Tensor | None = None
    kernel_t: Kernel | None = None
    groups: Sequence[Hashable] | None = None
    truncation: int | None = None
    clip: Tensor | None = None
    asked: Sequence[str | None] | None = None
    seen: Looks | None = None
    seconds: Tensor | None = None
    reference: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Tensor) -> "Evidence":
        """What is known of some of the pictures: (b,) row numbers."""
        numbers = rows.tolist()
        kept: dict[str, Any] = {}
        for column in fields(self):
            value = getattr(self, column.name)
            if column.name == "seen" and value is not None:
                kept["seen"] = Looks(*([names[i] for i in numbers] for names in value))
            elif column.name == "reference":
                continue
            elif isinstance(value, Tensor):
                kept[column.name] = value[rows]
            elif isinstance(value, Sequence):
                kept[column.name] = [value[i] for i in numbers]
        return replace(self, **kept)

    def entropies(self, entropy: Entropy, spectrum: Spectrum) -> Entropies:
        """Those of the kernels' matrices."""
        if self.t is None or self.kernel_t is None:
            [h] = spectrum.entropies(self.x, [Part(self.kernel_x)], entropy)
            return Entropies(float(h))
        rows = torch.cat([self.x, self.t], dim=1)
        parts = Parts.of(self.kernel_x, self.kernel_t, self.x.shape[1])
        x, joint = spectrum.entropies(rows, [parts.x, parts.joint], entropy)
        prompts, weights = _distinct(self.t)
        way = Exact() if len(prompts) <= DISTINCT_UP_TO else spectrum
        return Entropies(
            float(x), float(way.entropy(prompts, self.kernel_t, entropy, weights)), float(joint)
        )

    def eigenvalues(self) -> list[Tensor]:
        """All of K_X/n, and where there are prompts those of K_T/n and K_X∘K_T/n, largest first."""
        if self.t is None or self.kernel_t is None:
            return [Exact().eigenvalues(self.x, self.kernel_x)]
        rows = torch.cat([self.x, self.t], dim=1)
        parts = Parts.of(self.kernel_x, self.kernel_t, self.x.shape[1])
        prompts, weights = _distinct(self.t)
        return [
            Exact().eigenvalues(self.x, self.kernel_x),
            Exact().eigenvalues(prompts, self.kernel_t, weights),
            Exact().eigenvalues(rows, parts.joint.kernel),
        ]

    @torch.no_grad()
    def scores(self, spectrum: Spectrum) -> dict[str, float]:
        """Every score that there is evidence for, by its name in `measures.MEASURES`.

        Args:
            spectrum: how the entropies behind the Vendi scores are got; those of order 2 are exact.
        """
        found = self.entropies(Entropy(), spectrum).scores()
        if self.truncation is not None:
            truncated = self.entropies(Entropy(truncation=self.truncation), spectrum).scores()
            found |= {f"truncated_{name}": value for name, value in truncated.items()}
        squares = self.entropies(Entropy(order=2), Exact()).scores()
        found |= {name.replace("vendi", "rke"): value for name, value in squares.items()}
        return found | dict(self._by_prompt()) | dict(self._against_reference())

    def _by_prompt(self) -> Iterator[tuple[str, float]]:
        if self.groups is not None:
            labels = [str(label) for label in self.groups]
            similarity = (
                fidelity.in_batch_similarity(self.x, labels) if self.x.any(1).all() else None
            )
            if similarity is not None:
                yield "in_batch_similarity", similarity
            if self.asked is not None and self.seen is not None and any(self.asked):
                looks = fidelity.looks_by_prompt(labels, self.asked, self.seen)
                yield "fidelity", float(fidelity.prompt_fidelity(self.asked, self.seen) or 0)
                yield "looks_per_prompt", sum(looks.values()) / len(looks)
        if self.clip is not None:
            yield "clip_score", float(self.clip.mean())
        if self.seconds is not None:
            yield "seconds_per_image", fsum(self.seconds.tolist()) / len(self.seconds)

    def _against_reference(self) -> Iterator[tuple[str, float]]:
        if self.reference is None:
            return
        if min(len(self), len(self.reference)) >= 2:
            yield "kernel_distance", fidelity.kernel_distance(self.x, self.reference)
            yield "frechet_distance", fidelity.frechet_distance(self.x, self.reference)
        if min(len(self), len(self.reference)) > NEIGHBOURS:
            yield from manifold_scores(self.x, self.reference, NEIGHBOURS)._asdict().items()


def _distinct(t: Tensor) -> tuple[Tensor, Tensor]:
    """The different rows of t: (n, m), and how often each occurs over n.

    Their weighted matrix has the eigenvalues of K_T/n, save zeros.
    """
    rows, counts = torch.unique(t, dim=0, return_counts=True)
    return rows, counts.double() / len(t)
