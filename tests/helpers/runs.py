"""A run read back."""

from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.storage.imagefolder import read_metadata


class Run(NamedTuple):
    """What `metadata.jsonl` says of each image, and the images."""

    rows: list[dict[str, Any]]
    images: list[Image.Image]

    @property
    def prompts(self) -> list[str]:
        return [row["prompt"] for row in self.rows]


def read_run(folder: Path) -> Run:
    return Run([listed.row for listed in read_metadata(folder)], list(as_batch(folder).images))
