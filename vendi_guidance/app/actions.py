"""Event handlers of the page: from the values of its fields to what it shows.

Nothing that a browser sends is trusted: values are checked, texts are escaped, files come only from
Gradio's uploads, and error messages contain no paths.
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
    """Show errors to the visitor as a sentence; unexpected ones are logged, and not shown."""
    try:
        yield
    except ValueError as error:
        raise gr.Error(str(escape(error)), title="Not done", print_exception=False) from None
    except gr.Error:
        raise
    except Exception as error:
        logger.exception("an action of the page failed")
        text = "Something went wrong on the server. See its terminal for the error."
        raise gr.Error(text, title="Not done", print_exception=False) from error


class Actions:
    """The event handlers of a page, which return updates of its components."""

    def __init__(self, studio: Studio, scorer: Scorer, sessions: Sessions) -> None:
        self._studio, self._scorer, self._sessions = studio, scorer, sessions

    def open(self, request: gr.Request) -> str:
        """Describe the memory when the page is opened."""
        with plain_errors():
            return memory_text(self._session(request))

    def begin(self, request: gr.Request) -> tuple[Any, Any]:
        """Disable Generate and enable Stop, before a generation that may have to wait."""
        with plain_errors():
            session = self._session(request)
            if not session.is_busy:
                session.stop.clear()
        return gr.update(interactive=False), gr.update(interactive=True)

    def end(self) -> tuple[Any, Any]:
        """Enable Generate and disable Stop, after a generation."""
        return gr.update(interactive=True), gr.update(interactive=False)

    def fail(self) -> tuple[Any, Any, Any]:
        """After a generation that failed, enable Generate and say what to do."""
        text = "That did not work. Correct what the message names, and generate again."
        return *self.end(), status_text(text)

    def stop(self, request: gr.Request) -> None:
        """Stop the generation after the current denoising step."""
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
        """Generate images; yields galleries, descriptions, scores and memory as they change."""
        with plain_errors():
            session = self._session(request)
            numbers = images, strength, seed, steps, guidance_scale, batch_size
            requested = Request(read_prompts(prompts), *numbers)
            if guidance_scale is None and self._studio.options.guidance_scale is not None:
                raise ValueError(MISSING)
            empty, about = gr.Gallery([], visible=False), request_text(requested, self._studio)
            yield empty, empty, about, status_text("Generating."), "", memory_text(session)
            unchanged = (gr.skip(),) * 3
            text, scores = "Stopped before any image was finished.", ""
            generation = None
            for generation in self._studio.generate(session, requested, progress):
                shown = galleries(generation, self._studio.name)
                yield *shown, *unchanged, memory_text(session)
            if generation is not None:
                is_complete = all(arm.done == requested.total for arm in generation.arms.values())
                text = "Generated." if is_complete else "Stopped: finished images are kept."
                text += " Select an image to ask for more or fewer like it."
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
        """Write the memory to a file; returns its path."""
        with self._alone(request) as session:
            if not len(session.window):
                raise ValueError("Nothing is remembered yet: generate some images first.")
            path = session.folder / "memory.safetensors"
            session.window.save(path)
            return str(path)

    def load(self, uploaded: str | None, request: gr.Request) -> tuple[str, str]:
        with self._alone(request) as session:
            session.remember(read_window(uploaded, self._studio))
            text = "Memory loaded: new images will differ from those in it."
            return status_text(text), memory_text(session)

    def pack(self, request: gr.Request) -> str:
        """Write the images and their report to a zip file; returns its path."""
        with self._alone(request) as session:
            if session.generation is None:
                raise ValueError("There are no images yet: generate some first.")
            return str(session.generation.pack())

    def close(self, request: gr.Request) -> None:
        """End the session when the page is closed."""
        if request.session_hash:
            self._sessions.end(request.session_hash)

    def _session(self, request: gr.Request) -> Session:
        if not request.session_hash:
            raise ValueError("The request belongs to no session.")
        return self._sessions.of(request.session_hash)

    @contextmanager
    def _alone(self, request: gr.Request) -> Iterator[Session]:
        """The visitor's session, locked against other changes."""
        with plain_errors():
            session = self._session(request)
            with session.alone():
                yield session

    def _score(self, session: Session, generation: Generation) -> str:
        if not all(arm.done > 1 for arm in generation.arms.values()):
            return Markup("<p>Scores need at least two images of each kind.</p>")
        with session.alone():
            generation.comparison = self._scorer.compare(generation)
        return table_of(generation.comparison)


def read_window(uploaded: str | None, studio: Studio) -> SlidingWindow:
    """The memory in an uploaded file.

    Raises:
        ValueError: the file is damaged, too large or of another text encoder. The message does not
            contain its path.
    """
    if uploaded is None:
        raise ValueError("Choose a file written by Save.")
    try:
        window = SlidingWindow.load(Path(uploaded), largest=WINDOW)
        studio.check_memory(window)
        return window
    except (ValueError, OSError) as error:
        text = str(error).replace(str(uploaded), "the file")
        raise ValueError(f"Not loaded: {text}.") from None


def galleries(generation: Generation, model: str) -> list[Any]:
    """Galleries of the finished images of both arms, one row for each prompt."""
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
    """The model, and for each prompt its seeds and any part of it that is ignored."""
    rows = []
    for place, (prompt, times) in enumerate(request.prompts.items()):
        first = request.seed + place * request.images
        last = first + request.images - 1
        text = f"“{prompt}”, " + (f"seed {first}" if first == last else f"seeds {first} to {last}")
        if times > 1:
            text += "; given more than once, generated once"
        limit, rest = studio.truncated(prompt)
        if rest:
            text += f"; the model reads {limit} tokens and ignores the end: “{rest}”"
        rows.append(Markup("<li>{}.</li>").format(text))
    text = f"By {studio.name}, with the dial at {request.strength:g}. In this order:"
    return Markup("<p>{}</p><ol>{}</ol>").format(text, Markup("").join(rows))


def status_text(text: str) -> Markup:
    return Markup('<p role="status">{}</p>').format(text)


def memory_text(session: Session) -> Markup:
    """The number of remembered and marked images."""
    count, size = len(session.window), session.window.size
    images = "1 image is" if count == 1 else f"{count or 'No'} images are"
    text = f"{images} remembered, of {size} at most."
    if session.liked:
        text += f" Marked as examples: {len(session.liked)}."
    if session.disliked:
        text += f" Marked to avoid: {session.disliked}; each counts twice more."
    return Markup("<p>{}</p>").format(text)
