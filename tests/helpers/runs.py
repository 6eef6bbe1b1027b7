"""A run read back or disturbed, and a model where the hub would put it."""

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import Result
from PIL import Image

from vendi_guidance import VendiGuidedSDXLPipeline
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.runs import folder as run_folder
from vendi_guidance.runs.checkpoints import Checkpoint, Checkpoints
from vendi_guidance.storage.imagefolder import read_metadata


class Run(NamedTuple):
    """What `metadata.jsonl` says of each image, and the images."""

    rows: list[dict[str, Any]]
    images: list[Image.Image]

    @property
    def prompts(self) -> list[str]:
        return [row["prompt"] for row in self.rows]

    @property
    def pixels(self) -> np.ndarray:
        return np.stack([np.asarray(image).astype(int) for image in self.images])


def made(result: Result, folder: Path) -> Run:
    """The run of a command that succeeded."""
    assert result.exit_code == 0, result.output
    return read_run(folder)


def read_run(folder: Path) -> Run:
    return Run([listed.row for listed in read_metadata(folder)], list(as_batch(folder).images))


def at_call(patch: pytest.MonkeyPatch, number: int, act: Callable[[Any], object]) -> None:
    """Do something at the beginning of the pipeline's call of this number."""
    calls = count(1)
    call_guided = VendiGuidedSDXLPipeline._call_guided

    def counted(self: Any, *args: Any) -> Any:
        if next(calls) == number:
            act(self)
        return call_guided(self, *args)

    patch.setattr(VendiGuidedSDXLPipeline, "_call_guided", counted)


def hold_images(patch: pytest.MonkeyPatch) -> None:
    """Let images be saved only once the second batch is being made, and fail where a checkpoint is
    written before the images that it counts."""
    begun = Event()
    at_call(patch, 2, lambda _: begun.set())
    save, add = run_folder.save_image, Checkpoints.add

    def save_late(*given: Any) -> None:
        assert begun.wait(60), "the next batch waits for the images of this one"
        save(*given)

    def add_checked(self: Checkpoints, checkpoint: Checkpoint) -> None:
        assert len(list(self.folder.parent.glob("[0-9]*.png"))) >= checkpoint.progress.done
        add(self, checkpoint)

    patch.setattr(run_folder, "save_image", save_late)
    patch.setattr(Checkpoints, "add", add_checked)


def put_in_cache(hub: Path, folder: Path) -> Path:
    """Lay a model out in the cache as `hf download me/mine` does."""
    commit = "0" * 40
    snapshot = hub / "models--me--mine" / "snapshots" / commit
    shutil.copytree(folder, snapshot)
    (hub / "models--me--mine" / "refs").mkdir()
    (hub / "models--me--mine" / "refs" / "main").write_text(commit)
    return snapshot
