"""A world of pictures: what a demo model was trained on, and what its judge compares with."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from PIL import Image

from scripts.demo import emoji, letters_sheets
from vendi_guidance.features.probe import Look


class World(Protocol):
    """Training pictures of some concepts in many looks."""

    @property
    def concepts(self) -> tuple[str, ...]:
        """What there are pictures of, such as "waving hand"."""

    @property
    def naming(self) -> Sequence[tuple[str, ...]]:
        """The attributes that one prompt after the other names, where prompts name some."""

    def looks(self, concepts: Sequence[str]) -> list[Look]:
        """The looks of some concepts that there are pictures of."""

    def images(self, concepts: Sequence[str]) -> list[Image.Image]:
        """All pictures of some concepts."""


def load_world(folder: Path) -> World:
    """The pictures in a folder.

    Raises:
        ValueError: a file is damaged.
        FileNotFoundError: a file is missing.
    """
    is_letters = (folder / letters_sheets.SHEET_FACES).exists()
    return letters_sheets.load_sheets(folder) if is_letters else emoji.load_sheets(folder)
