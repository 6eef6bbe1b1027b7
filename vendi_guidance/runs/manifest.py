"""What a run makes, and with what: `run.json` keeps that, so that it can be told from another."""

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.imagefolder import picture_name
from vendi_guidance.storage.prompt_files import Prompts

MANIFEST = "run.json"
FORMAT = "vendi-guidance run"
VERSION = 1
PACKAGES = ("vendi-guidance", "torch", "diffusers", "transformers", "pillow")


@dataclass(frozen=True)
class Input:
    """Something a run reads.

    Attributes:
        name: what the user called it.
        sha256: which it is, whatever its name.
    """

    name: str
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a run is made with.

    Attributes:
        settings: JSON values by the name of the option, which alone decide how pictures look.
        inputs: by the name of the option; None for one that was not given.
        versions: of Python and the packages that matter.
    """

    settings: dict[str, Any]
    inputs: dict[str, Input | None]
    versions: dict[str, str]

    def save(self, folder: Path) -> None:
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        with whole_file(folder / MANIFEST) as temporary:
            temporary.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Manifest":
        """Read what `save` wrote.

        Raises:
            ValueError: it is damaged, or comes from another version.
            FileNotFoundError: there is none.
        """
        path = folder / MANIFEST
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if (content["format"], content["version"]) != (FORMAT, VERSION):
                raise ValueError(f"it has format {content['format']}, version {content['version']}")
            return cls(
                dict(content["settings"]),
                {
                    name: None if given is None else Input(str(given["name"]), given["sha256"])
                    for name, given in content["inputs"].items()
                },
                {str(name): str(value) for name, value in content["versions"].items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ValueError(f"{path} does not describe a run: {error}") from None

    def differences(self, began: "Manifest") -> list[str]:
        """What is not as it was when the run began, in words; versions are left out."""
        words = []
        for name in began.settings | self.settings:
            now, was = self.settings.get(name), began.settings.get(name)
            if now != was:
                words.append(f"{_option(name)} is {_in_words(now)}, was {_in_words(was)}")
        for name in began.inputs | self.inputs:
            given, first = self.inputs.get(name), began.inputs.get(name)
            if (given and given.sha256) != (first and first.sha256):
                now, was = (_in_words(one and one.name) for one in (given, first))
                same = " with another content" if now == was else ""
                words.append(f"{_option(name)} is {now}{same}, was {was}")
        return words

    def version_changes(self, began: "Manifest") -> list[str]:
        """Which versions are not those the run began with, in words."""
        return [
            f"{name} is {self.versions[name]}, was {began.versions.get(name, 'unknown')}"
            for name in self.versions
            if self.versions[name] != began.versions.get(name)
        ]


class Item(NamedTuple):
    """A picture to be made."""

    number: int
    prompt: str


@dataclass(frozen=True)
class Plan:
    """What a run makes. Picture number i is made from seed + i, whatever is made before it.

    Attributes:
        prompts: in order.
        images_per_prompt: how many pictures of each.
        at_a_time: how many of one prompt are made before others come in between, if several prompts
            are made side by side.
        seed: of the first picture.
        call: what the pipeline is called with besides prompts and generators.
        about: what the metadata say of each picture besides its prompt and seed.
        origin: what each picture's file says besides all that; None lets it say nothing.
        manifest: what all this comes from.
    """

    prompts: Prompts
    images_per_prompt: int
    at_a_time: int
    seed: int
    call: dict[str, Any]
    about: dict[str, Any]
    origin: dict[str, Any] | None
    manifest: Manifest

    @property
    def total(self) -> int:
        return self.prompts.count * self.images_per_prompt

    def items(self, done: int, side_by_side: int) -> Iterator[Item]:
        """The pictures in the order of their making, but for the first `done`.

        Args:
            side_by_side: of so many prompts some pictures each, then some more of each. So
                processes work on different prompts, and no two of a prompt unknown to one another.
        """
        groups, more = divmod(done, side_by_side * self.images_per_prompt)
        first = groups * side_by_side
        numbered = enumerate(self.prompts.starting_at(first), start=first)
        return islice(self._in_groups(numbered, side_by_side), more, None)

    def _in_groups(self, prompts: Iterator[tuple[int, str]], size: int) -> Iterator[Item]:
        while group := list(islice(prompts, size)):
            for start in range(0, self.images_per_prompt, self.at_a_time):
                stop = min(start + self.at_a_time, self.images_per_prompt)
                for place, text in group:
                    for i in range(start, stop):
                        yield Item(place * self.images_per_prompt + i, text)

    def seed_of(self, item: Item) -> int:
        return self.seed + item.number

    def row(self, item: Item, batch_size: int, processes: int) -> dict[str, Any]:
        """The line of metadata about a picture, and how many were made together."""
        return {
            "file_name": picture_name(item.number),
            "prompt": item.prompt,
            "seed": self.seed_of(item),
            **self.about,
            "batch_size": batch_size,
            "processes": processes,
        }


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
