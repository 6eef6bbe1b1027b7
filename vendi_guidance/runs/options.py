"""What a user asks of a run: its options, and files of guidance settings."""

from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from vendi_guidance.guidance.settings import SETTINGS, Rounds, adjusted, with_prefix
from vendi_guidance.storage.files import DAMAGED, read_json, write_json

AUTO = "auto"
DTYPES = (AUTO, "float32", "float16", "bfloat16")

OFFLOADS = ("model", "sequential")
"""What can be offloaded to the CPU: whole parts of a model, or layers (slower, least memory)."""

FORMAT = "vendi-guidance settings"


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
        if self.guidance_scale is not None and not isfinite(self.guidance_scale):
            raise ValueError(f"guidance-scale must be a finite number, got {self.guidance_scale}")
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
        if self.window_out is not None and self.window_out.is_dir():
            raise IsADirectoryError(f"--window-out {self.window_out} is a folder: name a file")
        if self.output.exists() and not self.output.is_dir():
            raise FileExistsError(f"--output {self.output} is a file: name a folder")


def save_settings(path: Path, settings: dict[str, Any], about: dict[str, Any]) -> None:
    """Write settings and information about them, as JSON values."""
    write_json(path, FORMAT, {"settings": settings, "about": about})


def load_settings(path: str | Path, *, prefix: str = "diversity_") -> dict[str, Any]:
    """Read saved guidance settings as keyword arguments.

    Args:
        path: a file that `vendi-guidance tune` wrote.
        prefix: "diversity_" for the call of a guided pipeline, "" for `VendiGuidance`.

    Raises:
        ValueError: the file is not a settings file, or has an unknown setting or invalid value.
        FileNotFoundError: there is no such file.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_settings(Path(folder, "settings.json"), {"diversity": 0.7}, {})
        ...     load_settings(Path(folder, "settings.json"))
        {'diversity': 0.7}
        >>> images = pipe(prompts, **load_settings("settings.json")).images  # doctest: +SKIP
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        settings = dict(read_json(path, FORMAT)["settings"])
    except DAMAGED as error:
        raise ValueError(f"{path} is not a file of guidance settings: {error}") from None
    if unknown := settings.keys() - SETTINGS.keys():
        raise ValueError(f"{path} has {min(unknown)!r}, which is not a guidance setting")
    try:
        adjusted(Rounds(), settings)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None
    return {with_prefix(name) if prefix else name: value for name, value in settings.items()}


def check_device(device: str) -> None:
    """Raise ValueError unless tensors can be stored and computed on a device."""
    try:
        kind = torch.empty(0, device=device).device.type
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {device!r} cannot be used here: {reason}") from None
    if kind == "meta":
        raise ValueError(f"device {device!r} stores no data: use cpu or cuda")
