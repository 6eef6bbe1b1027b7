"""Draws and measures runs of the comparison, but for what is there already."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from scripts.comparison.baselines import Unguided
from scripts.comparison.cache import Archive
from scripts.comparison.candidates import Contender
from scripts.comparison.scorer import Judge, Look, Values, looks_of
from scripts.comparison.trials import Shot, Studio, Unit, parts
from scripts.demo.emoji import caption

NAMED_SEED = 1_000_000
"""Named pictures are drawn from here on."""

TOGETHER = 4
"""Concepts whose named pictures are drawn in one go: 72 pictures make full batches."""

JUDGING = 0.008
"""Seconds that measuring takes for a picture, about, on two cores."""

OVERHEAD = 1.05
"""What a picture takes, on average over all methods, for a second of an unguided one."""


@dataclass(frozen=True)
class Lab:
    """Everything that a run needs.

    Attributes:
        studio: where pictures are drawn.
        judge: measures them.
        archive: keeps the results.
        guidance_scale: of classifier-free guidance, for named pictures: every method is held
            against the same ones, what it may do with the scale.
    """

    studio: Studio
    judge: Judge
    archive: Archive
    guidance_scale: float

    def measure(self, unit: Unit, drawn: Callable[[int], Any] = lambda _count: None) -> Values:
        """A run's measures, as they are kept.

        Args:
            drawn: told how many pictures were drawn, whenever some were.
        """
        known = self.archive.load(unit)
        if known is not None:
            return known
        named = self.named(unit.prompts, unit.sampler, drawn)
        images, seconds = self.studio.run(unit, drawn)
        shots = [shot for batch in unit.batches(self.studio.batch_size) for shot in batch]
        pairs = list(zip(images, shots, strict=True))
        own = [image for image, shot in pairs if shot.tone is None]
        prompts = [shot.prompt for shot in shots if shot.tone is None]
        values = self.judge.measure(own, prompts, named, seconds * len(own) / len(images))
        values["tones_as_named"] = self.judge.share_as_named(
            [image for image, shot in pairs if shot.tone is not None],
            [(shot.prompt, None, shot.tone) for shot in shots if shot.tone is not None],
        )
        self.archive.save(unit, values, own, prompts)
        return values

    def named(
        self,
        concepts: Sequence[str],
        sampler: str,
        drawn: Callable[[int], Any] = lambda _count: None,
    ) -> dict[Look, Image.Image]:
        """A picture of every look of some concepts, each asked for by name, drawn unguided."""
        load, scale = self.archive.load_named, self.guidance_scale
        absent = [one for one in concepts if load(one, scale, sampler) is None]
        for some in parts(absent, TOGETHER):
            shots = [shot for concept in some for shot in self._named_shots(concept)]
            batches = parts(shots, self.studio.batch_size)
            images, _ = self.studio.draw(Unguided(), batches, scale, sampler, drawn)
            for concept, own in zip(some, parts(images, len(images) // len(some)), strict=True):
                self.archive.save_named(concept, scale, sampler, own)
        found: dict[Look, Image.Image] = {}
        for concept in concepts:
            found |= load(concept, scale, sampler) or {}
        return found

    def missing(self, units: Iterable[Unit]) -> int:
        """How many pictures have yet to be drawn for these."""
        absent = [unit for unit in units if self.archive.load(unit) is None]
        needed = {(concept, unit.sampler) for unit in absent for concept in unit.prompts}
        sets = sum(
            self.archive.load_named(concept, self.guidance_scale, sampler) is None
            for concept, sampler in needed
        )
        return sum(unit.pictures for unit in absent) + len(looks_of([""])) * sets

    def rehearse(self, contenders: Iterable[Contender], prompt: str) -> float:
        """Two steps of each, so that what cannot work fails now; then a full batch, unguided.

        Returns:
            Seconds a picture.

        Raises:
            ValueError: a method does not go with this model.
        """
        own = next(iter(self.studio.samplers))
        short, pair = replace(self.studio, steps=2), [[Shot(prompt, 0), Shot(prompt, 1)]]
        for contender in contenders:
            short.draw(contender.build(), pair, contender.guidance_scale, own)
        batch = [Shot(prompt, i) for i in range(self.studio.batch_size)]
        _, seconds = self.studio.draw(Unguided(), [batch], self.guidance_scale, own)
        return seconds / len(batch)

    def _named_shots(self, concept: str) -> list[Shot]:
        looks = looks_of([concept])
        place = self.judge.training.concepts.index(concept)
        first = NAMED_SEED + place * len(looks)
        return [Shot(caption(*look), first + i) for i, look in enumerate(looks)]


def minutes(pictures: int, each: float) -> float:
    """About how long drawing and measuring take.

    Args:
        pictures: that have to be drawn.
        each: seconds an unguided one takes.
    """
    return pictures * (each * OVERHEAD + JUDGING) / 60
