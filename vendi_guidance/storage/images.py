"""Reading of untrusted image files, as RGB."""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vendi_guidance.storage.messages import counted, first_few
from vendi_guidance.storage.shards import members, shard_of

MOST_BYTES = 2**30  # larger files are refused without reading them
NOT_IMAGES = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}
"""Formats for which Pillow runs other programs, or which it only recognises."""
BESIDE_IMAGES = {
    *("", ".txt", ".caption", ".json", ".jsonl", ".csv", ".tsv", ".md", ".html", ".css", ".js"),
    *(".yaml", ".yml", ".toml", ".log", ".safetensors", ".npz", ".py", ".sh"),
}
"""Suffixes of files that are left out without a word."""


@cache
def formats() -> dict[str, str]:
    """Suffix -> format of the images that Pillow can open here, in the order to try them."""
    with suppress(ImportError):
        import_module("pillow_heif").register_heif_opener()
    known = Image.registered_extensions()  # of all plug-ins
    # most formats without a signature would claim damaged files of others
    safe = {name for name, (_, signature) in Image.OPEN.items() if signature} | {"TGA"}
    by_suffix = {suffix: name for suffix, name in known.items() if name in safe - NOT_IMAGES}
    return dict(sorted(by_suffix.items(), key=lambda one: one[1] == "TGA"))


class Files(NamedTuple):
    """The files below a folder, sorted."""

    images: list[Path]
    left_out: list[Path]  # other files, but texts and settings


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
            with Image.open(
                BytesIO(content), formats=[*dict.fromkeys(formats().values())]
            ) as opened:
                return to_rgb(ImageOps.exif_transpose(opened))
    except UnidentifiedImageError:
        raise ValueError("it is not an image of a format that Pillow can open here") from None
    except Exception as error:  # broken files make Pillow raise errors of many kinds
        raise ValueError(str(error) or type(error).__name__) from error


def list_files(folder: Path) -> Files:
    """The files below a folder, or in a `.tar` file, without hidden files and figures of reports.

    Links are followed, and no folder is listed twice. Members of `.tar` files are listed as if
    these were folders (see `shards`).
    """
    found = list(_walk(folder)) if folder.is_dir() else [folder]
    shards = [file for file in found if file.suffix.lower() == ".tar" and members(file)]
    found += [shard / name for shard in shards for name in members(shard)]
    images = [file for file in found if _is_image(file)]
    known = BESIDE_IMAGES.union(formats())
    others = (file for file in found if file.suffix.lower() not in known)
    return Files(sorted(images), sorted({*others} - {*shards}))


def _walk(folder: Path) -> Iterator[Path]:
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
        blobs = {"blobs"} if "snapshots" in folders else set()  # in the cache of the Hub
        folders[:] = sorted(name for name in {*folders} - blobs if not name.startswith("."))
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _is_image(file: Path) -> bool:
    """By its suffix; a file without one, by its first bytes."""
    if file.suffix:
        return file.suffix.lower() in formats()
    if not file.is_file() or not file.stat().st_size:
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            Image.open(file, formats=[*{*formats().values()} - {"TGA"}]).close()
    except Image.DecompressionBombError:
        return True  # and is refused where it is read
    except Exception:  # broken files make Pillow raise errors of many kinds
        return False
    return True


def named_endings(files: Sequence[Path]) -> str:
    """How many files there are, and their suffixes, with what some of them need."""
    endings = sorted({file.suffix.lower() for file in files})
    needs = {".heic": "pillow-heif", ".heif": "pillow-heif", ".hif": "pillow-heif"}
    named = [f"{it} (needs {needs[it]})" if it in needs else it for it in endings]
    return f"{counted(len(files), 'file')} left out: {first_few(named)}"


def fitted(image: Image.Image, side: int) -> Image.Image:
    """The image scaled to fit into a square of `side` pixels, and at least one pixel wide and high,
    unlike with `ImageOps.contain`."""
    scale = side / max(image.size)
    width, height = (max(1, round(scale * edge)) for edge in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


def read_bytes(path: Path) -> bytes:
    """Read a file, or a member of a `.tar` file, without decoding it; ValueError if it is too large
    or not a regular file."""
    if (shard := shard_of(path)) is not None:
        span = members(shard).get(path.relative_to(shard).as_posix())
        if span is None:
            raise FileNotFoundError(f"{shard} has no {path.relative_to(shard)}")
        check_size(span.size)
        with shard.open("rb") as file:
            file.seek(span.start)
            return file.read(span.size)
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    check_size(path.stat().st_size)
    return path.read_bytes()


def check_size(size: int) -> None:
    """ValueError if a file of so many bytes is too large."""
    if size > MOST_BYTES:
        raise ValueError(f"a file of {size} bytes is too large for an image")


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
