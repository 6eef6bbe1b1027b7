"""What a run makes: its images, in the order of their making."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from vendi_guidance.runs.manifest import Manifest
from vendi_guidance.storage.imagefolder import image_name
from vendi_guidance.storage.prompt_files import Prompts


class Item(NamedTuple):
    """An image to be generated."""

    number: int
    prompt: str


@dataclass(frozen=True)
class Plan:
    """What a run makes. Image number i is made from seed + i, whatever is made before it."""

    prompts: Prompts  # in order
    images_per_prompt: int
    at_a_time: int  # images of one prompt before the next prompt's turn, where several take turns
    seed: int  # of the first image
    call: dict[str, Any]  # arguments of each pipeline call besides prompts and generators
    negative_prompt: str | None  # of every image
    about: dict[str, Any]  # what `metadata.jsonl` says of each image besides prompt and seed
    origin: dict[str, Any] | None  # what each PNG file says besides; None: it says nothing at all
    manifest: Manifest  # the settings and inputs that all this comes from

    @property
    def total(self) -> int:
        return self.prompts.count * self.images_per_prompt

    def items(self, done: int, side_by_side: int) -> Iterator[Item]:
        """The images in the order of their making, without the first `done`.

        Args:
            side_by_side: how many prompts take turns, a batch each. So processes work on different
                prompts, and the images of a prompt are guided away from one another.
        """
        each = self.images_per_prompt
        groups, more = divmod(done, side_by_side * each)
        first = groups * side_by_side
        numbered = enumerate(self.prompts.starting_at(first), start=first)
        items = (
            Item(place * each + i, text)
            for group in iter(lambda: list(islice(numbered, side_by_side)), [])
            for start in range(0, each, self.at_a_time)
            for place, text in group
            for i in range(start, min(start + self.at_a_time, each))
        )
        return islice(items, more, None)

    def arguments(self, items: list[Item]) -> dict[str, Any]:
        """What to call the pipeline with for these images, besides generators."""
        given: dict[str, Any] = {"prompt": [item.prompt for item in items], **self.call}
        if self.negative_prompt is not None:
            given["negative_prompt"] = [self.negative_prompt] * len(items)
        return given

    def row(self, item: Item, batch_size: int, processes: int) -> dict[str, Any]:
        """The line of metadata about an image that was made in such a batch."""
        return {
            "file_name": image_name(item.number),
            "prompt": item.prompt,
            "seed": self.seed + item.number,
            **self.about,
            "batch_size": batch_size,
            "processes": processes,
        }
