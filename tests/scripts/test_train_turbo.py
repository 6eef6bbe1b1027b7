"""The student's training in small: it resumes, and saves a LoRA that plain diffusers loads."""

from functools import partial

import pytest
import torch
from diffusers import DiffusionPipeline, StableDiffusionXLPipeline
from peft import get_peft_model_state_dict
from safetensors.torch import load_file

from scripts.comparison.models import MODELS
from scripts.demo import train_turbo, training
from scripts.demo.held_out import measure
from tests.helpers.commands import succeeds
from tests.helpers.small_demo import ASSETS, interrupt, small_demo
from vendi_guidance.runs.lora import WEIGHTS
from vendi_guidance.storage.tensors import load_tensors


@pytest.fixture(scope="module")
def teacher():
    pipe = StableDiffusionXLPipeline.from_pretrained(ASSETS / "demo-sdxl")
    pipe.set_progress_bar_config(disable=True)
    return pipe


def test_a_trajectory_leads_from_its_noise_to_what_the_teacher_draws(teacher):
    called = {"num_inference_steps": 8, "guidance_scale": 5.0}
    points = train_turbo.generate_trajectories(teacher, ["ear", "nose"], 1, called)
    assert points.shape == (2, 8 + 1, 4, 16, 16)
    noise = torch.randn(2, 4, 16, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(points[:, 0], noise.half())
    drawn = teacher(["ear", "nose"], latents=noise, output_type="latent", **called).images
    assert (points[:, -1] - drawn).norm() / drawn.norm() < 0.01


@pytest.mark.parametrize(
    ("name", "steps", "prompt", "size", "batch"),
    [
        ("demo-sdxl-turbo-lora", 8, "ear", 64, 1),
        ("demo-faces-turbo-lora", 16, "portrait, bun", 128, 2),
    ],
)
def test_an_interrupted_training_resumes_and_its_model_draws(
    name, steps, prompt, size, batch, tmp_path, monkeypatch
):
    monkeypatch.setattr(train_turbo, "measure", partial(measure, each=(1, 1)))
    monkeypatch.setattr(train_turbo, "OWN_FROM", 1)
    monkeypatch.setattr(train_turbo, "CHUNK", 4)
    monkeypatch.setattr(training, "SAVE_EVERY", 1)
    monkeypatch.setattr(train_turbo, "IMAGES", 100)
    work, output = tmp_path / "work" / name, tmp_path / name
    options = [*small_demo(tmp_path), f"--work={work.parent}", "--chunks=2", "--steps=2"]
    options += [f"--model={name}", f"--batch-size={batch}"]

    seeds, generate = [], train_turbo.generate_trajectories
    recorded = lambda *args: seeds.append(args[2]) or generate(*args)  # noqa: E731
    monkeypatch.setattr(train_turbo, "generate_trajectories", recorded)
    interrupt(monkeypatch, train_turbo.main, *options)
    (work / "trajectories-001.safetensors").unlink()
    succeeds(train_turbo.main, *options)
    # what was there was not generated again
    assert [seed - train_turbo.FIRST_SEED for seed in seeds] == [0, 1, 1]
    assert load_tensors(work / "student.safetensors")[0]["step"] == 2

    assert {file.name for file in output.iterdir()} == {"README.md", WEIGHTS}
    assert sum(file.stat().st_size for file in output.iterdir()) < 3e6
    card = (output / "README.md").read_text()
    assert f"trajectories of {steps} steps were drawn from the teacher" in card
    trained = load_file(output / WEIGHTS)
    assert all(weight.dtype == torch.float16 for weight in trained.values())
    assert any(weight.any() for name, weight in trained.items() if "lora_B" in name)
    pipe = DiffusionPipeline.from_pretrained(ASSETS / MODELS[name].base)
    pipe.set_progress_bar_config(disable=True)
    pipe.load_lora_weights(output)
    network = train_turbo.network_of(pipe)
    [adapter] = network.peft_config
    loaded = get_peft_model_state_dict(network, adapter_name=adapter)
    saved = {key.split(".", 1)[1]: weight.float() for key, weight in trained.items()}
    assert loaded.keys() == saved.keys()
    assert all(torch.equal(loaded[key], weight) for key, weight in saved.items())
    [image] = pipe(prompt, num_inference_steps=1, guidance_scale=0.0).images
    assert image.size == (size, size)


def test_between_two_of_the_teachers_states_are_those_of_its_own_step(teacher):
    schedule = teacher.scheduler
    schedule.set_timesteps(8)
    start, time, end = (train_turbo.levels(schedule, torch.tensor([at])) for at in (749, 700, 624))
    state, velocity = torch.randn(2, 1, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    after = schedule.step(velocity, 749, state).prev_sample
    clean = start[0] * state - start[1] * velocity
    noise = start[1] * state + start[0] * velocity
    passed = train_turbo.between(state, after, start, end, time)
    assert torch.allclose(passed, time[0] * clean + time[1] * noise, atol=1e-5)
    assert torch.equal(train_turbo.between(state, after, start, end, start), state)
