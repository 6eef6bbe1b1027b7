"""Scores of more images than fit in memory: random Fourier features in one pass (FKEA).

With z the feature map of a kernel, the eigenvalues of sum_i z(x_i) z(x_i)^T / n are about those of
K/n. These sums have a fixed size, whatever n is, and those of several processes add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.evaluation.embedding import Embedded
from vendi_guidance.evaluation.inputs import scores_of
from vendi_guidance.evaluation.results import ScoreResult
from vendi_guidance.kernels.parts import Part
from vendi_guidance.kernels.precision import isolated
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.functional import Parts
from vendi_guidance.scores.linalg import matrix_entropy, second_moments
from vendi_guidance.scores.spectra import RandomFourier
from vendi_guidance.storage.tensors import load_tensors, save_tensors


@dataclass
class Sums:
    """The number of images so far, the parts of a folder that are done, files that could not be
    read with the reasons, and sum_i z z^T of images ("x"), of prompts ("t") and of both ("joint").
    """

    count: int = 0
    done: list[str] = field(default_factory=list)
    skipped: list[Sequence[str]] = field(default_factory=list)
    of: dict[str, Tensor] = field(default_factory=dict)

    @isolated()
    def add(self, part: str, found: Embedded, spectrum: RandomFourier) -> None:
        """Add the images of the part with this name."""
        x, t, kernel_t = found.inputs.x, found.inputs.t, found.inputs.kernel_t
        parts: dict[str, Part] = {"x": Part(found.inputs.kernel_x)}
        if t is not None and kernel_t is not None:
            parts = Parts.of(found.inputs.kernel_x, kernel_t, x.shape[1])._asdict()
            x = torch.cat([x, t], dim=1)
        moments = second_moments(x, spectrum.maps([*parts.values()], x.shape[1]))
        of = {name: len(x) * mean for name, mean in zip(parts, moments, strict=True)}
        self.merge(Sums(len(x), [part], [*found.skipped], of))

    def merge(self, other: "Sums") -> None:
        """Add the sums of other images. ValueError if only some images have prompts."""
        if self.count and other.count and self.of.keys() != other.of.keys():
            raise ValueError("only some of the images have prompts: score those without alone")
        self.count += other.count
        self.done += other.done
        self.skipped += other.skipped
        self.of |= {name: self.of.get(name, 0) + moment for name, moment in other.of.items()}

    @isolated()
    def scores(self, features: int) -> dict[str, ScoreResult]:
        """Scores of orders 1 and 2 by so many features, by their names in `measures.MEASURES`."""
        found: dict[str, float] = {}
        for name, order in (("vendi", 1), ("rke", 2)):
            entropy, n = Entropy(order), self.count
            of = {f"h_{key}": float(matrix_entropy(it / n, entropy)) for key, it in self.of.items()}
            found |= {key.replace("vendi", name): it for key, it in scores_of(**of).items()}
        basis = f"{features:,} random Fourier features; n = {self.count:,}"
        return {name: ScoreResult(value, None, None, basis) for name, value in found.items()}

    def header(self) -> dict[str, Any]:
        """All but the sums of features, as JSON values."""
        return {"count": self.count, "done": self.done, "skipped": self.skipped}

    def save(self, path: Path) -> None:
        save_tensors(path, self.of, self.header())

    @classmethod
    def load(cls, path: Path) -> "Sums":
        """What `save` wrote; nothing if there is no such file."""
        if not path.is_file():
            return cls()
        header, of = load_tensors(path)
        return cls(**header, of=of)
