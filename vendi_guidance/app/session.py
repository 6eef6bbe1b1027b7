"""The state of one visitor: images, the memory of guidance, and marks on images.

Sessions share only the model. Each has its own folder, which is deleted when the session ends.
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
"""The two arms of a generation: images without and with guidance. They name its folders."""

AGAIN = "Press Generate to see them; Forget removes all marks."
MOST_MARKS = 16
COPIES = 2
"""How many copies of an image to avoid are remembered. More have no more effect, because guidance
moves images by a fixed length."""


class Arm:
    """The images of one arm, and the run that generates them.

    Args:
        run: a new run.

    Attributes:
        rounds: iterator that generates the images, batch by batch.
        guidance: the run's guidance, to be set on the pipeline while the run has its turn.
        window: the run's memory.
    """

    def __init__(self, run: Runner) -> None:
        run.waits = True  # the page shows a batch as soon as it is generated
        self.run, self.rounds = run, run.rounds()
        self.guidance, self.window = run.pipe.guidance, run.window
        self._before = run.progress.entered

    @property
    def folder(self) -> Path:
        """The run's folder, an imagefolder once an image is finished."""
        return self.run.folder.path

    @property
    def done(self) -> int:
        """Number of finished images."""
        return self.run.progress.done

    def sample(self, number: int) -> tuple[Tensor, Tensor | None]:
        """The features and prompt embedding of a finished image, see `RunWindow.sample`."""
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
    """The images of one request, which the page shows."""

    folder: Path
    request: Request
    arms: dict[str, Arm]
    comparison: Any = None  # a `Comparison` once the images are scored

    def pack(self) -> Path:
        """Write a zip file of the finished images: an imagefolder for each arm, and the report if
        the images are scored.

        Raises:
            ValueError: there is no finished image.
            OSError: the file cannot be written.
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
    """One visitor's session.

    Args:
        folder: an empty folder for its files.

    Attributes:
        window: the memory of guidance.
        liked: unit-length features of the images marked as examples, each of a latent's shape.
        disliked: number of images marked to avoid.
        generation: the images on the page.
        chosen: arm and number of the selected image.
        stop: set it to stop the generation after the current denoising step.
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
        """Lock the session against other changes within this context.

        Raises:
            ValueError: the session is locked already; the message is for the visitor.
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
        """Delete the earlier generation; returns an empty folder for the next one."""
        if self.generation is not None:
            shutil.rmtree(self.generation.folder, ignore_errors=True)
        self.generation, self.chosen = None, None
        return Path(mkdtemp(prefix="generation-", dir=self.folder))

    def choose(self, arm: str, number: Any) -> str:
        """Select an image; returns a confirmation for the visitor.

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
        """A description of the selected image.

        Raises:
            ValueError: no image is selected.
        """
        generation, arm, number = self._selected()
        request = generation.request
        return f"“{request.prompt(number)}”, seed {request.seed + number}, {arm} guidance"

    def more_like_it(self) -> str:
        """Mark the selected image as an example for later ones; returns a confirmation.

        Raises:
            ValueError: no image is selected, or too many are marked.
        """
        features, _ = self._sample()
        if len(self.liked) >= MOST_MARKS:
            raise ValueError(f"At most {MOST_MARKS} images can be marked: forget them first.")
        self.liked.append(features)
        text = f"Example {len(self.liked)} of at most {MOST_MARKS}: {self.selected}. "
        return f"{text}The next images with guidance will be more like it. {AGAIN}"

    def not_like_it(self) -> str:
        """Mark the selected image, so that later images of similar prompts avoid it more than
        others; returns a confirmation.

        Raises:
            ValueError: no image is selected.
        """
        features, prompt = self._sample()
        prompts = None if prompt is None else prompt.expand(COPIES, *prompt.shape)
        self.window.append(features.expand(COPIES, *features.shape), prompts)
        self.disliked += 1
        text = f"To avoid: {self.selected}. The next images of similar prompts with guidance"
        return f"{text} will be less like it. {AGAIN}"

    def forget(self) -> str:
        """Clear the memory and all marks; returns a confirmation."""
        self.remember(SlidingWindow(WINDOW))
        self.liked: list[Tensor] = []
        return "Forgotten."

    def remember(self, window: SlidingWindow) -> None:
        """Replace the memory. Marks to avoid are lost, because the earlier memory holds them."""
        self.window, self.disliked = window, 0

    def _sample(self) -> tuple[Tensor, Tensor | None]:
        generation, arm, number = self._selected()
        return generation.arms[arm].sample(number)

    def _selected(self) -> tuple[Generation, str, int]:
        if self.chosen is None or self.generation is None:
            raise ValueError("Select an image first: click on one.")
        return self.generation, *self.chosen


class Sessions:
    """The sessions of a server, by the key of a browser's page.

    Args:
        folder: parent of the sessions' folders.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sessions: dict[str, Session] = {}
        self._lock = Lock()

    def of(self, key: str) -> Session:
        """The session with this key; a new one if there is none."""
        with self._lock:
            if key not in self._sessions:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._sessions[key] = Session(Path(mkdtemp(dir=self._folder)))
            return self._sessions[key]

    def end(self, key: str) -> None:
        """End a session, if there is one, and stop its generation."""
        if session := self._sessions.pop(key, None):
            session.stop.set()
            shutil.rmtree(session.folder, ignore_errors=True)

    def end_all(self) -> None:
        for key in list(self._sessions):
            self.end(key)
