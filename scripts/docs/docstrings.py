"""Docstrings as the reference needs them: an extension of griffe, which mkdocstrings reads with."""

import inspect
import re
from functools import partial
from importlib import import_module
from typing import Any

from griffe import Class, Extension, Object

TEMPLATES = ("{settings}", "{dialled}")
"""What `vendi_guidance` fills in at import, from its settings."""

COMPLETED = ("Rounds", "Published")
"""Classes whose docstrings get their Args at import."""

DEFAULT = re.compile(r"^( +)(\w+) \((?:\w+, )?default ([^),]+)([^)]*)\):", re.MULTILINE)


def told_once(cls: Class, argument: re.Match[str]) -> str:
    """An argument without the default that its docstring says: the signature, which the reference
    shows too, gets it in place of a stand-in. One that the signature does not name keeps it, as
    does one whose range is said beside it."""
    indent, name, default, beside = argument.groups()
    if name not in cls.parameters:
        return argument[0]
    known = cls.parameters[name]
    if str(known.default) == "NOT_GIVEN":
        known.default = default
    return argument[0] if beside else f"{indent}{name}:"


class Docstrings(Extension):
    """Fills in the templates, which sources that are read without being run leave open, and lets
    examples show as code: griffe takes the title "Example:" for a remark's."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is None:
            return
        is_template = any(name in obj.docstring.value for name in TEMPLATES)
        if isinstance(obj, Class) and (is_template or obj.name in COMPLETED):
            found = getattr(import_module(obj.module.path), obj.name)
            obj.docstring.value = DEFAULT.sub(
                partial(told_once, obj), inspect.cleandoc(found.__doc__)
            )
        obj.docstring.value = re.sub(
            r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
        )
