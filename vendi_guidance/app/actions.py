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

from vendi_guidance.app.request import MISSING, Request, read_prompts
from vendi_guidance.app.scoring import Scorer, table_of
from vendi_guidance.app.session import ARMS, Generation, Session, Sessions
from vendi_guidance.app.studio import Studio
from vendi_guidance.guidance.window import WINDOW, SlidingWindow

logger = logging.getLogger(__name__)

MOST_IN_A_ROW = 8


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
        """Before a generation, which may have to wait: let Stop be pressed."""
        with plain_errors():
            session = self._session(request)
            if not session.is_busy:
                session.stop.clear()
        return gr.update(interactive=False), gr.update(interactive=True)

    def end(self) -> tuple[Any, Any]:
        """After a generation that was finished or stopped."""
        return gr.update(interactive=True), gr.update(interactive=False)

    def fail(self) -> tuple[Any, Any, Any]:
        """After a generation that was refused or failed."""
        text = "That did not work. Correct what the message names, and generate again."
        return *self.end(), status_text(text)

    def stop(self, request: gr.Request) -> None:
        """End the generation after the current denoising step."""
        with plain_errors():
            self._session(request).stop.set()

    def generate(
        self,
        prompts: str,
        images: int,
        strength: float,
        seed: int,
        steps: int,
        guidance_scale: float | None,
        batch_size: int,
        request: gr.Request,
        progress: Any = gr.Progress(),  # noqa: B008
    ) -> Iterator[tuple[Any, ...]]:
        """Both kinds of images as they are made, what they show, the scores and the memory."""
        with plain_errors():
            session = self._session(request)
            numbers = images, strength, seed, steps, guidance_scale, batch_size
            asked = Request(read_prompts(prompts), *numbers)
            if guidance_scale is None and self._studio.options.guidance_scale is not None:
                raise ValueError(MISSING)
            empty, about = gr.Gallery([], visible=False), request_text(asked, self._studio)
            yield empty, empty, about, status_text("Generating."), "", memory_text(session)
            unchanged = (gr.skip(),) * 3
            text, scores = "Stopped: no image is finished.", ""
            generation = None
            for generation in self._studio.generate(session, asked, progress):
                shown = galleries(generation, self._studio.name)
                yield *shown, *unchanged, memory_text(session)
            if generation is not None:
                is_whole = all(arm.done == asked.total for arm in generation.arms.values())
                text = "Generated." if is_whole else "Stopped: what is finished stays."
                text += " Select an image to say what others should be like."
                scores = self._score(session, generation)
            yield *unchanged, status_text(text), scores, memory_text(session)

    def choose_without(self, request: gr.Request, event: gr.SelectData) -> str:
        with plain_errors():
            return status_text(self._session(request).choose(ARMS[0], event.index))

    def choose_with(self, request: gr.Request, event: gr.SelectData) -> str:
        with plain_errors():
            return status_text(self._session(request).choose(ARMS[1], event.index))

    def more_like_it(self, request: gr.Request) -> tuple[str, str]:
        with self._alone(request) as session:
            return status_text(session.more_like_it()), memory_text(session)

    def not_like_it(self, request: gr.Request) -> tuple[str, str]:
        with self._alone(request) as session:
            return status_text(session.not_like_it()), memory_text(session)

    def forget(self, request: gr.Request) -> tuple[str, str]:
        with self._alone(request) as session:
            return status_text(session.forget()), memory_text(session)

    def save(self, request: gr.Request) -> str:
        """The file with the memory."""
        with self._alone(request) as session:
            if not len(session.window):
                raise ValueError("Nothing is remembered yet: generate some images first.")
            path = session.folder / "memory.safetensors"
            session.window.save(path)
            return str(path)

    def load(self, uploaded: str | None, request: gr.Request) -> tuple[str, str]:
        with self._alone(request) as session:
            session.remember(read_window(uploaded))
            text = "Memory loaded: what is generated now differs from it."
            return status_text(text), memory_text(session)

    def pack(self, request: gr.Request) -> str:
        """The file with the images and their report."""
        with self._alone(request) as session:
            if session.generation is None:
                raise ValueError("There are no images yet: generate some first.")
            return str(session.generation.pack())

    def close(self, request: gr.Request) -> None:
        """The page is gone."""
        if request.session_hash:
            self._sessions.end(request.session_hash)

    def _session(self, request: gr.Request) -> Session:
        if not request.session_hash:
            raise ValueError("The request belongs to no session.")
        return self._sessions.of(request.session_hash)

    @contextmanager
    def _alone(self, request: gr.Request) -> Iterator[Session]:
        """The visitor's session, which nothing else changes meanwhile."""
        with plain_errors():
            session = self._session(request)
            with session.alone():
                yield session

    def _score(self, session: Session, generation: Generation) -> str:
        if not all(arm.done > 1 for arm in generation.arms.values()):
            return Markup("<p>Two images of each kind are the fewest that have scores.</p>")
        with session.alone():
            generation.comparison = self._scorer.compare(generation)
        return table_of(generation.comparison)


def read_window(uploaded: str | None) -> SlidingWindow:
    """The memory in an uploaded file.

    Raises:
        ValueError: it is none, or too large; the message does not say where it lies.
    """
    if uploaded is None:
        raise ValueError("Choose a file that Save wrote.")
    try:
        return SlidingWindow.load(Path(uploaded), largest=WINDOW)
    except (ValueError, OSError) as error:
        text = str(error).replace(str(uploaded), "the file")
        raise ValueError(f"Not loaded: {text}.") from None


def galleries(generation: Generation, model: str) -> list[Any]:
    """The finished images of both kinds with their descriptions, a prompt in each row."""
    request, first = generation.request, generation.request.seed
    columns = min(request.images, MOST_IN_A_ROW)
    return [
        gr.Gallery(
            [
                (path, f"Seed {first + i}, {model}, {name} guidance: “{request.prompt(i)}”")
                for i, path in enumerate(arm.paths())
            ],
            columns=columns,
            visible=arm.done > 0,
        )
        for name, arm in generation.arms.items()
    ]


def request_text(request: Request, studio: Studio) -> Markup:
    """The model, and for each prompt its seeds and what is not done as it was written."""
    rows = []
    for place, (prompt, times) in enumerate(request.prompts.items()):
        first = request.seed + place * request.images
        last = first + request.images - 1
        text = f"“{prompt}”, " + (f"seed {first}" if first == last else f"seeds {first} to {last}")
        if times > 1:
            text += "; given more than once, generated once"
        room, rest = studio.unread(prompt)
        if rest:
            text += f"; the model reads {room} tokens and ignores the end: “{rest}”"
        rows.append(Markup("<li>{}.</li>").format(text))
    text = f"By {studio.name}, the dial at {request.strength:g}. In this order:"
    return Markup("<p>{}</p><ol>{}</ol>").format(text, Markup("").join(rows))


def status_text(text: str) -> Markup:
    return Markup('<p role="status">{}</p>').format(text)


def memory_text(session: Session) -> Markup:
    """What is remembered."""
    count, size = len(session.window), session.window.size
    images = "1 image is" if count == 1 else f"{count or 'No'} images are"
    text = f"{images} remembered, of {size} at most."
    if session.liked:
        text += f" Marked as examples: {len(session.liked)}."
    if session.disliked:
        text += f" Marked to avoid: {session.disliked}; each counts twice more."
    return Markup("<p>{}</p>").format(text)
