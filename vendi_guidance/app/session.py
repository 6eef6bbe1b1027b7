"""What one visitor has: images, the memory of guidance, and marks on images.

Sessions share nothing but the model. Each has a folder of its own, which goes with it.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from threading import Event, Lock
from typing import Any
from zipfile import ZIP_STORED, ZipFile

from torch import Tensor

from vendi_guidance.app.request import Request
from vendi_guidance.guidance.window import WINDOW, SlidingWindow
from vendi_guidance.runs.runner import Runner
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.imagefolder import image_name

ARMS = ("without", "with")
"""The two kinds of images, by the names of their folders."""

AGAIN = "Press Generate to see them; Forget takes all marks back."
MOST_MARKS = 16
COPIES = 2
"""How many more times an image is remembered that others must not be like. More have no more
effect: guidance moves by a fixed length."""


class Arm:
    """Images of one kind, and the run that makes them.

    Args:
        run: a new one. The page shows each of its batches as soon as it is made.

    Attributes:
        guidance: the run's, which the pipeline has when it is the run's turn.
        rounds: makes the images.
    """

    def __init__(self, run: Runner) -> None:
        run.waits = True
        self.run, self.rounds = run, run.rounds()
        self.guidance, self.window = run.pipe.guidance, run.window
        self._before = run.progress.entered

    @property
    def folder(self) -> Path:
        """An imagefolder, once an image is finished."""
        return self.run.folder.path

    @property
    def done(self) -> int:
        """How many images are finished."""
        return self.run.progress.done

    def sample(self, number: int) -> tuple[Tensor, Tensor | None]:
        """See `RunWindow.sample`: of a finished image."""
        if self.run.progress.entered != self._before + self.done:  # NaN is never remembered
            raise ValueError(
                "Some images contain NaN, so marks cannot be matched to images: generate again."
            )
        return self.window.sample(self._before + number)

    def paths(self) -> list[Path]:
        """The finished images, in order."""
        return [self.folder / image_name(number) for number in range(self.done)]


@dataclass
class Generation:
    """The images on the page: those of one request."""

    folder: Path
    request: Request
    arms: dict[str, Arm]
    comparison: Any = None  # a `Comparison`, once the images are scored

    def pack(self) -> Path:
        """A zip file of the finished images: an imagefolder of each kind, and the report if they
        are scored.

        Raises:
            ValueError: there is no finished image.
            OSError: it cannot be written.
        """
        folders = [arm.folder for arm in self.arms.values() if arm.done]
        if not folders:
            raise ValueError("There are no images yet: generate some first.")
        if self.comparison is not None:
            folders.append(self.folder / "report")
            self.comparison.save(folders[-1])
        path = self.folder / "images.zip"
        with whole_file(path) as temporary, ZipFile(temporary, "w", ZIP_STORED) as packed:
            for folder in folders:
                for file in sorted(folder.glob("[!.]*")):
                    packed.write(file, f"{folder.name}/{file.name}")
        return path


class Session:
    """One visitor's.

    Args:
        folder: an empty one.

    Attributes:
        window: the memory of guidance.
        liked: (...) unit-length features of images that others may be like.
        generation: the images on the page.
        chosen: arm and number of the image that the visitor has selected.
        stop: set to end the generation after the current denoising step.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stop = Event()
        self.generation: Generation | None = None
        self.chosen: tuple[str, int] | None = None
        self._busy = Lock()
        self.forget()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Meanwhile nothing else changes the session.

        Raises:
            ValueError: something else does; the message is for the visitor.
        """
        if not self._busy.acquire(blocking=False):
            raise ValueError("Your images are being generated: wait until they are, or stop them.")
        try:
            yield
        finally:
            self._busy.release()

    @property
    def is_busy(self) -> bool:
        return self._busy.locked()

    def new_folder(self) -> Path:
        """An empty folder for a generation; that of the earlier one is deleted."""
        if self.generation is not None:
            shutil.rmtree(self.generation.folder, ignore_errors=True)
        self.generation, self.chosen = None, None
        return Path(mkdtemp(prefix="generation-", dir=self.folder))

    def choose(self, arm: str, number: Any) -> str:
        """Select an image; returns which, for the visitor.

        Raises:
            ValueError: there is no such image.
        """
        done = self.generation.arms[arm].done if self.generation else 0
        if type(number) is not int or not 0 <= number < done:
            raise ValueError("There is no such image any more: choose another one.")
        self.chosen = arm, number
        return f"Selected: {self.selected}."

    @property
    def selected(self) -> str:
        """Which image is selected.

        Raises:
            ValueError: none is.
        """
        generation, arm, number = self._selected()
        request = generation.request
        return f"“{request.prompt(number)}”, seed {request.seed + number}, {arm} guidance"

    def more_like_it(self) -> str:
        """Let later images be like the selected one; returns what was done, for the visitor.

        Raises:
            ValueError: none is selected, or too many are marked.
        """
        features, _ = self._sample()
        if len(self.liked) >= MOST_MARKS:
            raise ValueError(f"At most {MOST_MARKS} images can be marked: forget them first.")
        self.liked.append(features)
        text = f"Example {len(self.liked)} of at most {MOST_MARKS}: {self.selected}. "
        return f"{text}The next images with guidance will be more like it. {AGAIN}"

    def not_like_it(self) -> str:
        """Let later images of similar prompts differ from the selected one more than from others;
        returns what was done, for the visitor.

        Raises:
            ValueError: none is selected.
        """
        features, prompt = self._sample()
        prompts = None if prompt is None else prompt.expand(COPIES, *prompt.shape)
        self.window.append(features.expand(COPIES, *features.shape), prompts)
        self.disliked += 1
        text = f"To avoid: {self.selected}. The next images of similar prompts with guidance"
        return f"{text} will be less like it. {AGAIN}"

    def forget(self) -> str:
        """Empty the memory, marks included."""
        self.remember(SlidingWindow(WINDOW))
        self.liked: list[Tensor] = []
        return "Forgotten."

    def remember(self, window: SlidingWindow) -> None:
        """Take another memory, without the marks to avoid, which the earlier one has."""
        self.window, self.disliked = window, 0

    def _sample(self) -> tuple[Tensor, Tensor | None]:
        generation, arm, number = self._selected()
        return generation.arms[arm].sample(number)

    def _selected(self) -> tuple[Generation, str, int]:
        if self.chosen is None or self.generation is None:
            raise ValueError("Select an image first: click on one.")
        return self.generation, *self.chosen


class Sessions:
    """The sessions of a server, by the key that a browser's page has.

    Args:
        folder: where each gets a folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions: dict[str, Session] = {}
        self._lock = Lock()

    def of(self, key: str) -> Session:
        """The session with this key, which is made if there is none."""
        with self._lock:
            if key not in self._sessions:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._sessions[key] = Session(Path(mkdtemp(dir=self._folder)))
            return self._sessions[key]

    def end(self, key: str) -> None:
        """End a session, if there is one; what it generates stops."""
        if session := self._sessions.pop(key, None):
            session.stop.set()
            shutil.rmtree(session.folder, ignore_errors=True)

    def end_all(self) -> None:
        for key in list(self._sessions):
            self.end(key)
