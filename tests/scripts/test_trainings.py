"""Trainings in small: they resume, and save what plain diffusers draws with."""

from functools import partial
from pathlib import Path

import click
import pytest
import torch
import torch.nn.functional as F
from diffusers import DiffusionPipeline, StableDiffusion3Pipeline
from peft import get_peft_model_state_dict
from PIL import Image
from safetensors.torch import load_file

from scripts.comparison.models import MODELS
from scripts.demo import flow, train_faces, train_pixart, train_turbo, training
from scripts.demo.emoji import VENDORS
from scripts.demo.flow import WeightedLastToken
from tests.conftest import ASSETS
from tests.helpers.commands import invoke, succeeds
from tests.helpers.tiny_transformers import network
from vendi_guidance.features.probe import load_probe
from vendi_guidance.runs.models import LORA_WEIGHTS
from vendi_guidance.storage.tensors import load_tensors

STEPS = 4
TURBO = "demo-sdxl-turbo-lora"


def small_demo(folder: Path) -> list[str]:
    """Options of a training script for batches of two images of two concepts. `folder` replaces
    assets/."""
    pictures = folder / "demo-pictures"
    pictures.mkdir()
    (pictures / "concepts.txt").write_text("ear\nnose\n")
    for vendor in VENDORS:
        Image.linear_gradient("L").resize((6 * 64, 2 * 64)).save(pictures / f"{vendor}.webp")
    (folder / "demo-sdxl").symlink_to(ASSETS.resolve() / "demo-sdxl")
    return [f"--assets={folder}", "--batch-size=2", "--device=cpu"]


def interrupt(patch: pytest.MonkeyPatch, command: click.Command, *words: str) -> None:
    """Run a training and interrupt it after its first checkpoint."""
    write = training.save

    def save(*args: object) -> None:
        write(*args)
        raise KeyboardInterrupt

    with patch.context() as once:
        once.setattr(training, "save", save)
        assert invoke(command, *words).exit_code == 1


def test_an_interrupted_training_ends_like_any_other_and_its_model_draws(tmp_path, monkeypatch):
    """A network of one layer, with a checkpoint every second step."""
    small = partial(train_pixart.make_pipeline, layers=1, heads=1, text_width=32)
    monkeypatch.setattr(train_pixart, "make_pipeline", small)
    monkeypatch.setattr(training, "SAVE_EVERY", 2)
    given = [*small_demo(tmp_path), f"--steps={STEPS}", "--dtype=float32"]
    interrupt(monkeypatch, train_pixart.main, *given, f"--work={tmp_path / 'resumed'}")
    for work in ("resumed", "whole"):
        succeeds(train_pixart.main, *given, f"--work={tmp_path / work}")
    files = (tmp_path / work / "pixart.safetensors" for work in ("resumed", "whole"))
    (one, resumed), (_, whole) = map(load_tensors, files)
    assert one["step"] == STEPS
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)

    pipe = DiffusionPipeline.from_pretrained(tmp_path / "demo-pixart")
    [image] = pipe("ear", num_inference_steps=2, use_resolution_binning=False).images
    assert image.size == (64, 64)


def test_an_interrupted_distillation_resumes_and_its_model_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(train_turbo, "OWN_FROM", 1)
    monkeypatch.setattr(train_turbo, "CHUNK", 4)
    monkeypatch.setattr(training, "SAVE_EVERY", 1)
    monkeypatch.setattr(train_turbo, "IMAGES", 100)
    work, output = tmp_path / "work" / TURBO, tmp_path / TURBO
    options = [*small_demo(tmp_path), f"--work={work.parent}", "--chunks=2", "--steps=2"]
    options += [f"--model={TURBO}", "--batch-size=1"]

    seeds, generate = [], train_turbo.generate_trajectories
    recorded = lambda *args: seeds.append(args[2]) or generate(*args)  # noqa: E731
    monkeypatch.setattr(train_turbo, "generate_trajectories", recorded)
    interrupt(monkeypatch, train_turbo.main, *options)
    (work / "trajectories-001.safetensors").unlink()
    succeeds(train_turbo.main, *options)
    # what was there was not generated again
    assert [seed - train_turbo.FIRST_SEED for seed in seeds] == [0, 1, 1]
    assert load_tensors(work / "student.safetensors")[0]["step"] == 2

    assert [file.name for file in output.iterdir()] == [LORA_WEIGHTS]
    trained = load_file(output / LORA_WEIGHTS)
    assert all(weight.dtype == torch.float16 for weight in trained.values())
    assert any(weight.any() for name, weight in trained.items() if "lora_B" in name)
    pipe = DiffusionPipeline.from_pretrained(ASSETS / MODELS[TURBO].base)
    pipe.load_lora_weights(output)
    network = train_turbo.network_of(pipe)
    [adapter] = network.peft_config
    loaded = get_peft_model_state_dict(network, adapter_name=adapter)
    saved = {key.split(".", 1)[1]: weight.float() for key, weight in trained.items()}
    assert loaded.keys() == saved.keys()
    assert all(torch.equal(loaded[key], weight) for key, weight in saved.items())
    [image] = pipe("ear", num_inference_steps=1, guidance_scale=0.0).images
    assert image.size == (64, 64)


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


def test_the_command_trains_a_stock_pipeline_and_a_probe_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(flow, "TEXT_WIDTHS", (32, 32))
    monkeypatch.setattr(train_faces, "VAE_WIDTHS", (4, 4, 4))
    for name in ("HEADS", "LAYERS"):
        monkeypatch.setattr(flow, name, 1)
    monkeypatch.setattr(train_faces, "IMAGES", 60)
    monkeypatch.setattr(train_faces, "HELD_OUT", 5)
    options = ("--vae-steps=1", "--steps=2", "--probe-steps=1", "--batch-size=2")
    options += (f"--work={tmp_path / 'work'}", f"--assets={tmp_path}", "--device=cpu")
    model = tmp_path / "demo-faces"

    def run() -> tuple[bytes, str]:
        printed = succeeds(train_faces.main, *options).output
        file = model / "transformer" / "diffusion_pytorch_model.safetensors"
        return file.read_bytes(), printed

    trained, printed = run()
    pipeline = DiffusionPipeline.from_pretrained(model)
    assert isinstance(pipeline, StableDiffusion3Pipeline)
    assert pipeline.transformer.config.sample_size == 32
    assert pipeline.vae.config.shift_factor and pipeline.vae.config.scaling_factor
    [image] = pipeline("portrait, bun", num_inference_steps=1, guidance_scale=2).images
    assert image.size == (128, 128)

    probe = load_probe(tmp_path / "demo-faces-probe")
    assert len(probe.looks([image])[0]) == 1 + len(probe.attributes)
    for head in probe.attributes:
        assert f"demo-faces-probe: {head} is right in " in printed
    assert "of unseen looks" in printed
    assert run()[0] == trained  # all is done: nothing is trained anew
