"""Event handlers of the page: from the values of its fields to what it shows.

Nothing that a browser sends is trusted: values are checked, texts are escaped, files come only from
Gradio's uploads, and error messages contain no paths.
"""

import logging
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import gradio as gr
from jinja2 import Environment
from markupsafe import Markup, escape

from vendi_guidance.app.studio import ARMS, Generation, Request, Session, Studio
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.results import Comparison
from vendi_guidance.guidance.window import WINDOW, SlidingWindow

logger = logging.getLogger(__name__)

MOST_IN_A_ROW = 8
SHOWN = ("conditional_vendi", "looks_per_prompt", "fidelity")  # the last two need a probe

SCORES = Environment(autoescape=True).from_string("""
<table>
  <tr>
    <th scope="col">score</th> <th scope="col">without guidance</th>
    <th scope="col">with guidance</th> <th scope="col">change</th>
  </tr>
  {% for measure, cells in rows %}
  <tr>
    <th scope="row">{{ measure.title }}<small>{{ measure.meaning }}</small></th>
    {% for value, interval in cells %}<td>{{ value }}<small>{{ interval }}</small></td>{% endfor %}
  </tr>
  {% endfor %}
</table>
<p>{{ note }}</p>""")


class Actions:
    """The event handlers of a page, which return updates of its components; sessions have their
    folders in `folder`."""

    def __init__(self, studio: Studio, folder: Path) -> None:
        self._studio, self._folder = studio, folder
        self._sessions: dict[str, Session] = {}  # by the key of a browser's page

    def stop(self, request: gr.Request) -> Markup:
        """Stop the generation after the current denoising step."""
        with self._session(request) as session:
            session.stop.set()
            return status("Stopping.")

    def generate(
        self,
        prompts: str,
        images: int,
        diversity: float,
        seed: int,
        request: gr.Request,
        progress: Any = gr.Progress(),  # noqa: B008
    ) -> Iterator[tuple[Any, ...]]:
        """Generate images; yields both galleries, status, scores and memory as they change."""
        with self._session(request) as session:
            requested = Request(prompts, images, diversity, seed)
            shown, done = [gr.Gallery([], visible=False)] * 2, [0, 0]
            yield *shown, status("Generating."), "", memory_text(session)
            for generation in self._studio.generate(session, requested, progress):
                shown = [gallery(generation, arm, self._studio.name) for arm in ARMS]
                done = [len(generation.images(arm)) for arm in ARMS]
                yield *shown, gr.skip(), gr.skip(), memory_text(session)
            is_complete, scores = min(done) == len(requested.prompts) * images, ""
            text = "Generated." if is_complete else "Stopped: finished images are kept."
            if min(done) > 1:
                generation.comparison = self._studio.compare(generation)
                scores = scores_text(generation.comparison)
            # with the images again: a page may skip an update that another one follows at once
            yield *shown, status(text), scores, memory_text(session)

    def forget(self, request: gr.Request) -> tuple[Markup, Markup]:
        with self._session(request) as session:
            session.window = SlidingWindow(WINDOW)
            return status("Forgotten."), memory_text(session)

    def load(self, uploaded: str | None, request: gr.Request) -> tuple[Markup, Markup]:
        with self._session(request) as session:
            session.window = read_window(uploaded, self._studio.width)
            text = "Memory loaded: new images will differ from those in it."
            return status(text), memory_text(session)

    def save(self, request: gr.Request) -> str:
        """Write the images, their report and the memory to a zip file; returns its path."""
        with self._session(request) as session:
            return str(session.pack())

    def close(self, request: gr.Request) -> None:
        """End the session when the page is closed, and stop its generation."""
        if session := self._sessions.pop(request.session_hash or "", None):
            session.stop.set()
            shutil.rmtree(session.folder, ignore_errors=True)

    @contextmanager
    def _session(self, request: gr.Request) -> Iterator[Session]:
        """The visitor's session. Errors within this context are shown to the visitor as a sentence;
        unexpected ones are logged, and not shown."""
        key = request.session_hash or ""
        if key not in self._sessions:
            self._sessions[key] = Session(Path(mkdtemp(prefix="session-", dir=self._folder)))
        try:
            yield self._sessions[key]
        except ValueError as error:
            text = str(escape(error))
        except Exception:
            logger.exception("an action of the page failed")
            text = "Something went wrong on the server. See its terminal for the error."
        else:
            return
        raise gr.Error(text, title="Not done", print_exception=False)


def read_window(uploaded: str | None, width: int | None) -> SlidingWindow:
    """The memory in an uploaded file; ValueError, without its path, if it is damaged, too large or
    of another text encoder than one of this width."""
    try:
        window = SlidingWindow.load(Path(uploaded or ""), largest=WINDOW)
        found = width if window.prompts is None else window.prompts.shape[1]
        if width not in (None, found):
            raise ValueError(f"it is of another text encoder, of width {found} instead of {width}")
        return window
    except (ValueError, OSError) as error:
        text = str(error).replace(str(uploaded), "the file")
        raise ValueError(f"Not loaded: {text}.") from None


def gallery(generation: Generation, arm: str, model: str) -> Any:
    """The finished images of an arm, each prompt's in rows of their own."""
    request, images = generation.request, []
    for number, path in enumerate(generation.images(arm)):
        prompt, seed = request.prompts[number // request.images], request.seed + number
        images.append((path, f"“{prompt}”, seed {seed}, {arm} guidance, by {model}"))
    columns = min(request.images, MOST_IN_A_ROW)
    return gr.Gallery(images, columns=columns, visible=bool(images))


def status(text: str) -> Markup:
    return Markup('<p role="status">{}</p>').format(text)


def memory_text(session: Session) -> Markup:
    count = len(session.window)
    images = "1 image is" if count == 1 else f"{count or 'No'} images are"
    return Markup("<p>{} remembered, of {} at most.</p>").format(images, session.window.size)


def scores_text(comparison: Comparison) -> Markup:
    rows = []
    for name in filter(comparison.differences.get, SHOWN):
        difference, measure = comparison.differences[name], MEASURES[name]
        scores = (report.scores[name] for report in (comparison.first, comparison.second))
        cells = [(measure.format(s.value), measure.format_interval(s.low, s.high)) for s in scores]
        cells.append((difference.format_change(measure), difference.format_interval(measure)))
        rows.append((measure, cells))
    basis = comparison.second.scores["conditional_vendi"].basis
    note = f"{comparison.verdict()} In small type: 95% confidence intervals. Scored on {basis}."
    return Markup(SCORES.render(rows=rows, note=note))
