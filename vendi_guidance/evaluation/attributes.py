"""Attributes, such as hair (black, brown, blond), from files; and benchmarks: attributes with the
prompts that leave each of them open or name a value of it."""

import ast
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any

from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.tables import read_table

ATTRIBUTES = "attributes.json"  # in a probe's folder: its attributes
BENCHMARKS = "benchmarks"  # in assets
COLUMNS = ("prompt", "attribute", "attribute_values")  # of GRADE's tables


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
    return attributes_in(_read_object(path), str(path))


def open_benchmark(name: str) -> dict[str, Any]:
    """Read a benchmark.

    Args:
        name: that of a file in `assets/benchmarks`, or the path of a `.toml` or `.json` file of the
            same form, or of a `.csv` file of GRADE's: a row for each prompt and attribute that it
            leaves open, with the columns prompt, attribute (a question) and attribute_values (such
            as "{'red', 'blue'}"); or of a concept's in COCO-DIMCIM's folder dense_prompts, whose
            attributes are read from the folder seed_captions_attributes beside it.

    Returns:
        "source", "images_per_prompt", "attributes" (see `load_attributes`) and "prompts": of each
        the "prompt", the values "named" by attribute, and those left "open", by default all others.

    Raises:
        ValueError: the file has another form.
        FileNotFoundError: there is no such benchmark or file, or none of its attributes.

    Example:
        >>> sorted(open_benchmark("faces"))
        ['attributes', 'images_per_prompt', 'prompts', 'source']
    """
    path = asset(f"{BENCHMARKS}/{name}.toml") or Path(name)
    if not path.is_file():
        known = sorted(file.stem for file in (asset(BENCHMARKS) or Path()).glob("*.toml"))
        raise FileNotFoundError(f"there is no benchmark {name}: give {', '.join(known)}, or a file")
    content = _from_grade(path) if path.suffix == ".csv" else _read_object(path)
    if "coarse_dense_prompts" in content:
        content = _from_dimcim(path, content)
    content = {"source": path.name, "images_per_prompt": 8, **content}
    count = content["images_per_prompt"]
    if not {"attributes", "prompts"} <= content.keys():
        raise ValueError(f"{path} must have attributes and prompts, and has {', '.join(content)}")
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"{path}: images_per_prompt must be at least 1, got {count!r}")
    if not attributes_in(content, str(path)):
        raise ValueError(f"{path}: no prompt leaves an attribute open or names one")
    return content


def _read_object(path: str | PathLike[str]) -> dict[str, Any]:
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


def _from_grade(path: Path) -> dict[str, Any]:
    attributes: dict[str, list[str]] = {}
    prompts: dict[str, dict[str, Any]] = {}
    for place, row in read_table(path):
        try:
            prompt, attribute, given = map(row.__getitem__, COLUMNS)
            values = sorted(map(str, ast.literal_eval(given)))
        except KeyError as error:
            raise ValueError(f"{place} has no column {error}: GRADE's tables have") from None
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise ValueError(f"{place} has no set of values, but {given!r:.80}") from None
        if attributes.setdefault(attribute, values) != values:
            raise ValueError(f"{place} has other values of {attribute!r} than before")
        one = prompts.setdefault(prompt, {"prompt": prompt, "open": []})
        one["open"].append(attribute)
    return {"images_per_prompt": 100, "attributes": attributes, "prompts": [*prompts.values()]}


def _from_dimcim(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The content of a file of COCO-DIMCIM's: coarse prompts, which leave all attributes open, and
    dense ones, which name one value each."""
    name = path.name.replace("dense_prompts", "seed_captions_attributes")
    beside = path.absolute().parent.parent / "seed_captions_attributes" / name
    prompts: dict[Any, dict[str, Any]] = {}
    try:
        attributes = _read_object(beside)["attributes"]
        for one in given["coarse_dense_prompts"]:
            coarse = {"prompt": one["coarse_prompt"], "named": {}}
            prompts.setdefault(coarse["prompt"], coarse)
            for it in one["dense_prompts"]:
                dense = {"prompt": it["dense_prompt"], "named": {}, "open": []}
                named = prompts.setdefault(dense["prompt"], dense)["named"]
                named[it["attribute_type"]] = it["attribute"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} or {beside} is not of COCO-DIMCIM's form, at {error}") from None
    return {"images_per_prompt": 30, "attributes": attributes, "prompts": [*prompts.values()]}
