"""What import-linter cannot see: names that the package imports on first use, and its pipelines."""

import ast
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ABOVE_THE_PIPELINES = ("commands", "evaluation", "runs")


def imports_of(file: Path) -> set[str]:
    """The modules that a file imports from, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file} has a relative import"
            found.add(node.module or "")
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


@pytest.mark.parametrize("file", sorted((REPOSITORY / "vendi_guidance").rglob("*.py")), ids=str)
def test_modules_import_names_from_where_they_are_defined(file):
    room = file.relative_to(REPOSITORY / "vendi_guidance").parts[0]
    for module in imports_of(file):
        assert module != "vendi_guidance", f"{file} imports from the package's public names"
        if module.startswith("vendi_guidance.pipelines"):
            assert room in ABOVE_THE_PIPELINES, f"{file}, below the pipelines, imports one"


@pytest.mark.parametrize("file", sorted((REPOSITORY / "pipelines").glob("*.py")), ids=str)
def test_a_pipeline_file_works_by_itself(file):
    """diffusers loads it as a custom pipeline, alone: it imports no other pipeline file."""
    own = {module for module in imports_of(file) if module.startswith("vendi_guidance")}
    assert not any(module.startswith("vendi_guidance.pipelines") for module in own)
    assert all(module.startswith("vendi_guidance.adapter.") for module in own)
