"""The demo model's images: emoji artwork of three vendors, with names, tones and captions.

Every image has a (concept, vendor, tone), so what a caption leaves open is known exactly. Sources
and licences are in `PACKAGES` and in the model cards.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from scripts.demo.packages import fetch_package
from scripts.demo.sheets import SIZE, read_sheet, write_sheets
from vendi_guidance.evaluation.embedding import IMAGE_SIGMAS, PROMPT_SIGMAS
from vendi_guidance.kernels.standard import Gaussian

PACKAGES = {  # vendor -> npm package, licence of its artwork
    "noto": ("emoji-datasource-google@16.0.0", "Noto Emoji, Apache-2.0"),
    "twemoji": ("emoji-datasource-twitter@16.0.0", "Twemoji, CC-BY 4.0"),
    "fluent": ("@lobehub/fluent-emoji-3d@1.1.0", "Fluent Emoji, MIT"),
}
VENDORS = tuple(PACKAGES)
TONES = ("yellow", "light", "medium-light", "medium", "medium-dark", "dark")
# Where the caption leaves them open, looks are as unbalanced as on the web: a model trained on them
# repeats itself, as real models do.
VENDOR_SHARES = (0.60, 0.25, 0.15)
TONE_SHARES = (0.60, 0.08, 0.08, 0.08, 0.08, 0.08)
NAMED = 0.3  # share of captions that name the tone; independently, the vendor
EMPTY = 0.1  # share of empty captions, for classifier-free guidance

CAPTION = "{concept}, {tone} skin tone, {vendor} style"

KERNELS = Gaussian(IMAGE_SIGMAS["probe"]), Gaussian(PROMPT_SIGMAS["sdxl"])
"""On the probe's features of images and the demo model's of prompts, as `evaluate` has them."""

_SKIN_CODES = ("1F3FB", "1F3FC", "1F3FD", "1F3FE", "1F3FF")
_HANDS = ("hand-", "hands", "body-parts")
_PEOPLE = (
    *("baby", "boy", "girl", "man", "woman", "older_man", "older_woman", "santa", "princess"),
    *("prince", "angel", "construction_worker", "guardsman", "cook", "farmer", "raising_hand"),
    "bearded_person",
)


@dataclass(frozen=True)
class Emoji:
    """The images of all looks of some concepts.

    Attributes:
        concepts: prompt-ready names, such as "waving hand".
        pixels: (concepts, vendors, tones, 3, 64, 64) uint8, on white.
    """

    concepts: tuple[str, ...]
    pixels: Tensor

    @property
    def captions(self) -> list[str]:
        """The words for each look."""
        return [caption(c, v, t) for c in self.concepts for v in VENDORS for t in TONES]

    def draw(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
        """`count` training pairs: (count, 3) indices (concept, vendor, tone) and their captions."""
        concept = rng.integers(len(self.concepts), size=count)
        named = rng.random((2, count)) < NAMED
        vendor = np.where(
            named[0], rng.integers(3, size=count), rng.choice(3, size=count, p=VENDOR_SHARES)
        )
        tone = np.where(
            named[1], rng.integers(6, size=count), rng.choice(6, size=count, p=TONE_SHARES)
        )
        empty = rng.random(count) < EMPTY
        vendors = [VENDORS[i] if said else None for said, i in zip(named[0], vendor, strict=True)]
        tones = [TONES[i] if said else None for said, i in zip(named[1], tone, strict=True)]
        captions = [
            "" if nothing else caption(self.concepts[i], *look)
            for nothing, i, *look in zip(empty, concept, vendors, tones, strict=True)
        ]
        return np.stack([concept, vendor, tone], axis=1), captions

    def images(self, concepts: Sequence[str]) -> list[Image.Image]:
        """An image of each look of some concepts: by concept as given, then by vendor and tone."""
        rows = [self.concepts.index(concept) for concept in concepts]
        looks = self.pixels[rows].flatten(0, 2).permute(0, 2, 3, 1)
        return [Image.fromarray(look.numpy()) for look in looks]


def caption(concept: str, vendor: str | None = None, tone: str | None = None) -> str:
    """The words for a look: "waving hand, dark skin tone, fluent style"."""
    words = [concept]
    if tone:
        words.append(f"{tone} skin tone")
    if vendor:
        words.append(f"{vendor} style")
    return ", ".join(words)


def fetch(folder: Path) -> None:
    """Unpack the npm packages that are missing under `folder`, a sub-folder a vendor."""
    for vendor, (package, _) in PACKAGES.items():
        fetch_package(package, folder / vendor)


def load(folder: Path) -> Emoji:
    """Read the images of hands, body parts and some people, those emoji that all vendors draw in
    six tones, from the packages under `folder`, where `fetch` put them."""
    entries = json.loads((folder / "noto" / "emoji.json").read_text(encoding="utf-8"))
    complete = {
        entry["short_name"]: (entry, looks)
        for entry in entries
        if (looks := _look_files(folder, entry)) is not None
    }
    hands = [key for key, (it, _) in complete.items() if it["subcategory"].startswith(_HANDS)]
    chosen = [*(key for key in hands if key != "middle_finger"), *_PEOPLE]
    pixels = [[[_read(file) for file in row] for row in complete[key][1]] for key in chosen]
    names = tuple(_name(complete[key][0]["name"]) for key in chosen)
    return Emoji(names, torch.from_numpy(np.array(pixels)))


def _name(name: str) -> str:
    return name.lower().removesuffix(" sign").removeprefix("white ").replace(":", " with")


def _look_files(folder: Path, entry: dict) -> list[list[Path]] | None:
    """[vendor][tone] image files of one entry of emoji.json, or None where a look is missing."""
    variants = entry.get("skin_variations", {})
    if not all(code in variants for code in _SKIN_CODES):
        return None
    tones = [entry, *(variants[code] for code in _SKIN_CODES)]
    rows = [
        [folder / "noto/img/google/64" / tone["image"] for tone in tones],
        [folder / "twemoji/img/twitter/64" / tone["image"] for tone in tones],
        [_fluent_file(folder, tone["unified"].lower()) for tone in tones],
    ]
    return rows if all(file.exists() for row in rows for file in row) else None


def _fluent_file(folder: Path, code: str) -> Path:
    # The package has two tones' names exchanged: its 1f3fc images are darker than its 1f3fd ones.
    for mine, theirs in (("1f3fc", "1f3fd"), ("1f3fd", "1f3fc")):
        if mine in code:
            code = code.replace(mine, theirs)
            break
    file = folder / "fluent/assets" / f"{code}.webp"
    return file if file.exists() else file.with_stem(code.replace("-fe0f", ""))


def _read(file: Path) -> np.ndarray:
    """(3, 64, 64) uint8, composed on white."""
    with Image.open(file) as opened:
        image = opened.convert("RGBA").resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    page = Image.new("RGBA", image.size, "white")
    page.alpha_composite(image)
    return np.asarray(page.convert("RGB")).transpose(2, 0, 1)


SHEET_CONCEPTS = "concepts.txt"


def save_sheets(emoji: Emoji, folder: Path) -> None:
    """Write one lossless WebP a vendor, a row a concept and a column a tone, and the concepts'
    names, one a line."""
    sheets = dict(zip(VENDORS, emoji.pixels.unbind(1), strict=True))
    write_sheets(folder, sheets, SHEET_CONCEPTS, emoji.concepts)


def load_sheets(folder: Path) -> Emoji:
    """Read what `save_sheets` wrote.

    Raises:
        ValueError: a sheet cannot be read, or has another size than its concepts say.
        FileNotFoundError: a file is missing.
    """
    concepts = tuple((folder / SHEET_CONCEPTS).read_text(encoding="utf-8").splitlines())
    looks = [read_sheet(folder / f"{v}.webp", len(concepts), len(TONES)) for v in VENDORS]
    return Emoji(concepts, torch.stack(looks, dim=1))


@click.command(context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path), default="out/emoji", help="npm packages.")
@click.option("--output", type=click.Path(path_type=Path), default="assets/demo-pictures")
def main(data: Path, output: Path) -> None:
    """Write the training images, one sheet a vendor. Fetches missing npm packages."""
    fetch(data)
    emoji = load(data)
    save_sheets(emoji, output)
    click.echo(f"{len(emoji.concepts) * len(VENDORS) * len(TONES)} images in {output}")


if __name__ == "__main__":
    main()
