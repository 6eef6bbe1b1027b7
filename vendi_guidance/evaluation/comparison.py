"""Two reports, and whether what lies between them is more than chance.

Compared are as many pictures of both batches, prompt by prompt: untruncated scores grow with the
number of pictures. The same prompts are drawn from both (see `resampling`), so what prompts have in
common does not blur the difference.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import exp, log
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.evaluation.evaluator import Report, scores_of_parts, spectrum_for
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.evaluation.intervals import Draws, draw_parts
from vendi_guidance.evaluation.measures import HEADLINE, MEASURES, Measure
from vendi_guidance.scores.functional import rows_by_label

DECIDE = (
    "image_embedder",
    "kernel_image",
    "prompt_embedder",
    "kernel_prompt",
    "truncation",
    "clip",
)
"""Settings that must agree, or numbers are not of the same thing."""


@dataclass(frozen=True)
class Difference:
    """One score of two batches.

    Attributes:
        first, second: the scores of the pictures that were compared.
        change: second / first if `is_ratio`, else second - first.
        low, high: between which the change is, at level 0.95; None where there is too little to
            tell.
        is_ratio: whether the scores compare as a ratio, which they do not if one is 0.
    """

    first: float
    second: float
    change: float
    low: float | None
    high: float | None
    is_ratio: bool

    def in_words(self, measure: Measure) -> str:
        """The change."""
        return measure.change(self.change, self.is_ratio)

    def interval(self, measure: Measure) -> str:
        """Its interval, "" if there is none."""
        if self.low is None or self.high is None:
            return ""
        low = measure.change(self.low, self.is_ratio)
        high = measure.change(self.high, self.is_ratio).removeprefix("×\N{NO-BREAK SPACE}")
        return f"{low} to {high}"

    @property
    def beyond_chance(self) -> bool:
        """Whether the interval leaves out that nothing changed."""
        same = 1.0 if self.is_ratio else 0.0
        return self.low is not None and self.high is not None and not self.low <= same <= self.high

    def matters(self, measure: Measure) -> bool:
        """Whether the change is beyond chance and can be seen in the digits shown."""
        none = measure.change(1.0 if self.is_ratio else 0.0, self.is_ratio)
        return self.beyond_chance and self.in_words(measure) != none

    def says(self, measure: Measure) -> str:
        """The same in words; "" where there is too little to tell."""
        if self.low is None:
            return "" if self.first != self.second else "no change"
        if self.matters(measure):
            return "beyond chance"
        return "too small to matter" if self.beyond_chance else "may be chance"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What two reports say side by side.

    Attributes:
        first, second: the reports.
        differences: of each score that both have, by name.
        compared: how many pictures of each.
        drawn: what the intervals are over, "prompts" or "pictures"; None without intervals.
        paired: whether the same prompts were drawn from both.
    """

    first: Report
    second: Report
    differences: dict[str, Difference]
    compared: int
    drawn: str | None
    paired: bool

    @property
    def headline(self) -> str:
        """The name of the score that says which batch is more diverse."""
        return next(name for name in HEADLINE if name in self.differences)

    def verdict(self) -> str:
        """Which batch is more diverse, and whether that is chance, in a sentence."""
        found, measure = self.differences[self.headline], MEASURES[self.headline]
        first, second = f"“{self.first.name}”", f"“{self.second.name}”"
        if found.low is None or found.high is None:
            return (
                f"Too few pictures to tell {second} from {first}: {measure.title} is "
                f"{measure.shown(found.second)} against {measure.shown(found.first)}."
            )
        if not found.beyond_chance:
            return (
                f"No difference in diversity beyond chance: {second} has {found.change:.2f} times "
                f"the {measure.title} of {first} "
                f"(95% interval {found.low:.2f} to {found.high:.2f})."
            )
        if found.change < 1:  # the other way round
            first, second = second, first
            found = replace(found, change=1 / found.change, low=1 / found.high, high=1 / found.low)
        return (
            f"{second} is more diverse than {first}, beyond chance: {found.change:.2f} times the "
            f"{measure.title} (95% interval {found.low:.2f} to {found.high:.2f})."
        )

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write both reports side by side, as `Report.save` does one."""
        from vendi_guidance.evaluation.report.writer import save_report  # matplotlib takes a second

        return save_report(Path(folder), [self.first, self.second], self)


def compare(first: Report, second: Report, *, progress: bool = False) -> Comparison:
    """What changes from one batch to another, with intervals.

    Args:
        first, second: reports of the same settings.
        progress: show a bar.

    Raises:
        ValueError: the reports were made with other embedders, kernels or truncation.
    """
    for key in DECIDE:
        values = [_decisive(report.settings.get(key)) for report in (first, second)]
        if values[0] != values[1]:
            raise ValueError(
                f"{first.name} and {second.name} cannot be compared: {key} is {values[0]} of one "
                f"and {values[1]} of the other; evaluate both with the same"
            )
    both = [first.inputs, second.inputs]
    rows = _as_many(*both)
    both = [one.take(kept) for one, kept in zip(both, rows, strict=True)]
    n = len(both[0])
    before, after = (one.scores(spectrum_for(n)) for one in both)
    draws = draw_parts([one.groups for one in both], [n, n])
    parts = None if draws is None else scores_of_parts(both, draws, progress)
    return Comparison(
        first,
        second,
        {
            name: _difference(name, before[name], after[name], parts, draws)
            for name in MEASURES
            if name in before and name in after
        },
        n,
        None if draws is None else draws.unit,
        draws is not None and draws.paired,
    )


def _decisive(setting: Any) -> Any:
    """A setting without how it was come by."""
    if isinstance(setting, dict):
        return {key: value for key, value in setting.items() if key != "chosen"}
    return setting


def _as_many(first: ScoreInputs, second: ScoreInputs) -> tuple[Tensor, Tensor]:
    """Rows of as many pictures of each: of each label that both have, else of all."""
    if first.groups is not None and second.groups is not None:
        groups = [rows_by_label(one.groups or [], len(one)) for one in (first, second)]
        shared = [label for label in groups[0] if label in groups[1]]
        if shared:
            return _first_of_each(groups, shared)
    n = min(len(first), len(second))
    return torch.arange(n), torch.arange(n)


def _first_of_each(
    groups: Sequence[dict[Hashable, list[int]]], shared: Sequence[Hashable]
) -> tuple[Tensor, Tensor]:
    sizes = {label: min(len(members[label]) for members in groups) for label in shared}
    first, second = (
        torch.tensor(sorted(row for label in shared for row in members[label][: sizes[label]]))
        for members in groups
    )
    return first, second


def _difference(
    name: str,
    before: float,
    after: float,
    parts: "list[list[dict[str, float]]] | None",
    draws: Draws | None,
) -> Difference:
    as_ratio = MEASURES[name].is_ratio and min(before, after) > 0
    change = after / before if as_ratio else after - before
    low = high = None
    if parts is not None and draws is not None:
        pairs = [(a[name], b[name]) for a, b in zip(*parts, strict=True) if name in a and name in b]
        if len(pairs) == len(draws.parts):
            by_ratio = as_ratio and min(map(min, pairs)) > 0
            reach = draws.reach([log(b / a) if by_ratio else b - a for a, b in pairs])
            if reach is not None and as_ratio:
                low, high = change * exp(-reach), change * exp(reach)
            elif reach is not None:
                low, high = change - reach, change + reach
    return Difference(before, after, change, low, high, as_ratio)
