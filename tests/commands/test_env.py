"""`vendi-guidance env`: what a bug report needs to say of the machine."""

import builtins
import json
import re
from importlib.metadata import version

import pytest
import torch
from click.testing import CliRunner

from vendi_guidance.commands import env


def run(*words: str):
    return CliRunner().invoke(env.main, words)


def test_it_names_each_package_and_its_version():
    said = run().output.splitlines()
    for name in ("torch", "diffusers", "transformers", "numpy"):
        assert [line.split() for line in said if line.startswith(f"{name} ")] == [
            [name, version(name)]
        ]


def test_it_names_the_package_itself_python_and_the_cpu():
    found = json.loads(run("--json").output)
    assert found["vendi-guidance"] == version("vendi-guidance")
    assert re.match(r"\w+ 3\.\d+\.\d+", found["Python"])
    assert re.match(r"cpu: .* threads, (computes|emulates) bfloat16$", found["devices"][0])


def test_each_extra_has_what_it_adds_and_bundles_are_left_out(monkeypatch):
    lines = [
        "torch>=2",
        'timm>=1; extra == "embedders"',
        'vendi-guidance[embedders]; extra == "all"',
    ]
    monkeypatch.setattr(env, "requires", lambda package: lines)
    extras = env.environment()["extras"]
    assert extras["embedders"] == {"timm": env.installed("timm")}
    assert "all" not in extras


def test_what_is_missing_is_said_to_be(monkeypatch):
    monkeypatch.setattr(
        env, "requires", lambda package: ["no-such-package", 'nor-this; extra == "embedders"']
    )
    said = run().output
    assert re.search(r"^no-such-package +not installed$", said, re.MULTILINE)
    assert re.search(r"^\[embedders\] +nor-this \(not installed\)$", said, re.MULTILINE)


def test_a_gpu_is_named_with_its_memory(monkeypatch):
    card = type("Card", (), {"name": "Some GPU", "total_memory": 24 * 2**30})
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    assert any(line.startswith("cuda:0: Some GPU, 24 GiB, ") for line in env.devices())


@pytest.mark.parametrize("problem", [ImportError, OSError])
def test_a_broken_torch_does_not_stop_it(monkeypatch, problem):
    real = builtins.__import__

    def broken(name, *arguments, **options):
        if name == "torch":
            raise problem("a library is missing")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", broken)
    assert env.devices()[1] == "torch cannot be imported"


def test_sources_that_are_not_installed_say_so(monkeypatch):
    def missing(package):
        raise env.PackageNotFoundError(package)

    monkeypatch.setattr(env, "requires", missing)
    done = run()
    assert done.exit_code == 2
    assert "is not installed" in done.output
