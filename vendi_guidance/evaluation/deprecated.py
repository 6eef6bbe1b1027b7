"""Keyword arguments of `evaluate` in earlier versions, which still work with a warning."""

import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeVar

from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.embedding import Embedding, ImageReader
from vendi_guidance.evaluation.judges import Judges

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

VALUES: dict[str, type] = {"embedding": Embedding, "judges": Judges, "reader": ImageReader}
"""The parameters that took their place, besides `references` and what `as_batch` takes."""

FIELDS = {
    "image_embedder": ("embedding", "image"),
    "prompt_embedder": ("embedding", "prompt"),
    **{name: ("embedding", name) for name in ("kernel_image", "kernel_prompt", "truncation")},
    **{name: ("judges", name) for name in ("clip", "faithfulness", "labels")},
    **{name: ("judges", name) for name in ("attributes", "attribute_judge")},
    **{name: ("reader", name) for name in ("cache", "workers", "on_bad_image", "progress")},
}
"""The parameter and the field that took the place of each keyword."""


def takes_deprecated_keywords(
    evaluate: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
    """`evaluate` with its earlier keywords too; one warning says what to write instead."""

    @wraps(evaluate)
    def takes_both(*arguments: Any, **given: Any) -> Any:
        places = [name for name in (*FIELDS, "reference", "groups", "seconds") if name in given]
        if not places:
            return evaluate(*arguments, **given)
        written: dict[str, list[str]] = {}
        of_images = {}
        for name in places:
            value = given.pop(name)
            if name == "reference":
                given["references"] = value
                written["references=..."] = []
            elif name in FIELDS:
                parameter, field = FIELDS[name]
                kind = VALUES[parameter]
                given[parameter] = replace(given.get(parameter, kind()), **{field: value})
                written.setdefault(f"{parameter}={kind.__name__}", []).append(f"{field}=...")
            else:
                of_images[name] = value
                written.setdefault("as_batch", ["images", "prompts"]).append(f"{name}=...")
        new = ", ".join(f"{what}({', '.join(it)})" if it else what for what, it in written.items())
        old = ", ".join(f"{name}=..." for name in places)
        warnings.warn(
            f"evaluate({old}) is deprecated and goes with the next version: write evaluate({new})",
            DeprecationWarning,
            stacklevel=2,
        )
        bound = signature(evaluate).bind(*arguments, **given)
        if of_images:
            prompts = bound.arguments.pop("prompts", None)
            bound.arguments["images"] = as_batch(bound.arguments["images"], prompts, **of_images)
        return evaluate(*bound.args, **bound.kwargs)

    return takes_both
