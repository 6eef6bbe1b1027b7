"""The letters that the flow demo is trained on, as the repository keeps them."""

from pathlib import Path

import click
import numpy as np
import torch

from scripts.demo.cards import write_card
from scripts.demo.letters import ATTRIBUTES, CONCEPTS, Letters, caption, fetch, load, values_of
from scripts.demo.sheets import read_sheet, write_sheets

SHEET_FACES = "faces.txt"
STEP = 17  # between shades of grey


def save_sheets(letters: Letters, folder: Path) -> None:
    """Write one WebP a class, a row a letter and a column a face, and what the faces are, one a
    line: "gelasio, serif, bold, italic". The 16 shades of grey make the files a third smaller."""
    images = letters.images.unflatten(0, letters.pixels.shape[:2])
    images = ((images / STEP).round() * STEP).to(torch.uint8)
    sheets = {
        name: images[:, torch.from_numpy(letters.kinds[:, 0] == group)]
        for group, name in enumerate(ATTRIBUTES["class"])
    }
    looks = map(values_of, letters.kinds)
    faces = [caption(family, *look) for family, look in zip(letters.families, looks, strict=True)]
    write_sheets(folder, sheets, SHEET_FACES, faces)


def load_sheets(folder: Path) -> Letters:
    """Read what `save_sheets` wrote.

    Raises:
        ValueError: a sheet cannot be read or has another size than its faces say, or a face is of
            no known look.
        FileNotFoundError: a file is missing.
    """
    names = folder / SHEET_FACES
    lines = names.read_text(encoding="utf-8").splitlines()
    families, kinds = zip(*(_face(line, names) for line in lines), strict=True)
    sheets = [
        read_sheet(folder / f"{name}.webp", len(CONCEPTS), [kind[0] for kind in kinds].count(group))
        for group, name in enumerate(ATTRIBUTES["class"])
    ]
    return Letters(families, np.array(kinds), torch.cat(sheets, dim=1)[:, :, 0])


def _face(line: str, file: Path) -> tuple[str, tuple[int, ...]]:
    """A family and its (class, weight, slant), from a line of the faces' file."""
    family, *look = line.split(", ")
    for kind in np.ndindex(*map(len, ATTRIBUTES.values())):
        if list(values_of(kind)) == look:
            return family, kind
    raise ValueError(f"{file} says {line!r}, where a face is like 'gelasio, serif, bold, italic'")


@click.command(context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path), default="out/letters", help="Typefaces.")
@click.option("--output", type=click.Path(path_type=Path), default="assets/demo-letters")
def main(data: Path, output: Path) -> None:
    """Write the training images, one sheet a class. Fetches missing npm packages."""
    fetch(data)
    letters = load(data)
    letters = letters.where(~letters.held_out)
    save_sheets(letters, output)
    write_card(output, images=letters)
    click.echo(f"{len(letters.families)} faces of {len(CONCEPTS)} letters in {output}")


if __name__ == "__main__":
    main()
