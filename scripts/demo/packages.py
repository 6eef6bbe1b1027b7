"""Packages that the demos' images are made of."""

import shutil
import subprocess
import tarfile
import tempfile
from importlib import import_module
from pathlib import Path
from types import ModuleType

import click

FACES_PACKAGES = "dicebear-core==10.7.0 dicebear-styles==10.6.0 resvg-py==0.5.0"


def fetch_package(package: str, target: Path) -> None:
    """Unpack an npm package, such as "name@1.0.0", as the folder `target`, unless that exists.

    Raises:
        click.UsageError: npm is missing, or cannot fetch the package.
    """
    if target.exists():
        return
    if shutil.which("npm") is None:
        raise click.UsageError(
            f"npm is needed once, to fetch {package}: install Node.js, or unpack that package "
            f"into {target} by hand"
        )
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = ["npm", "pack", package, "--silent", "--pack-destination", temporary]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise click.UsageError(f"npm pack {package} failed: {reason}")
        with tarfile.open(next(Path(temporary).glob("*.tgz"))) as packed:
            packed.extractall(Path(temporary) / "unpacked", filter="data")
        (Path(temporary) / "unpacked" / "package").rename(target)


def needed(module: str) -> ModuleType:
    """A Python package that only the faces are drawn with.

    Raises:
        click.UsageError: it is missing.
    """
    try:
        return import_module(module)
    except ImportError:
        raise click.UsageError(
            f"{module} is needed to draw the faces: pip install {FACES_PACKAGES}"
        ) from None
