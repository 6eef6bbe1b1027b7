"""Guidance as published: a move along the score's gradient after every N-th step (Jalali et al.,
AISTATS 2026)."""

from dataclasses import replace

from vendi_guidance.guidance.score import Score
from vendi_guidance.guidance.settings import Published
from vendi_guidance.guidance.step import Step
from vendi_guidance.guidance.ways.stock import Way


class AsPublished(Way):
    """Moves of a fixed length. Where one is due and cannot be made, it is after the next step."""

    title = "guided as published"

    def __init__(self, score: Score, settings: Published) -> None:
        self._score, self._settings = score, settings
        self._last = -1  # the step after which the last move was made

    def is_due(self, step: Step) -> bool:
        every = self._settings.every
        return not step.is_last and step.index // every > self._last // every

    def on_step(self, step: Step) -> Step:
        self._last, score = step.index, self._score
        moved = score.move(step.latents, score.gradient(step), self._settings.scale)
        return replace(step, latents=moved)
