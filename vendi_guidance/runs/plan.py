"""The plan of a run: what it is made with, and its images in the order of their generation."""

import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.sampling import Sampling
from vendi_guidance.storage.files import DAMAGED, read_json, write_json
from vendi_guidance.storage.imagefolder import image_name
from vendi_guidance.storage.prompt_files import Prompts

MANIFEST = "run.json"
FORMAT = "vendi-guidance run"
PACKAGES = ("vendi-guidance", "torch", "diffusers", "transformers", "pillow")


@dataclass(frozen=True)
class Manifest:
    """`run.json`: all that the images of a run depend on, unchanged when it is resumed."""

    settings: dict[str, Any]  # JSON values by the option's name; of a file or folder: see `read`
    versions: dict[str, str]  # of Python and `PACKAGES`

    def save(self, folder: Path) -> None:
        write_json(folder / MANIFEST, FORMAT, asdict(self))

    @classmethod
    def load(cls, folder: Path) -> "Manifest":
        """The `run.json` in a folder. FileNotFoundError if there is none; ValueError if it is
        damaged, or of another version, which the message names."""
        path = folder / MANIFEST
        try:
            content = read_json(path, FORMAT)
            return cls(dict(content["settings"]), dict(content["versions"]))
        except DAMAGED as error:
            raise ValueError(f"{path} does not describe a run: {error}") from None

    def differences(self, began: "Manifest") -> list[str]:
        """A clause for each setting that has changed since the run began."""
        clauses = []
        for option in began.settings | self.settings:
            now, was = self.settings.get(option), began.settings.get(option)
            if _identity(now) != _identity(was):
                same = " with other content" if _as_text(now) == _as_text(was) else ""
                name = "PROMPTS" if option == "prompts" else "--" + option.replace("_", "-")
                clauses.append(f"{name} is {_as_text(now)}{same}, was {_as_text(was)}")
        return clauses

    def version_changes(self, began: "Manifest") -> list[str]:
        """A clause for each version that has changed since the run began."""
        return [
            f"{name} is {self.versions[name]}, was {began.versions.get(name, 'unknown')}"
            for name in self.versions
            if self.versions[name] != began.versions.get(name)
        ]


def read(name: object, sha256: str) -> dict[str, str]:
    """The value in `Manifest.settings` of a file or folder that a run reads: its name as given, and
    the digest of its content."""
    return {"name": str(name), "sha256": sha256}


def _identity(value: Any) -> Any:
    return value.get("sha256") if isinstance(value, dict) else value


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("name")
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "given" if value else "not given"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:20]}...{text[-37:]}"


def versions() -> dict[str, str]:
    """The installed versions of Python and of `PACKAGES`."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


class Item(NamedTuple):
    """An image to be generated."""

    number: int
    prompt: str


@dataclass(frozen=True)
class Plan:
    """What a run generates. Image number i uses seed + i, whatever the order."""

    options: RunOptions
    prompts: Prompts
    sampling: Sampling
    about: dict[str, Any]  # what `metadata.jsonl` says of every image besides prompt and seed
    manifest: Manifest  # the settings and inputs that determine all this

    @property
    def total(self) -> int:
        return self.prompts.count * self.options.images_per_prompt

    def items(self, done: int, side_by_side: int) -> Iterator[Item]:
        """The images in the order in which they are generated, without the first `done`.

        `side_by_side` prompts take turns, a batch of images each: processes work on different
        prompts, and the images of a prompt are guided away from one another.
        """
        each, batch = self.options.images_per_prompt, self.options.batch_size
        groups, rest = divmod(done, side_by_side * each)
        first = groups * side_by_side
        numbered = enumerate(self.prompts.starting_at(first), start=first)
        items = (
            Item(number * each + i, prompt)
            for group in iter(lambda: list(islice(numbered, side_by_side)), [])
            for start in range(0, each, batch)
            for number, prompt in group
            for i in range(start, min(start + batch, each))
        )
        return islice(items, rest, None)

    @property
    def origin(self) -> dict[str, Any] | None:
        """What each PNG file records besides `row`; None to record nothing."""
        if self.options.no_metadata:
            return None
        read = {name: self.manifest.settings.get(name) for name in ("model", "lora")}
        hashes = {f"{name}_sha256": file["sha256"] for name, file in read.items() if file}
        return {**hashes, "versions": self.manifest.versions}

    def row(self, item: Item, batch_size: int, processes: int) -> dict[str, Any]:
        """The metadata of an image, generated in a batch of this size by that many processes."""
        return {
            "file_name": image_name(item.number),
            "prompt": item.prompt,
            "seed": self.options.seed + item.number,
            **self.about,
            "batch_size": batch_size,
            "processes": processes,
        }
