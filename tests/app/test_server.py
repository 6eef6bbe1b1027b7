"""Servers that are killed: nothing half-written counts, and the next one cleans up."""

import os
import shutil
import signal
from pathlib import Path

import httpx
import pytest
from filelock import FileLock
from safetensors import safe_open

from tests.helpers.app_at_hand import app_process, served, usual, visitors
from tests.helpers.runs import read_run
from vendi_guidance.app.server import LOCK, PREFIX, remove_abandoned, workspace
from vendi_guidance.storage.files import UNFINISHED
from vendi_guidance.storage.imagefolder import METADATA

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed there")

KILLED_BEFORE = """
import os, signal, sys
from pathlib import Path
name, replace = sys.argv.pop(1), Path.replace

def dying(self, target):
    if Path(target).name == name:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)

Path.replace = dying
from vendi_guidance.commands import main
main(["app", *sys.argv[1:]])
"""
"""A server that is killed when it has written a file of this name, but not yet renamed it."""


@pytest.fixture
def serve(tiny_sdxl_folder, tiny_probe_folder, tmp_path):
    """Start a server, its files in tmp_path / "temporary": `with serve(...) as server`."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    words = ("--model", tiny_sdxl_folder, "--probe", tiny_probe_folder, "--device", "cpu")
    repository = Path(__file__).parents[2]

    def start(*before, **how):
        return app_process(*before, *words, TMPDIR=folder, PYTHONPATH=repository, **how)

    return start


TWO = {"prompts": "cat\ndog", "images": 2}


def save(visitor, path):
    """Download the memory."""
    [file] = visitor.call("save")["output"]["data"]
    path.write_bytes(visitor.http.get(file["url"]).content)
    return path


def load(visitor, path):
    """Upload a memory; returns what the page says then."""
    files = {"files": (path.name, path.read_bytes())}
    [stored] = visitor.http.post("gradio_api/upload", files=files).json()
    return visitor.call("load", {"path": stored, "meta": {"_type": "gradio.FileData"}})["output"]


def whole_files(folder):
    """Check everything in a folder that counts; returns the names of what was half-written."""
    for run in {path.parent for path in folder.rglob(METADATA)}:
        assert all(image.getbbox() for image in read_run(run).images)
    for path in folder.rglob("*"):
        if path.suffix == ".safetensors":
            with safe_open(path, "pt") as stored:
                assert all(stored.get_tensor(name).isfinite().all() for name in stored.keys())  # noqa: SIM118
    return [path.name for path in folder.rglob("*".join(UNFINISHED))]


def test_killed_while_generating_what_was_saved_is_whole_and_the_next_server_loads_it(
    serve, tiny_sdxl_folder, tiny_probe_folder, tmp_path, monkeypatch
):
    with serve() as server, visitors(server.address) as [visitor]:
        assert visitor.call("generate", *usual(**TWO))["success"]
        saved = save(visitor, tmp_path / "saved.safetensors")
        with pytest.raises(httpx.TransportError):
            for message in visitor.messages(
                "generate", *usual(prompts="cat\ndog", images=4, steps=10)
            ):
                if any(one["progress"] > 0.5 for one in message.get("progress_data", [])):
                    server.process.kill()
        assert server.process.wait(200) == -signal.SIGKILL
    [left] = (tmp_path / "temporary").glob(f"{PREFIX}*")  # libraries may leave others
    [session] = (left / "sessions").iterdir()
    [second] = [path for path in session.iterdir() if path.is_dir()]
    counts = [len(read_run(second / arm).images) for arm in ("without", "with")]
    assert all(0 < count < 8 for count in counts)
    whole_files(left)

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    with served(tiny_sdxl_folder, tiny_probe_folder) as address, visitors(address) as [visitor]:
        assert not left.exists()
        assert "4 images are remembered" in str(load(visitor, saved))
        assert visitor.call("generate", *usual())["success"]


def test_killed_while_saving_half_a_memory_has_no_name_that_counts(serve, tmp_path):
    name = "memory.safetensors"
    with (
        serve(name, python=("-c", KILLED_BEFORE)) as server,
        visitors(server.address) as [visitor],
    ):
        assert visitor.call("generate", *usual(**TWO))["success"]
        with pytest.raises(httpx.TransportError):
            visitor.call("save")
        assert server.process.wait(200) == -signal.SIGKILL
    [left] = (tmp_path / "temporary").glob(f"{PREFIX}*")  # libraries may leave others
    assert len(whole_files(left)) == 1
    assert list(left.rglob(name)) == []


def test_folders_of_killed_servers_go_and_others_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("killed", "alive", "older"):
        (tmp_path / f"{PREFIX}{name}" / "sessions").mkdir(parents=True)
        (tmp_path / f"{PREFIX}{name}" / LOCK).touch()
    (tmp_path / f"{PREFIX}older" / LOCK).unlink()
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / f"{PREFIX}killed", elsewhere)
    os.symlink(elsewhere, tmp_path / f"{PREFIX}link")
    kept = {f"{PREFIX}alive", f"{PREFIX}older", f"{PREFIX}link", "elsewhere"}
    with FileLock(tmp_path / f"{PREFIX}alive" / LOCK):
        with workspace() as own:
            remove_abandoned(tmp_path)
            assert {path.name for path in tmp_path.iterdir()} == {*kept, own.name}
        assert {path.name for path in tmp_path.iterdir()} == kept
    assert (elsewhere / LOCK).exists()
