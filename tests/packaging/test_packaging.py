"""The package as a stranger installs it: an sdist, the wheel built from it, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.helpers.app_at_hand import app_process
from tests.helpers.browsing import chromium, visits, whole_session

REPOSITORY = Path(__file__).parents[2]

DEMO = ("assets/demo-sdxl/", "assets/demo-probe/")
"""What the package has of the assets: the app and the commands open the demo model."""

NOT_NEEDED = ("assets", "docs", "scripts", "tests")
"""Folders of the repository that a package must do without, but for the demo."""


def run(*words: object, cwd: Path, **variables: str) -> str:
    """Output of a command that succeeds."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
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
    assert len(list((copy / "dist").glob("*.tar.gz"))) == 1
    [built] = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--no-index", "--target", folder)
    run(sys.executable, "-m", "pip", "install", *options, wheel, cwd=folder)
    return folder


def python(installed: Path, *words: object, cwd: Path) -> str:
    """Output of Python with the installed package, outside the repository."""
    return run(sys.executable, *words, cwd=cwd, PYTHONPATH=str(installed))


def test_the_wheel_has_every_module_and_all_that_belongs_to_them(wheel, sources):
    expected = {
        name if name.startswith("vendi_guidance/") else f"vendi_guidance/{name}"
        for name in sources
        if name.startswith(("vendi_guidance/", "pipelines/", *DEMO))
    }
    found = set(zipfile.ZipFile(wheel).namelist())
    assert {name for name in found if ".dist-info/" not in name} == expected
    assert {"vendi_guidance/py.typed", "vendi_guidance/__init__.pyi"} <= found
    assert any(name.startswith("vendi_guidance/evaluation/report/templates/") for name in found)
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in found)


def test_the_package_comes_from_the_wheel(installed, tmp_path):
    show = "import vendi_guidance.pipelines as p; print(vendi_guidance.__file__, p.__file__)"
    files = python(installed, "-c", f"import vendi_guidance; {show}", cwd=tmp_path).split()
    assert [Path(file).parent for file in files] == [
        installed / "vendi_guidance",
        installed / "vendi_guidance" / "pipelines",
    ]


def test_generate_evaluate_and_score_run_from_the_wheel(installed, tiny_sdxl_folder, tmp_path):
    command = installed / "bin" / "vendi-guidance"
    words = ("cat", "--model", tiny_sdxl_folder, "--images-per-prompt", 3, "--steps", 2)
    python(installed, command, "generate", *words, "--device", "cpu", "--output", "a", cwd=tmp_path)
    rows = (tmp_path / "a" / "metadata.jsonl").read_text().splitlines()
    assert [json.loads(row)["prompt"] for row in rows] == ["cat"] * 3
    assert len(list((tmp_path / "a").glob("*.png"))) == 3

    embedders = ("--image-embedder", "pixels:8", "--prompt-embedder", f"sdxl:{tiny_sdxl_folder}")
    words = ("-m", "vendi_guidance", "evaluate", "a", *embedders, "--output", "report")
    said = python(installed, *words, cwd=tmp_path)
    assert "wrote report" in said
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<html" in page and "cat" in page

    without = "import sys; sys.modules['torchmetrics'] = None; from vendi_guidance import commands"
    words = ("score", "a", "--embedder", "pixels:2", "--sigma", 0.5, "--random-features", 16)
    said = python(installed, "-c", f"{without}; commands.main()", *words, cwd=tmp_path)
    assert said.startswith("RKE ") and "\nVendi " in said and "n = 3" in said


def test_tune_and_compare_run_from_the_wheel(
    installed, tiny_sdxl_folder, tiny_probe_folder, tmp_path
):
    (tmp_path / "prompts.txt").write_text("a fox\na hen\n")
    words = ["prompts.txt", "--model", tiny_sdxl_folder, "--steps", 1, "--device", "cpu"]
    words += ["--images-per-prompt", 2, "--prompt-embedder", f"sdxl:{tiny_sdxl_folder}"]
    words += ["--image-embedder", "pixels:4", "--faithfulness", f"probe:{tiny_probe_folder}"]
    command = installed / "bin" / "vendi-guidance"
    search = ("--trials", 1, "--images", 16, "--output", "tuned")
    said = python(installed, command, "tune", *words, *search, cwd=tmp_path)
    assert "wrote tuned/settings.json" in said
    assert json.loads((tmp_path / "tuned" / "settings.json").read_text())["settings"]

    methods = ("--method", "ours=0.5", "--method", "select=2", "--output", "compared")
    said = python(installed, command, "compare", *words, *methods, cwd=tmp_path)
    assert "wrote compared/comparison.html" in said
    assert "select from more" in (tmp_path / "compared" / "comparison.html").read_text()


def test_a_whole_session_in_a_browser_works_from_the_wheel(
    installed, tiny_sdxl_folder, tiny_probe_folder, tmp_path
):
    words = ("--model", tiny_sdxl_folder, "--probe", tiny_probe_folder, "--device", "cpu")
    small = ("--steps", 2, "--batch-size", 2)
    start = (installed / "bin" / "vendi-guidance", "app")
    where = {"cwd": tmp_path, "PYTHONPATH": installed, "TMPDIR": tmp_path}
    with (
        chromium() as browser,
        app_process(*words, *small, python=start, **where) as server,
        visits(browser, server.address) as visit,
    ):
        whole_session(visit(), tmp_path)


def test_the_demo_model_is_in_the_wheel(installed, tmp_path):
    command = installed / "bin" / "vendi-guidance"
    words = ("waving hand", "--images-per-prompt", 2, "--steps", 1, "--device", "cpu")
    python(installed, command, "generate", *words, "--output", "a", cwd=tmp_path)
    said = python(installed, command, "evaluate", "a", "--output", "report", cwd=tmp_path)
    assert "looks" in said


def test_a_type_checker_sees_the_types_of_the_lazy_names(tmp_path):
    code = "import torch\nfrom vendi_guidance import Gaussian, vendi\n"
    (tmp_path / "code.py").write_text(
        code + "reveal_type(vendi(torch.ones(2, 2), Gaussian(1.0)))\n"
    )
    # with the settings and the cache of `make test`, which has just filled it
    words = ("-m", "mypy", "--config-file", "pyproject.toml", tmp_path / "code.py")
    assert 'Revealed type is "torch._tensor.Tensor"' in run(sys.executable, *words, cwd=REPOSITORY)
