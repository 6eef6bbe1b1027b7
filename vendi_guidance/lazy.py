"""Public names that are imported on first use.

A package lists its names in `__init__.pyi`, where type checkers and editors read them, and imports
none of them itself: `import vendi_guidance` must not cost what importing diffusers costs.
"""

import ast
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def homes_of(init: str) -> dict[str, str]:
    """The public names of a package, given its `__init__.py`, and the module that defines each."""
    stub = Path(init).with_suffix(".pyi").read_text("utf-8")
    imports = [it for it in ast.parse(stub).body if isinstance(it, ast.ImportFrom)]
    return {name.name: str(it.module) for it in imports for name in it.names}


def lazy_names(package: str, init: str) -> tuple[list[str], Callable, Callable]:
    """`__all__`, `__getattr__` and `__dir__` of a package whose `__init__.pyi` has its names."""
    homes = homes_of(init)

    def getattr_(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return list(homes), getattr_, lambda: sorted(homes)
