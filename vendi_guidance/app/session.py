"""What a visitor asks for, the images on the page, and the memory of guidance."""

from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any
from zipfile import ZIP_STORED, ZipFile

from vendi_guidance.guidance.window import WINDOW, SlidingWindow
from vendi_guidance.runs.runner import Runner
from vendi_guidance.storage.imagefolder import image_name
from vendi_guidance.storage.prompt_files import fault_of

ARMS = ("without", "with")  # guidance: the two runs of a generation, and their folders
MOST_PROMPTS = 8
LONGEST_PROMPT = 500


@dataclass(frozen=True)
class Request:
    """Images to generate. Raises ValueError for a missing number, and for no prompts, too many, or
    one that is too long or invalid; Gradio checks the ranges of numbers."""

    text: str | None  # prompts, one per line; a repeated one counts once
    images: int  # for each prompt
    diversity: float
    seed: int  # of the first image

    def __post_init__(self) -> None:
        prompts = self.prompts
        if None in (self.images, self.diversity, self.seed):
            raise ValueError("A number is missing: fill in every field.")
        if not 1 <= len(prompts) <= MOST_PROMPTS or max(map(len, prompts)) > LONGEST_PROMPT:
            limits = f"1 to {MOST_PROMPTS} prompts of at most {LONGEST_PROMPT} characters"
            raise ValueError(f"Write {limits}, one per line.")
        for fault in filter(None, map(fault_of, prompts)):
            raise ValueError(f"A prompt {fault}.")

    @property
    def prompts(self) -> list[str]:
        return list(dict.fromkeys(filter(None, map(str.strip, (self.text or "").splitlines()))))


@dataclass
class Generation:
    """The images of one request."""

    folder: Path
    request: Request
    runs: dict[str, Runner] = field(default_factory=dict)  # by arm
    comparison: Any = None  # a `Comparison` once the images are scored

    def images(self, arm: str) -> list[Path]:
        """The finished images of an arm, in order."""
        run = self.runs[arm]
        return [run.folder.path / image_name(number) for number in range(run.progress.done)]


@dataclass
class Session:
    """The state of one visitor's page; sessions share only the model."""

    folder: Path  # for its files; deleted when the session ends
    window: SlidingWindow = field(default_factory=lambda: SlidingWindow(WINDOW))
    generation: Generation | None = None
    stop: Event = field(default_factory=Event)  # ends a generation after the current step

    def pack(self) -> Path:
        """Write a zip file of the finished images, an imagefolder for each arm, with the memory
        and, if the images are scored, the report; ValueError if no image is finished."""
        generation = self.generation
        if generation is None or not generation.images("without"):
            raise ValueError("There are no images yet: generate some first.")
        self.window.save(generation.folder / "memory.safetensors")
        if generation.comparison is not None:
            generation.comparison.save(generation.folder / "report")
        path = self.folder / "images.zip"
        with ZipFile(path, "w", ZIP_STORED) as packed:
            for files in ("memory.safetensors", "with*/[!.]*", "report/*"):
                for file in sorted(generation.folder.glob(files)):
                    packed.write(file, file.relative_to(generation.folder))
        return path
