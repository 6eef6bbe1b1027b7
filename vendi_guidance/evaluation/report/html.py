"""A report as one self-contained HTML page, which asks nothing of a network and runs no script."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image, ImageOps

from vendi_guidance.evaluation.analysis import Group
from vendi_guidance.evaluation.batches import Pictures
from vendi_guidance.evaluation.evaluator import Report
from vendi_guidance.evaluation.measures import HEADLINE, MEASURES, SECTIONS
from vendi_guidance.evaluation.report.figures import HEAT_UP_TO, as_svg

if TYPE_CHECKING:
    from vendi_guidance.evaluation.comparison import Comparison

THUMBNAIL = 96  # pixels, at most
GROUPS_AT_EITHER_END = 6
GROUPS_LISTED = 500
OF_EACH_GROUP = 16
SKIPPED_LISTED = 100
HEADING = 150
"""Headings of more characters may have to be scrolled, and so be reached by keyboard."""


def as_page(
    reports: Sequence[Report], comparison: "Comparison | None", figures: Mapping[str, Figure]
) -> str:
    """The page.

    Args:
        reports: one, or two.
        comparison: of the two.
        figures: by name, as `figures.draw_figures` gives them.
    """
    environment = Environment(
        loader=PackageLoader("vendi_guidance.evaluation.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    runs = [Run(report, Thumbnails(report.images)) for report in reports]
    return environment.get_template("report.html").render(
        runs=runs,
        comparison=comparison,
        headline=_headline(reports),
        sections=SECTIONS,
        measures=MEASURES,
        least=_groups(reports)[:GROUPS_AT_EITHER_END],
        most=_groups(reports)[GROUPS_AT_EITHER_END:][-GROUPS_AT_EITHER_END:],
        groups=_groups(reports),
        svg={name: Markup(as_svg(figure, name)) for name, figure in figures.items()},
        limits={
            "heat": HEAT_UP_TO,
            "listed": GROUPS_LISTED,
            "skipped": SKIPPED_LISTED,
            "heading": HEADING,
        },
    )


class Thumbnails:
    """Small versions of pictures as data URIs, each made once."""

    def __init__(self, images: Pictures) -> None:
        self.images = images
        self._made: dict[int, str] = {}

    def __call__(self, row: int) -> str:
        if row not in self._made:
            written = BytesIO()
            image = self.images[row]
            if max(image.size) > THUMBNAIL:
                image = ImageOps.contain(image, (THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
            image.save(written, format="WEBP", quality=82)
            text = b64encode(written.getvalue()).decode("ascii")
            self._made[row] = f"data:image/webp;base64,{text}"
        return self._made[row]


@dataclass(frozen=True)
class Run:
    """A report with what the page needs to show its pictures."""

    report: Report
    thumbnail: Thumbnails

    @property
    def name(self) -> str:
        return self.report.name

    def some_of(self, group: Group) -> list[int]:
        """Pictures to show of a group: evenly spread, as the first may differ from the later."""
        count = min(len(group.rows), OF_EACH_GROUP)
        return [group.rows[i * len(group.rows) // count] for i in range(count)]

    def caption(self, row: int) -> str:
        """What a picture is, for those who do not see it."""
        labels = self.report.inputs.groups
        return f"picture {row + 1}" if labels is None else f"picture {row + 1}: {labels[row]}"


@dataclass(frozen=True)
class Together:
    """A group as each run has it; None where a run has none of that label."""

    label: str
    of_runs: tuple[Group | None, ...]


def _groups(reports: Sequence[Report]) -> list[Together]:
    """Those of the first run, its least diverse first, and then what only the second has."""
    by_label = [{str(group.label): group for group in one.analysis.groups} for one in reports]
    labels = dict.fromkeys(label for groups in by_label for label in groups)
    return [Together(label, tuple(groups.get(label) for groups in by_label)) for label in labels]


def _headline(reports: Sequence[Report]) -> dict[str, Any] | None:
    """The score that says how diverse a batch is."""
    name = next(name for name in HEADLINE if all(name in one.scores for one in reports))
    return {
        "name": name,
        "measure": MEASURES[name],
        "scores": [one.scores[name] for one in reports],
    }
