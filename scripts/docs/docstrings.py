"""An extension of griffe, mkdocstrings' parser, that completes docstrings for the reference."""

import inspect
import re
from dataclasses import MISSING, fields, is_dataclass
from importlib import import_module
from typing import Any

from griffe import Class, Extension, Object

TEMPLATE = "{settings}"
"""Placeholder that `vendi_guidance` fills in at import, from its settings."""

SETTINGS = "vendi_guidance.guidance.settings"

EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)


def show_defaults(cls: Class) -> None:
    """Show the values of a dataclass's defaults, where they are the results of calls."""
    imported = _imported(cls)
    for field in fields(imported) if is_dataclass(imported) else ():
        if field.name in cls.parameters and field.default is not MISSING:
            cls.parameters[field.name].default = repr(field.default)


def _imported(cls: Class) -> type:
    return getattr(import_module(cls.module.path), cls.name)


class Docstrings(Extension):
    """Fills in the placeholders, because griffe reads sources without importing them, and renames
    "Example:" to "Examples:", because griffe shows only the latter as code."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is None:
            return
        is_of_settings = obj.module.path == SETTINGS
        if isinstance(obj, Class) and is_of_settings:
            show_defaults(obj)
        if isinstance(obj, Class) and (is_of_settings or TEMPLATE in obj.docstring.value):
            obj.docstring.value = inspect.cleandoc(_imported(obj).__doc__ or "")
        obj.docstring.value = EXAMPLE.sub("Examples:", obj.docstring.value)
