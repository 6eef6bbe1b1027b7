"""The plan of a run: what the user asks, what it is made with, and its images in the order of their
generation."""

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vendi_guidance.storage.files import DAMAGED, check_format, headed, memory_name, whole_file
from vendi_guidance.storage.imagefolder import image_name
from vendi_guidance.storage.messages import version_of
from vendi_guidance.storage.prompt_files import Prompts

AUTO = "auto"
DTYPES = (AUTO, "float32", "float16", "bfloat16")

OFFLOADS = ("model", "sequential")
"""What can be offloaded to the CPU: whole parts of a model, or layers (slower, least memory)."""

MANIFEST = "run.json"
FORMAT = "vendi-guidance run"
OF_RUN = "prompts", "images_per_prompt", "seed", "window_out", "device", "no_metadata"
"""Settings in `run.json` that `metadata.jsonl` does not repeat for each image."""

PACKAGES = ("vendi-guidance", "torch", "diffusers", "transformers", "pillow")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of the command line, by their names, which `--help` explains. None is a default
    that suits the model."""

    prompts: str = ""
    model: str = ""
    lora: str | None = None  # its name is the first to decide the default steps and scale
    variant: str | None = None  # of the model's files, such as "fp16"
    steps: int | None = None
    guidance_scale: float | None = None
    negative_prompt: str | None = None
    height: int | None = None
    width: int | None = None
    images_per_prompt: int = 1
    batch_size: int = 1
    seed: int = 0
    diversity_window: int | None = None
    window_in: Path | None = None
    window_out: Path | None = None
    output: Path = Path()
    overwrite: bool = False
    resume: bool = False
    no_metadata: bool = False
    device: str = "cpu"
    dtype: str = AUTO  # or another of `DTYPES`
    offload: str | None = None  # or one of `OFFLOADS`
    vae_tiling: bool = False
    vae_slicing: bool = False
    undistilled: str | None = "auto"  # "adapters", a folder or a name on the hub; "none" or None
    diversity: dict[str, Any] = field(default_factory=dict)  # arguments of `VendiGuidance`

    def check(self) -> None:
        """Raise ValueError or OSError for mistakes that can be found before any file is read."""
        if self.overwrite and self.resume:
            raise ValueError("--overwrite starts over and --resume continues: give only one")
        if self.offload is not None and torch.device(self.device).type == "cpu":
            raise ValueError(
                f"--offload {self.offload} moves parts of the model from the CPU to a GPU when "
                f"needed, but --device is {self.device}: leave --offload out, or name a GPU"
            )
        if self.window_out is not None and self.diversity.get("memory") == "call":
            raise ValueError(
                "--diversity-memory call keeps no images that --window-out could save: leave one "
                "of them out"
            )
        if self.window_out is not None and not self.window_out.absolute().parent.is_dir():
            raise FileNotFoundError(f"there is no folder for --window-out {self.window_out}")


@dataclass(frozen=True)
class Sampling:
    """How a run calls its pipeline."""

    call: dict[str, Any]  # arguments of the pipeline besides the prompts
    about: dict[str, Any]  # the parameters to record with the images, by the options' names
    remarks: tuple[str, ...] = ()  # for the user: defaults chosen, and options without effect

    def arguments(self, prompts: list[str]) -> dict[str, Any]:
        """Keyword arguments of the call that generates one image for each prompt."""
        given = {"prompt": prompts, **self.call}
        if "negative_prompt" in given:
            given["negative_prompt"] = [given["negative_prompt"]] * len(prompts)
        return given


@dataclass(frozen=True)
class Manifest:
    """`run.json`: all that the images of a run depend on, unchanged when it is resumed."""

    settings: dict[str, Any]  # JSON values by the option's name; of a file or folder: see `read`
    versions: dict[str, str]  # of Python and `PACKAGES`

    def save(self, folder: Path) -> None:
        text = json.dumps(headed(FORMAT, asdict(self)), indent=2)
        with whole_file(folder / MANIFEST) as temporary:
            temporary.write_text(f"{text}\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> "Manifest":
        """The `run.json` in a folder. FileNotFoundError if there is none; ValueError if it is
        damaged, or of another version, which the message names."""
        path = folder / MANIFEST
        try:
            content = check_format(json.loads(path.read_text(encoding="utf-8")), FORMAT)
            return cls(dict(content["settings"]), dict(content["versions"]))
        except DAMAGED as error:
            raise ValueError(f"{path} does not describe a run: {error}") from None

    def differences(self, began: "Manifest") -> list[str]:
        """A clause for each setting that has changed since the run began."""
        changes = _changes(self.settings, began.settings)
        names = {name: f"--{name.replace('_', '-')}" for name, _ in changes}
        names["prompts"] = "PROMPTS"
        return [f"{names[name]} {change}" for name, change in changes]

    def version_changes(self, began: "Manifest") -> list[str]:
        """A sentence for each version that has changed since the run began."""
        changes = _changes(self.versions, began.versions)
        return [f"{name} {change}: images may differ in rounding" for name, change in changes]


def read(name: object, sha256: str) -> dict[str, str]:
    """The value in `Manifest.settings` of a file or folder that a run reads: its name as given, and
    the digest of its content."""
    return {"name": str(name), "sha256": sha256}


def _changes(now: dict[str, Any], was: dict[str, Any]) -> list[tuple[str, str]]:
    """The names of values that differ, each with the end of a sentence."""
    changes = []
    for name in was | now:
        values = [values.get(name) for values in (now, was)]
        new, old = (it.get("sha256") if isinstance(it, dict) else it for it in values)
        if new != old:
            text, before = map(_as_text, values)
            same = " with other content" if text == before else ""
            changes.append((name, f"is {text}{same}, was {before}"))
    return changes


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "given", False: "not given"}[value]
    text = str(value.get("name") if isinstance(value, dict) else value)
    return text if len(text) <= 60 else f"{text[:20]}...{text[-37:]}"


def versions() -> dict[str, str]:
    """The installed versions of Python and of `PACKAGES`."""
    return {"python": platform.python_version(), **{it: version_of(it) for it in PACKAGES}}


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
    manifest: Manifest  # the settings and inputs that determine all this

    @property
    def total(self) -> int:
        return len(self.prompts.texts) * self.options.images_per_prompt

    def items(self, done: int, side_by_side: int) -> Iterator[Item]:
        """The images in the order in which they are generated, without the first `done`.

        `side_by_side` prompts take turns, a batch of images each: processes work on different
        prompts, and the images of a prompt are guided away from one another.
        """
        each, batch = self.options.images_per_prompt, self.options.batch_size
        groups, rest = divmod(done, side_by_side * each)
        first = groups * side_by_side
        numbered = enumerate(self.prompts.texts[first:], start=first)
        items = (
            Item(number * each + i, prompt)
            for group in iter(lambda: list(islice(numbered, side_by_side)), [])
            for start in range(0, each, batch)
            for number, prompt in group
            for i in range(start, min(start + batch, each))
        )
        return islice(items, rest, None)

    def row(self, item: Item, batch_size: int, processes: int) -> dict[str, Any]:
        """The metadata of an image, generated in a batch of this size by that many processes."""
        settings = {k: v for k, v in self.manifest.settings.items() if k not in OF_RUN}
        memory = settings.get("window_in")
        return {
            "file_name": image_name(item.number),
            "prompt": item.prompt,
            "seed": self.options.seed + item.number,
            **{k: v["name"] if isinstance(v, dict) else v for k, v in settings.items()},
            "window_in": memory and memory_name(memory["sha256"]),
            "batch_size": batch_size,
            "processes": processes,
        }

    def texts(self, row: dict[str, Any]) -> dict[str, Any] | None:
        """What the PNG file of an image records: its row and what made it; None for nothing."""
        if self.options.no_metadata:
            return None
        read = {name: self.manifest.settings.get(name) for name in ("model", "lora", "window_in")}
        hashes = {f"{name}_sha256": file["sha256"] for name, file in read.items() if file}
        return {**row, **hashes, "versions": self.manifest.versions}
