"""Deprecated keyword arguments of `evaluate`, which still work with a warning."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.embedding import Embedding, ImageReader
from vendi_guidance.evaluation.judges import Judges

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

RENAMED = {"image_embedder": "image", "prompt_embedder": "prompt"}
REPLACEMENTS: dict[str, tuple[type, tuple[str, ...]]] = {
    "embedding": (Embedding, (*RENAMED, "kernel_image", "kernel_prompt", "truncation")),
    "judges": (Judges, ("clip", "faithfulness", "labels", "attributes", "attribute_judge")),
    "reader": (ImageReader, ("cache", "workers", "on_bad_image", "progress")),
}
"""Parameters of `evaluate`, with the earlier keywords that are fields of their types now."""


def takes_deprecated_keywords(
    evaluate: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
    """Make `evaluate` accept deprecated keywords, with one warning that says what to write."""

    @wraps(evaluate)
    def wrapper(*arguments: Any, **given: Any) -> Any:
        keywords, new = {**given}, []
        for parameter, (kind, names) in REPLACEMENTS.items():
            values = {RENAMED.get(name, name): given.pop(name) for name in names if name in given}
            if values:
                given[parameter] = replace(given.get(parameter, kind()), **values)
                new.append(f"{parameter}={kind.__name__}({_elided(values)})")
        if "reference" in given:
            given["references"] = given.pop("reference")
            new.append("references=...")
        for_batch = {name: given.pop(name) for name in ("groups", "seconds") if name in given}
        if for_batch:
            new.insert(0, f"as_batch(images, prompts, {_elided(for_batch)})")
        if not new:
            return evaluate(*arguments, **given)
        old = _elided(name for name in keywords if name not in given)
        warnings.warn(
            f"evaluate({old}) is deprecated and will be removed in the next version: write "
            f"evaluate({', '.join(new)})",
            DeprecationWarning,
            stacklevel=2,
        )
        bound = signature(evaluate).bind(*arguments, **given)
        if for_batch:
            prompts = bound.arguments.pop("prompts", None)
            bound.arguments["images"] = as_batch(bound.arguments["images"], prompts, **for_batch)
        return evaluate(*bound.args, **bound.kwargs)

    return wrapper


def _elided(names: Iterable[str]) -> str:
    return ", ".join(f"{name}=..." for name in names)
