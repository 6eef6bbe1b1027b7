"""Training images as the repository stores them: a grid of images in a lossless WebP file."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.images import open_image

SIZE = 64  # pixels


def write_sheets(
    folder: Path, sheets: Mapping[str, Tensor], listing: str, lines: Iterable[str]
) -> None:
    """Write a WebP for each named sheet, (rows, columns, 3, 64, 64) uint8, and the text file
    `listing` that says what the sheets show."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, images in sheets.items():
        rows = images.permute(0, 3, 1, 4, 2)  # row, y, column, x, colour
        sheet = Image.fromarray(rows.reshape(-1, images.shape[1] * SIZE, 3).contiguous().numpy())
        with whole_file(folder / f"{name}.webp") as temporary:
            sheet.save(temporary, format="WEBP", lossless=True, quality=100, method=6)
    with whole_file(folder / listing) as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_sheet(file: Path, rows: int, columns: int) -> Tensor:
    """Read a sheet of `write_sheets`: (rows, columns, 3, 64, 64) uint8.

    Raises:
        ValueError: the file cannot be read, or has the wrong size.
        FileNotFoundError: it is missing.
    """
    try:
        sheet = torch.from_numpy(np.array(open_image(file)))
    except ValueError as error:
        raise ValueError(f"the training images {file} cannot be read: {error}") from None
    expected = (rows * SIZE, columns * SIZE, 3)
    if sheet.shape != expected:
        height, width = sheet.shape[:2]
        raise ValueError(
            f"{file} has {width}x{height} pixels, but {rows} rows of {columns} images need "
            f"{expected[1]}x{expected[0]}"
        )
    return sheet.view(rows, SIZE, columns, SIZE, 3).permute(0, 2, 4, 1, 3).contiguous()
