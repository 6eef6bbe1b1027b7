"""Distil a demo model to four steps without classifier-free guidance, as a LoRA of its network.

First the teacher generates trajectories with CFG. Then the LoRA learns to jump from any point of a
trajectory to its end. Both stages keep files in --work; the same command resumes.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import click
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import (
    DDIMScheduler,
    DiffusionPipeline,
    FlowMatchEulerDiscreteScheduler,
    SchedulerMixin,
    StableDiffusionXLPipeline,
)
from peft import LoraConfig, get_peft_model_state_dict
from torch import Tensor, nn
from tqdm import tqdm

from scripts.comparison.models import MODELS, merged
from scripts.demo.emoji import load_sheets
from scripts.demo.faces import sample_faces
from scripts.demo.flow import T5_TOKENS, WeightedLastToken
from scripts.demo.photos import sample_captions
from scripts.demo.train_faces import IMAGES
from scripts.demo.training import Training, autocast, train, training_options
from vendi_guidance.storage.tensors import load_tensors, save_tensors

Captions: TypeAlias = Callable[[int, np.random.Generator], list[str]]

CHUNK = 64  # captions per file of trajectories
OWN_FROM = 400  # training step from which the student also learns from its own jumps
BETWEEN = 0.25  # share of points between the teacher's levels, where guidance may evaluate
RATE = 2e-3  # learning rate

FIRST_SEED = 2**32  # of the trajectories, so that the student has not seen images of users' seeds


class Student(NamedTuple):
    """A LoRA: the number of its teacher's steps, among them those of 1, 2 and 4, and its rank."""

    steps: int
    rank: int


STUDENTS = {
    "demo-sdxl-turbo-lora": Student(8, 20),
    "demo-faces-turbo-lora": Student(16, 12),
    "demo-photos-turbo-lora": Student(16, 24),
    "demo-photos-tuned-turbo-lora": Student(16, 20),
}


@click.command(help=__doc__, context_settings={"show_default": True})
@training_options(700, batch=48, work="out/turbo")
@click.option("--model", "name", type=click.Choice(list(STUDENTS)), default=next(iter(STUDENTS)))
@click.option("--chunks", type=click.IntRange(1), default=28, help="Trajectory batches.")
def main(training: Training, name: str, chunks: int) -> None:
    student, base, output = STUDENTS[name], MODELS[name].base, training.assets / name
    caption = captions_of(base, training.assets)
    training = training._replace(work=training.work / name)
    training.work.mkdir(exist_ok=True)
    pipeline = merged(base, training.assets).to(training.device)
    pipeline.set_progress_bar_config(disable=True)
    sampling = {
        "num_inference_steps": student.steps,
        "guidance_scale": MODELS[base].guidance_scale,
    }
    if not is_flow(pipeline.scheduler):
        pipeline.scheduler = DDIMScheduler.from_config(
            from_noise(pipeline.scheduler).config, clip_sample=False, set_alpha_to_one=True
        )
    captions, trajectories = collect_trajectories(pipeline, caption, chunks, sampling, training)
    train_student(pipeline, captions, trajectories, student, training)
    save_lora(pipeline, output)


def captions_of(base: str, assets: Path) -> Captions:
    """Random captions as in a model's training set."""
    if base.startswith("demo-photos"):
        return sample_captions
    captioned = (
        sample_faces(IMAGES, 0) if base == "demo-faces" else load_sheets(assets / "demo-pictures")
    )
    return lambda count, rng: captioned.sample(count, rng)[1]


def from_noise(scheduler: SchedulerMixin) -> SchedulerMixin:
    """The scheduler with its first step at the highest noise level: SDXL's own spacing begins four
    steps at three quarters of the times, where the image is decided already."""
    if scheduler.config.get("timestep_spacing") != "leading":
        return scheduler
    return type(scheduler).from_config(scheduler.config, timestep_spacing="trailing")


def is_flow(scheduler: SchedulerMixin) -> bool:
    return isinstance(scheduler, FlowMatchEulerDiscreteScheduler)


@torch.no_grad()
def collect_trajectories(
    teacher: DiffusionPipeline,
    sample: Captions,
    chunks: int,
    sampling: dict,
    training: Training,
) -> tuple[list[str], Tensor]:
    """Trajectories of the teacher for random captions: loaded from --work, or generated.

    Returns:
        n captions and (n, steps + 1, 4, size, size) float32: noise first, clean latents last.
    """
    captions, trajectories = [], []
    for number in tqdm(range(chunks), desc="trajectories", unit="batch"):
        file = training.work / f"trajectories-{number:03}.safetensors"
        if not file.exists():
            rng = np.random.default_rng(number)
            prompts = [text for text in sample(CHUNK, rng) if text]
            with autocast(teacher.device, training.dtype):
                points = generate_trajectories(teacher, prompts, FIRST_SEED + number, sampling)
            save_tensors(file, {"points": points}, {"captions": prompts})
        header, tensors = load_tensors(file)
        captions += header["captions"]
        trajectories.append(tensors["points"].float())
    return captions, torch.cat(trajectories)


def generate_trajectories(
    teacher: DiffusionPipeline, prompts: list[str], seed: int, sampling: dict
) -> Tensor:
    """(prompts, steps + 1, 4, size, size) float16: a trajectory for each prompt."""
    generator, config = torch.Generator().manual_seed(seed), network_of(teacher).config
    shape = (len(prompts), config.in_channels, config.sample_size, config.sample_size)
    noise = torch.randn(shape, generator=generator).to(teacher.device)
    states = [noise]

    def keep(_pipeline: object, _step: int, _time: int, tensors: dict) -> dict:
        states.append(tensors["latents"])
        return {}

    teacher(prompts, latents=noise, output_type="latent", callback_on_step_end=keep, **sampling)
    return torch.stack(states, dim=1).half()


def train_student(
    pipeline: DiffusionPipeline,
    captions: list[str],
    trajectories: Tensor,
    student: Student,
    training: Training,
) -> None:
    """Train a LoRA of the pipeline's network to jump to the ends of trajectories.

    A student trained only on the teacher's states drifts away from them over several steps, so it
    later also learns from states that its own first jump leads to.
    """
    scheduler, network = pipeline.scheduler, network_of(pipeline)
    batch, device, flows = training.batch, training.device, is_flow(scheduler)
    predict = predictor(pipeline, captions)
    scheduler.set_timesteps(student.steps)
    times = torch.cat([scheduler.timesteps.float().cpu(), torch.zeros(1)])
    # the first point decides the image, so it gets twice its share
    shares = torch.tensor([2.0] + [1.0] * (student.steps - 1))
    lora = add_lora(network, student.rank)

    @torch.no_grad()
    def own_states(rows: Tensor, at: Tensor) -> Tensor:
        """States at times `at` after the student's own jumps from pure noise."""
        noise, (a, s) = trajectories[rows, 0], levels(scheduler, at)
        signal, sigma = levels(scheduler, times[:1])
        jump = predict(noise.to(device), times[:1].expand(len(rows)).to(device), rows).cpu()
        clean = (1.0 if flows else signal) * noise - sigma * jump
        return a * clean + s * (sigma * noise + signal * jump)

    def loss(step: int) -> Tensor:
        rows = torch.randint(len(trajectories), (batch,))
        points = torch.multinomial(shares, batch, replacement=True)
        further = torch.rand(batch) * (torch.rand(batch) < BETWEEN)
        at = torch.lerp(times[points], times[points + 1], further)
        at = at if flows else at.floor().clamp(min=1)  # 0 is the end, without noise
        three = (levels(scheduler, time) for time in (times[points], times[points + 1], at))
        states = between(trajectories[rows, points], trajectories[rows, points + 1], *three)
        if step >= OWN_FROM:
            half = max(1, batch // 2)
            states[:half] = own_states(rows[:half], at[:half])
        # the velocity that reaches the trajectory's end in one step; unlike squared errors,
        # absolute errors do not favour the mean of uncertain details, which is blurred
        signal, noise = levels(scheduler, at)
        target = ((1.0 if flows else signal) * states - trajectories[rows, -1]) / noise
        velocity = predict(states.to(device), at.to(device), rows)
        return F.huber_loss(velocity, target.to(device), delta=0.1) / 0.1

    train("student", [lora], loss, RATE, training)


Levels = tuple[Tensor, Tensor]
"""Factors of clean latents and of noise, (n, 1, 1, 1) each."""


def levels(scheduler: SchedulerMixin, times: Tensor) -> Levels:
    """The levels at (n,) times; 0 is the end."""
    times = times.view(-1, 1, 1, 1)
    if is_flow(scheduler):
        return 1 - times / 1000, times / 1000
    squared = scheduler.alphas_cumprod[times.long()].where(times > 0, 1.0)
    return squared.sqrt(), (1 - squared).sqrt()


def between(before: Tensor, after: Tensor, start: Levels, end: Levels, at: Levels) -> Tensor:
    """The states at `at` with the clean latents and noise of a step from `before` to `after`."""
    (a, s), (b, t), (c, u) = start, end, at
    determinant = a * t - b * s
    return (c * t - b * u) / determinant * before + (a * u - c * s) / determinant * after


def network_of(pipeline: DiffusionPipeline) -> Any:
    return getattr(pipeline, "unet", None) or pipeline.transformer


@torch.no_grad()
def predictor(
    pipeline: DiffusionPipeline, captions: list[str]
) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """A function that maps states, times and rows of captions to velocities."""
    network = network_of(pipeline)
    if isinstance(pipeline, StableDiffusionXLPipeline):
        prompts, _, pooled, _ = pipeline.encode_prompt(captions, do_classifier_free_guidance=False)
        size = network.config.sample_size * pipeline.vae_scale_factor
        time_ids = torch.tensor([size, size, 0, 0, size, size], device=pipeline.device)

        def velocities(states: Tensor, times: Tensor, rows: Tensor) -> Tensor:
            added = {"text_embeds": pooled[rows], "time_ids": time_ids.expand(len(rows), 6)}
            found = network(states, times, prompts[rows], added_cond_kwargs=added).sample.float()
            if pipeline.scheduler.config.prediction_type == "epsilon":
                signal, noise = levels(pipeline.scheduler, times.cpu())
                found = (found - noise.to(found) * states) / signal.to(found)
            return found

        return velocities

    texts = (captions, captions, captions)
    prompts, _, pooled, _ = pipeline.encode_prompt(*texts, do_classifier_free_guidance=False)
    network.set_attn_processor(WeightedLastToken(T5_TOKENS))
    prompts = prompts[:, : 1 - T5_TOKENS]  # all T5 tokens are zeros
    return lambda states, times, rows: network(states, prompts[rows], pooled[rows], times).sample


def add_lora(network: Any, rank: int) -> nn.ParameterList:
    """Freeze a network and add a LoRA to all layers of higher rank; returns its weights."""
    torch.manual_seed(0)
    layers = [
        name
        for name, layer in network.named_modules()
        if isinstance(layer, (nn.Linear, nn.Conv2d)) and min(layer.weight.flatten(1).shape) > rank
    ]
    network.requires_grad_(False)
    network.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=layers))
    return nn.ParameterList(weight for weight in network.parameters() if weight.requires_grad)


def save_lora(pipeline: DiffusionPipeline, folder: Path) -> None:
    """Save the network's LoRA in half precision, for `load_lora_weights`."""
    weights = get_peft_model_state_dict(network_of(pipeline).half())
    part = "unet" if hasattr(pipeline, "unet") else "transformer"
    pipeline.save_lora_weights(folder, **{f"{part}_lora_layers": weights})


if __name__ == "__main__":
    main()
