"""The comparison's files on disk: measures and images of each trial, and named images.

A file's name contains a digest of everything that its content depends on, so a file found by its
name is valid; incomplete files have other names.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from scripts.comparison.measures import MEASURES, Scores
from scripts.comparison.prompts import Prompt
from scripts.comparison.trials import Trial
from scripts.demo.emoji import SIZE
from vendi_guidance.commands.cli import REPOSITORY
from vendi_guidance.features.probe import Look
from vendi_guidance.spacing import evenly_spaced
from vendi_guidance.storage.files import remove_unfinished, whole_file
from vendi_guidance.storage.imagefolder import save_picture

VERSION = 2
"""Of the measures; numbers of an older version are computed again."""

SHOWN = 2
"""Of how many of a trial's open prompts images are kept, and of how many others."""


@dataclass(frozen=True)
class Cache:
    """The files of one output folder.

    Attributes:
        folder: the output folder.
        drawing: what images depend on, besides a trial's own settings: JSON values.
        naming: what else named images depend on, such as their sampler: JSON values.
        scoring: what measures depend on, besides images: JSON values.
    """

    folder: Path
    drawing: Mapping[str, Any]
    naming: Mapping[str, Any]
    scoring: Mapping[str, Any]

    def __post_init__(self) -> None:
        for folder in (self._trials, self._named):
            folder.mkdir(parents=True, exist_ok=True)
            remove_unfinished(folder)

    def load(self, trial: Trial) -> Scores | None:
        """A trial's measures, or None if it is missing or incomplete."""
        path = self._path(trial)
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            values = {name: content["values"][name] for name in MEASURES}
            scores = Scores(values, content["by_prompt"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return scores if path.with_suffix(".png").is_file() else None

    def save(
        self, trial: Trial, scores: Scores, images: Sequence[Image.Image], prompts: Sequence[Prompt]
    ) -> None:
        """Store a trial's measures, and the images of some prompts."""
        path = self._path(trial)
        strips = [
            [image for image, asked in zip(images, prompts, strict=True) if asked == prompt]
            for prompt in shown(trial)
        ]
        save_picture(path.with_suffix(".png"), as_sheet(strips))
        content = {"trial": asdict(trial), **self._world, "code": code(), **scores._asdict()}
        with whole_file(path) as temporary:  # last: it marks the trial as complete
            temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    def strips(self, trial: Trial) -> dict[str, list[Image.Image]]:
        """The stored images of a trial, by prompt."""
        with Image.open(self._path(trial).with_suffix(".png")) as opened:
            sheet = opened.convert("RGB")
        words = [prompt.words for prompt in shown(trial)]
        return dict(zip(words, from_sheet(sheet), strict=True))

    def is_of_other_code(self, trial: Trial) -> bool:
        """Whether a cached trial was made by a different version of the code."""
        content = json.loads(self._path(trial).read_text(encoding="utf-8"))
        return content.get("code") != code()

    def load_named(self, looks: Sequence[Look]) -> dict[Look, Image.Image] | None:
        """The named images of a concept in its looks, or None if they are missing."""
        try:
            with Image.open(self._named_path(looks[0][0])) as opened:
                (row,) = from_sheet(opened.convert("RGB"))
        except (OSError, ValueError, SyntaxError):
            return None
        return dict(zip(looks, row, strict=True)) if len(row) == len(looks) else None

    def save_named(self, concept: str, images: Sequence[Image.Image]) -> None:
        """Store a concept's named images, in the order of its looks."""
        save_picture(self._named_path(concept), as_sheet([images]))

    @property
    def _trials(self) -> Path:
        return self.folder / "trials"

    @property
    def _named(self) -> Path:
        return self.folder / "named"

    @property
    def _world(self) -> dict[str, Any]:
        about = {"drawing": self.drawing, "naming": self.naming, "scoring": self.scoring}
        return {"version": VERSION} | about

    def _path(self, trial: Trial) -> Path:
        name = re.sub(r"\W+", "-", trial.candidate.method.casefold()).strip("-")
        return self._trials / f"{name}-{_digest({**self._world, **asdict(trial)})}.json"

    def _named_path(self, concept: str) -> Path:
        about = {"drawing": self.drawing, "naming": self.naming, "concept": concept}
        name = re.sub(r"\W+", "-", concept)
        return self._named / f"{name}-{_digest(about)}.png"


def shown(trial: Trial) -> list[Prompt]:
    """The prompts of a trial whose images are kept."""
    parted = [[p for p in trial.prompts if p.is_open == is_open] for is_open in (True, False)]
    return [prompt for some in parted for prompt in evenly_spaced(some, SHOWN)]


def as_sheet(rows: Sequence[Sequence[Image.Image]]) -> Image.Image:
    """Rows of images of 64 x 64 pixels as one image."""
    sheet = Image.new("RGB", (SIZE * max(map(len, rows)), SIZE * len(rows)), "white")
    for y, row in enumerate(rows):
        for x, image in enumerate(row):
            sheet.paste(image, (x * SIZE, y * SIZE))
    return sheet


def from_sheet(sheet: Image.Image) -> list[list[Image.Image]]:
    """The rows of images that `as_sheet` was given, if they had equal lengths."""
    columns, rows = sheet.width // SIZE, sheet.height // SIZE
    return [
        [sheet.crop((x * SIZE, y * SIZE, (x + 1) * SIZE, (y + 1) * SIZE)) for x in range(columns)]
        for y in range(rows)
    ]


@cache
def code() -> str:
    """A digest of the package and the comparison, the code that images and measures depend on."""
    folders = (REPOSITORY / name for name in ("scripts/comparison", "vendi_guidance"))
    files = [path for folder in folders for path in folder.rglob("*.py")]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(files))).hexdigest()


def _digest(about: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:24]
