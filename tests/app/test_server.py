"""Servers that are killed: what was saved is whole."""

import signal
from io import BytesIO
from zipfile import ZipFile

import httpx
import pytest

from tests.helpers.app_at_hand import app_process, served, usual, visitors
from tests.helpers.runs import read_run
from vendi_guidance.app.server import PREFIX

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing is killed there")


def test_what_was_saved_survives_a_kill(tiny_sdxl_folder, tiny_probe_folder, tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    words = ("--model", tiny_sdxl_folder, "--probe", tiny_probe_folder, "--device", "cpu")
    words += ("--steps", 10, "--batch-size", 2)
    with app_process(*words, TMPDIR=folder) as (process, address), visitors(address) as [visitor]:
        assert visitor.call("generate", *usual(prompts="cat\ndog", images=2))["success"]
        [file] = visitor.call("save")["output"]["data"]
        with ZipFile(BytesIO(visitor.http.get(file["url"]).content)) as packed:
            saved = packed.read("memory.safetensors")
        long = usual(prompts="cat\ndog", images=4)
        with pytest.raises(httpx.TransportError):
            for message in visitor.messages("generate", *long):
                if any(one["progress"] > 0.5 for one in message.get("progress_data", [])):
                    process.kill()
        assert process.wait(200) == -signal.SIGKILL
    [left] = folder.glob(f"{PREFIX}*")  # libraries may leave others
    [second] = left.glob("sessions/*/generation")
    for arm in ("without", "with"):
        images = read_run(second / arm).images
        assert 0 < len(images) < 8 and all(image.getbbox() for image in images)

    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with served(tiny_sdxl_folder, tiny_probe_folder) as address, visitors(address) as [visitor]:
        files = {"files": ("memory.safetensors", saved)}
        [stored] = visitor.http.post("gradio_api/upload", files=files).json()
        sent = {"path": stored, "meta": {"_type": "gradio.FileData"}}
        assert "4 images are remembered" in str(visitor.call("load", sent)["output"])
        assert visitor.call("generate", *usual())["success"]
        port = httpx.URL(address).port
        second_server = served(tiny_sdxl_folder, tiny_probe_folder, port=port)
        with pytest.raises(OSError, match=f"--port {port} is taken: name another"), second_server:
            pass
