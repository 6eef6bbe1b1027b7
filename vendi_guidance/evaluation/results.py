"""The results of an evaluation as plain data, which the writers of reports take."""

from dataclasses import dataclass, field, replace
from typing import Any

from vendi_guidance.evaluation.analysis import Analysis
from vendi_guidance.evaluation.batches import Pictures
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.evaluation.measures import HEADLINE, MEASURES, Measure
from vendi_guidance.features.files import BadImage


@dataclass(frozen=True)
class Score:
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
class ReportData:
    """The results of one batch.

    Attributes:
        name: of the batch.
        scores: by their names in `measures.MEASURES`.
        settings: all that the scores depend on, JSON values.
        skipped: the files that could not be read.
        analysis: groups, modes, near-duplicates, spectra and convergence curves.
        images: the n images that were evaluated.
        inputs: what the scores are computed from, one row per image.
    """

    name: str
    scores: dict[str, Score]
    settings: dict[str, Any]
    skipped: list[BadImage]
    analysis: Analysis
    images: Pictures = field(repr=False)
    inputs: ScoreInputs = field(repr=False)


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

    def format_change(self, measure: Measure) -> str:
        """The change as text."""
        return measure.format_change(self.change, self.is_ratio)

    def format_interval(self, measure: Measure) -> str:
        """Its confidence interval as text, "" if there is none."""
        if self.low is None or self.high is None:
            return ""
        low = measure.format_change(self.low, self.is_ratio)
        high = measure.format_change(self.high, self.is_ratio).removeprefix("×\N{NO-BREAK SPACE}")
        return f"{low} to {high}"

    @property
    def is_significant(self) -> bool:
        """Whether the confidence interval excludes "no change"."""
        same = 1.0 if self.is_ratio else 0.0
        return self.low is not None and self.high is not None and not self.low <= same <= self.high

    def significance(self, measure: Measure) -> str:
        """ "yes", "no", or "negligible" where a significant change rounds to none.

        Without a confidence interval "no change" where the scores are equal, else "".
        """
        if self.low is None:
            return "" if self.first != self.second else "no change"
        if not self.is_significant:
            return "no"
        unchanged = measure.format_change(1.0 if self.is_ratio else 0.0, self.is_ratio)
        return "negligible" if self.format_change(measure) == unchanged else "yes"


@dataclass(frozen=True, eq=False)
class ComparisonData:
    """The results of two batches side by side.

    Attributes:
        first, second: their reports.
        differences: of each score that both have, by name.
        compared: how many images of each.
        drawn: what was resampled for the intervals, "prompts" or "pictures"; None without any.
        paired: whether the same prompts were drawn from both.
    """

    first: ReportData
    second: ReportData
    differences: dict[str, Difference]
    compared: int
    drawn: str | None
    paired: bool

    @property
    def headline(self) -> str:
        """The name of the score that decides which batch is more diverse."""
        return next(name for name in HEADLINE if name in self.differences)

    def verdict(self) -> str:
        """Which batch is more diverse, and whether that is significant, in a sentence."""
        found, measure = self.differences[self.headline], MEASURES[self.headline]
        first, second = f"“{self.first.name}”", f"“{self.second.name}”"
        if found.low is None or found.high is None:
            return (
                f"Too few pictures to tell {second} from {first}: {measure.title} is "
                f"{measure.format(found.second)} against {measure.format(found.first)}."
            )
        if not found.is_significant:
            return (
                f"No significant difference in diversity: {second} has {found.change:.2f} times "
                f"the {measure.title} of {first} "
                f"(95% confidence interval {found.low:.2f} to {found.high:.2f})."
            )
        if found.change < 1:  # the other way round
            first, second = second, first
            found = replace(found, change=1 / found.change, low=1 / found.high, high=1 / found.low)
        return (
            f"{second} is significantly more diverse than {first}: {found.change:.2f} times the "
            f"{measure.title} (95% confidence interval {found.low:.2f} to {found.high:.2f})."
        )
