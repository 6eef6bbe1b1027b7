"""The files and folders that come with the package."""

from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]


def asset(name: str) -> Any:
    """Path of a file or folder under assets/, relative if it is inside the current folder; None
    where there is none: what is installed has the demo model and its probe only."""
    for home in (PACKAGE.parent, PACKAGE):
        if (path := home / "assets" / name).exists():
            here = Path.cwd()
            return path.relative_to(here) if path.is_relative_to(here) else path
    return None
