"""The flow demo's training, in small: what it trains is what the stock pipeline computes."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from diffusers import DiffusionPipeline, SD3Transformer2DModel, StableDiffusion3Pipeline

from scripts.demo import train_flow
from scripts.demo.flow import WeightedLastToken, make_silent_t5
from scripts.demo.letters import Letters
from tests.conftest import SCRIPTS
from vendi_guidance.features.probe import load_probe

ASSETS = SCRIPTS.parent / "assets"


@pytest.fixture
def letters() -> Letters:
    """A face of every look, and one that is held out."""
    kinds = np.array([*np.ndindex(5, 2, 2), (0, 0, 0)])
    pixels = torch.randint(0, 256, (26, 21, 64, 64), generator=torch.Generator().manual_seed(0))
    return Letters((*["family"] * 20, "pt-serif"), kinds, pixels.to(torch.uint8))


def test_one_weighted_token_stands_for_many_equal_ones():
    torch.manual_seed(0)
    transformer = SD3Transformer2DModel(
        sample_size=4,
        in_channels=4,
        out_channels=4,
        num_layers=2,
        num_attention_heads=2,
        attention_head_dim=8,
        caption_projection_dim=16,
        joint_attention_dim=8,
        pooled_projection_dim=8,
        pos_embed_max_size=2,
        qk_norm="rms_norm",
    ).requires_grad_(False)
    latents, prompt, pooled = torch.randn(2, 4, 4, 4), torch.randn(2, 3, 8), torch.randn(2, 8)
    times = torch.tensor([10.0, 900.0])
    many = transformer(latents, F.pad(prompt, (0, 0, 0, 50)), pooled, times).sample
    with WeightedLastToken(50):
        one = transformer(latents, F.pad(prompt, (0, 0, 0, 1)), pooled, times).sample
    torch.testing.assert_close(one, many)
    with WeightedLastToken(5):
        other = transformer(latents, F.pad(prompt, (0, 0, 0, 1)), pooled, times).sample
    assert not torch.allclose(other, many)


def test_the_t5_answers_zeros_to_any_text():
    encoder, tokenizer = make_silent_t5(8)
    ids = tokenizer(["Zwölf!", ""], padding="max_length", max_length=9, return_tensors="pt")
    answer = encoder(ids.input_ids)[0]
    assert answer.shape == (2, 9, 8) and not answer.any()


def test_the_command_trains_a_stock_pipeline_and_a_probe_and_resumes(
    letters, small_flow, tmp_path, monkeypatch
):
    monkeypatch.setattr(train_flow, "fetch", lambda folder: None)
    monkeypatch.setattr(train_flow, "load", lambda folder: letters)
    monkeypatch.setattr(train_flow, "VAE_WIDTHS", (4, 4, 4))
    monkeypatch.setattr(train_flow, "SHAPE", small_flow)
    steps = ("--vae-steps", "1", "--flow-steps", "2", "--probe-steps", "1", "--batch-size", "2")
    folders = ("--work", str(tmp_path / "work"), "--output", str(tmp_path), "--device", "cpu")
    folders += ("--prompts", str(ASSETS / "prompts"))

    def run(*stage: str) -> str:
        done = CliRunner().invoke(train_flow.main, [*steps, *folders, *stage])
        assert done.exit_code == 0, done.output
        return done.output

    run()
    pipeline = DiffusionPipeline.from_pretrained(tmp_path / "demo-flow")
    assert isinstance(pipeline, StableDiffusion3Pipeline)
    pipeline.set_progress_bar_config(disable=True)
    [image] = pipeline("letter g, bold", num_inference_steps=2, guidance_scale=2).images
    assert image.size == (64, 64)
    config = json.loads((tmp_path / "demo-flow" / "vae" / "config.json").read_text())
    assert config["shift_factor"] and config["scaling_factor"]
    card = (tmp_path / "demo-flow" / "README.md").read_text()
    assert "520 images" in card and "| 1 steps, CFG scale 4 |" in card

    probe = load_probe(tmp_path / "demo-letters-probe")
    assert len(probe.looks([image])[0]) == 4
    assert "unseen families" in (tmp_path / "demo-letters-probe" / "README.md").read_text()

    before = (tmp_path / "demo-flow/transformer/diffusion_pytorch_model.safetensors").read_bytes()
    run("--stage", "diffusion")  # all is done: nothing is trained anew
    after = (tmp_path / "demo-flow/transformer/diffusion_pytorch_model.safetensors").read_bytes()
    assert before == after
