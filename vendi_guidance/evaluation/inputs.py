"""What the scores of a batch are computed from, one row per image, and the scores."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import exp, fsum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vendi_guidance.evaluation.labels import looks_by_group, prompt_fidelity
from vendi_guidance.features.base import Labels
from vendi_guidance.kernels.base import Kernel
from vendi_guidance.kernels.parts import Part
from vendi_guidance.scores.alignment import in_batch_similarity
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.functional import Parts
from vendi_guidance.scores.manifold import manifold_scores
from vendi_guidance.scores.references import frechet_distance, kernel_distance
from vendi_guidance.scores.spectra import Exact, Spectrum

DISTINCT_UP_TO = 4000
"""Up to how many distinct prompts all eigenvalues of their matrix are computed."""

NEIGHBOURS = 5
"""k of the k-nearest-neighbour balls of precision, recall, density and coverage."""


class Entropies(NamedTuple):
    """H(X), and where there are prompts H(T) and H(X, T), in nats.

    H(X) = H(X|T) + I(X;T): the model's own part, and the part that the prompts explain.
    """

    x: float
    t: float | None = None
    joint: float | None = None

    def scores(self) -> dict[str, float]:
        """The Vendi score, and where there are prompts its two factors."""
        found = {"vendi": exp(self.x)}
        if self.t is not None and self.joint is not None:
            found["conditional_vendi"] = exp(self.joint - self.t)
            found["information_vendi"] = exp(self.x + self.t - self.joint)
        return found


@dataclass(frozen=True, eq=False)
class ScoreInputs:
    """What the scores of n images are computed from.

    Attributes:
        x: (n, d) features of the images.
        kernel_x: the similarity of two images.
        t: (n, m) features of their prompts, if they have any.
        kernel_t: the similarity of two prompts.
        groups: n labels; images of one label belong together, such as those of one prompt.
        truncation: of the truncated Vendi scores; None leaves these out.
        clip: (n,) values 100 max(cos, 0) of each image and its prompt.
        labels: what the images show; at least one prompt asks for a known label.
        seconds: (n,) the time each image took.
        reference: (m, d) features of real images.
    """

    x: Tensor
    kernel_x: Kernel
    t: Tensor | None = None
    kernel_t: Kernel | None = None
    groups: Sequence[Hashable] | None = None
    truncation: int | None = None
    clip: Tensor | None = None
    labels: Labels | None = None
    seconds: Tensor | None = None
    reference: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x)

    def take(self, rows: Tensor) -> "ScoreInputs":
        """The same for some of the images: (b,) row numbers."""
        numbers = rows.tolist()
        kept: dict[str, Any] = {}
        for column in fields(self):
            value = getattr(self, column.name)
            if column.name == "reference":
                continue
            if isinstance(value, Labels):
                kept[column.name] = value.take(numbers)
            elif isinstance(value, Tensor):
                kept[column.name] = value[rows]
            elif isinstance(value, Sequence):
                kept[column.name] = [value[i] for i in numbers]
        return replace(self, **kept)

    def entropies(self, entropy: Entropy, spectrum: Spectrum) -> Entropies:
        """The entropies of the kernels' matrices."""
        if self.t is None or self.kernel_t is None:
            [h] = spectrum.entropies(self.x, [Part(self.kernel_x)], entropy)
            return Entropies(float(h))
        rows = torch.cat([self.x, self.t], dim=1)
        parts = Parts.of(self.kernel_x, self.kernel_t, self.x.shape[1])
        x, joint = spectrum.entropies(rows, [parts.x, parts.joint], entropy)
        prompts, weights = _distinct(self.t)
        used = Exact() if len(prompts) <= DISTINCT_UP_TO else spectrum
        h_t = used.entropy(prompts, self.kernel_t, entropy, weights)
        return Entropies(float(x), float(h_t), float(joint))

    def eigenvalues(self) -> list[Tensor]:
        """Those of K_X/n, and where there are prompts of K_T/n and K_X∘K_T/n, largest first."""
        found = [Exact().eigenvalues(self.x, self.kernel_x)]
        if self.t is not None and self.kernel_t is not None:
            prompts, weights = _distinct(self.t)
            found.append(Exact().eigenvalues(prompts, self.kernel_t, weights))
            rows = torch.cat([self.x, self.t], dim=1)
            parts = Parts.of(self.kernel_x, self.kernel_t, self.x.shape[1])
            found.append(Exact().eigenvalues(rows, parts.joint.kernel))
        return found

    @torch.no_grad()
    def scores(self, spectrum: Spectrum) -> dict[str, float]:
        """All scores that these inputs allow, by their names in `measures.MEASURES`.

        Args:
            spectrum: of the entropies behind the Vendi scores; those of order 2 are always exact.
        """
        found = self.entropies(Entropy(), spectrum).scores()
        if self.truncation is not None:
            truncated = self.entropies(Entropy(truncation=self.truncation), spectrum).scores()
            found |= {f"truncated_{name}": value for name, value in truncated.items()}
        order_2 = self.entropies(Entropy(order=2), Exact()).scores()
        found |= {name.replace("vendi", "rke"): value for name, value in order_2.items()}
        return found | dict(self._by_prompt()) | dict(self._against_reference())

    def _by_prompt(self) -> Iterator[tuple[str, float]]:
        if self.groups is not None and self.x.any(1).all():
            similarity = in_batch_similarity(self.x, [str(label) for label in self.groups])
            if similarity is not None:
                yield "in_batch_similarity", similarity
        fidelity = None if self.labels is None else prompt_fidelity(self.labels)
        if self.labels is not None and fidelity is not None:
            yield "fidelity", fidelity
            if self.groups is not None:
                looks = looks_by_group(self.groups, self.labels)
                yield "looks_per_prompt", sum(looks.values()) / len(looks)
        if self.clip is not None:
            yield "clip_score", float(self.clip.mean())
        if self.seconds is not None:
            yield "seconds_per_image", fsum(self.seconds.tolist()) / len(self.seconds)

    def _against_reference(self) -> Iterator[tuple[str, float]]:
        if self.reference is None:
            return
        fewest = min(len(self), len(self.reference))
        if fewest >= 2:
            yield "kernel_distance", kernel_distance(self.x, self.reference)
            yield "frechet_distance", frechet_distance(self.x, self.reference)
        if fewest > NEIGHBOURS:
            yield from manifold_scores(self.x, self.reference, NEIGHBOURS)._asdict().items()


def _distinct(t: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows of t: (n, m), and the share of each.

    Their weighted matrix has the eigenvalues of K_T/n, save zeros.
    """
    rows, counts = torch.unique(t, dim=0, return_counts=True)
    return rows, counts.double() / len(t)
