"""What tests of every part say in one line."""

from collections.abc import Callable
from typing import Any

import pytest


def table(names: str, *rows: Any, ids: Any = None) -> pytest.MarkDecorator:
    """Run a test once for each row, whose values are the arguments with these names."""
    return pytest.mark.parametrize(names, rows, ids=ids)


def refuses(
    message: str, function: Callable[..., Any], *given: Any, error: Any = ValueError, **named: Any
) -> None:
    """Check that a call raises an error whose text matches."""
    __tracebackhide__ = True
    with pytest.raises(error, match=message):
        function(*given, **named)
