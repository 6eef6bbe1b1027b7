"""What the trainings of all demo models share: the loop, the autoencoder, and how a model is
saved."""

import json
import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import click
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDIMScheduler, DiffusionPipeline
from diffusers.training_utils import EMAModel
from torch import Tensor, nn
from tqdm import tqdm

from scripts.demo.emoji import Emoji
from vendi_guidance.commands.run_options import DEVICE, together
from vendi_guidance.runs.precision import computes_bfloat16
from vendi_guidance.storage.tensors import load_tensors, save_tensors

SAVE_EVERY = 500  # steps
SQUARE = 64  # pixels, of the images that an autoencoder learns
PROBE_BATCH = 64  # images


class Training(NamedTuple):
    """How a model is trained.

    Attributes:
        work: folder of the checkpoints.
        steps, batch: of the network; `batch` counts images.
        assets: folder of images, prompts and other models, and of the results.
        vae_steps, probe_steps: of the autoencoder and the probe, where they are trained too.
    """

    work: Path
    steps: int
    batch: int
    device: str
    dtype: torch.dtype
    assets: Path = Path("assets")
    vae_steps: int = 0
    probe_steps: int = 0

    @property
    def of_vae(self) -> "Training":
        """How its autoencoder is trained."""
        return self._replace(steps=self.vae_steps, batch=max(1, self.batch // 2))

    @property
    def of_probe(self) -> "Training":
        """How its probe is trained."""
        return self._replace(steps=self.probe_steps, batch=PROBE_BATCH)

    @property
    def machine(self) -> str:
        """What a model card says a model was trained on, and in which precision."""
        cores = torch.get_num_threads()
        name = "one CPU core" if cores == 1 else f"{cores} CPU cores"
        if self.device != "cpu":
            name = torch.cuda.get_device_name(self.device)
        return f"{name} in {str(self.dtype).removeprefix('torch.')}"


def train(
    name: str,
    modules: list[nn.Module],
    loss: Callable[[int], Tensor],
    rate: float,
    training: Training,
) -> float:
    """AdamW on `loss(step)` with warm-up and cosine decay; leaves averaged weights in `modules`.

    A step draws everything from a generator seeded by its number, so a resumed run repeats an
    uninterrupted one.

    Returns:
        The seconds that all steps took, those before the run was resumed included.
    """
    steps, device = training.steps, training.device
    model = nn.ModuleList(modules).to(device).train()
    file = training.work / f"{name}.safetensors"
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.01)
    average = EMAModel(model.parameters(), decay=0.999, use_ema_warmup=True, power=0.75)
    first, earlier = restore(file, model, optimizer, average) if file.exists() else (0, 0.0)
    began = perf_counter()
    progress = tqdm(range(first, steps), initial=first, total=steps, desc=name, unit="step")
    for step in progress:
        for group in optimizer.param_groups:
            decay = 0.5 * (1 + math.cos(math.pi * step / steps))
            group["lr"] = rate * min(1, (step + 1) / 100) * (0.02 + 0.98 * decay)
        torch.manual_seed(step)
        with autocast(device, training.dtype):
            value = loss(step)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.step(model.parameters())
        if (step + 1) % 20 == 0:
            progress.set_postfix(loss=f"{value.item():.4f}")
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == steps:
            done = {"step": step + 1, "seconds": earlier + perf_counter() - began}
            save(file, model, optimizer, average, done)
    average.copy_to(model.parameters())
    model.eval().requires_grad_(False)
    return earlier + perf_counter() - began


def training_options(
    steps: int, batch: int, work: str, vae_steps: int = 0, probe_steps: int = 0
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Options of a command that trains, as its argument `training`, with these defaults."""
    count, folder = click.IntRange(1), click.Path(path_type=Path)
    stages = {"--steps": steps, "--vae-steps": vae_steps, "--probe-steps": probe_steps}
    options = together(
        click.option("--assets", type=folder, default="assets", help="Images and the results."),
        click.option("--work", type=folder, default=work, help="Checkpoints."),
        *(click.option(flag, type=count, default=n) for flag, n in stages.items() if n),
        click.option("--batch-size", "batch", type=count, default=batch),
        click.option("--device", default=DEVICE),
        click.option(
            "--dtype",
            type=click.Choice(["auto", "float32", "bfloat16"]),
            default="auto",
            help="Precision of the computation; auto is bfloat16 where the device computes it "
            "itself.",
        ),
    )

    def with_options(main: Callable[..., None]) -> Callable[..., None]:
        @options
        @wraps(main)
        def command(**given: Any) -> None:
            given["dtype"] = dtype_of(given["dtype"], given["device"])
            own = {name: given.pop(name) for name in Training._fields if name in given}
            training = Training(**own)
            training.work.mkdir(parents=True, exist_ok=True)
            main(training=training, **given)

        return command

    return with_options


def dtype_of(asked: str, device: str) -> torch.dtype:
    """The precision with this name; what "auto" comes to is printed."""
    if asked == "auto":
        on_cpu = torch.device(device).type == "cpu"
        is_native = computes_bfloat16() if on_cpu else torch.cuda.is_bf16_supported(False)
        asked = "bfloat16" if is_native else "float32"
        click.echo(f"computing in {asked}; --dtype changes it", err=True)
    return getattr(torch, asked)


def autocast(device: torch.device | str, dtype: torch.dtype) -> torch.autocast:
    """Products of matrices in this precision."""
    return torch.autocast(
        torch.device(device).type, torch.bfloat16, enabled=dtype == torch.bfloat16
    )


def save(
    file: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: EMAModel,
    done: dict[str, float],
) -> None:
    """Write a checkpoint."""
    # not the state_dict, which has T5's shared embeddings twice: safetensors refuses that
    tensors: dict[str, Tensor | None] = {f"model.{k}": v for k, v in model.named_parameters()}
    tensors |= {f"average.{i}": value for i, value in enumerate(average.shadow_params)}
    for i, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{key}": value for key, value in moments.items()}
    save_tensors(file, tensors, done)


def restore(
    file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, average: EMAModel
) -> tuple[int, float]:
    """Load a checkpoint; returns the number of steps done, and the seconds they took."""
    header, tensors = load_tensors(file)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(tensors[f"model.{name}"])
    for i, shadow in enumerate(average.shadow_params):
        shadow.data.copy_(tensors[f"average.{i}"])
    average.optimization_step = header["step"]
    state = optimizer.state_dict()
    state["state"] = {}
    for key, value in tensors.items():
        if key.startswith("optimizer."):
            _, index, moment = key.split(".")
            state["state"].setdefault(int(index), {})[moment] = value
    optimizer.load_state_dict(state)
    return header["step"], header.get("seconds", 0.0)  # which older checkpoints lack


def train_vae(images: Tensor, widths: tuple[int, ...], training: Training) -> AutoencoderKL:
    """An AutoencoderKL of (n, 3, size, size) uint8 images with 3 levels of blocks of these widths.

    Its latents are (4, size/4, size/4), of unit deviation once scaled. Of images of more than 64
    pixels it learns squares of 64: it is convolutional, and a square takes less time.
    """
    torch.manual_seed(0)
    vae = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 3,
        up_block_types=("UpDecoderBlock2D",) * 3,
        block_out_channels=widths,
        norm_num_groups=widths[0] // 2,
        sample_size=images.shape[-1],
        mid_block_add_attention=False,
        force_upcast=False,
    )

    def loss(step: int) -> Tensor:
        chosen = torch.randint(len(images), (training.batch,))
        x = to_model_range(square(images[chosen]).to(training.device))
        posterior = vae.encode(x).latent_dist
        y = vae.decode(posterior.sample()).sample.float()
        # edges carry most of a 64-pixel image, so differences of neighbours count as well
        edges = sum(F.l1_loss(y.diff(dim=axis), x.diff(dim=axis)) for axis in (2, 3))
        # squares weigh most: flat colours that few images have are learnt by them, and late
        return F.l1_loss(y, x) + 20 * F.mse_loss(y, x) + edges + 1e-6 * posterior.kl().mean()

    train("vae", [vae], loss, 2e-3, training)
    latents = encode(vae, images, training.device)
    vae.register_to_config(scaling_factor=round(1 / latents.std().item(), 4))
    return vae


def square(images: Tensor) -> Tensor:
    """A random 64x64 part of (n, 3, size, size), the same of each; all of a smaller image."""
    room = images.shape[-1] - SQUARE
    if room <= 0:
        return images
    top, left = torch.randint(room // 4 + 1, (2,)).tolist()
    return images[..., 4 * top :, 4 * left :][..., :SQUARE, :SQUARE]


def to_model_range(pixels: Tensor) -> Tensor:
    """uint8 to floats in [-1, 1]."""
    return pixels.float() / 127.5 - 1


@torch.no_grad()
def encode(vae: AutoencoderKL, images: Tensor, device: str) -> Tensor:
    """(n, 3, size, size) uint8 to (n, 4, size/4, size/4) posterior means, unscaled."""
    return torch.cat(
        [vae.encode(to_model_range(part.to(device))).latent_dist.mean for part in images.split(128)]
    )


def noise_schedule() -> DDIMScheduler:
    """Velocity prediction at zero terminal SNR: what demo models are trained and sampled by."""
    # clip_sample: latents are not in [-1, 1]; clipping would ruin the images
    return DDIMScheduler(
        prediction_type="v_prediction",
        rescale_betas_zero_snr=True,
        timestep_spacing="trailing",
        clip_sample=False,
        set_alpha_to_one=True,
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
    )


def train_velocity(
    name: str,
    modules: list[nn.Module],
    predict: Callable[[Tensor, Tensor, list[str]], Tensor],
    emoji: Emoji,
    vae: AutoencoderKL,
    training: Training,
) -> float:
    """Train a diffusion network of emoji on precomputed latents; returns the seconds.

    Args:
        predict: velocities (batch, 4, 16, 16), given noisy latents, times (batch,) and captions.
    """
    scheduler, device = noise_schedule(), training.device
    images = encode(vae.to(device), emoji.pixels.flatten(0, 2), device)
    latents = (images * vae.config.scaling_factor).unflatten(0, emoji.pixels.shape[:3])

    def loss(step: int) -> Tensor:
        looks, captions = emoji.draw(training.batch, np.random.default_rng(step))
        clean = latents[tuple(torch.from_numpy(looks).T)]
        noise = torch.randn_like(clean)
        times = torch.randint(
            scheduler.config.num_train_timesteps, (training.batch,), device=device
        )
        velocity = predict(scheduler.add_noise(clean, noise, times), times, captions)
        return F.mse_loss(velocity.float(), scheduler.get_velocity(clean, noise, times))

    return train(name, modules, loss, 1e-3, training)


def save_half(pipeline: DiffusionPipeline, folder: Path) -> None:
    """Save in half precision, to be loaded in single precision unless asked otherwise."""
    pipeline.to(dtype=torch.float16).save_pretrained(folder)
    for file in folder.glob("text_encoder*/config.json"):
        # transformers loads in the config's precision, diffusers in single: make them agree
        config = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(
            json.dumps(config | {"dtype": "float32"}, indent=2) + "\n", encoding="utf-8"
        )
