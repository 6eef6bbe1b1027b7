"""Reports as files: a self-contained HTML page without scripts or network requests, JSON, PNG."""

import json
import logging
import os
from base64 import b64encode
from collections.abc import Iterator, Sequence
from functools import cache, partial
from io import BytesIO
from itertools import chain
from math import inf
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL.Image import Image, Resampling, new as new_image

from vendi_guidance.evaluation.measures import HEADLINE, MEASURES, SECTIONS
from vendi_guidance.evaluation.report.figures import as_svg, convergence_figure, style
from vendi_guidance.evaluation.spread import AttributeScores, change
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.subsampling import Estimate
from vendi_guidance.storage.files import headed, read_object, whole_folder
from vendi_guidance.storage.messages import counted, version_of

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Reports: TypeAlias = Sequence[Any]  # `results.Report`s, whose `save` calls this module
FORMAT = "vendi-guidance report"
PAGE, DATA, BY_PROMPT = "report.html", "report.json", "prompts-{:04d}.html"
PROMPTS_ON_A_PAGE, MOST_IMAGES = 50, 64  # prompts, and most images of each
THUMBNAIL = 96  # pixels
GROUPS_AT_EITHER_END = 6
OF_EACH_GROUP = 16
# most groups and skipped files in lists; longer headings may scroll, so they need keyboard focus;
# attributes that are shown at once, those that vary least
LIMITS = {"listed": 500, "skipped": 100, "changed": 24, "heading": 150, "on_top": 2}


def save_report(folder: Path, reports: Reports, comparison: Any = None) -> Path:
    """Write `report.html`, `report.json` and PNG figures: all of them, or none on OSError; returns
    the path of the page. Other files of an earlier report in the folder are deleted."""
    earlier = read_report(folder)
    curves = convergence_figure(
        [report.analysis.convergence for report in reports], [report.name for report in reports]
    )
    with whole_folder(folder) as new:
        if curves is not None:
            options: Any = {"dpi": 160, "facecolor": "white", "bbox_inches": "tight"}
            with style():
                curves.savefig(new / "convergence.png", format="png", **options)
        pages = list(prompt_pages(reports, folder))
        for number, page in enumerate(pages, start=1):
            (new / BY_PROMPT.format(number)).write_text(page, encoding="utf-8")
        text = as_page(reports, comparison, curves, len(pages))
        (new / PAGE).write_text(text, encoding="utf-8")
        written = sorted([*(file.name for file in new.iterdir()), DATA])
        content = {
            "made_with": f"vendi-guidance {version_of('vendi-guidance')}",
            "runs": [report.content() for report in reports],
            "comparison": None if comparison is None else comparison.content(),
            "files": written,
        }
        text = json.dumps(headed(FORMAT, content), indent=2, allow_nan=False) + "\n"
        (new / DATA).write_text(text, encoding="utf-8")
    for name in earlier.get("files", []):
        if name not in written and Path(name).name == name:
            (folder / name).unlink(missing_ok=True)
    return folder / PAGE


def read_report(folder: Path) -> dict[str, Any]:
    """The content of a folder's `report.json`; empty if it is missing or not that of a report."""
    content = read_object(folder / DATA)
    return content if content.get("format") == FORMAT else {}


def as_page(reports: Reports, comparison: Any, curves: Figure | None, pages: int) -> str:
    """The page of one report, or of two and their comparison, with their convergence curves and
    links to the pages of their prompts."""
    headline = next(name for name in HEADLINE if all(name in one.scores for one in reports))
    groups = [{group.label: group for group in one.analysis.groups} for one in reports]
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
        attributes=by_variety(reports),
        change=change,
        in_words=in_words,
        pages=[BY_PROMPT.format(number + 1) for number in range(pages)],
        curves=curves and Markup(as_svg(curves)),
    )


def prompt_pages(reports: Reports, folder: Path) -> Iterator[str]:
    """Pages of the values in each prompt's images, which are linked, not embedded: a page in the
    report's folder shows any number. None without attributes."""
    found: dict[str, dict[str, list[Any]]] = {}
    for run, report in enumerate(reports):
        for one in report.attributes:
            for shares in one.by_prompt:
                of_prompt = found.setdefault(shares.prompt, {}).setdefault(one.attribute.name, [])
                counts = zip(one.attribute.values, shares.counts, strict=True)
                of_prompt.append((run, shares, counts))
    asked = [report.inputs.prompts or [] for report in reports]
    rows = [rows_by_label(prompts, len(prompts)) for prompts in asked]
    files = [report.images.paths() or [] for report in reports]

    def images(run: int, prompt: str) -> list[str]:
        own = rows[run].get(prompt, [])[:MOST_IMAGES] if files[run] else []
        there = filter(Path.is_file, (files[run][row] for row in own))  # not in a .tar file
        return [quote(Path(os.path.relpath(path, folder)).as_posix()) for path in there]

    prompts = list(found.items())
    starts = range(0, len(prompts), PROMPTS_ON_A_PAGE)
    for number, start in enumerate(starts, start=1):
        shown: Any = {"prompts": prompts[start : start + PROMPTS_ON_A_PAGE], "images": images}
        beside = [it for it in (number - 1, number + 1) if 0 < it <= len(starts)]
        links = [(it, BY_PROMPT.format(it)) for it in beside]
        names = [report.name for report in reports]
        yield render("prompts.html", **shown, links=links, number=number, names=names)


def by_variety(reports: Reports) -> list[tuple[str, list[AttributeScores | None]]]:
    """The scores of each attribute in all runs, first the one with the least GRADE in the first."""
    runs = [{one.attribute.name: one for one in report.attributes} for report in reports]
    grades = {name: one.grade.value for name, one in runs[0].items() if one.grade}
    names = sorted(dict.fromkeys(chain(*runs)), key=lambda name: grades.get(name, inf))
    return [(name, [run.get(name) for run in runs]) for name in names]


def in_words(found: Estimate | None, form: str) -> str:
    """A score and its interval, if it has one: "0.95 (0.90 to 0.99)"."""
    if found is None:
        return "–"
    value, low, high = found
    return f"{value:{form}}" + ("" if low is None else f" ({low:{form}} to {high:{form}})")


def render(template: str, **values: Any) -> str:
    """Render a template; unpaired surrogates in prompts, which UTF-8 cannot encode, become question
    marks."""
    environment = Environment(
        loader=PackageLoader("vendi_guidance.evaluation.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found = environment.get_template(template)
    text = found.render(counted=counted, measures=MEASURES, limits=LIMITS, **values)
    return text.encode("utf-8", "replace").decode()


def thumbnail(image: Image) -> str:
    """A thumbnail of an image, which is scaled down in place, as a data URI."""
    file = BytesIO()
    image.thumbnail((THUMBNAIL, THUMBNAIL), Resampling.LANCZOS)
    image.save(file, format="WEBP", quality=82)
    return f"data:image/webp;base64,{b64encode(file.getvalue()).decode('ascii')}"


class Run:
    """A report with thumbnails and captions of its images."""

    def __init__(self, report: Any) -> None:
        self.report = report
        self.name, self.paths = report.name, report.images.paths()
        self.thumbnail = cache(self._thumbnail)  # an image may occur several times on the page

    def _thumbnail(self, row: int) -> str:
        try:
            return thumbnail(self.report.images[row])
        except (OSError, ValueError) as error:  # its scores are known, so the report is made
            logger.warning("an image has changed since it was scored and is shown blank: %s", error)
            return thumbnail(new_image("RGB", (1, 1), "white"))

    def caption(self, row: int) -> str:
        """The alt text of an image."""
        prompts, paths = self.report.inputs.prompts, self.paths
        name = f"image {row + 1}" if paths is None else paths[row].name
        return name if prompts is None else f"{name}: {prompts[row]}"


def evenly_spaced(items: Sequence[Item], count: int) -> list[Item]:
    """At most `count` evenly spaced items, in order and including the first; `count` >= 1.

    Example:
        >>> evenly_spaced("abcdefgh", 3), evenly_spaced("ab", 3), evenly_spaced(range(30), 22)[11]
        (['a', 'c', 'f'], ['a', 'b'], 14)
    """
    step = max(1.0, len(items) / count)
    # not i * len(items) // count, which rounds differently: published results use this choice
    return [items[int(i * step)] for i in range(min(count, len(items)))]
