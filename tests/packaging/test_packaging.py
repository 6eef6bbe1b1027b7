"""The package as a stranger installs it: an sdist, the wheel built from it, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from tests.docs.test_docs import blocks_of, with_small_models
from tests.helpers.app_at_hand import app_process

REPOSITORY = Path(__file__).parents[2]

DEMO = ("assets/benchmarks/", "assets/demo-sdxl/", "assets/demo-probe/")
"""What the package has of the assets: the app and the commands open the demo model."""

LARGEST = 45_000_000  # bytes of a wheel, which most machines download in a few seconds

NOT_NEEDED = ("assets", "docs", "hub", "scripts", "tests")
"""Folders of the repository that a package must do without, but for the demo."""


def run(*words: object, cwd: Path, given: str = "", **variables: str) -> str:
    """Output of a command that succeeds, given a text to read."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
        input=given,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def sources() -> list[str]:
    """The files that git knows or would add, by their paths in the repository."""
    listed = run("git", "ls-files", "-z", "-co", "--exclude-standard", cwd=REPOSITORY)
    return [name for name in listed.split("\0") if name and (REPOSITORY / name).is_file()]


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory) -> Path:
    """Built from an sdist that was built from a clean copy."""
    copy = tmp_path_factory.mktemp("copy")
    for name in sources:
        if not name.startswith(NOT_NEEDED) or name.startswith(DEMO):
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, copy / name)
    run(sys.executable, "-m", "build", "--no-isolation", cwd=copy)
    packed, built = sorted((copy / "dist").iterdir(), key=lambda file: file.suffix)
    assert (packed.suffix, built.suffix) == (".gz", ".whl")
    run(sys.executable, "-m", "twine", "check", "--strict", packed, built, cwd=copy)
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--no-index", "--target", folder)
    run(sys.executable, "-m", "pip", "install", *options, wheel, cwd=folder)
    return folder


def test_the_wheel_has_every_module_and_all_that_belongs_to_them(wheel, sources):
    expected = {
        name if name.startswith("vendi_guidance/") else f"vendi_guidance/{name}"
        for name in sources
        if name.startswith(("vendi_guidance/", "pipelines/", *DEMO))
    }
    assert wheel.stat().st_size < LARGEST
    found = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in found if ".dist-info/" not in name} == expected
    assert {"vendi_guidance/py.typed", "vendi_guidance/__init__.pyi"} <= found
    assert any(name.startswith("vendi_guidance/evaluation/report/templates/") for name in found)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in found)


ONE_AFTER_THE_OTHER = """
import json, sys

sys.modules["torchmetrics"] = None  # of an extra
import vendi_guidance.pipelines
from vendi_guidance.commands import main

print(vendi_guidance.__file__, vendi_guidance.pipelines.__file__)

given = json.load(sys.stdin)
exec(given["code"])
for words in given["calls"]:
    main([str(word) for word in words], standalone_mode=False)
"""


def test_readmes_code_and_all_commands_run_from_the_wheel(
    installed, tiny_sdxl_folder, tiny_probe_folder, tmp_path
):
    (tmp_path / "prompts.txt").write_text("a fox\na hen\n")
    few = ("--images-per-prompt", 2, "--steps", 1, "--device", "cpu")
    tiny = ("--model", tiny_sdxl_folder, *few)
    texts = ("--prompt-embedder", f"sdxl:{tiny_sdxl_folder}")
    judge = ("--probe", tiny_probe_folder)
    calls = [
        ("generate", "cat", *tiny, "--output", "a"),
        ("evaluate", "a", "--image-embedder", "pixels:8", *texts, "--output", "report"),
        ("tune", "prompts.txt", *tiny, *texts, *judge, "--output", "tuned"),
        ("generate", "waving hand", *few, "--output", "demo"),
        ("evaluate", "demo", "--output", "looks"),
    ]
    code = with_small_models(blocks_of("README.md")[0], tiny_sdxl_folder)
    words = json.dumps({"code": code, "calls": calls}, default=str)
    where = {"PYTHONPATH": str(installed)}
    said = run(sys.executable, "-c", ONE_AFTER_THE_OTHER, cwd=tmp_path, given=words, **where)
    files = [Path(file).parent for file in said.splitlines()[0].split()]
    assert files == [installed / "vendi_guidance", installed / "vendi_guidance" / "pipelines"]
    rows = (tmp_path / "a" / "metadata.jsonl").read_text().splitlines()
    assert [json.loads(row)["prompt"] for row in rows] == ["cat"] * 2
    assert len(list((tmp_path / "a").glob("*.png"))) == 2
    for written in ("report/report.html", "tuned/tune.html"):
        assert f"wrote {written}" in said
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<html" in page and "cat" in page
    assert "a fox" in (tmp_path / "tuned" / "tune.html").read_text()
    assert "looks per prompt" in (tmp_path / "looks" / "report.html").read_text()
    help_text = run(installed / "bin" / "vendi-guidance", "--help", cwd=tmp_path, **where)
    assert "generate" in help_text


def test_the_app_runs_from_the_wheel(installed, tmp_path, monkeypatch):
    """With its demo model, style and examples."""
    monkeypatch.chdir(tmp_path)
    with app_process("--device", "cpu", PYTHONPATH=installed) as (_, address):
        page = httpx.get(address, timeout=200, trust_env=False).text
    assert "Vendi Guidance" in page and "waving hand" in page
