"""What GitHub runs."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read(path: Path) -> dict:
    """Of a workflow, whose key `on` YAML 1.1 reads as true."""
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_to_a_commit(path):
    used = re.findall(r"uses: (\S+)", path.read_text("utf-8"))
    assert used
    assert all(re.search(r"@[0-9a-f]{40}$", name) or name[0] == "." for name in used)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_nothing_may_write_but_the_job_that_publishes(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"].items()
    granted = {name: job["permissions"] for name, job in jobs if "permissions" in job}
    assert granted == ({"publish": {"id-token": "write"}} if path.stem == "publish" else {})


def test_the_oldest_python_that_the_package_allows_is_tested():
    declared = (ROOT / "pyproject.toml").read_text("utf-8")
    tested = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["newest"]["strategy"]
    [least] = re.findall(r'requires-python = ">=([\d.]+)"', declared)
    assert tested["matrix"]["python"][0] == least


def test_contributors_can_repeat_the_job_of_oldest_packages():
    steps = read(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["oldest"]["steps"]
    commands = " ".join(step.get("run", "") for step in steps)
    advice = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    folders = re.compile(r"tests/\{(.*)\}")
    assert folders.findall(commands) == folders.findall(advice)
    assert {"app", "commands", "features"} <= set(folders.findall(advice)[0].split(","))
    install = re.compile(r"--resolution.*")
    assert install.findall(advice)[0] in commands
