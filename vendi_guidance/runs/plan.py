"""What a run makes: its pictures, in the order of their making."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from vendi_guidance.runs.manifest import Manifest
from vendi_guidance.storage.imagefolder import picture_name
from vendi_guidance.storage.prompt_files import Prompts


class Item(NamedTuple):
    """A picture to be made."""

    number: int
    prompt: str


@dataclass(frozen=True)
class Plan:
    """What a run makes. Picture number i is made from seed + i, whatever is made before it.

    Attributes:
        prompts: in order.
        images_per_prompt: how many pictures of each.
        at_a_time: how many pictures of one prompt are made before the next prompt's turn, where
            several prompts are made side by side.
        seed: of the first picture.
        call: arguments of each pipeline call besides prompts and generators.
        about: what `metadata.jsonl` says of each picture besides its prompt and seed.
        origin: what each PNG file says besides all that; None writes nothing into the files.
        manifest: the settings and inputs that all this comes from.
    """

    prompts: Prompts
    images_per_prompt: int
    at_a_time: int
    seed: int
    call: dict[str, Any]
    about: dict[str, Any]
    origin: dict[str, Any] | None
    manifest: Manifest

    @property
    def total(self) -> int:
        return self.prompts.count * self.images_per_prompt

    def items(self, done: int, side_by_side: int) -> Iterator[Item]:
        """The pictures in the order of their making, without the first `done`.

        Args:
            side_by_side: how many prompts take turns, a batch each. So processes work on different
                prompts, and the pictures of a prompt are guided away from one another.
        """
        groups, more = divmod(done, side_by_side * self.images_per_prompt)
        first = groups * side_by_side
        numbered = enumerate(self.prompts.starting_at(first), start=first)
        return islice(self._in_groups(numbered, side_by_side), more, None)

    def _in_groups(self, prompts: Iterator[tuple[int, str]], size: int) -> Iterator[Item]:
        while group := list(islice(prompts, size)):
            for start in range(0, self.images_per_prompt, self.at_a_time):
                stop = min(start + self.at_a_time, self.images_per_prompt)
                for place, text in group:
                    for i in range(start, stop):
                        yield Item(place * self.images_per_prompt + i, text)

    def seed_of(self, item: Item) -> int:
        return self.seed + item.number

    def row(self, item: Item, batch_size: int, processes: int) -> dict[str, Any]:
        """The line of metadata about a picture that was made in such a batch."""
        return {
            "file_name": picture_name(item.number),
            "prompt": item.prompt,
            "seed": self.seed_of(item),
            **self.about,
            "batch_size": batch_size,
            "processes": processes,
        }
