"""Prompt-aware diversity: guidance for diffusers pipelines, and scores for finished batches.

`__init__.pyi` lists the public names. They are imported on first use: `import vendi_guidance` must
not cost what importing diffusers costs.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_HOME_OF = {
    name.name: statement.module
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text("utf-8")).body
    if isinstance(statement, ast.ImportFrom)
    for name in statement.names
}

__all__ = list(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
