"""Prompts of the emoji world, and its probe with random weights."""

from scripts.comparison.prompts import Prompt
from scripts.demo.emoji import CAPTION, TONES, VENDORS, caption
from vendi_guidance.features.probe import Probe


def asked(concept: str, vendor: str | None = None, tone: str | None = None) -> Prompt:
    """A prompt that names some of a look."""
    return Prompt(caption(concept, vendor, tone), (concept, vendor, tone))


def emoji_probe(concepts: list[str]) -> Probe:
    return Probe(concepts, [("vendor", VENDORS), ("tone", TONES)], CAPTION)
