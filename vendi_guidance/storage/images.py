"""Picture files, which may come from anywhere, as RGB."""

import os
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")
"""What pictures may be. Pillow would pass others on to programs outside."""

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
"""How the names of such files end, in small letters."""

MOST_BYTES = 2**30
"""No still picture takes more."""


def open_picture(source: str | os.PathLike[str] | bytes) -> Image.Image:
    """A still picture, upright, in RGB as `to_rgb` gives it.

    Args:
        source: a file, or the bytes of one.

    Raises:
        ValueError: it is empty, broken, too large (Pillow's `Image.MAX_IMAGE_PIXELS` is the limit),
            or not one still picture; the message says why, and leaves it to the caller to name it.
        OSError: there is no such file, or it cannot be read.
    """
    content = source if isinstance(source, bytes) else read_bytes(Path(source))
    if not content:
        raise ValueError("the file is empty")
    try:
        # Pillow only warns of pictures up to twice its limit
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(BytesIO(content), formats=FORMATS) as opened:
                return _still(opened)
    except UnidentifiedImageError:
        raise ValueError(f"it is no picture: none of {', '.join(FORMATS)}") from None
    except Exception as error:  # Pillow meets broken files with errors of many kinds
        raise ValueError(str(error) or type(error).__name__) from error


def read_bytes(path: Path) -> bytes:
    """The content of a file that may be a picture.

    Raises:
        ValueError: it is too large, or nothing that has a content.
        OSError: it is not there, or cannot be read.
    """
    if path.exists() and not path.is_file():
        raise ValueError("it is not an ordinary file")
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"a file of {size} bytes is too large for a picture")
    return path.read_bytes()


def to_rgb(image: Image.Image) -> Image.Image:
    """Any picture as 8-bit RGB: white shows through where it is transparent, 16-bit grey keeps its
    whole range.

    Raises:
        ValueError: grey levels whose range is not known.
    """
    if image.mode == "F":
        raise ValueError(
            "its grey levels are fractions of unknown range: save it with 8 or 16 bits"
        )
    if image.mode.startswith("I"):
        return _from_16_bits(image).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _still(opened: Image.Image) -> Image.Image:
    # photographs of some cameras hold previews and depths besides
    if getattr(opened, "is_animated", False) and opened.format != "MPO":
        raise ValueError("it holds several pictures (an animation or pages), not one")
    return to_rgb(ImageOps.exif_transpose(opened))


def _from_16_bits(image: Image.Image) -> Image.Image:
    levels = np.asarray(image).astype(np.int64)
    if levels.min() < 0 or levels.max() > 65535:
        raise ValueError("its grey levels are whole numbers beyond 16 bits, of unknown range")
    return Image.fromarray(np.round(levels / 257).astype(np.uint8))
