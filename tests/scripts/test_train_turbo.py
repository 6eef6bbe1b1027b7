"""The student's training in small: it resumes, and saves a LoRA that plain diffusers loads."""

from functools import partial

import pytest
import torch
from click.testing import CliRunner
from diffusers import DiffusionPipeline, StableDiffusionXLPipeline
from peft import get_peft_model_state_dict
from safetensors.torch import load_file

from scripts.demo import train_turbo, training
from scripts.demo.held_out import measure
from tests.helpers.small_demo import ASSETS, small_demo
from vendi_guidance.runs.lora import WEIGHTS
from vendi_guidance.storage.tensors import load_tensors


@pytest.fixture(scope="module")
def teacher():
    pipe = StableDiffusionXLPipeline.from_pretrained(ASSETS / "demo-sdxl")
    pipe.set_progress_bar_config(disable=True)
    return pipe


def test_a_trajectory_leads_from_its_noise_to_what_the_teacher_draws(teacher):
    points = train_turbo.draw(teacher, ["ear", "nose"], 1, torch.float32)
    assert points.shape == (2, train_turbo.STEPS + 1, 4, 16, 16)
    noise = torch.randn(2, 4, 16, 16, generator=torch.Generator().manual_seed(1))
    assert torch.equal(points[:, 0], noise.half())
    drawn = teacher(
        ["ear", "nose"],
        latents=noise,
        num_inference_steps=train_turbo.STEPS,
        guidance_scale=train_turbo.CFG,
        output_type="latent",
    ).images
    assert (points[:, -1] - drawn).norm() / drawn.norm() < 0.05  # trajectories are in bfloat16


def test_an_interrupted_training_resumes_and_its_model_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(train_turbo, "measure", partial(measure, each=(1, 1)))
    monkeypatch.setattr(train_turbo, "OWN_FROM", 1)
    monkeypatch.setattr(train_turbo, "CHUNK", 4)
    monkeypatch.setattr(training, "SAVE_EVERY", 1)
    work, output = tmp_path / "work", tmp_path / train_turbo.NAME
    options = [*small_demo(tmp_path), f"--work={work}", "--chunks=2", "--steps=2"]

    def interrupt(*args):
        write(*args)
        raise KeyboardInterrupt

    write, drawn = training.save, []
    real = train_turbo.draw
    monkeypatch.setattr(train_turbo, "draw", lambda *args: drawn.append(args[2]) or real(*args))
    with monkeypatch.context() as once:
        once.setattr(training, "save", interrupt)
        assert CliRunner().invoke(train_turbo.main, options).exit_code == 1
    (work / "trajectories-001.safetensors").unlink()
    done = CliRunner().invoke(train_turbo.main, options)
    assert done.exit_code == 0, done.output
    # what was there was not generated again
    assert [seed - train_turbo.FIRST_SEED for seed in drawn] == [0, 1, 1]
    assert load_tensors(work / "student.safetensors")[0]["step"] == 2

    assert {file.name for file in output.iterdir()} == {"README.md", WEIGHTS}
    assert sum(file.stat().st_size for file in output.iterdir()) < 3e6
    card = (output / "README.md").read_text()
    assert "trajectories of 8 steps were drawn from the teacher" in card
    trained = load_file(output / WEIGHTS)
    assert all(weight.dtype == torch.float16 for weight in trained.values())
    assert any(weight.any() for name, weight in trained.items() if "lora_B" in name)
    pipe = DiffusionPipeline.from_pretrained(ASSETS / "demo-sdxl")
    pipe.set_progress_bar_config(disable=True)
    pipe.load_lora_weights(output)
    [name] = pipe.unet.peft_config
    loaded = get_peft_model_state_dict(pipe.unet, adapter_name=name)
    assert loaded.keys() == {key.removeprefix("unet.") for key in trained}
    assert all(torch.equal(loaded[key], trained[f"unet.{key}"].float()) for key in loaded)
    [image] = pipe("ear", num_inference_steps=1, guidance_scale=0.0).images
    assert image.size == (64, 64)


def test_between_two_of_the_teachers_states_are_those_of_its_own_step(teacher):
    schedule = teacher.scheduler
    schedule.set_timesteps(train_turbo.STEPS)
    angles = train_turbo.angles_of(schedule)
    start, time, end = (angles[at : at + 1] for at in (749, 700, 624))
    state, velocity = torch.randn(2, 1, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    after = schedule.step(velocity, 749, state).prev_sample
    clean = start.cos() * state - start.sin() * velocity
    noise = start.sin() * state + start.cos() * velocity
    passed = train_turbo.between(state, after, start, end, time)
    assert torch.allclose(passed, time.cos() * clean + time.sin() * noise, atol=1e-5)
    assert torch.equal(train_turbo.between(state, after, start, end, start), state)
