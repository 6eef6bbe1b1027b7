"""Benchmarks: prompts, and the attributes that each leaves open or names, as one table."""

import ast
from pathlib import Path
from typing import Any

from vendi_guidance.evaluation.attributes import attributes_in, read_object
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.tables import read_table

BENCHMARKS = "benchmarks"  # in assets
COLUMNS = ("prompt", "attribute", "attribute_values")  # of GRADE's tables


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
    content = _from_grade(path) if path.suffix == ".csv" else read_object(path)
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
        attributes = read_object(beside)["attributes"]
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
