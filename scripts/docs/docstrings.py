"""An extension of griffe, mkdocstrings' parser, that completes docstrings for the reference."""

import inspect
import re
from functools import partial
from importlib import import_module
from typing import Any

from griffe import Class, Extension, Object

TEMPLATES = ("{settings}", "{dialled}")
"""Placeholders that `vendi_guidance` fills in at import, from its settings."""

COMPLETED = ("Rounds", "Published")
"""Classes whose docstrings get their Args section at import."""

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
DEFAULT = re.compile(r"^( +)(\w+) \((?:\w+, )?default ([^),]+)([^)]*)\):", re.MULTILINE)


def move_default(cls: Class, argument: re.Match[str]) -> str:
    """Move the default of an argument from the docstring to the signature, which the reference
    shows too. It stays in the docstring if the signature lacks the argument, or if a range follows.
    """
    indent, name, default, limits = argument.groups()
    if name not in cls.parameters:
        return argument[0]
    parameter = cls.parameters[name]
    if str(parameter.default) == "NOT_GIVEN":
        parameter.default = default
    return argument[0] if limits else f"{indent}{name}:"


class Docstrings(Extension):
    """Fills in the placeholders, because griffe reads sources without importing them, and renames
    "Example:" to "Examples:", because griffe shows only the latter as code."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is None:
            return
        is_template = any(name in obj.docstring.value for name in TEMPLATES)
        if isinstance(obj, Class) and (is_template or obj.name in COMPLETED):
            imported = getattr(import_module(obj.module.path), obj.name)
            text = inspect.cleandoc(imported.__doc__)
            obj.docstring.value = DEFAULT.sub(partial(move_default, obj), text)
        obj.docstring.value = EXAMPLE.sub("Examples:", obj.docstring.value)
