"""Distil the demo SDXL into a student that draws in four steps without classifier-free guidance.

The teacher's trajectories, guided by CFG, are drawn first. The student is its UNet, trained to jump
from any point of a trajectory to its end. Both resume from --work; the same command resumes.
"""

import shutil
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import StableDiffusionXLPipeline
from torch import Tensor
from tqdm import tqdm

from scripts.demo.emoji import Emoji, load_sheets
from scripts.demo.held_out import Measured, measure
from scripts.demo.model_card import write_turbo_card
from scripts.demo.training import Training, autocast, dtype_option, train
from vendi_guidance.storage.tensors import load_tensors, save_tensors

CFG = 5.0  # what the teacher's users take
OWN_FROM = 500  # the training step from which on the student also learns from its own jumps
STEPS = 8  # of the teacher, where students of 1, 2, 4 or 8 steps stand

FIRST_SEED = 2**32  # of the trajectories: pictures of users' seeds are new to the student


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--pictures", type=click.Path(path_type=Path), default="assets/demo-pictures")
@click.option("--teacher", type=click.Path(path_type=Path), default="assets/demo-sdxl")
@click.option("--work", type=click.Path(path_type=Path), default="out/turbo", help="Checkpoints.")
@click.option("--output", type=click.Path(path_type=Path), default="assets/demo-sdxl-turbo")
@click.option("--probe", type=click.Path(path_type=Path), default="assets/demo-probe")
@click.option("--prompts", type=click.Path(path_type=Path), default="assets/prompts")
@click.option("--chunks", type=click.IntRange(1), default=28, help="Batches of trajectories.")
@click.option("--steps", type=click.IntRange(1), default=800)
@click.option("--batch-size", type=click.IntRange(1), default=64)
@click.option("--machine", default="one CPU core", help="What --device is, for the model card.")
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu", is_eager=True)
@dtype_option
def main(
    pictures: Path,
    teacher: Path,
    work: Path,
    output: Path,
    probe: Path,
    prompts: Path,
    chunks: int,
    steps: int,
    batch_size: int,
    machine: str,
    device: str,
    dtype: torch.dtype,
) -> None:
    emoji = load_sheets(pictures)
    work.mkdir(parents=True, exist_ok=True)
    pipeline = StableDiffusionXLPipeline.from_pretrained(teacher).to(device)
    pipeline.set_progress_bar_config(disable=True)
    training = Training(work, steps, batch_size, device, dtype)
    captions, trajectories = draw_trajectories(pipeline, emoji, chunks, training)
    seconds = train_student(pipeline, captions, trajectories, training)
    others = shutil.ignore_patterns("unet", "README.md")
    shutil.copytree(teacher, output, ignore=others, dirs_exist_ok=True)
    pipeline.unet.half().save_pretrained(output / "unet")

    def look(model: Path, sampling_steps: int, cfg: float) -> Measured:
        pipeline = StableDiffusionXLPipeline.from_pretrained(model, dtype=dtype)
        sampling = {"num_inference_steps": sampling_steps, "guidance_scale": cfg}
        return measure(pipeline.to(device), sampling, prompts, probe)

    measured = {f"the teacher, {STEPS} steps, CFG scale {CFG:g}": look(teacher, STEPS, CFG)}
    measured |= {f"{n} steps": look(output, n, 0.0) for n in (1, 2, 4, 8)}
    drawing = f"{len(captions):,} trajectories of {STEPS} steps were drawn from the teacher"
    minutes = f"{seconds / 60:.0f} minutes in {str(dtype).removeprefix('torch.')}"
    trained = f"{steps:,} steps of {batch_size} points took {minutes} on {machine}"
    write_turbo_card(output, emoji, measured, drawing, trained, CFG)


@torch.no_grad()
def draw_trajectories(
    teacher: StableDiffusionXLPipeline,
    emoji: Emoji,
    chunks: int,
    training: Training,
) -> tuple[list[str], Tensor]:
    """Latents of the teacher on the way from noise to pictures of random captions.

    Returns:
        n captions and (n, STEPS + 1, 4, 16, 16) float32: noise first, clean latents last.
    """
    captions, trajectories = [], []
    for number in tqdm(range(chunks), desc="trajectories", unit="batch"):
        file = training.work / f"trajectories-{number:03}.safetensors"
        if not file.exists():
            prompts = [
                text
                for text in emoji.draw(training.batch, np.random.default_rng(number))[1]
                if text
            ]
            save_tensors(
                file,
                {"points": draw(teacher, prompts, FIRST_SEED + number, training.dtype)},
                {"captions": prompts},
            )
        header, tensors = load_tensors(file)
        captions += header["captions"]
        trajectories.append(tensors["points"].float())
    return captions, torch.cat(trajectories)


def draw(
    teacher: StableDiffusionXLPipeline, prompts: list[str], seed: int, dtype: torch.dtype
) -> Tensor:
    """(prompts, STEPS + 1, 4, 16, 16) float16: one trajectory of each prompt."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(prompts), 4, 16, 16, generator=generator).to(teacher.device)
    states = [noise]

    def keep(_pipeline: object, _step: int, _time: int, tensors: dict) -> dict:
        states.append(tensors["latents"])
        return {}

    with autocast(teacher.device, dtype):
        teacher(
            prompts,
            latents=noise,
            num_inference_steps=STEPS,
            guidance_scale=CFG,
            output_type="latent",
            callback_on_step_end=keep,
        )
    return torch.stack(states, dim=1).half()


def train_student(
    pipeline: StableDiffusionXLPipeline,
    captions: list[str],
    trajectories: Tensor,
    training: Training,
) -> float:
    """Train the pipeline's UNet to jump to trajectories' ends; returns the seconds.

    A student that only sees the teacher's states drifts from them in several steps, so that it is
    later shown states that its own first jump leads to.
    """
    scheduler, unet = pipeline.scheduler, pipeline.unet
    batch, device = training.batch, training.device
    with torch.no_grad():
        prompts, _, pooled, _ = pipeline.encode_prompt(captions, do_classifier_free_guidance=False)
    size = unet.config.sample_size * pipeline.vae_scale_factor
    time_ids = torch.tensor([size, size, 0, 0, size, size], device=device).expand(batch, 6)
    scheduler.set_timesteps(STEPS)
    times = scheduler.timesteps
    signal = scheduler.alphas_cumprod[times].sqrt()
    noise = (1 - signal**2).sqrt()
    # the first point decides the picture, so it gets twice its share
    shares = torch.tensor([2.0] + [1.0] * (STEPS - 1))

    def levels(points: Tensor) -> tuple[Tensor, Tensor]:
        a, s = (level[points].view(-1, 1, 1, 1).to(device) for level in (signal, noise))
        return a, s

    def predict(states: Tensor, points: Tensor, rows: Tensor) -> Tensor:
        """Velocities at some points of trajectories."""
        conditions = {"text_embeds": pooled[rows], "time_ids": time_ids[: len(rows)]}
        return unet(
            states, times[points].to(device), prompts[rows], added_cond_kwargs=conditions
        ).sample.float()

    @torch.no_grad()
    def own(points: Tensor, rows: Tensor) -> Tensor:
        """States where the student's own jumps from the first point lead."""
        first = trajectories[rows, 0].to(device)
        a, s = levels(points)
        return s * first - a * predict(first, torch.zeros_like(points), rows)

    def loss(step: int) -> Tensor:
        rows = torch.randint(len(captions), (batch,))
        points = torch.multinomial(shares, batch, replacement=True)
        states, ends = trajectories[rows, points].to(device), trajectories[rows, -1].to(device)
        if step >= OWN_FROM:
            half = batch // 2
            states[:half] = own(points[:half], rows[:half])
        a, s = levels(points)
        # the velocity for which this one step ends where the trajectory does; unlike squares,
        # absolute errors do not reward the mean of what is uncertain, which is blurred
        target = (a * states - ends) / s
        return F.huber_loss(predict(states, points, rows), target, delta=0.1) / 0.1

    return train("student", [unet], loss, 3e-4, training)


if __name__ == "__main__":
    main()
