"""A small demo with two concepts, for testing the training scripts."""

from pathlib import Path

import click
import pytest
import torch

from scripts.demo import training
from scripts.demo.emoji import Emoji, save_sheets
from tests.conftest import SCRIPTS
from tests.helpers.commands import invoke

ASSETS = SCRIPTS.parent / "assets"


def small_demo(folder: Path) -> list[str]:
    """Options of a training script for batches of two images, and a model card that scores one
    prompt of each kind. `folder` replaces assets/."""
    shades = torch.arange(2 * 3 * 6, dtype=torch.uint8).view(2, 3, 6, 1, 1, 1) * 7
    images = Emoji(("ear", "nose"), shades.expand(2, 3, 6, 3, 64, 64).contiguous())
    save_sheets(images, folder / "demo-pictures")
    (folder / "prompts").mkdir()
    prompts = {"demo": "ear", "named": "ear, dark skin tone"}
    prompts |= {"faces": "portrait", "faces-named": "portrait, bun"}
    for name, prompt in prompts.items():
        (folder / "prompts" / f"{name}.txt").write_text(prompt)
    for model in ("demo-probe", "demo-sdxl", "demo-faces", "demo-faces-probe"):
        (folder / model).symlink_to(ASSETS.resolve() / model)
    return [f"--assets={folder}", "--batch-size=2", "--device=cpu"]


def interrupt(patch: pytest.MonkeyPatch, command: click.Command, *words: str) -> None:
    """Run a training and interrupt it after its first checkpoint."""
    write = training.save

    def save(*args: object) -> None:
        write(*args)
        raise KeyboardInterrupt

    with patch.context() as once:
        once.setattr(training, "save", save)
        assert invoke(command, *words).exit_code == 1
