"""The differences between two reports, with confidence intervals.

As many images of each prompt are compared from both batches: untruncated scores grow with the
number of images. Intervals are paired where both have the same prompts (see `intervals`), so
variation between prompts cancels.
"""

from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.evaluation.evaluator import scores_of_parts, spectrum_for
from vendi_guidance.evaluation.inputs import ScoreInputs
from vendi_guidance.evaluation.intervals import Draws, draw_parts
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.results import ComparisonData, Difference, ReportData
from vendi_guidance.scores.functional import rows_by_label

DECISIVE = (
    "image_embedder",
    "kernel_image",
    "prompt_embedder",
    "kernel_prompt",
    "truncation",
    "clip",
)
"""Settings that must agree for scores to be comparable."""


class Comparison(ComparisonData):
    """What `compare` returns: two reports and their differences, which can be saved together."""

    def save(self, folder: str | PathLike[str]) -> Path:
        """Write both reports side by side, as `Report.save` does one."""
        from vendi_guidance.evaluation.report.writer import save_report  # matplotlib takes a second

        return save_report(Path(folder), [self.first, self.second], self)


def compare(first: ReportData, second: ReportData, *, progress: bool = False) -> Comparison:
    """What changes from one batch to another, with 95% confidence intervals.

    Args:
        first, second: reports made with the same settings.
        progress: show a progress bar.

    Raises:
        ValueError: the reports were made with other embedders, kernels or truncation.

    Example:
        >>> import torch
        >>> from vendi_guidance import Gaussian, evaluate
        >>> images, settings = torch.zeros(16, 3, 8, 8), {"kernel_image": Gaussian(0.1)}
        >>> few = evaluate(images, image_embedder=torch.eye(2).repeat(8, 1), **settings)
        >>> many = evaluate(images, image_embedder=torch.eye(4).repeat(4, 1), **settings)
        >>> round(compare(few, many).differences["vendi"].change, 3)
        2.0
    """
    for key in DECISIVE:
        values = [_without_origin(report.settings.get(key)) for report in (first, second)]
        if values[0] != values[1]:
            raise ValueError(
                f"{first.name} and {second.name} cannot be compared: {key} is {values[0]} of one "
                f"and {values[1]} of the other; evaluate both with the same"
            )
    both = [first.inputs, second.inputs]
    both = [one.take(rows) for one, rows in zip(both, _matching_rows(*both), strict=True)]
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


def _without_origin(setting: Any) -> Any:
    """A setting without how it was chosen."""
    if isinstance(setting, dict):
        return {key: value for key, value in setting.items() if key != "chosen"}
    return setting


def _matching_rows(first: ScoreInputs, second: ScoreInputs) -> tuple[Tensor, Tensor]:
    """Rows of as many images of each: of each group that both have, else of all."""
    if first.groups is not None and second.groups is not None:
        groups = [rows_by_label(one.groups or [], len(one)) for one in (first, second)]
        sizes = {
            label: min(len(members[label]) for members in groups)
            for label in groups[0]
            if label in groups[1]
        }
        if sizes:
            rows, others = (
                torch.tensor(
                    sorted(row for label, n in sizes.items() for row in members[label][:n])
                )
                for members in groups
            )
            return rows, others
    n = min(len(first), len(second))
    return torch.arange(n), torch.arange(n)


def _difference(
    name: str,
    before: float,
    after: float,
    parts: "list[list[dict[str, float]]] | None",
    draws: Draws | None,
) -> Difference:
    pairs = []
    if parts is not None and all(name in scores for batch in parts for scores in batch):
        pairs = [(a[name], b[name]) for a, b in zip(*parts, strict=True)]
    is_ratio = MEASURES[name].is_ratio and min(before, after, *map(min, pairs)) > 0

    def change(first: float, second: float) -> float:
        return second / first if is_ratio else second - first

    low, high = None, None
    if draws is not None and pairs:
        changes = [change(*pair) for pair in pairs]
        low, high = draws.interval(change(before, after), changes, is_ratio=is_ratio)
    return Difference(before, after, change(before, after), low, high, is_ratio)
