"""Ids of parametrised tests."""

import re


def named(value):
    """`str(value)` without the addresses of functions, which differ from process to process."""
    return re.sub(r"<function (\w+) at \w+>", r"\1", str(value))
