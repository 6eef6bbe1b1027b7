"""A report as one self-contained HTML page, without scripts or network requests."""

from base64 import b64encode
from collections.abc import Sequence
from functools import cache, partial
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL.Image import Image

from vendi_guidance.evaluation.measures import HEADLINE, MEASURES, SECTIONS
from vendi_guidance.evaluation.report.figures import as_svg
from vendi_guidance.evaluation.report.tables import ATTRIBUTE_TITLES, attribute_rows
from vendi_guidance.storage.images import fitted
from vendi_guidance.storage.messages import counted

if TYPE_CHECKING:
    from vendi_guidance.evaluation.results import Comparison, Report

Item = TypeVar("Item")
PACKAGE = "vendi_guidance.evaluation.report"
THUMBNAIL = 96  # pixels
GROUPS_AT_EITHER_END = 6
OF_EACH_GROUP = 16
# most groups and skipped files in lists; longer headings may scroll, so they need keyboard focus
LIMITS = {"listed": 500, "skipped": 100, "heading": 150}


def as_page(
    reports: Sequence["Report"], comparison: "Comparison | None", curves: Figure | None
) -> str:
    """The page of one report, or of two and their comparison, with their convergence curves."""
    headline = next(name for name in HEADLINE if all(name in one.scores for one in reports))
    groups = [{str(group.label): group for group in one.analysis.groups} for one in reports]
    labels = dict.fromkeys(chain(*groups))  # in order of the first run, then those of the others
    rows = [{"label": label, "of_runs": [run.get(label) for run in groups]} for label in labels]
    return render(
        "report.html",
        runs=[Run(report) for report in reports],
        comparison=comparison,
        headline=headline,
        sections=SECTIONS,
        least=rows[:GROUPS_AT_EITHER_END],
        most=rows[GROUPS_AT_EITHER_END:][-GROUPS_AT_EITHER_END:],
        groups=rows,
        some_of=partial(evenly_spaced, count=OF_EACH_GROUP),  # later images may look different
        attribute_titles=ATTRIBUTE_TITLES,
        attribute_rows=attribute_rows(reports),
        curves=curves and Markup(as_svg(curves)),
    )


def render(template: str, package: str = PACKAGE, **values: Any) -> str:
    """Render a template of a package, which may extend or include those of the report; unpaired
    surrogates in prompts, which UTF-8 cannot encode, become question marks."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(name) for name in (package, PACKAGE)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found = environment.get_template(template)
    text = found.render(counted=counted, measures=MEASURES, limits=LIMITS, **values)
    return text.encode("utf-8", "replace").decode()


def thumbnail(image: Image) -> str:
    """A thumbnail of an image as a data URI."""
    file = BytesIO()
    if max(image.size) > THUMBNAIL:
        image = fitted(image, THUMBNAIL)
    image.save(file, format="WEBP", quality=82)
    return f"data:image/webp;base64,{b64encode(file.getvalue()).decode('ascii')}"


class Run:
    """A report with thumbnails and captions of its images."""

    def __init__(self, report: "Report") -> None:
        self.report = report
        self.name, self.paths = report.name, report.images.paths()
        # an image may occur several times on the page
        self.thumbnail = cache(lambda row: thumbnail(report.images[row]))

    def caption(self, row: int) -> str:
        """The alt text of an image."""
        labels, paths = self.report.inputs.groups, self.paths
        name = f"image {row + 1}" if paths is None else paths[row].name
        return name if labels is None else f"{name}: {labels[row]}"


def evenly_spaced(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` evenly spaced items, in order and including the first; `count` >= 1.

    Example:
        >>> evenly_spaced("abcdefgh", 3), evenly_spaced("ab", 3), evenly_spaced(range(30), 22)[11]
        (['a', 'c', 'f'], ['a', 'b'], 14)
    """
    step = max(1.0, len(items) / count)
    # not i * len(items) // count, which rounds differently: published results use this choice
    return [items[int(i * step)] for i in range(min(count, len(items)))]
