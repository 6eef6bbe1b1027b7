"""The files and folders that come with the package."""

import os
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]


def asset(name: str) -> Any:
    """Path of a file or folder under assets/, seen from the current folder; None where there is
    none: what is installed has the demo model and its probe only."""
    for home in (PACKAGE.parent, PACKAGE):
        if (path := home / "assets" / name).exists():
            return Path(os.path.relpath(path))
    return None
