"""Diversity and faithfulness of a guided run, compared with the unguided run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL.Image import Image
from torch import Tensor

from vendi_guidance.evaluation.comparison import compare
from vendi_guidance.evaluation.embedding import Embedding, ImageReader
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.evaluation.judges import NO_JUDGES, Judge, Judges
from vendi_guidance.evaluation.results import Comparison, Report
from vendi_guidance.features.base import ImageEmbedder, PromptEmbedder
from vendi_guidance.features.probe import Probe


@dataclass(frozen=True, eq=False)
class ProbeConcept:
    """Faithfulness judge of the demo models: 1 if the probe sees the concept that the prompt asks
    for, else 0. The probe's other heads, which tell looks apart, are not used."""

    probe: Probe
    name: ClassVar[str] = "concept seen by the probe"

    def __call__(self, images: Sequence[Image], prompts: Sequence[str]) -> Tensor:
        pairs = zip(self.probe.asked(prompts), self.probe.looks(images), strict=True)
        return torch.tensor([float(asked is None or asked[0] == seen[0]) for asked, seen in pairs])


@dataclass(frozen=True)
class Outcome:
    """A guided run relative to the unguided one, with 95% confidence intervals paired by prompt.

    Attributes:
        diversity: Conditional-Vendi as a multiple of the unguided run's.
        kept: faithfulness as a share of the unguided run's.
        conditional_vendi, faithfulness: the two scores of the guided run.
    """

    diversity: float
    diversity_interval: tuple[float, float] | None
    kept: float
    kept_interval: tuple[float, float] | None
    conditional_vendi: float
    faithfulness: float

    @classmethod
    def read(cls, content: dict[str, Any]) -> "Outcome":
        """The outcome stored as a JSON object.

        Raises:
            TypeError, ValueError: the object has other fields or values.
        """
        found = cls(**content)
        numbers = [found.diversity, found.kept, found.conditional_vendi, found.faithfulness]
        for low, high in filter(None, (found.diversity_interval, found.kept_interval)):
            numbers += low, high
        math.fsum(numbers)  # raises TypeError if a value is not a number
        return found

    @classmethod
    def of(cls, found: Comparison) -> "Outcome":
        """The outcome of a comparison, with the unguided batch first."""
        diversity = found.differences["conditional_vendi"]
        kept = found.differences[faithfulness_in(found.first)]
        base, ends = kept.first or 1.0, kept.interval
        return cls(
            diversity=diversity.second / diversity.first,
            diversity_interval=diversity.interval,
            kept=kept.second / kept.first if kept.first else 0.0,
            kept_interval=None if ends is None else (1 + ends[0] / base, 1 + ends[1] / base),
            conditional_vendi=diversity.second,
            faithfulness=kept.second,
        )


def faithfulness_in(report: Report) -> str:
    """The name of the score that measures faithfulness in a report."""
    return "faithfulness" if "faithfulness" in report.scores else "clip_score"


@dataclass(frozen=True)
class Judging:
    """The embedders and judges that runs are evaluated with.

    Attributes:
        images, prompts: embedders of images and of prompts.
        faithfulness: the image and prompt embedder of a CLIP, or a judge.
        cache: folder that stores features.
        judges: further judges for `evaluate`, such as labels.
    """

    images: ImageEmbedder
    prompts: PromptEmbedder
    faithfulness: tuple[ImageEmbedder, PromptEmbedder] | Judge
    cache: Path
    judges: Judges = NO_JUDGES

    def unguided(self, folder: Path) -> tuple[Report, dict[str, Any]]:
        """The report of the unguided run in a folder, and the arguments of `evaluate` that make
        other runs comparable with it."""
        name = "clip" if isinstance(self.faithfulness, tuple) else "faithfulness"
        given: dict[str, Any] = {name: self.faithfulness}
        judges = replace(self.judges, **given)
        embedding, reader = Embedding(self.images, self.prompts), ImageReader(self.cache)
        report = evaluate(folder, embedding=embedding, judges=judges, reader=reader)
        embedding = embedding.with_kernels_of(report.inputs)
        return report, {"embedding": embedding, "judges": judges, "reader": reader}

    def outcome(self, folder: Path, unguided: Report, settings: dict[str, Any]) -> Outcome:
        """Evaluate the run in a folder and compare it with the unguided one.

        Args:
            unguided, settings: what `Judging.unguided` returned.
        """
        return Outcome.of(compare(unguided, evaluate(folder, **settings)))
