"""Fetches the npm packages with the artwork of the demos."""

import shutil
import subprocess
import tempfile
from pathlib import Path

import click


def fetch_package(package: str, target: Path) -> None:
    """Unpack an npm package, such as "name@1.0.0", into the folder `target` unless that exists.

    Raises:
        click.UsageError: npm is missing, or cannot fetch the package.
    """
    if target.exists():
        return
    if shutil.which("npm") is None:
        raise click.UsageError(
            f"npm is needed once, to fetch {package}: install Node.js, or unpack the package "
            f"into {target} yourself"
        )
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = ["npm", "pack", package, "--silent", "--pack-destination", temporary]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise click.UsageError(f"npm pack {package} failed: {reason}")
        [packed] = Path(temporary).glob("*.tgz")
        shutil.unpack_archive(packed, temporary, filter="data")
        (Path(temporary) / "package").rename(target)
