"""What a run makes: its images, in the order of their making."""

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
    """What a run makes. Image number i is made from seed + i, whatever is made before it.

    Where several prompts take turns, each has `options.batch_size` images before the next.
    """

    options: RunOptions
    prompts: Prompts  # in order
    sampling: Sampling
    about: dict[str, Any]  # what `metadata.jsonl` says of each image besides prompt and seed
    manifest: Manifest  # the settings and inputs that all this comes from

    @property
    def total(self) -> int:
        return self.prompts.count * self.options.images_per_prompt

    def items(self, done: int, side_by_side: int) -> Iterator[Item]:
        """The images in the order of their making, without the first `done`.

        Args:
            side_by_side: how many prompts take turns, a batch each. So processes work on different
                prompts, and the images of a prompt are guided away from one another.
        """
        each, turn = self.options.images_per_prompt, self.options.batch_size
        groups, more = divmod(done, side_by_side * each)
        first = groups * side_by_side
        numbered = enumerate(self.prompts.starting_at(first), start=first)
        items = (
            Item(place * each + i, text)
            for group in iter(lambda: list(islice(numbered, side_by_side)), [])
            for start in range(0, each, turn)
            for place, text in group
            for i in range(start, min(start + turn, each))
        )
        return islice(items, more, None)

    @property
    def origin(self) -> dict[str, Any] | None:
        """What each PNG file says besides `row`; None: it says nothing at all."""
        if self.options.no_metadata:
            return None
        inputs = self.manifest.inputs
        of_model = {name: inputs[name] for name in ("model", "lora") if name in inputs}
        hashes = {f"{name}_sha256": one.sha256 for name, one in of_model.items() if one}
        return {**hashes, "versions": self.manifest.versions}

    def row(self, item: Item, batch_size: int, processes: int) -> dict[str, Any]:
        """The line of metadata about an image that was made in such a batch."""
        return {
            "file_name": image_name(item.number),
            "prompt": item.prompt,
            "seed": self.options.seed + item.number,
            **self.about,
            "batch_size": batch_size,
            "processes": processes,
        }
