"""Attributes, such as hair (black, brown, blond), from files."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any

ATTRIBUTES = "attributes.json"  # in a probe's folder: its attributes


@dataclass(frozen=True)
class Attribute:
    """An attribute that images may vary in, and its values.

    Attributes:
        training: the share of each value in the model's training images whose captions leave the
            attribute open, up to a factor; None if unknown.
        prompts: each prompt that it applies to, and the value that it names, or None; None if it
            applies to all, and their words tell.

    Example:
        >>> Attribute("hair", ("brown", "light brown")).named("a doctor with light brown hair")
        'light brown'
    """

    name: str
    values: tuple[str, ...]
    training: tuple[float, ...] | None = None
    prompts: Mapping[str, str | None] | None = None

    def named(self, prompt: str) -> str | None:
        """The value that a prompt names in whole words, ignoring case; the longest if several."""
        words = {value: rf"(?<!\w){re.escape(value.casefold())}(?!\w)" for value in self.values}
        found = [value for value in words if re.search(words[value], prompt.casefold())]
        return max(found, key=len, default=None)


def load_attributes(path: str | PathLike[str]) -> list[Attribute]:
    """Read attributes from a JSON or TOML file.

    Args:
        path: a file with `{"hair": ["black", "brown"]}`, or with the values' shares in training
            images, `{"hair": {"black": 0.8, "brown": 0.2}}`; or a benchmark (see docs/evaluation),
            with these as "attributes", and "prompts" that say which of them each leaves open.

    Raises:
        ValueError: the file has another format.
        FileNotFoundError: the file does not exist.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "attributes.json")
        ...     _ = path.write_text('{"hair": ["black", "brown"]}')
        ...     load_attributes(path)
        [Attribute(name='hair', values=('black', 'brown'), training=None, prompts=None)]
    """
    return attributes_in(read_object(path), str(path))


def read_object(path: str | PathLike[str]) -> dict[str, Any]:
    """The object in a JSON or TOML file; errors as for `load_attributes`."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    kind, read = ("TOML", tomllib.loads) if path.suffix == ".toml" else ("JSON", json.loads)
    try:
        content = read(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not {kind}: {error}") from None
    if not isinstance(content, dict) or not content:
        raise ValueError(f'{path} must be an object such as {{"hair": ["black", "brown"]}}')
    return content


def attributes_in(content: Mapping[str, Any], place: str) -> list[Attribute]:
    """The attributes of a file's content; ValueError, which names the place, if it has none."""
    if not {"attributes", "prompts"} <= content.keys():
        return [_attribute(name, given, f"{place}: {name}") for name, given in content.items()]
    given, prompts = content["attributes"], content["prompts"]
    if not isinstance(given, dict) or not isinstance(prompts, list):
        raise ValueError(f"{place} must have a table of attributes and a list of prompts")
    found = {name: _attribute(name, it, f"{place}: {name}") for name, it in given.items()}
    applies: dict[str, dict[str, str | None]] = {name: {} for name in found}
    for number, one in enumerate(prompts, start=1):
        where = f"{place}: prompt {number}"
        if not isinstance(one, dict) or not isinstance(one.get("prompt"), str):
            raise ValueError(f'{where} must be such as {{prompt = "a room"}}, got {one!r:.80}')
        named = one.get("named", {})
        left_open = one.get("open", [name for name in found if name not in named])
        for name, value in (dict.fromkeys(left_open) | named).items():
            if name not in found or (value is not None and value not in found[name].values):
                what = f"value {value!r} of {name!r}" if name in found else f"attribute {name!r}"
                raise ValueError(f"{where}: there is no {what} in the file's attributes")
            applies[name][one["prompt"]] = value
    return [replace(one, prompts=applies[name]) for name, one in found.items() if applies[name]]


def _attribute(name: str, given: Any, place: str) -> Attribute:
    values = list(given) if isinstance(given, (dict, list)) else []
    is_text = all(isinstance(value, str) and value.strip() for value in values)
    if len(values) < 2 or not is_text or len({v.casefold() for v in values}) < len(values):
        raise ValueError(f"{place} must have at least two different values, got {given!r:.80}")
    if isinstance(given, list):
        return Attribute(name, tuple(values))
    training = tuple(given.values())
    are_shares = all(type(share) in (int, float) and share >= 0 for share in training)
    if not are_shares or not 0 < sum(training) < inf:
        raise ValueError(f"{place} must have a share of each value, got {given!r:.80}")
    return Attribute(name, tuple(values), training)
