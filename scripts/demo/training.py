"""Shared by the trainings of all demo models: the loop, the autoencoder and saving a model."""

import json
import math
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import click
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDIMScheduler, DDPMScheduler, DiffusionPipeline
from diffusers.training_utils import EMAModel
from torch import Tensor, nn
from tqdm import tqdm

from vendi_guidance.commands.run_options import DEVICE, together
from vendi_guidance.runs.loading import computes_bfloat16
from vendi_guidance.storage.tensors import load_tensors, save_tensors

SAVE_EVERY = 500  # steps
SQUARE = 64  # pixels: height and width of the crops that an autoencoder is trained on
PROBE_BATCH = 64  # images

AnyScheduler: TypeAlias = DDIMScheduler | DDPMScheduler


class Training(NamedTuple):
    """Settings of a training.

    Attributes:
        work: folder of the checkpoints.
        steps, batch: training steps of the network, and images per step.
        device, dtype: where and in which precision it is trained.
        assets: folder of images, prompts and other models, and of the results.
        vae_steps, probe_steps: training steps of the autoencoder and the probe, if any.
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
        """Settings for the autoencoder."""
        return self._replace(steps=self.vae_steps, batch=max(1, self.batch // 2))

    @property
    def of_probe(self) -> "Training":
        """Settings for the probe."""
        return self._replace(steps=self.probe_steps, batch=PROBE_BATCH)


def train(
    name: str,
    modules: list[nn.Module],
    loss: Callable[[int], Tensor],
    rate: float,
    training: Training,
) -> None:
    """Minimise `loss(step)` by AdamW with warm-up and cosine decay; `modules` get averaged weights.

    Each step seeds torch's generator with its index, so a resumed run repeats an uninterrupted one.
    """
    steps, device = training.steps, training.device
    model = nn.ModuleList(modules).to(device).train()
    file = training.work / f"{name}.safetensors"
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.99), weight_decay=0.01)
    average = EMAModel(model.parameters(), decay=0.999, use_ema_warmup=True, power=0.75)
    first = restore(file, model, optimizer, average) if file.exists() else 0
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
            save(file, model, optimizer, average, step + 1)
    average.copy_to(model.parameters())
    model.eval().requires_grad_(False)


def training_options(
    steps: int, batch: int, work: str, vae_steps: int = 0, probe_steps: int = 0
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator with the options of a training, passed to the command as `training`; arguments
    are the defaults, and a stage of 0 steps has no option."""
    count, folder = click.IntRange(1), click.Path(path_type=Path)
    stages = {"--steps": steps, "--vae-steps": vae_steps, "--probe-steps": probe_steps}
    options = together(
        click.option(
            "--assets", type=folder, default="assets", help="Folder of images and results."
        ),
        click.option("--work", type=folder, default=work, help="Folder of checkpoints."),
        *(click.option(flag, type=count, default=n) for flag, n in stages.items() if n),
        click.option("--batch-size", "batch", type=count, default=batch),
        click.option("--device", default=DEVICE),
        click.option(
            "--dtype",
            type=click.Choice(["auto", "float32", "bfloat16"]),
            default="auto",
            help="Precision of the computation; auto is bfloat16 where the hardware supports it.",
        ),
    )

    def with_options(main: Callable[..., None]) -> Callable[..., None]:
        @options
        @wraps(main)
        def command(**values: Any) -> None:
            values["dtype"] = dtype_of(values["dtype"], values["device"])
            own = {name: values.pop(name) for name in Training._fields if name in values}
            training = Training(**own)
            training.work.mkdir(parents=True, exist_ok=True)
            main(training=training, **values)

        return command

    return with_options


def dtype_of(name: str, device: str) -> torch.dtype:
    """The precision with this name; prints which one "auto" selects."""
    if name == "auto":
        on_cpu = torch.device(device).type == "cpu"
        is_native = computes_bfloat16() if on_cpu else torch.cuda.is_bf16_supported(False)
        name = "bfloat16" if is_native else "float32"
        click.echo(f"computing in {name}; --dtype changes it", err=True)
    return getattr(torch, name)


def autocast(device: torch.device | str, dtype: torch.dtype) -> torch.autocast:
    """Autocast to this precision: bfloat16, or none for float32."""
    return torch.autocast(
        torch.device(device).type, torch.bfloat16, enabled=dtype == torch.bfloat16
    )


def save(
    file: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: EMAModel,
    step: int,
) -> None:
    """Write a checkpoint."""
    # not the state_dict: it has T5's shared embeddings twice, which safetensors refuses
    tensors: dict[str, Tensor | None] = {f"model.{k}": v for k, v in model.named_parameters()}
    tensors |= {f"average.{i}": value for i, value in enumerate(average.shadow_params)}
    for i, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{i}.{key}": value for key, value in moments.items()}
    save_tensors(file, tensors, {"step": step})


def restore(
    file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, average: EMAModel
) -> int:
    """Load a checkpoint; returns the number of steps done."""
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
    return int(header["step"])


def train_vae(images: Tensor, widths: tuple[int, ...], training: Training) -> AutoencoderKL:
    """Train an AutoencoderKL of three levels with these widths on (n, 3, size, size) uint8 images.

    Its latents are (4, size/4, size/4), with unit standard deviation once scaled. Images larger
    than 64 pixels are cropped to 64: it is convolutional, and crops take less time.
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
        x = to_model_range(crop(images[chosen]).to(training.device))
        posterior = vae.encode(x).latent_dist
        y = vae.decode(posterior.sample()).sample.float()
        # edges make up most of a 64-pixel image, so differences of neighbours count as well
        edges = sum(F.l1_loss(y.diff(dim=axis), x.diff(dim=axis)) for axis in (2, 3))
        # the squared error has the highest weight: it teaches rare flat colours, and late
        return F.l1_loss(y, x) + 20 * F.mse_loss(y, x) + edges + 1e-6 * posterior.kl().mean()

    train("vae", [vae], loss, 2e-3, training)
    latents = encode(vae, images, training.device)
    vae.register_to_config(scaling_factor=round(1 / latents.std().item(), 4))
    return vae


def crop(images: Tensor) -> Tensor:
    """A random 64x64 crop of (n, 3, size, size), at the same place in all; smaller images stay."""
    room = images.shape[-1] - SQUARE
    if room <= 0:
        return images
    top, left = torch.randint(room // 4 + 1, (2,)).tolist()
    return images[..., 4 * top :, 4 * left :][..., :SQUARE, :SQUARE]


def to_model_range(pixels: Tensor) -> Tensor:
    """uint8 to floats in [-1, 1]."""
    return pixels.float() / 127.5 - 1


def latents_of(vae: AutoencoderKL, images: Tensor, device: str) -> Tensor:
    """(..., 3, size, size) uint8 to (..., 4, size/4, size/4) scaled latents."""
    means = encode(vae.to(device), images.flatten(0, -4), device)
    return (means * vae.config.scaling_factor).unflatten(0, images.shape[:-3])


@torch.no_grad()
def encode(vae: AutoencoderKL, images: Tensor, device: str) -> Tensor:
    """(n, 3, size, size) uint8 to (n, 4, size/4, size/4) posterior means, unscaled."""
    return torch.cat(
        [vae.encode(to_model_range(part.to(device))).latent_dist.mean for part in images.split(128)]
    )


def noise_schedule() -> DDIMScheduler:
    """The demo models' scheduler: velocity prediction at zero terminal SNR."""
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


class Captioned(Protocol):
    """Training images with captions."""

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
        """`count` training pairs: (count, k) indices of images, and captions."""


def train_denoiser(
    name: str,
    modules: list[nn.Module],
    predict: Callable[[Tensor, Tensor, list[str]], Tensor],
    captioned: Captioned,
    latents: Tensor,
    scheduler: AnyScheduler,
    training: Training,
) -> None:
    """Train a diffusion network on precomputed latents.

    Args:
        predict: maps noisy latents, (batch,) times and captions to what the scheduler predicts,
            noise or velocities.
        latents: the scaled latents of all images, with the k dimensions of their indices first.
    """
    device, predicts_noise = training.device, scheduler.config.prediction_type == "epsilon"

    def loss(step: int) -> Tensor:
        places, captions = captioned.sample(training.batch, np.random.default_rng(step))
        clean = latents[tuple(torch.from_numpy(places).T)]
        noise = torch.randn_like(clean)
        times = torch.randint(
            scheduler.config.num_train_timesteps, (training.batch,), device=device
        )
        found = predict(scheduler.add_noise(clean, noise, times), times, captions)
        target = noise if predicts_noise else scheduler.get_velocity(clean, noise, times)
        return F.mse_loss(found.float(), target)

    train(name, modules, loss, 1e-3, training)


def save_half(pipeline: DiffusionPipeline, folder: Path) -> None:
    """Save a pipeline in half precision, to be loaded in single precision by default."""
    pipeline.to(dtype=torch.float16).save_pretrained(folder)
    for file in folder.glob("text_encoder*/config.json"):
        # transformers loads in the config's precision, diffusers in single precision
        config = json.loads(file.read_text(encoding="utf-8"))
        file.write_text(
            json.dumps(config | {"dtype": "float32"}, indent=2) + "\n", encoding="utf-8"
        )
