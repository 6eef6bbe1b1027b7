"""Generates and scores the trials that are not cached yet."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from PIL import Image

from scripts.comparison.cache import Cache
from scripts.comparison.candidates import Candidate
from scripts.comparison.measures import Scores
from scripts.comparison.prompts import Prompt
from scripts.comparison.scorer import Scorer
from scripts.comparison.trials import How, ImageGenerator, Report, Trial, parts
from vendi_guidance.comparison.baselines import Unguided
from vendi_guidance.comparison.methods import Sample
from vendi_guidance.features.probe import Look

NAMED_SEED = 1_000_000
"""The first seed of named images."""

TOGETHER = 4
"""Concepts whose named images are generated together: 72 images make full batches."""

OVERHEAD = 1.1
"""Time per step over that of an unguided one, scoring included, on average over all methods."""


@dataclass(frozen=True)
class Runner:
    """Runs trials.

    Attributes:
        generator: makes the images.
        scorer: measures them.
        cache: keeps the results.
        guidance_scale, how: of named images: every trial is compared with the same ones.
    """

    generator: ImageGenerator
    scorer: Scorer
    cache: Cache
    guidance_scale: float
    how: How

    def measure(self, trial: Trial, report: Report = lambda _steps: None) -> Scores:
        """The measures of a trial, from the cache if they are there.

        Args:
            report: called after each call of the pipeline with its steps of single images.
        """
        known = self.cache.load(trial)
        if known is not None:
            return known
        named = self.named(_open(trial), report)
        images, seconds, evaluations = self.generator.run(trial, report)
        prompts = [sample.prompt for batch in trial.batches() for sample in batch]
        scores = self.scorer.measure(images, prompts, named, seconds, evaluations)
        self.cache.save(trial, scores, images, prompts)
        return scores

    def named(
        self, concepts: Sequence[str], report: Report = lambda _steps: None
    ) -> dict[Look, Image.Image]:
        """An unguided image of every look of some concepts, whose prompt names the look."""
        absent = [one for one in concepts if self._named(one) is None]
        for some in parts(absent, TOGETHER):
            samples = [sample for concept in some for sample in self._named_samples(concept)]
            batches = parts(samples, self.how.batch_size)
            drawn = self.generator.draw(Unguided(), batches, self.guidance_scale, self.how, report)
            images = iter(drawn.images)
            for concept in some:
                looks = self.scorer.training.looks([concept])
                self.cache.save_named(concept, list(islice(images, len(looks))))
        found: dict[Look, Image.Image] = {}
        for concept in concepts:
            found |= self._named(concept) or {}
        return found

    def share_as_named(self, concepts: Sequence[str]) -> float:
        """The share of named images that show what was named."""
        named = self.named(concepts)
        words = self.scorer.probe.words
        pairs = [(image, Prompt(words(look), look)) for look, image in named.items()]
        shares = self.scorer.kept(pairs)
        return sum(shares.values()) / len(shares)

    def missing(self, trials: Iterable[Trial]) -> tuple[int, int]:
        """How many images these trials still need, and how many denoising steps of single
        images."""
        absent = [trial for trial in trials if self.cache.load(trial) is None]
        concepts = {concept for trial in absent for concept in _open(trial)}
        absent_sets = [concept for concept in concepts if self._named(concept) is None]
        named = len(self.scorer.training.looks(absent_sets))
        pictures = sum(trial.pictures for trial in absent) + named
        return pictures, sum(trial.steps for trial in absent) + named * self.how.steps

    def rehearse(self, candidates: Iterable[Candidate], prompt: Prompt) -> float:
        """Two steps of each candidate, to fail early; then time a full batch, unguided.

        Returns:
            Seconds per step of an image.

        Raises:
            ValueError: a method does not go with this model.
        """
        short = self.how._replace(steps=2)
        pair = [[Sample(prompt, 0), Sample(prompt, 1)]]
        for candidate in candidates:
            self.generator.draw(candidate.build(), pair, candidate.guidance_scale, short)
        batch = [Sample(prompt, i) for i in range(self.how.batch_size)]
        drawn = self.generator.draw(Unguided(), [batch], self.guidance_scale, self.how)
        return drawn.seconds / len(batch) / self.how.steps

    def _named_samples(self, concept: str) -> list[Sample]:
        looks = self.scorer.training.looks([concept])
        place = self.scorer.training.concepts.index(concept)
        first, words = NAMED_SEED + place * len(looks), self.scorer.probe.words
        return [Sample(Prompt(words(look), look), first + i) for i, look in enumerate(looks)]

    def _named(self, concept: str) -> dict[Look, Image.Image] | None:
        return self.cache.load_named(self.scorer.training.looks([concept]))


def _open(trial: Trial) -> list[str]:
    return [prompt.concept for prompt in trial.prompts if prompt.is_open]


def minutes(steps: int, each: float) -> float:
    """The estimated time, from the steps of single images and the seconds of an unguided one."""
    return steps * each * OVERHEAD / 60
