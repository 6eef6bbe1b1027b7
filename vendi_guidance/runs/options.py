"""What a run is asked for."""

from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from vendi_guidance.runs.precision import AUTO


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of the command line, by their names. None is what suits the model.

    Attributes:
        lora: loaded with the model; its name says more than the model's: it may be a distillation.
        variant: of the model's files, such as "fp16".
        dtype: one of `precision.DTYPES`.
        offload: one of `precision.OFFLOADS`, or None for all parts on the device.
        vae_tiling: decode images in tiles, vae_slicing: one by one. Both need less memory.
        undistilled: what predicts in the rounds: "auto", "adapters", a folder or a name on the
            hub; "none" or None is the model's own network.
        diversity: the `--diversity-...` options given, except the window's size, as arguments of
            `VendiGuidance`.
    """

    prompts: str = ""
    model: str = ""
    lora: str | None = None
    variant: str | None = None
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
    dtype: str = AUTO
    offload: str | None = None
    vae_tiling: bool = False
    vae_slicing: bool = False
    undistilled: str | None = "auto"
    diversity: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ValueError or OSError for mistakes that show before anything is read."""
        if self.guidance_scale is not None and not isfinite(self.guidance_scale):
            raise ValueError(f"guidance-scale must be a finite number, got {self.guidance_scale}")
        if self.overwrite and self.resume:
            raise ValueError("--overwrite begins anew and --resume goes on: give one of them")
        if self.offload is not None and torch.device(self.device).type == "cpu":
            raise ValueError(
                f"--offload {self.offload} keeps parts of the model on the CPU until a GPU needs "
                f"them, and --device is {self.device}: leave --offload out, or name a GPU"
            )
        if self.window_out is not None and self.diversity.get("memory") == "call":
            raise ValueError(
                "--diversity-memory call remembers nothing that --window-out could save: leave one "
                "of them out"
            )
        if self.window_out is not None and not self.window_out.absolute().parent.is_dir():
            raise FileNotFoundError(f"there is no folder for --window-out {self.window_out}")
        if self.window_out is not None and self.window_out.is_dir():
            raise IsADirectoryError(f"--window-out {self.window_out} is a folder: name a file")
        if self.output.exists() and not self.output.is_dir():
            raise FileExistsError(f"--output {self.output} is a file: name a folder")
