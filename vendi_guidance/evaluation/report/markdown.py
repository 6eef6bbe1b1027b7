"""Pieces of Markdown."""

from collections.abc import Iterable


def row(cells: Iterable[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(map(cell, cells))} |"


def cell(text: str) -> str:
    """Text without meaning to Markdown."""
    escaped = "".join("\\" + c if c in "\\`*_[]<>|#" else c for c in text)
    return " ".join(escaped.split())
