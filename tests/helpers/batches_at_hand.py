"""Small batches, and embedders with known features, for the tests of reports."""

import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.evaluator import Report, evaluate
from vendi_guidance.evaluation.judges import Judges
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
"""Random unit vectors: different prompts are far apart."""

EMBEDDING = Embedding(COLOURS, WORDS, Gaussian(1.0), Gaussian(0.3))
OF_EMBEDDING, OF_JUDGES = ({f.name for f in fields(kind)} for kind in (Embedding, Judges))


KNOWN = {"cat", "dog"}


def labels_of(asked: list[str], shown: list[str]) -> Labels:
    """Labels with alternating variants; a prompt asks for the concept before its comma."""
    words = [prompt.split(",")[0].lower() for prompt in asked]
    variants = ["left", "right"] * len(asked)
    return Labels([w if w in KNOWN else None for w in words], shown, variants[: len(asked)])


def sample_images(
    count: int, spread: float = 60, seed: int = 0, kinds: int = 8
) -> list[Image.Image]:
    """Images of a single colour: `kinds` colours in turn, varied by up to `spread`."""
    rng = np.random.default_rng(seed)
    base = np.random.default_rng(99).uniform(spread, 255 - spread, size=(kinds, 3))
    colours = base[np.arange(count) // -(-count // kinds)] + spread * rng.uniform(-1, 1, (count, 3))
    return [Image.new("RGB", (8, 8), tuple(map(int, colour.clip(0, 255)))) for colour in colours]


def greys(*levels: float) -> list[Image.Image]:
    return [Image.new("RGB", (8, 8), (int(level),) * 3) for level in levels]


def save_batch(
    folder: Path, images: Iterable[Image.Image], rows: Iterable[Mapping[str, Any]]
) -> Path:
    """Save 0.png, 1.png, ... and `metadata.jsonl` in a folder, which is created if missing."""
    folder.mkdir(exist_ok=True)
    lines = []
    for number, (image, row) in enumerate(zip(images, rows, strict=True)):
        image.save(folder / f"{number}.png")
        lines.append(json.dumps({"file_name": f"{number}.png", **row}))
    (folder / "metadata.jsonl").write_text("\n".join(lines))
    return folder


def prompts(count: int, kinds: int = 8) -> list[str]:
    """Prompts for `sample_images`: the same number of each kind, in the same order."""
    return [f"prompt {i // -(-count // kinds)}" for i in range(count)]


def report_of(count: int = 64, spread: float = 60, *, seed: int = 0, **more) -> Report:
    """A report of `sample_images`; `more` are fields of `Embedding` or `Judges`, or arguments."""
    given = {"prompts": prompts(count), "name": f"spread {spread}"} | more
    embedding, judges = (
        {name: given.pop(name) for name in names & given.keys()}
        for names in (OF_EMBEDDING, OF_JUDGES)
    )
    rows = [{"seconds": value} for value in given.pop("seconds", [])] or None
    given |= {"embedding": replace(EMBEDDING, **embedding), "judges": Judges(**judges)}
    images = as_batch(sample_images(count, spread, seed))
    return evaluate(replace(images, rows=rows), **given)


def save_tar(path: Path, contents: dict[str, bytes]) -> None:
    """A `.tar` file with these members; a name that ends in "link.png" is a link to its content."""
    with tarfile.open(path, "w") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            if name.endswith("link.png"):
                member.type, member.linkname = tarfile.SYMTYPE, content.decode()
            else:
                member.size = len(content)
            tar.addfile(member, BytesIO(content))
