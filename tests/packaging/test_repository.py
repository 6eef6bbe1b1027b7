"""One version, workflows that may do little, and imports that import-linter cannot see."""

import ast
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def first(pattern: str, file: str) -> str:
    found = re.search(pattern, (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert found, f"{file} has no {pattern}"
    return found[1]


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CITATION.cff", r"^version: (\S+)$"),
        ("CHANGELOG.md", r"^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$"),
        ("integrations/comfyui/pyproject.toml", r'^version = "(.+)"$'),
    ],
)
def test_every_file_has_the_version_of_the_package_which_no_module_repeats(file, pattern):
    version = first(r'^version = "(.+)"$', "pyproject.toml")
    assert first(pattern, file) == version
    modules = (ROOT / "vendi_guidance").rglob("*.py")
    assert [str(it) for it in modules if f'"{version}"' in it.read_text("utf-8")] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit_and_only_the_job_that_publishes_may_write(path):
    text = path.read_text("utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert used and all(re.search(r"@[0-9a-f]{40}$", it) or it[0] == "." for it in used)
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"].items()
    granted = {name: job["permissions"] for name, job in jobs if "permissions" in job}
    assert granted == ({"publish": {"id-token": "write"}} if path.stem == "publish" else {})


STUBS = (ROOT / "vendi_guidance").rglob("__init__.pyi")
PACKAGES = {".".join(stub.relative_to(ROOT).parent.parts) for stub in STUBS}

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


@pytest.mark.parametrize("file", sorted((ROOT / "vendi_guidance").rglob("*.py")), ids=str)
def test_modules_import_names_from_where_they_are_defined(file):
    room = file.relative_to(ROOT / "vendi_guidance").parts[0]
    for module in imports_of(file):
        assert module not in PACKAGES, f"{file} imports from a package's public names"
        if module.startswith("vendi_guidance.pipelines"):
            assert room in ABOVE_THE_PIPELINES, f"{file}, below the pipelines, imports one"


@pytest.mark.parametrize("file", sorted((ROOT / "pipelines").glob("*.py")), ids=str)
def test_a_pipeline_file_works_by_itself(file):
    """diffusers loads it as a custom pipeline, alone: it imports no other pipeline file."""
    own = {module for module in imports_of(file) if module.startswith("vendi_guidance")}
    assert not any(module.startswith("vendi_guidance.pipelines") for module in own)
    assert all(module.startswith("vendi_guidance.adapter.") for module in own)
