"""The results of an evaluation: scores, their differences, and a verdict in words."""

from dataclasses import asdict, dataclass, field
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any

from vendi_guidance.evaluation.analysis import Analysis
from vendi_guidance.evaluation.batches import LazyImages
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.evaluation.measures import HEADLINE, MEASURES, SECTIONS, Measure
from vendi_guidance.evaluation.spread import AttributeScores, BinomialTest, binomial_test
from vendi_guidance.features.files import BadImage
from vendi_guidance.scores.subsampling import ENOUGH
from vendi_guidance.storage.messages import counted

TIMES = "×\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class ScoreResult:
    """A score with its 95% confidence interval, for the same number of new prompts or images."""

    value: float
    low: float | None  # None for too few images
    high: float | None
    basis: str  # the settings that the score depends on


@dataclass(frozen=True, eq=False)
class Report:
    """The results of one batch, as `evaluate` returns them; `save` writes them as a page.

    Attributes:
        name: name of the batch.
        scores: scores by their names in `measures.MEASURES`.
        settings: everything that the scores depend on, as JSON values.
        skipped: files of the batch and of the reference images that could not be read.
        analysis: groups, modes and convergence curves.
        images: the n evaluated images.
        inputs: features, kernels and labels that the scores are computed from, one row per image.
        attributes: the values of each attribute that images show.
        notes: remarks to show beside the scores, one sentence each.

    Example:
        >>> import torch
        >>> from vendi_guidance import Embedding, evaluate
        >>> embedding = Embedding(torch.eye(4).repeat(4, 1))
        >>> report = evaluate(torch.zeros(16, 3, 8, 8), embedding=embedding)
        >>> report.scores["rke"].basis
        'given features, Gaussian σ = 1.414 (median distance); order 2, n = 16'
    """

    name: str
    scores: dict[str, ScoreResult]
    settings: dict[str, Any]
    skipped: list[BadImage]
    analysis: Analysis
    images: LazyImages = field(repr=False)
    inputs: ScoreInputs = field(repr=False)
    attributes: list[AttributeScores] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write `report.html`, `report.json` and figures as PNG files; returns the path of the
        page. OSError if the folder cannot be written."""
        from vendi_guidance.evaluation.report.html import save_report  # matplotlib is slow

        return save_report(Path(folder).expanduser(), [self])

    def content(self) -> dict[str, Any]:
        """What `report.json` says of a run."""
        analysis = self.analysis
        return {
            "name": self.name,
            "settings": self.settings,
            "skipped": [{"name": str(name), "reason": reason} for name, reason in self.skipped],
            "scores": {name: asdict(score) for name, score in self.scores.items()},
            "groups": [asdict(group) for group in analysis.groups],
            "modes": [asdict(mode) for mode in analysis.modes],
            "looked_at": analysis.looked_at,
            "near_duplicates": analysis.near_duplicates,
            "attributes": [asdict(one) for one in self.attributes],
            "notes": self.notes,
            "convergence": {
                name: {key: getattr(curve, key).tolist() for key in ("sizes", "scores", "mean")}
                | {"reached": curve.reached()}
                for name, curve in analysis.convergence.items()
            },
        }

    def answer(self) -> str:
        """A sentence that says how diverse the batch is."""
        name = next(name for name in HEADLINE if name in self.scores)
        score, measure = self.scores[name], MEASURES[name]
        text = f"“{self.name}” has {measure.format(score.value)} {measure.meaning} "
        text += f"({measure.title}) among {counted(self.settings['images'], 'image')}"
        interval = measure.format_interval(score.low, score.high)
        return f"{text}; 95% confidence interval {interval}." if interval else f"{text}."


@dataclass(frozen=True)
class Difference:
    """The difference in one score between two batches, with its 95% confidence interval."""

    first: float
    second: float
    change: float  # second / first if `is_ratio`, else second - first
    low: float | None  # None for too few images
    high: float | None
    is_ratio: bool  # False also if a batch or a subsample scores 0

    def format_change(self, measure: Measure, value: float | None = None) -> str:
        """The change (or `value` in its place) as text: a factor or a difference."""
        value = self.change if value is None else value
        if self.is_ratio:
            return f"{TIMES}{value:.2f}"
        return ("+" if value >= 0 else "") + measure.format(value)

    def format_interval(self, measure: Measure) -> str:
        """The confidence interval of the change as text, "" without one."""
        ends = [self.format_change(measure, end) for end in self.interval or ()]
        return " to ".join(ends).replace(f" to {TIMES}", " to ")

    @property
    def interval(self) -> tuple[float, float] | None:
        """The confidence interval of the change, if there is one."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def is_significant(self) -> bool:
        """Whether the confidence interval excludes "no change"."""
        low, high = self.interval or (-inf, inf)
        return not low <= (1 if self.is_ratio else 0) <= high

    def significance(self, measure: Measure) -> str:
        """Whether the change is significant: "yes", "no", or "negligible" if it is but rounds to
        none. Without a confidence interval: "no change" if the scores are equal, else "unknown".
        """
        if self.low is None:
            return "unknown" if self.first != self.second else "no change"
        if not self.is_significant:
            return "no"
        unchanged = self.format_change(measure, 1.0 if self.is_ratio else 0.0)
        return "negligible" if self.format_change(measure) == unchanged else "yes"


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of two batches side by side, as `compare` returns them.

    Attributes:
        first, second: the two reports.
        differences: by score name, for each score that both batches have.
        compared: number of images compared from each batch.
        drawn: what the intervals resample, "prompts" or "pictures"; None if there are too few
            images for intervals.
        paired: whether each resample has the same prompts in both batches.
    """

    first: Report
    second: Report
    differences: dict[str, Difference]
    compared: int
    drawn: str | None
    paired: bool

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write both reports side by side, in the files that `Report.save` writes for one."""
        from vendi_guidance.evaluation.report.html import save_report

        return save_report(Path(folder).expanduser(), [self.first, self.second], self)

    def content(self) -> dict[str, Any]:
        """What `report.json` says of the comparison."""
        return {
            "first": self.first.name,
            "second": self.second.name,
            "headline": self.headline,
            "verdict": self.verdict(),
            "pictures_of_each": self.compared,
            "drawn": self.drawn,
            "paired": self.paired,
            "binomial_test": asdict(self.binomial_test),
            "differences": {
                name: asdict(found) | {"significant": found.is_significant}
                for name, found in self.differences.items()
            },
        }

    @property
    def binomial_test(self) -> BinomialTest:
        """Which run shows more values of the attributes that prompts leave open, pair by pair."""
        return binomial_test(self.first.attributes, self.second.attributes)

    @property
    def headline(self) -> str:
        """The name of the score that decides which batch is more diverse."""
        return next(name for name in HEADLINE if name in self.differences)

    def verdict(self) -> str:
        """One or two sentences: which batch is more diverse, whether the difference is significant,
        and what it costs in fidelity."""
        found, measure = self.differences[self.headline], MEASURES[self.headline]
        first, second = f"“{self.first.name}”", f"“{self.second.name}”"
        if found.interval is None:
            scores = f"{measure.format(found.second)} against {measure.format(found.first)}"
            if self.drawn is not None:
                text = f"{measure.title} of {second} is {scores} of {first}"
                return f"{text}; nothing varies, so there is no confidence interval."
            return (
                f"Too few images to tell {second} from {first}: {measure.title} is {scores}. "
                f"A verdict needs {ENOUGH}, in each run; there are {self.compared}."
            )
        change, (low, high) = found.change, found.interval
        if not found.is_significant:
            return (
                f"No significant difference in diversity: {second} has {change:.2f} times the "
                f"{measure.title} of {first} (95% confidence interval {low:.2f} to {high:.2f})."
            )
        lost = self._lost_fidelity(-1 if change > 1 else 1)
        if change < 1:
            first, second, change, low, high = second, first, 1 / change, 1 / high, 1 / low
        return (
            f"{second} is significantly more diverse than {first}: {change:.2f} times the "
            f"{measure.title} (95% confidence interval {low:.2f} to {high:.2f}).{lost}"
        )

    def _lost_fidelity(self, sign: int) -> str:
        """A sentence for each fidelity score with a significant change of this sign."""
        text = ""
        for name, measure in SECTIONS["Fidelity"].items():
            found = self.differences.get(name)
            if found and found.significance(measure) == "yes" and sign * found.change > 0:
                low, high = map(measure.format, sorted((found.first, found.second)))
                text += f" Its {measure.title} is significantly lower: {low} against {high}."
        return text
