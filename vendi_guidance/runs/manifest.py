"""`run.json`: the settings and inputs of a run, which decide whether it can be resumed."""

import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vendi_guidance.storage.files import whole_file

MANIFEST = "run.json"
FORMAT = "vendi-guidance run"
VERSION = 1
PACKAGES = ("vendi-guidance", "torch", "diffusers", "transformers", "pillow")

DAMAGED = (ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""What reading a JSON file raises that something else has written."""


def write_json(path: Path, form: str, content: dict[str, Any]) -> None:
    """Write a file of one of our formats as a whole."""
    about = {"format": form, "version": VERSION, **content}
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path, form: str) -> dict[str, Any]:
    """What `write_json` wrote; raises one of `DAMAGED` for anything else."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    kind, number = content.get("format"), content.get("version")
    if (kind, number) != (form, VERSION):
        raise ValueError(f"it has format {kind}, version {number}")
    return content


@dataclass(frozen=True)
class Input:
    """A file or folder that a run reads: its name as given, and the SHA-256 of its content."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """All that decides how a run's images look."""

    settings: dict[str, Any]  # JSON values by the name of the option
    inputs: dict[str, Input | None]  # by the name of the option; None for one that was not given
    versions: dict[str, str]  # of Python and the packages that matter

    def save(self, folder: Path) -> None:
        write_json(folder / MANIFEST, FORMAT, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Manifest":
        """Read what `save` wrote.

        Raises:
            ValueError: the file is damaged, or of another version.
            FileNotFoundError: there is none.
        """
        path = folder / MANIFEST
        try:
            content = read_json(path, FORMAT)
            inputs = {
                name: None if given is None else Input(**given)
                for name, given in content["inputs"].items()
            }
            return cls(dict(content["settings"]), inputs, dict(content["versions"]))
        except DAMAGED as error:
            raise ValueError(f"{path} does not describe a run: {error}") from None

    def differences(self, began: "Manifest") -> list[str]:
        """What has changed since the run began, in words; versions are left out."""
        words = []
        for name in began.settings | self.settings:
            now, was = self.settings.get(name), began.settings.get(name)
            if now != was:
                words.append(f"{_option(name)} is {_in_words(now)}, was {_in_words(was)}")
        for name in began.inputs | self.inputs:
            given, first = self.inputs.get(name), began.inputs.get(name)
            if (given and given.sha256) != (first and first.sha256):
                now, was = (_in_words(one and one.name) for one in (given, first))
                same = " with other content" if now == was else ""
                words.append(f"{_option(name)} is {now}{same}, was {was}")
        return words

    def version_changes(self, began: "Manifest") -> list[str]:
        """Which versions have changed since the run began, in words."""
        return [
            f"{name} is {self.versions[name]}, was {began.versions.get(name, 'unknown')}"
            for name in self.versions
            if self.versions[name] != began.versions.get(name)
        ]


def versions() -> dict[str, str]:
    """Of Python and of the packages that matter."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _option(name: str) -> str:
    return "PROMPTS" if name == "prompts" else "--" + name.replace("_", "-")


def _in_words(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "given" if value else "not given"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:20]}...{text[-37:]}"
