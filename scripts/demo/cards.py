"""Writes the model cards of the demo models and their probes from templates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from scripts.demo import emoji, faces, photos


def shared(values: Sequence[str], shares: Sequence[float]) -> str:
    """Format values with their shares: "bold 20%, regular 80%"."""
    return ", ".join(f"{value} {share:.0%}" for value, share in zip(values, shares, strict=True))


TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).with_name("templates")),
    undefined=StrictUndefined,
    keep_trailing_newline=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"format": format, "shared": shared}
TEMPLATES.globals |= {"emoji": emoji, "faces": faces, "photos": photos}


def write_card(folder: Path, **values: Any) -> None:
    """Write `folder`/README.md from the template with the folder's name and its values."""
    text = TEMPLATES.get_template(f"{folder.name}.md").render(values)
    (folder / "README.md").write_text(text, encoding="utf-8")
