"""Reading of untrusted image files, as RGB."""

import os
import warnings
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "TIFF", "GIF")  # Pillow runs programs for some others
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff", ".gif"})
MOST_BYTES = 2**30  # larger files are refused without reading them


def open_image(source: str | os.PathLike[str] | bytes) -> Image.Image:
    """Read the first frame or page of a file or its bytes, applying its EXIF orientation and
    `to_rgb`.

    OSError if there is no such file, or it cannot be read. ValueError, which gives the reason, not
    the file, if it is empty, broken, not an image, or larger than `Image.MAX_IMAGE_PIXELS`.
    """
    content = source if isinstance(source, bytes) else read_bytes(Path(source))
    if not content:
        raise ValueError("the file is empty")
    try:
        # Pillow only warns about images up to twice its limit
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(BytesIO(content), formats=FORMATS) as opened:
                return to_rgb(ImageOps.exif_transpose(opened))
    except UnidentifiedImageError:
        raise ValueError(f"it is not an image: none of {', '.join(FORMATS)}") from None
    except Exception as error:  # broken files make Pillow raise errors of many kinds
        raise ValueError(str(error) or type(error).__name__) from error


def image_files(folder: Path) -> list[Path]:
    """The image files below a folder, sorted, without hidden files and figures of reports. Links to
    files and folders are followed, and no folder is listed twice."""
    found: list[Path] = []
    top, seen = os.path.realpath(folder), set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        is_root = parent == str(folder)
        is_inside = not is_root and os.path.islink(parent) and Path(real).is_relative_to(top)
        is_report = not is_root and {"report.html", "report.json"} <= set(names)
        if real in seen or is_inside or is_report:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        files = (Path(parent, name) for name in names if not name.startswith("."))
        found += [file for file in files if file.suffix.lower() in SUFFIXES]
    return sorted(found)


def fitted(image: Image.Image, side: int) -> Image.Image:
    """The image scaled to fit into a square of `side` pixels, and at least one pixel wide and high,
    unlike with `ImageOps.contain`."""
    scale = side / max(image.size)
    width, height = (max(1, round(scale * edge)) for edge in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def read_bytes(path: Path) -> bytes:
    """Read a file without decoding it; ValueError if it is too large or not a regular file."""
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"a file of {size} bytes is too large for an image")
    return path.read_bytes()


def to_rgb(image: Image.Image) -> Image.Image:
    """An image of any mode in 8-bit RGB: transparency on white, 16-bit grey scaled to 8 bits;
    ValueError if the range of grey levels is unknown."""
    if image.mode == "F":
        raise ValueError("its grey levels are floats of unknown range: save it with 8 or 16 bits")
    if image.mode.startswith("I"):
        levels = np.asarray(image).astype(np.int64)
        if levels.min() < 0 or levels.max() > 65535:
            raise ValueError("its grey levels are integers beyond 16 bits, of unknown range")
        return Image.fromarray(np.round(levels / 257).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
