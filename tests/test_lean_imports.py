"""Kernels, scores and the engine of guidance need torch, numpy, scipy and safetensors alone."""

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import vendi_guidance.kernels
import vendi_guidance.scores

ROOT = Path(__file__).parents[1]

BLOCKED = "accelerate click diffusers huggingface_hub jinja2 matplotlib PIL rich sklearn "
BLOCKED += "torchmetrics torchvision tqdm transformers"

PROGRAM = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}.split():
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocker())
{statement}
"""


def run(statement: str) -> subprocess.CompletedProcess:
    """A statement in a Python of its own, where the optional packages cannot be imported."""
    program = PROGRAM.format(blocked=BLOCKED, statement=statement)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


ENGINE = """
import torch
from tests.guidance import test_engine
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import Published
from vendi_guidance.guidance.step import Step
test_engine.test_guided_rounds_make_samples_differ_at_the_level_where_the_step_ends()
published = Engine(Published(objective="rke"), Memory(window=9))
step = published.modify(Step(index=0, count=2, latents=torch.randn(4, 3, 8, 8)))
assert step.latents.isfinite().all()
"""


def test_kernels_scores_the_engine_and_the_nodes_run_without_the_optional_packages():
    modules = [
        found.name
        for package in (vendi_guidance.kernels, vendi_guidance.scores)
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
        if found.name != "vendi_guidance.scores.metrics"
    ]
    statements = [
        f"for name in {modules}: importlib.import_module(name)",
        ENGINE,
        "from vendi_guidance.scores import *",
        "from vendi_guidance import Cosine, vendi",
        "print(round(float(vendi(torch.eye(3), Cosine())), 3))",
        "from integrations.comfyui import memory, sampling, scoring",
        "print(scoring.score(torch.zeros(2, 8, 8, 3))[0][:4])",
    ]
    found = run("\n".join(statements))
    assert found.returncode == 0, found.stderr
    assert found.stdout == "3.0\n1.00\n"


def test_importing_the_package_loads_neither_torch_nor_diffusers():
    found = run("import vendi_guidance; print({'torch', 'diffusers'} & set(sys.modules))")
    assert (found.returncode, found.stdout) == (0, "set()\n"), found.stderr


NEEDS = {
    "from vendi_guidance import VendiScore": (
        'a score as a metric needs torchmetrics: pip install "vendi-guidance[metrics]"'
    ),
    "import vendi_guidance.commands": "the command line needs click: pip install vendi-",
}


def test_what_is_not_installed_is_named_in_one_sentence():
    """Of each statement, the last line of its traceback."""
    found = run(
        f"import traceback\nfor statement in {[*NEEDS]!r}:\n"
        "    try: exec(statement)\n"
        "    except ImportError: traceback.print_exc()"
    )
    said = [line for line in found.stderr.splitlines() if line.startswith("ImportError: ")]
    for line, sentence in zip(said, NEEDS.values(), strict=True):
        assert line.startswith(f"ImportError: {sentence}")
    assert "During handling" not in found.stderr
