"""The faces demo's training, in small: what it trains is what the stock pipeline computes."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from diffusers import DiffusionPipeline, StableDiffusion3Pipeline

from scripts.demo import flow, held_out, train_faces
from scripts.demo.flow import Flow, WeightedLastToken
from scripts.demo.held_out import measure
from tests.helpers.commands import succeeds
from tests.helpers.tiny_transformers import network
from vendi_guidance.features.probe import load_probe


def test_one_weighted_token_stands_for_many_equal_ones():
    torch.manual_seed(0)
    transformer = network("SD3Transformer2DModel", num_layers=2, qk_norm="rms_norm")
    transformer.requires_grad_(False)
    latents, prompt, pooled = torch.randn(2, 4, 8, 8), torch.randn(2, 3, 16), torch.randn(2, 16)
    times = torch.tensor([10.0, 900.0])
    many = transformer(latents, F.pad(prompt, (0, 0, 0, 50)), pooled, times).sample
    transformer.set_attn_processor(WeightedLastToken(50))
    one = transformer(latents, F.pad(prompt, (0, 0, 0, 1)), pooled, times).sample
    torch.testing.assert_close(one, many)
    transformer.set_attn_processor(WeightedLastToken(5))
    other = transformer(latents, F.pad(prompt, (0, 0, 0, 1)), pooled, times).sample
    assert not torch.allclose(other, many)


@pytest.fixture
def small(monkeypatch):
    """A small transformer with small text encoders, whose model card counts one image of each
    prompt after one step; few faces."""
    monkeypatch.setattr(flow, "TEXT_WIDTHS", (32, 32))
    monkeypatch.setattr(held_out, "measure", partial(measure, each=(1, 1)))
    monkeypatch.setitem(flow.SAMPLING, "num_inference_steps", 1)
    monkeypatch.setattr(train_faces, "VAE_WIDTHS", (4, 4, 4))
    shape = Flow(heads=1, layers=1, patch=4, tokens=16, shift=3.0)
    monkeypatch.setattr(train_faces, "SHAPE", shape)
    monkeypatch.setattr(train_faces, "IMAGES", 60)
    monkeypatch.setattr(train_faces, "HELD_OUT", 5)


def test_the_command_trains_a_stock_pipeline_and_a_probe_and_resumes(small, tmp_path):
    (tmp_path / "prompts").mkdir()
    for file, prompt in {"faces": "portrait", "faces-named": "portrait, bun"}.items():
        (tmp_path / "prompts" / f"{file}.txt").write_text(prompt)
    options = ("--vae-steps=1", "--steps=2", "--probe-steps=1", "--batch-size=2")
    options += (f"--work={tmp_path / 'work'}", f"--assets={tmp_path}", "--device=cpu")
    model = tmp_path / "demo-faces"

    def run() -> bytes:
        succeeds(train_faces.main, *options)
        return (model / "transformer" / "diffusion_pytorch_model.safetensors").read_bytes()

    trained = run()
    pipeline = DiffusionPipeline.from_pretrained(model)
    assert isinstance(pipeline, StableDiffusion3Pipeline)
    assert pipeline.transformer.config.sample_size == 32
    assert pipeline.vae.config.shift_factor and pipeline.vae.config.scaling_factor
    pipeline.set_progress_bar_config(disable=True)
    [image] = pipeline("portrait, bun", num_inference_steps=1, guidance_scale=2).images
    assert image.size == (128, 128)
    card = (model / "README.md").read_text()
    assert "60 images" in card and "| 1 steps, CFG scale 4 |" in card

    judge = tmp_path / "demo-faces-probe"
    probe = load_probe(judge)
    assert len(probe.looks([image])[0]) == 1 + len(probe.attributes)
    accuracies = (judge / "README.md").read_text()
    assert "unseen looks" in accuracies
    assert all(f"| {head} | " in accuracies for head in probe.attributes)
    assert run() == trained  # all is done: nothing is trained anew
