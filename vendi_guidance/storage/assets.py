"""The files and folders that come with the package."""

from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]


def asset(name: str) -> Any:
    """Path of a file or folder in `assets/`, relative if it is below the current folder, or None:
    an installed package has only the demo model and its probe."""
    for home in (PACKAGE.parent, PACKAGE):
        if (path := home / "assets" / name).exists():
            here = Path.cwd()
            return path.relative_to(here) if path.is_relative_to(here) else path
    return None
