"""Parts of messages that several modules share, and imports of optional packages."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any


def nearest(word: str, known: Iterable[str]) -> str:
    """Suggestion for an error about an unknown word, such as " (did you mean 'clip'?)"; "" if no
    known word is similar."""
    found = get_close_matches(word, known, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def counted(count: int, word: str) -> str:
    """A count with its noun in singular or plural.

    Example:
        >>> counted(1, "prompt"), counted(2000, "image")
        ('1 prompt', '2,000 images')
    """
    return f"{count:,} {word}{'s' * (count != 1)}"


def first_few(names: Sequence[str]) -> str:
    """The first three names, and how many more there are."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def version_of(package: str) -> str:
    """The installed version of a package, or "not installed"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def missing(what: str, package: str, extra: str) -> ImportError:
    """ImportError that names the extra to install for a missing package that `what` needs."""
    return ImportError(f'{what} needs {package}: pip install "vendi-guidance[{extra}]"')


def optional_import(module: str, package: str, what: str, extra: str = "embedders") -> Any:
    """Import a module of an optional package; the ImportError names the extra to install."""
    try:
        return import_module(module)
    except ImportError:
        raise missing(what, package, extra) from None
