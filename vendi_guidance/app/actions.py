"""What the controls of the page do: from the values of its fields to what it shows.

Nothing that a browser sends is trusted: values are checked, texts are escaped, files come from
Gradio's own uploads, and errors say what to do without saying where things lie.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gradio as gr
from markupsafe import Markup, escape

from vendi_guidance.app.packing import pack
from vendi_guidance.app.request import read_request
from vendi_guidance.app.scoring import Scorer, table_of
from vendi_guidance.app.session import ARMS, Drawing, Session, Sessions
from vendi_guidance.app.studio import Studio
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.runs.setup import DEFAULT_WINDOW

logger = logging.getLogger(__name__)

MOST_IN_A_ROW = 8
LOADED = "Memory loaded: what is drawn now differs from it."


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors as a sentence for the visitor; those that are not about what was asked are logged."""
    try:
        yield
    except ValueError as error:
        raise gr.Error(str(escape(error)), title="Not done", print_exception=False) from None
    except gr.Error:
        raise
    except Exception as error:
        logger.exception("an action of the page failed")
        text = "Something went wrong on the server, whose terminal says what."
        raise gr.Error(text, title="Not done", print_exception=False) from error


class Actions:
    """The actions of a page."""

    def __init__(self, studio: Studio, scorer: Scorer, sessions: Sessions) -> None:
        self._studio, self._scorer, self._sessions = studio, scorer, sessions

    def open(self, request: gr.Request) -> str:
        """What the page says of the memory at first."""
        with plain_errors():
            return memory_text(self._session(request))

    def begin(self, request: gr.Request) -> tuple[Any, Any]:
        """Before a drawing, which may have to wait: let Stop be pressed."""
        with plain_errors():
            session = self._session(request)
            if not session.is_busy:
                session.stop.clear()
        return gr.update(interactive=False), gr.update(interactive=True)

    def end(self) -> tuple[Any, Any]:
        """After a drawing, however it ended."""
        return gr.update(interactive=True), gr.update(interactive=False)

    def stop(self, request: gr.Request) -> None:
        """End the drawing after the current denoising step."""
        with plain_errors():
            self._session(request).stop.set()

    def draw(
        self,
        prompts: str,
        pictures: float,
        strength: float,
        seed: float,
        steps: float,
        guidance_scale: float,
        batch_size: float,
        request: gr.Request,
        progress: Any = gr.Progress(),  # noqa: B008
    ) -> Iterator[tuple[Any, ...]]:
        """Both kinds of pictures as they are made, what they show, the scores and the memory."""
        with plain_errors():
            session = self._session(request)
            scale = guidance_scale if self._studio.options.guidance_scale is not None else None
            asked = read_request(prompts, pictures, strength, seed, steps, scale, batch_size)
            yield [], [], status_text("Drawing."), "", memory_text(session)
            for drawn in self._studio.draw(session, asked, progress):
                yield *galleries(drawn), gr.skip(), gr.skip(), memory_text(session)
            drawing = session.drawing
            if drawing is None or not any(arm.done for arm in drawing.arms.values()):
                text, scores = "Stopped: no picture is finished.", ""
            else:
                done = "Drawn." if drawing.is_complete else "Stopped: what is finished stays."
                text = f"{done} Select a picture to say what others should be like."
                scores = self._score(session, drawing)
            yield gr.skip(), gr.skip(), status_text(text), scores, memory_text(session)

    def choose(self, arm: str, request: gr.Request, number: Any) -> str:
        with plain_errors():
            prompt = self._session(request).choose(arm, number)
            return status_text(f"Selected: a picture of “{prompt}”, {arm} guidance.")

    def choose_without(self, request: gr.Request, event: gr.SelectData) -> str:
        return self.choose(ARMS[0], request, event.index)

    def choose_with(self, request: gr.Request, event: gr.SelectData) -> str:
        return self.choose(ARMS[1], request, event.index)

    def more_like_it(self, request: gr.Request) -> tuple[str, str]:
        with plain_errors():
            session = self._session(request)
            with session.alone():
                session.more_like_it()
            text = "The next pictures may be more like it."
            return status_text(text), memory_text(session)

    def not_like_it(self, request: gr.Request) -> tuple[str, str]:
        with plain_errors():
            session = self._session(request)
            with session.alone():
                session.not_like_it()
            text = "The next pictures of similar prompts will be less like it."
            return status_text(text), memory_text(session)

    def forget(self, request: gr.Request) -> tuple[str, str]:
        with plain_errors():
            session = self._session(request)
            with session.alone():
                session.forget()
            return status_text("Forgotten."), memory_text(session)

    def save(self, request: gr.Request) -> str:
        """The file with the memory."""
        with plain_errors():
            session = self._session(request)
            with session.alone():
                if not len(session.window):
                    raise ValueError("Nothing is remembered yet: draw some pictures first.")
                path = session.folder / "memory.safetensors"
                session.window.save(path)
                return str(path)

    def load(self, uploaded: str | None, request: gr.Request) -> tuple[str, str]:
        with plain_errors():
            session = self._session(request)
            with session.alone():
                session.window = read_window(uploaded)
            return status_text(LOADED), memory_text(session)

    def pack(self, request: gr.Request) -> str:
        """The file with the pictures and their report."""
        with plain_errors():
            session = self._session(request)
            with session.alone():
                if session.drawing is None:
                    raise ValueError("There are no pictures yet: draw some first.")
                return str(pack(session.drawing))

    def close(self, request: gr.Request) -> None:
        """The page is gone."""
        if request.session_hash:
            self._sessions.end(request.session_hash)

    def _session(self, request: gr.Request) -> Session:
        if not request.session_hash:
            raise ValueError("The request belongs to no session.")
        return self._sessions.of(request.session_hash)

    def _score(self, session: Session, drawing: Drawing) -> str:
        if not all(arm.done > 1 for arm in drawing.arms.values()):
            return Markup("<p>Two pictures of each kind are the fewest that have scores.</p>")
        with session.alone():
            drawing.comparison = self._scorer.compare(drawing)
        return table_of(drawing.comparison)


def read_window(uploaded: str | None) -> SlidingWindow:
    """The memory in an uploaded file.

    Raises:
        ValueError: it is none, or too large; the message does not say where it lies.
    """
    if uploaded is None:
        raise ValueError("Choose a file that Save wrote.")
    try:
        return SlidingWindow.load(Path(uploaded), largest=DEFAULT_WINDOW)
    except (ValueError, OSError) as error:
        text = str(error).replace(str(uploaded), "the file")
        raise ValueError(f"Not loaded: {text}.") from None


def galleries(drawing: Drawing) -> list[Any]:
    """The finished pictures of both kinds with their descriptions, a prompt in each row."""
    columns = min(drawing.request.pictures, MOST_IN_A_ROW)
    return [
        gr.Gallery(
            [(path, f"{drawing.prompt(i)}, {name} guidance") for i, path in enumerate(arm.paths())],
            columns=columns,
        )
        for name, arm in drawing.arms.items()
    ]


def status_text(text: str) -> Markup:
    return Markup('<p role="status">{}</p>').format(text)


def memory_text(session: Session) -> Markup:
    """What is remembered."""
    count, size = len(session.window), session.window.size
    pictures = "1 picture is" if count == 1 else f"{count or 'No'} pictures are"
    text = f"{pictures} remembered, of {size} at most."
    if session.liked:
        text += f" Marked as examples: {len(session.liked)}."
    if session.disliked:
        text += f" Marked to avoid: {session.disliked}; each counts twice more."
    return Markup("<p>{}</p>").format(text)
