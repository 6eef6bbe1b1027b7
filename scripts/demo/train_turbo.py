"""Distil the demo SDXL to four steps without classifier-free guidance, as a LoRA of its UNet.

The teacher's trajectories, guided by CFG, are generated first. The LoRA makes the UNet jump from
any point of a trajectory to its end. Both resume from --work; the same command resumes.
"""

from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import DDIMScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from peft import LoraConfig, get_peft_model_state_dict
from torch import Tensor, nn
from tqdm import tqdm

from scripts.demo.cards import write_card
from scripts.demo.emoji import Emoji, load_sheets
from scripts.demo.held_out import Measured, measure
from scripts.demo.training import Training, autocast, train, training_options
from vendi_guidance.storage.tensors import load_tensors, save_tensors

NAME = "demo-sdxl-turbo-lora"
CFG = 5.0  # what the teacher's users take
CHUNK = 64  # captions of a file of trajectories
OWN_FROM = 400  # the training step from which on the student also learns from its own jumps
STEPS = 8  # of the teacher, where students of 1, 2, 4 or 8 steps stand

BETWEEN = 0.25  # share of points at a level between the teacher's, where guidance may stand
RANK = 20  # of every layer: 3 MB
RATE = 2e-3  # of learning

FIRST_SEED = 2**32  # of the trajectories: pictures of users' seeds are new to the student


@click.command(help=__doc__, context_settings={"show_default": True})
@training_options(700, batch=48, work="out/turbo")
@click.option("--chunks", type=click.IntRange(1), default=28, help="Batches of trajectories.")
def main(training: Training, chunks: int) -> None:
    emoji = load_sheets(training.assets / "demo-pictures")
    teacher, output = training.assets / "demo-sdxl", training.assets / NAME
    pipeline = StableDiffusionXLPipeline.from_pretrained(teacher).to(training.device)
    pipeline.set_progress_bar_config(disable=True)
    captions, trajectories = draw_trajectories(pipeline, emoji, chunks, training)
    seconds = train_student(pipeline, captions, trajectories, training)
    save_lora(pipeline, output)

    pipeline = StableDiffusionXLPipeline.from_pretrained(teacher, dtype=training.dtype)
    pipeline.to(training.device)

    def look(sampling_steps: int, cfg: float) -> Measured:
        sampling = {"num_inference_steps": sampling_steps, "guidance_scale": cfg}
        return measure(pipeline, NAME, sampling, training.assets)

    measured = {f"the teacher, {STEPS} steps, CFG scale {CFG:g}": look(STEPS, CFG)}
    pipeline.load_lora_weights(output)
    measured |= {f"{n} steps": look(n, 0.0) for n in (1, 2, 4, 8)}
    write_card(
        output,
        images=emoji,
        measured=measured,
        trajectories=len(captions),
        sampling_steps=STEPS,
        cfg=CFG,
        rank=RANK,
        training=training,
        seconds=seconds,
    )


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
            prompts = [text for text in emoji.draw(CHUNK, np.random.default_rng(number))[1] if text]
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
    """Train a LoRA of the pipeline's UNet to jump to trajectories' ends; returns the seconds.

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
    angles = angles_of(scheduler)
    first_time = scheduler.timesteps[:1]
    lora = add_lora(unet)

    def predict(states: Tensor, times: Tensor, rows: Tensor) -> Tensor:
        """Velocities at some times of trajectories."""
        conditions = {"text_embeds": pooled[rows], "time_ids": time_ids[: len(rows)]}
        return unet(
            states, times.to(device), prompts[rows], added_cond_kwargs=conditions
        ).sample.float()

    @torch.no_grad()
    def own(rows: Tensor, signal: Tensor, noise: Tensor) -> Tensor:
        """States where the student's own jumps from the first point lead."""
        first = trajectories[rows, 0].to(device)
        return noise * first - signal * predict(first, first_time.expand(len(rows)), rows)

    def loss(step: int) -> Tensor:
        rows, times, states = draw_states(scheduler, trajectories, batch)
        states = states.to(device)
        angle = angles[times].view(-1, 1, 1, 1).to(device)
        a, s = angle.cos(), angle.sin()
        if step >= OWN_FROM:
            half = batch // 2
            states[:half] = own(rows[:half], a[:half], s[:half])
        # the velocity for which this one step ends where the trajectory does; unlike squares,
        # absolute errors do not reward the mean of what is uncertain, which is blurred
        target = (a * states - trajectories[rows, -1].to(device)) / s
        return F.huber_loss(predict(states, times, rows), target, delta=0.1) / 0.1

    return train("student", [lora], loss, RATE, training)


def angles_of(scheduler: DDIMScheduler) -> Tensor:
    """The angle of each time: a state is its cosine of clean latents and its sine of noise."""
    return scheduler.alphas_cumprod.sqrt().arccos()


def draw_states(
    scheduler: DDIMScheduler, trajectories: Tensor, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """States of random trajectories, at the teacher's times or between two.

    Returns:
        (count,) the trajectories' numbers, (count,) times and (count, 4, 16, 16) states.
    """
    times = torch.cat([scheduler.timesteps, torch.zeros(1, dtype=torch.long)])
    angles = angles_of(scheduler)
    ends = torch.cat([angles[scheduler.timesteps], torch.zeros(1)])
    # the first point decides the image, so it gets twice its share
    shares = torch.tensor([2.0] + [1.0] * (STEPS - 1))
    rows = torch.randint(len(trajectories), (count,))
    points = torch.multinomial(shares, count, replacement=True)
    further = torch.rand(count) * (torch.rand(count) < BETWEEN)
    at = torch.lerp(times[points].float(), times[points + 1].float(), further).long()
    before, after = trajectories[rows, points], trajectories[rows, points + 1]
    return rows, at, between(before, after, ends[points], ends[points + 1], angles[at])


def between(before: Tensor, after: Tensor, start: Tensor, end: Tensor, angle: Tensor) -> Tensor:
    """The states (n, 4, 16, 16) that DDIM steps from one angle to another, (n,) each, pass at
    angles between: such a step is a rotation."""
    start, end, angle = (one.view(-1, 1, 1, 1) for one in (start, end, angle))
    whole = (start - end).sin()
    return (angle - end).sin() / whole * before + (start - angle).sin() / whole * after


def add_lora(unet: UNet2DConditionModel) -> nn.ParameterList:
    """Freeze a UNet and add a LoRA to all its layers whose weights have a rank above `RANK`.

    Returns:
        The weights to train.
    """
    torch.manual_seed(0)
    layers = [
        name
        for name, layer in unet.named_modules()
        if isinstance(layer, (nn.Linear, nn.Conv2d)) and min(layer.weight.flatten(1).shape) > RANK
    ]
    unet.requires_grad_(False)
    unet.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=layers))
    return nn.ParameterList(weight for weight in unet.parameters() if weight.requires_grad)


def save_lora(pipeline: StableDiffusionXLPipeline, folder: Path) -> None:
    """Write the UNet's LoRA for `load_lora_weights`, in half precision."""
    weights = get_peft_model_state_dict(pipeline.unet.half())
    pipeline.save_lora_weights(folder, unet_lora_layers=weights)


if __name__ == "__main__":
    main()
