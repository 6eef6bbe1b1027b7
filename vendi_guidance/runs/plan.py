"""The plan of a run: its images, in the order in which they are generated."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from vendi_guidance.runs.manifest import Manifest
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.sampling import Sampling
from vendi_guidance.storage.imagefolder import image_name
from vendi_guidance.storage.prompt_files import Prompts


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

        Args:
            side_by_side: number of prompts that take turns, a batch of `options.batch_size` images
                each. Processes thus work on different prompts, and the images of a prompt are
                guided away from one another.
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
        files = [(name, self.manifest.inputs.get(name)) for name in ("model", "lora")]
        hashes = {f"{name}_sha256": file.sha256 for name, file in files if file is not None}
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
