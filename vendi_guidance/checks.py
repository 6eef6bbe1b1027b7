"""Checks of arguments that several rooms take."""

from numbers import Integral
from typing import Any


def check_count(name: str, value: Any) -> None:
    """Raise ValueError unless `value` is a whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
