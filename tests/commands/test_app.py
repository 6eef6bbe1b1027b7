"""`vendi-guidance app`."""

import signal
import sys

import httpx

from tests.helpers.app_at_hand import app_process, request_of
from tests.helpers.commands import assert_refused, invoke
from tests.helpers.runs import read_run
from vendi_guidance.app.studio import Session, probe_beside
from vendi_guidance.commands import app


def run(*words):
    return invoke(app.main, *words)


def test_what_is_missing_or_cannot_be_used_is_named(tmp_path, tiny_sdxl_folder, monkeypatch):
    assert_refused(run("--model", tmp_path), f"there is no model in {tmp_path}")
    assert_refused(run("--model", tiny_sdxl_folder, "--device", "abacus"), "'abacus' cannot be")
    assert_refused(run("--model", tiny_sdxl_folder, "--image-embedder", "eyes"), "'eyes'")
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert_refused(run(), "vendi-guidance app needs gradio", 'pip install "vendi-guidance[app]"')


def test_it_serves_this_machine_and_leaves_nothing_behind(tiny_sdxl_folder, tmp_path):
    words = ("--model", tiny_sdxl_folder, "--device", "cpu")
    with app_process(*words, TMPDIR=tmp_path) as (process, address):
        with httpx.Client(trust_env=False, timeout=200) as client:
            assert "Vendi Guidance" in client.get(address).text
        assert len(list(tmp_path.glob("vendi-guidance-app-*"))) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(200) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_demo_model_is_judged_by_the_probe_beside_it(tmp_path):
    models = ("demo-photos", "demo-faces", "demo-pixart")
    for name in (*models, "demo-photos-probe", "demo-faces-probe", "demo-probe"):
        (tmp_path / name).mkdir()
    found = [probe_beside(tmp_path / model) for model in models]
    probes = ("demo-photos-probe", "demo-faces-probe", "demo-probe")
    assert found == [tmp_path / name for name in probes]
    assert probe_beside(tmp_path / "demo-faces" / "elsewhere") is None
    assert app.EXAMPLES.keys() == {probe.name for probe in found}


def test_the_lora_rests_in_the_rounds(monkeypatch, tiny_sdxl_folder, tiny_lora_folder):
    rows = []

    def generate_once(folder, studio, *_):
        session = Session(folder)
        *_, generation = studio.generate(session, request_of(), lambda share, what: None)
        rows.extend(read_run(generation.folder / "with").rows)
        raise SystemExit

    monkeypatch.setattr(app, "serving", generate_once)
    run("--model", tiny_sdxl_folder, "--lora", tiny_lora_folder, "--undistilled", "adapters")
    assert {row["undistilled"] for row in rows} == {"adapters"}
