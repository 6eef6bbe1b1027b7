"""What one visitor has: pictures, the memory of guidance, and marks on pictures.

Sessions share nothing but the model. Each has a folder of its own, which goes with it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from vendi_guidance.app.request import Request
from vendi_guidance.guidance.window import SlidingWindow
from vendi_guidance.runs.checkpoints import RunWindow
from vendi_guidance.runs.setup import DEFAULT_WINDOW
from vendi_guidance.storage.imagefolder import picture_name

ARMS = ("without", "with")
"""The two kinds of pictures, by the names of their folders."""

MOST_SESSIONS = 32
IDLE = 1800.0
"""Seconds after which a session may end to make room for another."""

MOST_MARKS = 16
COPIES = 2
"""How many more times a picture is remembered that others must not be like. More have no more
effect: guidance moves by a fixed length."""


@dataclass
class Arm:
    """Pictures of one kind.

    Attributes:
        folder: an imagefolder, once a picture is finished.
        window: what remembers the finished pictures.
        before: how many samples had entered it before the first of them.
        entered: how many have entered it with the last of them.
        done: how many pictures are finished.
    """

    folder: Path
    window: RunWindow
    before: int
    entered: int
    done: int = 0

    def sample(self, number: int) -> tuple[Tensor, Tensor | None]:
        """See `RunWindow.sample`: of a finished picture."""
        if self.entered != self.before + self.done:  # NaN is never remembered
            raise ValueError("Some of these pictures are broken, and which is which is not known.")
        return self.window.sample(self.before + number)

    def paths(self) -> list[Path]:
        """The finished pictures, in order."""
        return [self.folder / picture_name(number) for number in range(self.done)]


@dataclass
class Drawing:
    """The pictures on the page: those of one request."""

    folder: Path
    request: Request
    arms: dict[str, Arm]
    comparison: Any = None  # a `Comparison`, once the pictures are scored

    def prompt(self, number: int) -> str:
        """That of a picture."""
        return self.request.prompts[number // self.request.pictures]

    @property
    def is_complete(self) -> bool:
        return all(arm.done == self.request.total for arm in self.arms.values())


class Session:
    """One visitor's.

    Args:
        folder: an empty one.

    Attributes:
        window: the memory of guidance.
        liked: (...) unit-length features of pictures that others may be like.
        drawing: the pictures on the page.
        chosen: arm and number of the picture that the visitor has selected.
        stop: set to end the drawing after the current denoising step.
        used: when the visitor last did something, in seconds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stop = Event()
        self.used = monotonic()
        self.drawing: Drawing | None = None
        self.chosen: tuple[str, int] | None = None
        self._busy = Lock()
        self._drawn = 0
        self.forget()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Meanwhile nothing else changes the session.

        Raises:
            ValueError: something else does; the message is for the visitor.
        """
        if not self._busy.acquire(blocking=False):
            raise ValueError("Your pictures are being drawn: wait until they are, or stop them.")
        try:
            yield
        finally:
            self._busy.release()

    @property
    def is_busy(self) -> bool:
        return self._busy.locked()

    def new_folder(self) -> Path:
        """An empty folder for a drawing; those of earlier ones are deleted."""
        self.drawing, self.chosen = None, None
        for old in self.folder.iterdir():
            if old.is_dir():
                shutil.rmtree(old, ignore_errors=True)
        self._drawn += 1
        folder = self.folder / f"drawing-{self._drawn}"
        folder.mkdir()
        return folder

    def choose(self, arm: Any, number: Any) -> str:
        """Select a picture; returns its prompt.

        Raises:
            ValueError: there is no such picture.
        """
        done = self.drawing.arms[arm].done if self.drawing and arm in ARMS else 0
        if type(number) is not int or not 0 <= number < done:
            raise ValueError("There is no such picture any more: choose another one.")
        assert self.drawing is not None
        self.chosen = arm, number
        return self.drawing.prompt(number)

    def more_like_it(self) -> None:
        """Let later pictures be like the selected one.

        Raises:
            ValueError: none is selected, or too many are marked.
        """
        features, _ = self._sample()
        if len(self.liked) >= MOST_MARKS:
            raise ValueError(f"At most {MOST_MARKS} pictures can be marked: forget them first.")
        self.liked.append(features)

    def not_like_it(self) -> None:
        """Let later pictures of similar prompts differ from the selected one more than from others.

        Raises:
            ValueError: none is selected.
        """
        features, prompt = self._sample()
        prompts = None if prompt is None else prompt.expand(COPIES, *prompt.shape)
        self.window.append(features.expand(COPIES, *features.shape), prompts)
        self.disliked += 1

    def forget(self) -> None:
        """Empty the memory, marks included."""
        self.window = SlidingWindow(DEFAULT_WINDOW)
        self.liked: list[Tensor] = []
        self.disliked = 0

    @property
    def exemplars(self) -> Tensor | None:
        """(n, ...) of the pictures that others may be like."""
        return torch.stack(self.liked) if self.liked else None

    def _sample(self) -> tuple[Tensor, Tensor | None]:
        """Features and prompt embedding of the selected picture."""
        if self.chosen is None or self.drawing is None:
            raise ValueError("Select a picture first: click on one.")
        name, number = self.chosen
        return self.drawing.arms[name].sample(number)


class Sessions:
    """The sessions of a server, by the key that a browser's page has.

    Args:
        folder: where each gets a folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions: dict[str, Session] = {}
        self._made = 0
        self._lock = Lock()

    def of(self, key: str) -> Session:
        """The session with this key, which is made if there is none. It may take the place of one
        that has long been idle.

        Raises:
            ValueError: there are too many; the message is for the visitor.
        """
        with self._lock:
            if key not in self._sessions:
                self._make_room()
                self._made += 1
                folder = self._folder / f"session-{self._made}"
                folder.mkdir(parents=True)
                self._sessions[key] = Session(folder)
            self._sessions[key].used = monotonic()
            return self._sessions[key]

    def _make_room(self) -> None:
        if len(self._sessions) < MOST_SESSIONS:
            return
        idle = {key: one.used for key, one in self._sessions.items() if not one.is_busy}
        oldest = min(idle, key=idle.__getitem__, default=None)
        if oldest is None or monotonic() - idle[oldest] < IDLE:
            raise ValueError("Too many people use this page: try again later.")
        self._end(oldest)

    def end(self, key: str) -> None:
        """End a session, if there is one; what it draws stops."""
        with self._lock:
            if key in self._sessions:
                self._end(key)

    def end_all(self) -> None:
        with self._lock:
            for key in list(self._sessions):
                self._end(key)

    def _end(self, key: str) -> None:
        session = self._sessions.pop(key)
        session.stop.set()
        shutil.rmtree(session.folder, ignore_errors=True)
