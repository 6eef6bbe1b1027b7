"""`run.json`: the settings and inputs of a run, which must not change for it to be resumed."""

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
"""Errors of reading a JSON file whose content is not what we wrote."""


def write_json(path: Path, name: str, content: dict[str, Any]) -> None:
    """Write a JSON file of the format with this name, completely or not at all."""
    headed = {"format": name, "version": VERSION, **content}
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(headed, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path, name: str) -> dict[str, Any]:
    """Read a file that `write_json` wrote; raises one of `DAMAGED` for any other file."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    found, version = content.get("format"), content.get("version")
    if (found, version) != (name, VERSION):
        raise ValueError(f"it has format {found}, version {version}")
    return content


@dataclass(frozen=True)
class Input:
    """A file or folder that a run reads: its name as given, and the SHA-256 of its content."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Everything that the images of a run depend on."""

    settings: dict[str, Any]  # JSON values by the name of the option
    inputs: dict[str, Input | None]  # by the name of the option; None if it was not given
    versions: dict[str, str]  # of Python and `PACKAGES`

    def save(self, folder: Path) -> None:
        write_json(folder / MANIFEST, FORMAT, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Manifest":
        """Read the `run.json` in a folder.

        Raises:
            ValueError: the file is damaged, or has another version.
            FileNotFoundError: there is no such file.
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
        """A clause for each setting and input that has changed since the run began."""
        clauses = []
        for name in began.settings | self.settings:
            now, was = self.settings.get(name), began.settings.get(name)
            if now != was:
                clauses.append(f"{_option(name)} is {_as_text(now)}, was {_as_text(was)}")
        for name in began.inputs | self.inputs:
            given, first = self.inputs.get(name), began.inputs.get(name)
            if (given and given.sha256) != (first and first.sha256):
                now, was = (_as_text(one and one.name) for one in (given, first))
                same = " with other content" if now == was else ""
                clauses.append(f"{_option(name)} is {now}{same}, was {was}")
        return clauses

    def version_changes(self, began: "Manifest") -> list[str]:
        """A clause for each version that has changed since the run began."""
        return [
            f"{name} is {self.versions[name]}, was {began.versions.get(name, 'unknown')}"
            for name in self.versions
            if self.versions[name] != began.versions.get(name)
        ]


def versions() -> dict[str, str]:
    """The installed versions of Python and of `PACKAGES`."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _option(name: str) -> str:
    return "PROMPTS" if name == "prompts" else "--" + name.replace("_", "-")


def _as_text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "given" if value else "not given"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:20]}...{text[-37:]}"
