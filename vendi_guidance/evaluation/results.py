"""The results of an evaluation: scores, their differences, and what is said of both."""

from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from vendi_guidance.checks import counted
from vendi_guidance.evaluation.analysis import Analysis
from vendi_guidance.evaluation.attribute_diversity import AttributeScores, Spread
from vendi_guidance.evaluation.batches import LazyImages
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.evaluation.intervals import ENOUGH
from vendi_guidance.evaluation.measures import HEADLINE, MEASURES, SECTIONS, Measure
from vendi_guidance.features.files import BadImage


@dataclass(frozen=True)
class ScoreResult:
    """A score with its confidence interval.

    Attributes:
        value: the score.
        low, high: the 95% confidence interval, for as many new prompts, or images; None where
            there are too few for one.
        basis: what the score depends on, as text.
    """

    value: float
    low: float | None
    high: float | None
    basis: str


@dataclass(frozen=True, eq=False)
class Report:
    """What `evaluate` returns: the results of one batch, which can be saved as a report.

    Attributes:
        name: of the batch.
        scores: by their names in `measures.MEASURES`.
        settings: all that the scores depend on, JSON values.
        skipped: the files that could not be read, of the batch and of its reference.
        analysis: groups, modes, spectra and convergence curves.
        images: the n images that were evaluated.
        inputs: what the scores are computed from, one row per image.
        attributes: the shares of each attribute's values by prompt, and what prompts name.
        spreads: effective values of each attribute that prompts leave open, and looks.
        notes: what a reader has to know beside the scores, a sentence each.

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
    spreads: list[Spread] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write `report.html`, `report.json` and figures as PNG files.

        Returns:
            The path of the page.

        Raises:
            OSError: the folder cannot be written.
        """
        from vendi_guidance.evaluation.report.writer import save_report  # matplotlib takes a second

        return save_report(Path(folder), [self])

    def answer(self) -> str:
        """How diverse the batch is, in a sentence."""
        name = next(name for name in HEADLINE if name in self.scores)
        score, measure = self.scores[name], MEASURES[name]
        text = f"“{self.name}” has {measure.format(score.value)} {measure.meaning} "
        text += f"({measure.title}), of {counted(self.settings['images'], 'image')}"
        interval = measure.format_interval(score.low, score.high)
        return f"{text}; 95% confidence interval {interval}." if interval else f"{text}."


@dataclass(frozen=True)
class Difference:
    """One score of two batches.

    Attributes:
        first, second: the scores of the images that were compared.
        change: second / first if `is_ratio`, else second - first.
        low, high: the 95% confidence interval of the change; None where there are too few images.
        is_ratio: whether the scores compare as a ratio, which they do not if one is 0.
    """

    first: float
    second: float
    change: float
    low: float | None
    high: float | None
    is_ratio: bool

    def format_change(self, measure: Measure, value: float | None = None) -> str:
        """The change, or another value of it, as text: a factor or a difference."""
        value = self.change if value is None else value
        if self.is_ratio:
            return f"×\N{NO-BREAK SPACE}{value:.2f}"
        return ("+" if value >= 0 else "") + measure.format(value)

    def format_interval(self, measure: Measure) -> str:
        """Its confidence interval as text, "" if there is none."""
        ends = [self.format_change(measure, end) for end in self.interval or ()]
        return " to ".join(ends[:1] + [end.removeprefix("×\N{NO-BREAK SPACE}") for end in ends[1:]])

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% confidence interval, if there is one."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def is_significant(self) -> bool:
        """Whether the confidence interval excludes "no change"."""
        same = 1.0 if self.is_ratio else 0.0
        return self.interval is not None and not self.interval[0] <= same <= self.interval[1]

    def significance(self, measure: Measure) -> str:
        """ "yes", "no", or "negligible" where a significant change rounds to none.

        Without a confidence interval "no change" where the scores are equal, else "unknown".
        """
        if self.low is None:
            return "unknown" if self.first != self.second else "no change"
        if not self.is_significant:
            return "no"
        unchanged = self.format_change(measure, 1.0 if self.is_ratio else 0.0)
        return "negligible" if self.format_change(measure) == unchanged else "yes"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` returns: the results of two batches, which can be saved side by side.

    Attributes:
        first, second: their reports.
        differences: of each score that both have, by name.
        compared: how many images of each.
        drawn: what was resampled for the intervals, "prompts" or "pictures"; None where there are
            too few images.
        paired: whether the same prompts were drawn from both.
    """

    first: Report
    second: Report
    differences: dict[str, Difference]
    compared: int
    drawn: str | None
    paired: bool

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write both reports side by side, as `Report.save` does one."""
        from vendi_guidance.evaluation.report.writer import save_report

        return save_report(Path(folder), [self.first, self.second], self)

    @property
    def headline(self) -> str:
        """The name of the score that decides which batch is more diverse."""
        return next(name for name in HEADLINE if name in self.differences)

    def verdict(self) -> str:
        """Which batch is more diverse, whether that is significant, and what it costs in fidelity,
        in a sentence or two."""
        found, measure = self.differences[self.headline], MEASURES[self.headline]
        first, second = f"“{self.first.name}”", f"“{self.second.name}”"
        change, low, high = found.change, found.low, found.high
        if low is None or high is None:
            scores = f"{measure.format(found.second)} against {measure.format(found.first)}"
            if self.drawn is not None:
                same = "nothing varies that a confidence interval could be computed from"
                return f"{measure.title} of {second} is {scores} of {first}; {same}."
            return (
                f"Too few images to tell {second} from {first}: {measure.title} is {scores}. "
                f"A verdict needs {ENOUGH}, in each run; there are {self.compared}."
            )
        loss = -1 if change > 1 else 1  # the sign of a change against the more diverse batch
        if found.is_significant and change < 1:  # the other way round
            first, second, change, low, high = second, first, 1 / change, 1 / high, 1 / low
        interval = f"(95% confidence interval {low:.2f} to {high:.2f})"
        if found.is_significant:
            return (
                f"{second} is significantly more diverse than {first}: {change:.2f} times the "
                f"{measure.title} {interval}.{self._lost(loss)}"
            )
        return (
            f"No significant difference in diversity: {second} has {change:.2f} times the "
            f"{measure.title} of {first} {interval}."
        )

    def _lost(self, sign: int) -> str:
        """A sentence for each score of fidelity with a significant change of that sign."""
        said = ""
        for name, measure in SECTIONS["Fidelity"].items():
            found = self.differences.get(name)
            if found and found.significance(measure) == "yes" and sign * found.change > 0:
                low, high = map(measure.format, sorted((found.first, found.second)))
                said += f" Its {measure.title} is significantly lower: {low} against {high}."
        return said
