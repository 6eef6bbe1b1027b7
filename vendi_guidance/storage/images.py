"""Reading of untrusted image files, as RGB."""

import hashlib
import os
import tarfile
import warnings
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib import import_module
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import ExifTags, Image, UnidentifiedImageError

from vendi_guidance.storage.messages import counted

PLAIN = (b"tEXt", b"iTXt", b"http")  # kinds of uncompressed metadata: texts of PNG, XMP of JPEG
Result = TypeVar("Result")
MOST_BYTES = 2**30  # larger files are refused without reading them
UNSAFE = {"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "WMF"}  # Pillow runs programs, or has no decoder
TEXTS = {
    *("", ".txt", ".caption", ".json", ".jsonl", ".csv", ".tsv", ".md", ".html", ".css", ".js"),
    *(".yaml", ".yml", ".toml", ".log", ".safetensors", ".npz", ".py", ".sh"),
}
"""Suffixes of files beside images that nobody takes for images."""
TURNS = {2 + i: Image.Transpose(turn) for i, turn in enumerate((0, 3, 1, 5, 4, 6, 2))}
"""EXIF orientation -> what sets the image upright; Pillow's function fails on other broken tags."""
REMEDIES = {
    **dict.fromkeys([".heic", ".heif"], "needs pillow-heif"),
    **dict.fromkeys([".arrow", ".parquet"], "load it with datasets, and evaluate it in Python"),
    **dict.fromkeys([".gz", ".tgz", ".zip"], "unpack it"),
}


@cache
def formats() -> dict[str, str]:
    """Suffix -> format of the images that Pillow can open here, in the order to try them."""
    with suppress(ImportError):
        import_module("pillow_heif").register_heif_opener()
    known = Image.registered_extensions()  # of all plug-ins
    # most formats without a signature would claim damaged files of others
    safe = {name for name, (_, signature) in Image.OPEN.items() if signature} | {"TGA"}
    by_suffix = {suffix: name for suffix, name in known.items() if name in safe - UNSAFE}
    return dict(sorted(by_suffix.items(), key=lambda one: one[1] == "TGA"))


def open_image(source: str | os.PathLike[str] | bytes) -> Image.Image:
    """Read the first frame or page of a file or its bytes, applying its EXIF orientation and
    `to_rgb`. Metadata that cannot be read are ignored.

    OSError if there is no such file, or it cannot be read. ValueError, which gives the reason, not
    the file, if it is empty, broken, not an image, or larger than `Image.MAX_IMAGE_PIXELS`.
    """
    content = source if isinstance(source, bytes) else read_bytes(Path(source))
    if not content:
        raise ValueError("the file is empty")
    try:
        # Pillow only warns about images up to twice its limit
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return use_image(content, _upright)
    except UnidentifiedImageError:
        raise ValueError("it is not an image of a format that Pillow can open here") from None
    except Exception as error:  # broken files make Pillow raise errors of many kinds
        raise ValueError(str(error) or type(error).__name__) from error


def use_image(source: Path | bytes, use: Callable[[Image.Image], Result]) -> Result:
    """What a function makes of an image file. If that fails, of the file without what may be broken
    beside its pixels; raises the first error if all fail."""
    known, error = [*dict.fromkeys(formats().values())], None
    for kept in (None, PLAIN, ()):
        try:
            if kept is None and isinstance(source, Path) and source.is_file():
                file: Any = source  # of which little may be read
            else:
                content = source if isinstance(source, bytes) else read_bytes(source)
                file = BytesIO(content if kept is None else without_metadata(content, kept))
            with Image.open(file, formats=known) as image:
                return use(image)
        except Exception as raised:  # of many kinds
            error = error or raised
    raise error or ValueError("it cannot be read")


def _upright(image: Image.Image) -> Image.Image:
    image.load()
    turn = None
    with suppress(Exception):  # anything may stand there
        turn = TURNS.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    found = to_rgb(image if turn is None else image.transpose(turn))
    found.info = {}
    return found


def without_metadata(content: bytes, kept: Collection[bytes]) -> bytes:
    """A PNG or JPEG file without texts, colour profiles and such, but with its EXIF block and those
    of the `kept` kinds, unless their checksum is wrong; other files as they are."""
    place, parts = 8, [content[:8]]
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        while place + 12 <= len(content):
            end = place + 12 + int.from_bytes(content[place : place + 4])
            kind, body = content[place + 4 : place + 8], content[place + 4 : end - 4]
            is_whole = zlib.crc32(body) == int.from_bytes(content[end - 4 : end])
            # an upper case letter marks chunks that decoding needs
            is_needed = kind[:1].isupper() or kind == b"tRNS"
            if is_needed or (is_whole and kind in (b"eXIf", *kept)):
                parts.append(content[place:end])
            place = end
    elif content.startswith(b"\xff\xd8\xff"):
        place, parts = 2, [content[:2]]
        while content[place : place + 1] == b"\xff" and content[place + 1 : place + 2] != b"\xda":
            end = place + 2 + int.from_bytes(content[place + 2 : place + 4])
            marker, kind = content[place + 1], content[place + 4 : place + 8]
            # decoding needs none of APP1 to APP13 and COM
            if kind in (b"Exif", *kept) or not (0xE1 <= marker <= 0xED or marker == 0xFE):
                parts.append(content[place:end])
            place = end
        parts.append(content[place:])
    else:
        return content
    return b"".join(parts)


def list_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """The images below a folder or in a `.tar` file, and other files but texts, both sorted;
    without hidden files and figures of reports.

    Links are followed, and no folder is listed twice. A member of a `.tar` file, as WebDataset
    writes it, has the path `shard.tar/key.jpg`; it is read in place, never unpacked.
    """
    found = list(walk(folder)) if folder.is_dir() else [folder]
    shards = {file: _members(file) for file in found if file.suffix.lower() == ".tar"}
    found = [file for file in found if not shards.get(file)] + [*chain(*shards.values())]
    known = TEXTS.union(formats())
    left_out = [it for it in found if it.suffix.lower() not in known and it.stem != "metadata"]
    return sorted(filter(_is_image, found)), sorted(left_out)


def walk(folder: Path) -> Iterator[Path]:
    """The files below a folder, as `list_files` looks for them."""
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
    if file.suffix or not file.is_file() or not file.stat().st_size:
        return file.suffix.lower() in formats()
    try:
        Image.open(file, formats=[*{*formats().values()} - {"TGA"}]).close()
    except Exception:  # broken files make Pillow raise errors of many kinds
        return False
    return True


def named_endings(files: Sequence[Path]) -> str:
    """How many files are left out, and their suffixes, with what helps."""
    endings = sorted({file.suffix.lower() for file in files})
    named = [f"{it} ({REMEDIES[it]})" if it in REMEDIES else it for it in endings]
    return f"{counted(len(files), 'file')} left out: {', '.join(named)}"


def key_of(path: Path) -> bytes:
    """What stands for the content of a file or a member of a `.tar` file: the SHA-256 of its path,
    size and time of change, which needs no reading."""
    known = _shard_of(path) or path
    about = known.stat() if known.exists() else None
    text = f"{path.absolute()}\0{about and (about.st_size, about.st_mtime_ns)}"
    return hashlib.sha256(os.fsencode(text)).digest()


def _shard_of(path: Path) -> Path | None:
    """The `.tar` file that a path leads into."""
    tars = (it for it in path.parents if it.suffix.lower() == ".tar")
    return next(filter(Path.is_file, tars), None)


def read_bytes(path: Path) -> bytes:
    """Read a file, or a member of a `.tar` file, without decoding it; ValueError if it is too large
    or not a regular file."""
    shard = _shard_of(path)
    if shard is None and path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    if shard is not None and path not in _members(shard):
        raise FileNotFoundError(f"{shard} has no {path.relative_to(shard)}")
    start, size = (0, path.stat().st_size) if shard is None else _members(shard)[path]
    if size > MOST_BYTES:
        raise ValueError(f"a file of {size} bytes is too large for an image")
    with (shard or path).open("rb") as file:
        file.seek(start)
        return file.read(size)


def _members(shard: Path) -> dict[Path, tuple[int, int]]:
    """Path -> start and size, in bytes, of each regular file in an uncompressed `.tar` file, as far
    as it can be read; without names that are absolute or contain `..`."""
    return _members_of(shard, shard.stat().st_mtime_ns, shard.stat().st_size)


@lru_cache(maxsize=8)
def _members_of(shard: Path, changed: int, size: int) -> dict[Path, tuple[int, int]]:
    found = {}
    with suppress(tarfile.TarError, OSError, ValueError), tarfile.open(shard, "r:") as tar:
        for member in tar:
            name = Path(member.name)
            if member.isreg() and not (name.is_absolute() or ".." in name.parts):
                found[shard / name] = (member.offset_data, member.size)
    return found


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
