"""The demo PixArt's training in small: it resumes, and saves what plain diffusers draws with."""

from functools import partial

import torch
from diffusers import DiffusionPipeline

from scripts.demo import held_out, train_pixart, training
from scripts.demo.held_out import measure
from tests.helpers.commands import succeeds
from tests.helpers.small_demo import interrupt, small_demo
from vendi_guidance.storage.tensors import load_tensors

STEPS = 4


def test_an_interrupted_training_ends_like_any_other_and_its_model_draws(tmp_path, monkeypatch):
    """A network of one layer, with a checkpoint every second step."""
    small = partial(train_pixart.make_pipeline, layers=1, heads=1, text_width=32)
    monkeypatch.setattr(train_pixart, "make_pipeline", small)
    monkeypatch.setattr(held_out, "measure", partial(measure, each=(2, 1)))
    monkeypatch.setattr(training, "SAVE_EVERY", 2)
    given = [*small_demo(tmp_path), f"--steps={STEPS}", "--dtype=float32"]
    interrupt(monkeypatch, train_pixart.main, *given, f"--work={tmp_path / 'resumed'}")
    for work in ("resumed", "whole"):
        succeeds(train_pixart.main, *given, f"--work={tmp_path / work}")
    (one, resumed), (_, whole) = (
        load_tensors(tmp_path / work / "pixart.safetensors") for work in ("resumed", "whole")
    )
    assert one["step"] == STEPS
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)

    pipe = DiffusionPipeline.from_pretrained(tmp_path / "demo-pixart")
    pipe.set_progress_bar_config(disable=True)
    [image] = pipe("ear", num_inference_steps=2, use_resolution_binning=False).images
    assert image.size == (64, 64)
    card = (tmp_path / "demo-pixart" / "README.md").read_text()
    assert "4 steps of 2 images took 0 minutes on one CPU core in float32." in card
    assert "`demo-probe` in float32" in card and "| 16 steps, CFG scale 3 | " in card
    assert "Twemoji" in card
