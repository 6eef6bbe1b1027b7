"""Attributes in a report: a figure of small multiples, and cells of tables."""

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from vendi_guidance.evaluation.attribute_diversity import AttributeScores
from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.report.figures import name_rows, one_line, style
from vendi_guidance.evaluation.results import ReportData
from vendi_guidance.spacing import evenly_spaced

SHOWN = 24  # prompts of a figure: more are not read at a glance


def attribute_title(attribute: Attribute) -> str:
    """Its name, and the prompt if it is for one only."""
    return attribute.name + (f" ({attribute.prompt})" if attribute.prompt is not None else "")


def attribute_cell(scores: AttributeScores, name: str) -> str:
    """A mean with its interval as text; "–" where there is none."""
    if name not in scores.means:
        return "–"
    value, low, high = scores.means[name]
    return f"{value:.0%}" + ("" if low is None else f" ({low:.0%} to {high:.0%})")


def calibration_lines(reports: Sequence[ReportData]) -> list[str]:
    """How well the judges agree with the labels that they were calibrated by: a line for each
    attribute, which all runs share."""
    lines = {}
    for report in reports:
        for one in report.attributes:
            if (found := one.calibration) is not None:
                before, after = found.before, found.after
                lines[one.attribute.name, one.attribute.values] = (
                    f"{one.attribute.name}: the judge is calibrated by {found.labelled} labelled "
                    f"images. It agrees with {after.accuracy:.0%} of their labels, log loss "
                    f"{after.log_loss:.2f}, by cross-validation; uncalibrated, with "
                    f"{before.accuracy:.0%}, log loss {before.log_loss:.2f}."
                )
    return list(lines.values())


def draw_attributes(reports: Sequence[ReportData]) -> dict[str, Figure]:
    """A figure for each attribute: a bar for each prompt, cut into its values' shares; the runs
    beside one another."""
    found: dict[str, list[AttributeScores | None]] = {}
    for place, report in enumerate(reports):
        for one in report.attributes:
            found.setdefault(attribute_title(one.attribute), [None] * len(reports))[place] = one
    names = [report.name for report in reports]
    with style():
        return {
            f"attribute-{number}": _figure(title, of_runs, names)
            for number, (title, of_runs) in enumerate(found.items(), 1)
        }


def _figure(title: str, of_runs: Sequence[AttributeScores | None], names: Sequence[str]) -> Figure:
    first = next(one for one in of_runs if one is not None)
    # the least even first, prompts that name a value last
    ordered = sorted(
        first.by_prompt, key=lambda one: (one.named is not None, one.scores.get("entropy", 0.0))
    )
    order = [one.prompt for one in ordered]
    kept = evenly_spaced(order, SHOWN)
    size = (2.2 + 2.6 * len(names), 1.2 + 0.24 * len(kept))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    values = first.attribute.values
    colours = mpl.color_sequences["tab20" if len(values) > 10 else "tab10"]
    for axes, scores, name in zip(panels, of_runs, names, strict=True):
        found = {} if scores is None else {one.prompt: one for one in scores.by_prompt}
        for row, prompt in enumerate(kept):
            if prompt not in found:
                continue
            start = 0.0
            for place, share in enumerate(found[prompt].shares):
                axes.barh(row, share, left=start, color=colours[place % len(colours)], height=0.8)
                start += share
            if (named := found[prompt].named) is not None:
                axes.text(1.02, row, f"asks {one_line(named, 12)}", va="center", fontsize=7)
        axes.set(xlim=(0, 1), xticks=[0, 0.5, 1], xlabel="share of images")
        axes.set_title(one_line(name, 28), fontsize=10, parse_math=False)
    name_rows(panels[0], range(len(kept)), [one_line(prompt, 30) for prompt in kept], fontsize=8)
    panels[0].invert_yaxis()
    handles = [
        Patch(color=colours[i % len(colours)], label=one_line(value, 20))
        for i, value in enumerate(values)
    ]
    legend = figure.legend(
        handles=handles,
        title=one_line(title, 60),
        loc="outside upper center",
        ncols=min(4, len(values)),
        fontsize=8,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)
    return figure
