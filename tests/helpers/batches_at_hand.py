"""Small batches and embedders whose features are known, for the tests of reports."""

import numpy as np
from PIL import Image

from vendi_guidance.evaluation.evaluator import Report, evaluate
from vendi_guidance.features.base import FromFunction, Labels
from vendi_guidance.kernels.standard import Gaussian

COLOURS = FromFunction(
    lambda images: np.stack([np.asarray(i, float).mean(axis=(0, 1)) / 50 for i in images]),
    "colours",
    {"weights": "none"},
)


def _directions(prompts):
    seeds = [list(prompt.encode("utf-8", "surrogatepass")) for prompt in prompts]
    rows = [np.random.default_rng(seed).normal(size=16) for seed in seeds]
    return np.stack([row / np.linalg.norm(row) for row in rows])


WORDS = FromFunction(_directions, "words")
"""Far from one another, at unit length."""

SETTINGS = {
    "image_embedder": COLOURS,
    "prompt_embedder": WORDS,
    "kernel_image": Gaussian(1.0),
    "kernel_prompt": Gaussian(0.3),
}


KNOWN = {"cat", "dog"}


def labels_of(asked: list[str], shown: list[str]) -> Labels:
    """Labels whose variants alternate; what a prompt asks for stands before its comma."""
    words = [prompt.split(",")[0].lower() for prompt in asked]
    variants = ["left", "right"] * len(asked)
    return Labels([w if w in KNOWN else None for w in words], shown, variants[: len(asked)])


def sample_images(
    count: int, spread: float = 60, seed: int = 0, kinds: int = 8
) -> list[Image.Image]:
    """Pictures of one colour: `kinds` of them in turn, and `spread` around each."""
    rng = np.random.default_rng(seed)
    base = np.random.default_rng(99).uniform(spread, 255 - spread, size=(kinds, 3))
    colours = base[np.arange(count) // -(-count // kinds)] + spread * rng.uniform(-1, 1, (count, 3))
    return [Image.new("RGB", (8, 8), tuple(map(int, colour.clip(0, 255)))) for colour in colours]


def prompts(count: int, kinds: int = 8) -> list[str]:
    """As many prompts of each kind, in the order of `sample_images`."""
    return [f"prompt {i // -(-count // kinds)}" for i in range(count)]


def report_of(count: int = 64, spread: float = 60, *, seed: int = 0, **more) -> Report:
    given = {"prompts": prompts(count), "name": f"spread {spread}"} | SETTINGS | more
    return evaluate(sample_images(count, spread, seed), **given)
