"""What a setting is: a type, valid values, a default and a help text, and how these are shown."""

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from inspect import Parameter, getdoc, signature
from numbers import Real
from textwrap import TextWrapper
from typing import Any

from vendi_guidance.kernels.base import check_count

Spelling = Callable[[str], str]
"""How the name of a setting is typed somewhere, such as `--diversity-level` for `level`."""


@dataclass(frozen=True)
class Setting:
    """A setting."""

    kind: type  # float, int or str
    least: float = 0
    most: float = math.inf
    above: bool = False  # whether `least` itself is invalid
    choices: tuple[str, ...] = ()  # an object with a method `view`, a space, is valid too
    none: str | None = None  # what None means; None if None is invalid
    typical: str | None = None  # values in use
    has_option: bool = True  # whether the command line has an option for it
    name: str = ""
    default: Any = None
    help: str = ""

    def check(self, value: Any, typed: Spelling = str) -> None:
        """Raise ValueError unless this is a valid value."""
        if value is None and self.none is not None:
            return
        if self.kind is int:
            return check_count(typed(self.name), value, int(self.least))
        if self.choices:
            is_valid = hasattr(value, "view") or value in self.choices
        else:
            is_number, most = isinstance(value, Real), min(self.most, sys.float_info.max)
            is_valid = is_number and self.least <= value <= most
            is_valid &= not (self.above and value == self.least)
        if not is_valid:
            raise ValueError(f"{typed(self.name)} must be {self.limits}, got {value!r}")

    @property
    def limits(self) -> str:
        """The valid values, as text."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if self.kind is int:
            return f"at least {self.least}"
        if math.isinf(self.most):
            return f"finite and {'greater than' if self.above else 'at least'} {self.least:g}"
        return f"between {self.least:g} and {self.most:g}"

    @property
    def shown(self) -> str:
        """The default, as text."""
        if self.default is None:
            return str(self.none)
        return f"{self.default:g}" if self.kind is float else str(self.default)

    @property
    def about(self) -> str:
        """Help, default, valid and typical values, as text."""
        text = f"{self.help} Default: {self.shown}. Valid: {self.limits}."
        return f"{text} Typical: {self.typical}." if self.typical else text


def setting(default: Any, kind: type = float, **about: Any) -> Any:
    """A field of a dataclass that is a setting; see `Setting`. Its help is in the docstring."""
    return field(default=default, metadata={"setting": Setting(kind, **about)})


def settings_of(kind: type[Any]) -> dict[str, Setting]:
    """The settings of a dataclass by name, with the help texts in its docstring and its bases'."""
    helps: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        arguments = (getdoc(base) or "").partition("Args:\n")[2].partition("\n\n")[0]
        helps |= re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {
        it.name: replace(
            it.metadata["setting"],
            name=it.name,
            default=it.default,
            help=" ".join(helps.get(it.name, "").split()),
        )
        for it in fields(kind)
    }


def describe(settings: Mapping[str, Setting], named: Spelling = str) -> str:
    """Settings, by the names `named`, as the Args section of a docstring."""
    wrapper = TextWrapper(100, initial_indent=8 * " ", subsequent_indent=12 * " ")
    wrapper.break_on_hyphens = False
    lines = (f"{named(it.name)} ({it.kind.__name__}): {it.about}" for it in settings.values())
    return "\n".join(map(wrapper.fill, lines)).strip()


def complete_docstring(kind: type[Any]) -> None:
    """List all settings of a dataclass in its docstring, with their valid and typical values."""
    start, _, rest = (kind.__doc__ or "").partition("Args:\n")
    end = rest.partition("\n\n")[2]
    kind.__doc__ = f"{start}Args:\n        {describe(settings_of(kind))}\n\n{end}"


def show_settings(
    function: Any,
    settings: Mapping[str, Setting],
    named: Spelling = str,
    more: Sequence[Parameter] = (),
) -> list[str]:
    """Add parameters to a function's signature, in place of `**changes` if it has that: `more`, and
    the settings by the names `named`. Returns the names of the new ones."""
    own = signature(function)
    ours = [*more] + [
        Parameter(named(name), Parameter.KEYWORD_ONLY, default=..., annotation=it.kind)
        for name, it in settings.items()
    ]
    listed = [it for it in own.parameters.values() if it.name != "changes"]
    rest = [listed.pop()] if listed[-1].kind is Parameter.VAR_KEYWORD else []
    function.__signature__ = own.replace(parameters=[*listed, *ours, *rest])
    return [it.name for it in ours]
