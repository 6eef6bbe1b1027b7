"""Training images as the repository keeps them: rows and columns of one lossless WebP."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.images import open_image

SIZE = 64  # pixels


def write_sheet(file: Path, images: Tensor) -> None:
    """Write (rows, columns, 3, 64, 64) uint8."""
    rows = images.permute(0, 3, 1, 4, 2)  # row, y, column, x, colour
    sheet = rows.reshape(-1, images.shape[1] * SIZE, 3).contiguous().numpy()
    with whole_file(file) as temporary:
        Image.fromarray(sheet).save(temporary, format="WEBP", lossless=True, quality=100, method=6)


def read_sheet(file: Path, rows: int, columns: int) -> Tensor:
    """What `write_sheet` wrote: (rows, columns, 3, 64, 64) uint8.

    Raises:
        ValueError: the file cannot be read, or has another size.
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
            f"{file} has {width}x{height} pixels, but {rows} rows of {columns} images take "
            f"{expected[1]}x{expected[0]}"
        )
    return sheet.view(rows, SIZE, columns, SIZE, 3).permute(0, 2, 4, 1, 3).contiguous()
