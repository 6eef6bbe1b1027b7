"""Reads and disturbs runs, and puts a model into the cache of the hub."""

import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import Result
from PIL import Image

from vendi_guidance import VendiGuidedSDXLPipeline
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.guidance.window import Finished
from vendi_guidance.runs.folder import Checkpoints, Progress
from vendi_guidance.storage.imagefolder import read_metadata


class Run(NamedTuple):
    """The rows of `metadata.jsonl`, and the images."""

    rows: list[dict[str, Any]]
    images: list[Image.Image]

    @property
    def pixels(self) -> np.ndarray:
        return np.stack([np.asarray(image).astype(int) for image in self.images])


def made(result: Result, folder: Path) -> Run:
    """The run of a command; fails the test if the command failed."""
    assert result.exit_code == 0, result.output
    return read_run(folder)


def read_run(folder: Path) -> Run:
    return Run([listed.row for listed in read_metadata(folder)], list(as_batch(folder).images))


def at_call(patch: pytest.MonkeyPatch, number: int, act: Callable[[Any], object]) -> None:
    """Call `act` when the pipeline is called for the `number`-th time, from 1."""
    calls = count(1)
    attached = VendiGuidedSDXLPipeline._attached

    def counted(self: Any, *args: Any) -> Any:
        if next(calls) == number:
            act(self)
        return attached(self, *args)

    patch.setattr(VendiGuidedSDXLPipeline, "_attached", counted)


def check_checkpoints(patch: pytest.MonkeyPatch) -> None:
    """Fail if a checkpoint is written before the images that it counts."""
    add = Checkpoints.add

    def add_checked(self: Checkpoints, progress: Progress, samples: Sequence[Finished]) -> None:
        assert len(list(self.folder.parent.glob("[0-9]*.png"))) >= progress.done
        add(self, progress, samples)

    patch.setattr(Checkpoints, "add", add_checked)


def put_in_cache(hub: Path, folder: Path) -> Path:
    """Copy a model into the cache as `hf download me/mine` would store it; returns its folder."""
    commit = "0" * 40
    snapshot = hub / "models--me--mine" / "snapshots" / commit
    shutil.copytree(folder, snapshot)
    (hub / "models--me--mine" / "refs").mkdir()
    (hub / "models--me--mine" / "refs" / "main").write_text(commit)
    return snapshot
