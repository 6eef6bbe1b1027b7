"""The version is that of pyproject.toml; the files that must repeat it agree."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


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
def test_every_file_has_the_version_of_the_package(file, pattern):
    assert first(pattern, file) == first(r'^version = "(.+)"$', "pyproject.toml")


def test_no_module_repeats_the_version():
    version = first(r'^version = "(.+)"$', "pyproject.toml")
    modules = (ROOT / "vendi_guidance").rglob("*.py")
    assert [str(file) for file in modules if f'"{version}"' in file.read_text("utf-8")] == []
