"""Generates and scores the trials that are not cached yet."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL import Image

from scripts.comparison.baselines import Unguided
from scripts.comparison.cache import Cache
from scripts.comparison.candidates import Candidate
from scripts.comparison.scorer import Look, Scorer, Values, looks_of
from scripts.comparison.trials import ImageGenerator, Sample, Trial, parts
from scripts.demo.emoji import caption

NAMED_SEED = 1_000_000
"""The first seed of named images."""

TOGETHER = 4
"""Concepts whose named images are generated together: 72 images make full batches."""

SCORING = 0.008
"""Seconds to score an image, about, on two cores."""

OVERHEAD = 1.05
"""Time per image over that of an unguided one, on average over all methods."""


@dataclass(frozen=True)
class Runner:
    """Runs trials.

    Attributes:
        generator: makes the images.
        scorer: measures them.
        cache: keeps the results.
        guidance_scale: of classifier-free guidance, for named images: every method is compared
            with the same ones, whatever scale it uses itself.
    """

    generator: ImageGenerator
    scorer: Scorer
    cache: Cache
    guidance_scale: float

    def measure(self, trial: Trial, drawn: Callable[[int], Any] = lambda _count: None) -> Values:
        """The measures of a trial, from the cache if they are there.

        Args:
            drawn: called with the number of images after each batch.
        """
        known = self.cache.load(trial)
        if known is not None:
            return known
        named = self.named(trial.prompts, trial.sampler, drawn)
        images, seconds = self.generator.run(trial, drawn)
        samples = [sample for batch in trial.batches(self.generator.batch_size) for sample in batch]
        pairs = list(zip(images, samples, strict=True))
        own = [image for image, sample in pairs if sample.tone is None]
        prompts = [sample.prompt for sample in samples if sample.tone is None]
        values = self.scorer.measure(own, prompts, named, seconds * len(own) / len(images))
        values["tones_as_named"] = self.scorer.share_as_named(
            [image for image, sample in pairs if sample.tone is not None],
            [(sample.prompt, None, sample.tone) for sample in samples if sample.tone is not None],
        )
        self.cache.save(trial, values, own, prompts)
        return values

    def named(
        self,
        concepts: Sequence[str],
        sampler: str,
        drawn: Callable[[int], Any] = lambda _count: None,
    ) -> dict[Look, Image.Image]:
        """An unguided image of every look of some concepts, whose prompt names the look."""
        load, scale = self.cache.load_named, self.guidance_scale
        absent = [one for one in concepts if load(one, scale, sampler) is None]
        for some in parts(absent, TOGETHER):
            samples = [sample for concept in some for sample in self._named_samples(concept)]
            batches = parts(samples, self.generator.batch_size)
            images, _ = self.generator.draw(Unguided(), batches, scale, sampler, drawn)
            for concept, own in zip(some, parts(images, len(images) // len(some)), strict=True):
                self.cache.save_named(concept, scale, sampler, own)
        found: dict[Look, Image.Image] = {}
        for concept in concepts:
            found |= load(concept, scale, sampler) or {}
        return found

    def missing(self, trials: Iterable[Trial]) -> int:
        """How many images these trials still need."""
        absent = [trial for trial in trials if self.cache.load(trial) is None]
        needed = {(concept, trial.sampler) for trial in absent for concept in trial.prompts}
        sets = sum(
            self.cache.load_named(concept, self.guidance_scale, sampler) is None
            for concept, sampler in needed
        )
        return sum(trial.pictures for trial in absent) + len(looks_of([""])) * sets

    def rehearse(self, candidates: Iterable[Candidate], prompt: str) -> float:
        """Two steps of each candidate, to fail early; then time a full batch, unguided.

        Returns:
            Seconds per image.

        Raises:
            ValueError: a method does not go with this model.
        """
        own = next(iter(self.generator.samplers))
        short, pair = replace(self.generator, steps=2), [[Sample(prompt, 0), Sample(prompt, 1)]]
        for candidate in candidates:
            short.draw(candidate.build(), pair, candidate.guidance_scale, own)
        batch = [Sample(prompt, i) for i in range(self.generator.batch_size)]
        _, seconds = self.generator.draw(Unguided(), [batch], self.guidance_scale, own)
        return seconds / len(batch)

    def _named_samples(self, concept: str) -> list[Sample]:
        looks = looks_of([concept])
        place = self.scorer.training.concepts.index(concept)
        first = NAMED_SEED + place * len(looks)
        return [Sample(caption(*look), first + i) for i, look in enumerate(looks)]


def minutes(pictures: int, each: float) -> float:
    """The estimated time, from the number of images and the seconds of an unguided one."""
    return pictures * (each * OVERHEAD + SCORING) / 60
