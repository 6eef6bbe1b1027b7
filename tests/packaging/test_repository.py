"""What the repository says of itself: one version, and workflows on GitHub that may do little."""

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
