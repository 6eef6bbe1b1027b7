"""Deprecated keyword arguments of `evaluate`, which still work with a warning."""

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
"""The types of the parameters that group the earlier keywords."""

FIELDS = {
    "image_embedder": ("embedding", "image"),
    "prompt_embedder": ("embedding", "prompt"),
    **{name: ("embedding", name) for name in ("kernel_image", "kernel_prompt", "truncation")},
    **{name: ("judges", name) for name in ("clip", "faithfulness", "labels")},
    **{name: ("judges", name) for name in ("attributes", "attribute_judge")},
    **{name: ("reader", name) for name in ("cache", "workers", "on_bad_image", "progress")},
}
"""The parameter and its field that replace each keyword."""


def takes_deprecated_keywords(
    evaluate: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
    """Make `evaluate` accept deprecated keywords, with one warning that says what to write."""

    @wraps(evaluate)
    def wrapper(*arguments: Any, **given: Any) -> Any:
        old = [name for name in (*FIELDS, "reference", "groups", "seconds") if name in given]
        if not old:
            return evaluate(*arguments, **given)
        calls: dict[str, list[str]] = {}  # what to write instead: a call and its arguments
        for_batch = {}
        for name in old:
            value = given.pop(name)
            if name == "reference":
                given["references"] = value
                calls["references=..."] = []
            elif name in FIELDS:
                parameter, field = FIELDS[name]
                kind = VALUES[parameter]
                given[parameter] = replace(given.get(parameter, kind()), **{field: value})
                calls.setdefault(f"{parameter}={kind.__name__}", []).append(f"{field}=...")
            else:
                for_batch[name] = value
                calls.setdefault("as_batch", ["images", "prompts"]).append(f"{name}=...")
        new = [f"{call}({', '.join(fields)})" if fields else call for call, fields in calls.items()]
        warnings.warn(
            f"evaluate({', '.join(f'{name}=...' for name in old)}) is deprecated and will be "
            f"removed in the next version: write evaluate({', '.join(new)})",
            DeprecationWarning,
            stacklevel=2,
        )
        bound = signature(evaluate).bind(*arguments, **given)
        if for_batch:
            prompts = bound.arguments.pop("prompts", None)
            bound.arguments["images"] = as_batch(bound.arguments["images"], prompts, **for_batch)
        return evaluate(*bound.args, **bound.kwargs)

    return wrapper
