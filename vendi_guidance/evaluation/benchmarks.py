"""Prompts of benchmarks, from the files that the user has.

MS-COCO's are a JSON object with "annotations", each with "id", "image_id" and "caption". GenEval's
are JSON lines with "prompt". DIMCIM's are coarse prompts, which leave an attribute open, each with
dense ones, which name a value of it:

    [{"concept": "dog", "coarse_dense_prompts": [
        {"coarse_prompt": "A dog in a park", "dense_prompts": [
            {"attribute_type": "color", "attribute": "brown",
             "dense_prompt": "A brown dog in a park"}]}]}]
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from vendi_guidance.storage.files import sha256_of
from vendi_guidance.storage.prompt_files import Prompts, fault_of, is_prompt_file, open_prompts


@dataclass(frozen=True)
class Benchmark:
    """What is generated.

    Attributes:
        form: of its file, for messages.
        prompts: how many; None takes all of the file.
        images_per_prompt: of each.
        of_json: the prompts of a JSON file in its own form, in an order that does not depend on the
            file's; None where it has no such form.
        is_sample: whether the file may have more prompts.
    """

    form: str
    prompts: int | None
    images_per_prompt: int
    of_json: Callable[[Path], list[str]] | None = None
    is_sample: bool = False


def open_benchmark(source: str, name: str, fewer: int | None = None) -> Prompts:
    """The prompts that a benchmark takes from a file, always the same ones.

    Args:
        source: a file in the benchmark's form, or of prompts as `open_prompts` takes it.
        name: one of `BENCHMARKS`.
        fewer: take so many only, for a trial.

    Raises:
        ValueError: it is no such file, or has too few prompts.
        FileNotFoundError: there is none.
    """
    benchmark, path = BENCHMARKS[name], Path(source)
    has_form = benchmark.of_json is not None and path.suffix.lower() == ".json"
    if not has_form and not is_prompt_file(source):
        raise ValueError(f"--protocol {name} takes {benchmark.form}, got {source!r:.80}")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {source}: --protocol {name} takes a file")
    found = benchmark.of_json(path) if benchmark.of_json and has_form else open_prompts(source)
    distinct = list(dict.fromkeys(found))
    count = benchmark.prompts or len(distinct)
    if len(distinct) < count or (len(distinct) > count and not benchmark.is_sample):
        raise ValueError(
            f"{path} has {len(distinct):,} different prompts, and --protocol {name} takes "
            f"{count:,}: give the whole file"
        )
    if fewer is not None and fewer > count:
        raise ValueError(f"--protocol-prompts is {fewer:,}, and --protocol {name} has {count:,}")
    chosen = tuple(distinct[: fewer or count])
    return Prompts(source, len(chosen), sha256_of(path), chosen)


def coco_captions(path: Path) -> list[str]:
    """One caption of each image of an annotations file.

    The images come in an order of their own, by a hash of their numbers: any first n of them are a
    random sample, the same with every version of every library.

    Raises:
        ValueError: it has another form.
    """
    content = read_json(path)
    rows = content.get("annotations") if isinstance(content, dict) else None
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path} has no list under 'annotations': give captions_val2014.json")
    first: dict[Any, tuple[Any, str]] = {}
    for number, row in enumerate(rows):
        row = row if isinstance(row, dict) else {}
        image, own = row.get("image_id"), row.get("id")
        fault = fault_of(row.get("caption"))
        if fault or not isinstance(image, int) or not isinstance(own, int):
            raise ValueError(
                f"{path}: annotation {number} has no caption with 'id' and 'image_id': give the "
                "captions, such as captions_val2014.json"
            )
        first[image] = min((own, " ".join(row["caption"].split())), first.get(image, (own + 1, "")))
    in_order = sorted(first, key=lambda number: hashlib.sha256(str(number).encode()).hexdigest())
    return [first[image][1] for image in in_order]


class Asked(NamedTuple):
    """A prompt of DIMCIM.

    Attributes:
        concept: such as "dog".
        kind: of attribute, such as "color".
        prompt: coarse or dense.
        value: that a dense prompt names; None for a coarse one.
    """

    concept: str
    kind: str
    prompt: str
    value: str | None


def read_dimcim(path: Path) -> list[Asked]:
    """What the prompts of a file ask for; a coarse prompt once for each kind of its dense ones.

    Raises:
        ValueError: it has another form.
        FileNotFoundError: there is none.
    """
    content = read_json(path)
    found: list[Asked] = []
    texts: list[Any] = []
    try:
        for concept in content if isinstance(content, list) else [content]:
            for group in concept["coarse_dense_prompts"]:
                dense = [
                    (one["attribute_type"], one["dense_prompt"], one["attribute"])
                    for one in group["dense_prompts"]
                ]
                coarse = [(kind, group["coarse_prompt"], None) for kind, _, _ in dense]
                found += [Asked(concept["concept"], *row) for row in (*coarse, *dense)]
                texts += [concept["concept"], group["coarse_prompt"], *chain(*dense)]
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} lacks DIMCIM's keys, see docs/evaluation.md: {error!r}") from None
    if not found or any(map(fault_of, texts)):
        raise ValueError(f"{path} has no prompts, or a prompt or attribute that is empty")
    return list(dict.fromkeys(found))


def read_json(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


_COCO = "MS-COCO's captions_*.json, or a file of prompts"

BENCHMARKS = {
    "coco1000": Benchmark(_COCO, 1_000, 4, coco_captions, is_sample=True),
    "coco10000": Benchmark(_COCO, 10_000, 1, coco_captions, is_sample=True),
    "geneval": Benchmark("GenEval's evaluation_metadata.jsonl", 553, 4),
    "dimcim": Benchmark(
        "JSON of coarse and dense prompts",
        None,
        30,
        lambda path: [row.prompt for row in read_dimcim(path)],
    ),
}
