"""The demo model's images: emoji artwork of three vendors, with names, tones and captions.

Every image has a known (concept, vendor, tone), including what its caption leaves open. Sources and
licences are in `PACKAGES` and in the model cards.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vendi_guidance.evaluation.embedding import IMAGE_SIGMAS, PROMPT_SIGMAS
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.images import open_image

SIZE = 64  # pixels

PACKAGES = {  # vendor -> npm package, licence of its artwork
    "noto": ("emoji-datasource-google@16.0.0", "Noto Emoji, Apache-2.0"),
    "twemoji": ("emoji-datasource-twitter@16.0.0", "Twemoji, CC-BY 4.0"),
    "fluent": ("@lobehub/fluent-emoji-3d@1.1.0", "Fluent Emoji, MIT"),
}
VENDORS = tuple(PACKAGES)
TONES = ("yellow", "light", "medium-light", "medium", "medium-dark", "dark")
# Looks that captions leave open are as unbalanced as on the web, so that a model trained on them
# repeats itself as real models do.
VENDOR_SHARES = (0.60, 0.25, 0.15)
TONE_SHARES = (0.60, 0.08, 0.08, 0.08, 0.08, 0.08)
NAMED = 0.3  # share of captions that name the tone; independently, the vendor
EMPTY = 0.1  # share of empty captions, for classifier-free guidance

CAPTION = "{concept}, {tone} skin tone, {vendor} style"

KERNELS = Gaussian(IMAGE_SIGMAS["probe"]), Gaussian(PROMPT_SIGMAS["sdxl"])
"""Kernels on the probe's image features and the demo model's prompt features, as in `evaluate`."""

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
        """The full caption of each look."""
        return [caption(c, v, t) for c in self.concepts for v in VENDORS for t in TONES]

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
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
        looks = np.stack([concept, vendor, tone], axis=1)
        captions = [""] * count
        for row in np.flatnonzero(~empty):
            style = VENDORS[vendor[row]] if named[0, row] else None
            skin = TONES[tone[row]] if named[1, row] else None
            captions[row] = caption(self.concepts[concept[row]], style, skin)
        return looks, captions

    def images(self, concepts: Sequence[str]) -> list[Image.Image]:
        """An image of every look of these concepts, ordered by concept, vendor and tone."""
        rows = [self.concepts.index(concept) for concept in concepts]
        looks = self.pixels[rows].flatten(0, 2).permute(0, 2, 3, 1)
        return [Image.fromarray(look.numpy()) for look in looks]


def caption(concept: str, vendor: str | None = None, tone: str | None = None) -> str:
    """The caption of a look: "waving hand, dark skin tone, fluent style"."""
    words = [concept]
    if tone:
        words.append(f"{tone} skin tone")
    if vendor:
        words.append(f"{vendor} style")
    return ", ".join(words)


def fetch(folder: Path) -> None:
    """Unpack the npm packages that are missing under `folder`, one sub-folder per vendor."""
    for vendor, (package, _) in PACKAGES.items():
        if not (folder / vendor).exists():
            _fetch_package(package, folder / vendor)


def _fetch_package(package: str, target: Path) -> None:
    """Unpack an npm package, such as "name@1.0.0".

    Raises:
        click.UsageError: npm is missing, or cannot fetch the package.
    """
    if shutil.which("npm") is None:
        raise click.UsageError(
            f"npm is needed once, to fetch {package}: install Node.js, or unpack the package "
            f"into {target} yourself"
        )
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        command = ["npm", "pack", package, "--silent", "--pack-destination", temporary]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise click.UsageError(f"npm pack {package} failed: {reason}")
        [packed] = Path(temporary).glob("*.tgz")
        shutil.unpack_archive(packed, temporary, filter="data")
        (Path(temporary) / "package").rename(target)


def load(folder: Path) -> Emoji:
    """Read the images of hands, body parts and some people: the emoji that all vendors have in six
    tones. `folder` contains the packages, as `fetch` leaves them."""
    entries = json.loads((folder / "noto" / "emoji.json").read_text(encoding="utf-8"))
    complete = {entry["short_name"]: entry for entry in entries if _look_files(folder, entry)}
    hands = [key for key, entry in complete.items() if entry["subcategory"].startswith(_HANDS)]
    chosen = [complete[key] for key in (*hands, *_PEOPLE) if key != "middle_finger"]
    files = [_look_files(folder, entry) or [] for entry in chosen]
    pixels = [[[_read(file) for file in tones] for tones in vendors] for vendors in files]
    names = tuple(_name(entry["name"]) for entry in chosen)
    return Emoji(names, torch.from_numpy(np.array(pixels)))


def _name(name: str) -> str:
    return name.lower().removesuffix(" sign").removeprefix("white ").replace(":", " with")


def _look_files(folder: Path, entry: dict) -> list[list[Path]] | None:
    """[vendor][tone] image files of one entry of emoji.json, or None if a look is missing."""
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
    # The package swaps the names of two tones: its 1f3fc images are darker than its 1f3fd ones.
    for mine, theirs in (("1f3fc", "1f3fd"), ("1f3fd", "1f3fc")):
        if mine in code:
            code = code.replace(mine, theirs)
            break
    file = folder / "fluent/assets" / f"{code}.webp"
    return file if file.exists() else file.with_stem(code.replace("-fe0f", ""))


def _read(file: Path) -> np.ndarray:
    """(3, 64, 64) uint8, composited on white."""
    with Image.open(file) as opened:
        image = opened.convert("RGBA").resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    page = Image.new("RGBA", image.size, "white")
    page.alpha_composite(image)
    return np.asarray(page.convert("RGB")).transpose(2, 0, 1)


SHEET_CONCEPTS = "concepts.txt"


def save_sheets(emoji: Emoji, folder: Path) -> None:
    """Write one lossless WebP per vendor, with a row per concept and a column per tone, and a text
    file with the concept of each row."""
    folder.mkdir(parents=True, exist_ok=True)
    for vendor, images in zip(VENDORS, emoji.pixels.unbind(1), strict=True):
        rows = images.permute(0, 3, 1, 4, 2)  # concept, y, tone, x, colour
        sheet = Image.fromarray(rows.reshape(-1, images.shape[1] * SIZE, 3).contiguous().numpy())
        with whole_file(folder / f"{vendor}.webp") as temporary:
            sheet.save(temporary, format="WEBP", lossless=True, quality=100, method=6)
    with whole_file(folder / SHEET_CONCEPTS) as temporary:
        temporary.write_text("".join(f"{name}\n" for name in emoji.concepts), encoding="utf-8")


def load_sheets(folder: Path) -> Emoji:
    """Read what `save_sheets` wrote.

    Raises:
        ValueError: a sheet cannot be read, or its size does not match the list of concepts.
        FileNotFoundError: a file is missing.
    """
    concepts = tuple((folder / SHEET_CONCEPTS).read_text(encoding="utf-8").splitlines())
    looks = [_read_sheet(folder / f"{vendor}.webp", len(concepts)) for vendor in VENDORS]
    return Emoji(concepts, torch.stack(looks, dim=1))


def _read_sheet(file: Path, rows: int) -> Tensor:
    """(rows, tones, 3, 64, 64) uint8."""
    try:
        sheet = torch.from_numpy(np.array(open_image(file)))
    except ValueError as error:
        raise ValueError(f"the training images {file} cannot be read: {error}") from None
    expected = (rows * SIZE, len(TONES) * SIZE, 3)
    if sheet.shape != expected:
        height, width = sheet.shape[:2]
        raise ValueError(
            f"{file} has {width}x{height} pixels, but {rows} rows of {len(TONES)} images need "
            f"{expected[1]}x{expected[0]}"
        )
    return sheet.view(rows, SIZE, len(TONES), SIZE, 3).permute(0, 2, 4, 1, 3).contiguous()


@click.command(context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path), default="out/emoji", help="npm packages.")
@click.option("--output", type=click.Path(path_type=Path), default="assets/demo-pictures")
def main(data: Path, output: Path) -> None:
    """Write the training images, one sheet per vendor. Fetches missing npm packages."""
    fetch(data)
    emoji = load(data)
    save_sheets(emoji, output)
    click.echo(f"{len(emoji.concepts) * len(VENDORS) * len(TONES)} images in {output}")


if __name__ == "__main__":
    main()
