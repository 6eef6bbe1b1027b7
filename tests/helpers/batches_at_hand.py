"""Small batches and embedders whose features are known, for the tests of reports."""

import numpy as np
from PIL import Image

from vendi_guidance.evaluation.evaluator import Report, evaluate
from vendi_guidance.features.base import FromFunction
from vendi_guidance.features.probe import Looks, Probe
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


class Told(Probe):
    """A probe that knows what it sees."""

    def __init__(self, concepts: list[str]) -> None:
        super().__init__(["cat", "dog"], ["noto", "fluent"], ["light", "dark"])
        self.seen = [
            (c, v, "dark") for c, v in zip(concepts, ["noto", "fluent"] * 99, strict=False)
        ]

    def looks(self, images):
        concepts, vendors, tones = zip(*self.seen[: len(images)], strict=True)
        return Looks(list(concepts), list(vendors), list(tones))


def squares(count: int, spread: float = 60, seed: int = 0, kinds: int = 8) -> list[Image.Image]:
    """Pictures of one colour: `kinds` of them in turn, and `spread` around each."""
    rng = np.random.default_rng(seed)
    base = np.random.default_rng(99).uniform(spread, 255 - spread, size=(kinds, 3))
    colours = base[np.arange(count) // -(-count // kinds)] + spread * rng.uniform(-1, 1, (count, 3))
    return [Image.new("RGB", (8, 8), tuple(map(int, colour.clip(0, 255)))) for colour in colours]


def prompts(count: int, kinds: int = 8) -> list[str]:
    """As many prompts of each kind, in the order of `squares`."""
    return [f"prompt {i // -(-count // kinds)}" for i in range(count)]


def report_of(count: int = 64, spread: float = 60, *, seed: int = 0, **more) -> Report:
    given = {"prompts": prompts(count), "name": f"spread {spread}"} | SETTINGS | more
    return evaluate(squares(count, spread, seed), **given)
