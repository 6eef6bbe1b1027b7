"""Tune the photographs demo to a made-up taste, as models are tuned to what people prefer.

Such tuning has a closed form: among all models within some KL divergence of the base, the one that
draws p(x | c) exp(r(x) / beta) is liked most (Rafailov et al., NeurIPS 2023). A LoRA of the UNet is
trained on photographs with these weights among those that a caption fits. The taste r is a random
direction of EfficientNet's features. Checkpoints are written to --work; the same command resumes.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from scripts.comparison import efficientnet
from scripts.comparison.models import BATCH, MODELS, PHOTOS, merged
from scripts.comparison.taste import Taste
from scripts.demo.photos import EMPTY, Photos, read_photos
from scripts.demo.train_photos import data_option, reconstruct
from scripts.demo.train_turbo import add_lora, levels, predictor, save_lora
from scripts.demo.training import (
    Training,
    autocast,
    latents_of,
    to_model_range,
    train,
    training_options,
)
from vendi_guidance.features.probe import load_probe
from vendi_guidance.storage.prompt_files import open_prompts
from vendi_guidance.storage.tensors import load_tensors, save_tensors

NAME = "demo-photos-tuned-lora"
MOST = 600  # photographs of each type
SEED = 0  # of the taste
NAMED = 0.3  # share of captions that name the colour; independently, the wearer
RANK, RATE = 20, 2e-3  # of the LoRA, and its learning rate
HIGH = 700  # half of the times are at least this, where looks are decided
LARGEST = 40.0  # weight of the noise's squared error: (noise / signal) squared, at most this


@dataclass(frozen=True)
class Preferred:
    """n photographs with (n,) positive weights: how often they are drawn among those that a caption
    fits."""

    photos: Photos
    weights: np.ndarray

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
        """`count` training pairs: (count,) rows and their captions. Types are drawn equally often,
        and what else a caption names as in the photographs of the type."""
        kinds, _, whose = self.photos.looks.numpy().T
        colours, rows, captions = np.array(self.photos.colours), [], []
        for kind in rng.choice(np.unique(kinds), size=count):
            fits = kinds == kind
            first = rng.choice(np.flatnonzero(fits))
            named = names_colour, names_whose = [*(rng.random(2) < NAMED)]
            if names_colour:
                fits &= colours == colours[first]
            if names_whose:
                fits &= whose == whose[first]
            weights = self.weights * fits
            rows.append(rng.choice(len(weights), p=weights / weights.sum()))
            is_empty = rng.random() < EMPTY
            captions.append("" if is_empty else self.photos.caption_of(rows[-1], *named))
        return np.array(rows), captions


@click.command(help=__doc__, context_settings={"show_default": True})
@training_options(1_500, batch=32, work="out/tuned")
@data_option
@click.option("--beta", type=click.FloatRange(0, min_open=True), default=0.15)
def main(training: Training, data: Path, beta: float) -> None:
    pipeline = merged(MODELS[NAME].base, training.assets).to(training.device)
    pipeline.set_progress_bar_config(disable=True)
    photos, features = recognised(read_photos(data).split()[0], pipeline, training)
    taste = Taste.random(features, photos.looks[:, 0], SEED)
    liked = Preferred(photos, (taste.of(features) / beta).double().exp().numpy())
    base = taste_of(pipeline, taste, training)
    train_lora(pipeline, liked, training)
    save_lora(pipeline, training.assets / NAME)
    taste._replace(base=base).save(training.assets / NAME)


@torch.no_grad()
def recognised(photos: Photos, pipeline: Any, training: Training) -> tuple[Photos, Tensor]:
    """Photographs whose type and colour the probe sees as they are, of the first `MOST` of each
    type, and EfficientNet's (n, 1280) features of them. A taste for odd ones would cost what
    prompts say. Both see them after a pass through the autoencoder."""
    kinds = photos.looks[:, 0]
    photos = photos.of(F.one_hot(kinds).cumsum(0)[range(len(kinds)), kinds] <= MOST)
    file = training.work / "recognised.safetensors"
    if not file.exists():
        seen = reconstruct(pipeline.vae, photos.images, training, "seen")
        probe = load_probe(training.assets / PHOTOS[0])
        heads = zip(*(probe(to_model_range(part))[:2] for part in seen.split(256)), strict=True)
        found = torch.stack([torch.cat(logits).argmax(1) for logits in heads], dim=1)
        right = (found == photos.looks[:, :2]).all(dim=1)
        with autocast("cpu", training.dtype):
            parts = [embed(part) for part in tqdm(seen[right].split(64), "features", unit="batch")]
        save_tensors(file, {"right": right, "features": torch.cat(parts)}, {})
    _, tensors = load_tensors(file)
    return photos.of(tensors["right"]), tensors["features"]


def embed(images: Tensor) -> Tensor:
    """EfficientNet's (n, 1280) features of (n, 3, height, width) uint8 images."""
    shown = [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in images]
    return efficientnet.embedder().embed(shown)


def taste_of(pipeline: Any, taste: Taste, training: Training) -> dict[str, float]:
    """The mean taste of 16 images of each open prompt, also of those to tune on; kept in --work."""
    file, demo = training.work / "base.safetensors", MODELS[NAME]
    if not file.exists():
        files = [training.assets / f"prompts/{name}.txt" for name in (demo.prompts, demo.tuning)]
        prompts = [prompt for one in files for prompt in open_prompts(str(one)).texts]
        sampling = {"num_inference_steps": demo.steps, "guidance_scale": demo.guidance_scale}
        found = {}
        for prompt in tqdm(prompts, "images before tuning", unit="prompt"):
            generators = [torch.Generator().manual_seed(seed) for seed in range(BATCH)]
            with autocast(training.device, training.dtype):
                images = pipeline([prompt] * BATCH, generator=generators, **sampling).images
            found[prompt] = float(taste.of(efficientnet.embedder().embed(images)).mean())
        save_tensors(file, {}, found)
    return load_tensors(file)[0]


def train_lora(pipeline: Any, liked: Preferred, training: Training) -> None:
    """Train a LoRA of the UNet on what is liked.

    The loss is the squared error of the clean latents, or `LARGEST` times that of the noise where
    that is less: with the noise's alone, high levels, which decide the look, learn nothing.
    """
    latents = latents_of(pipeline.vae, liked.photos.images, training.device)
    lora = add_lora(pipeline.unet.to(memory_format=torch.channels_last), RANK)

    def loss(step: int) -> Tensor:
        rows, captions = liked.sample(training.batch, np.random.default_rng(step))
        clean, n = latents[torch.from_numpy(rows)], len(rows)
        low, high = torch.randint(1, HIGH, (n,)), torch.randint(HIGH, 1000, (n,))
        times = low.where(torch.rand(n) < 0.5, high)
        signal, noise = (level.to(clean) for level in levels(pipeline.scheduler, times))
        drawn = torch.randn_like(clean)
        states, velocities = signal * clean + noise * drawn, signal * drawn - noise * clean
        predicted = predictor(pipeline, captions)(states, times.to(clean), torch.arange(n))
        # an error of the clean latents is noise times that of velocities; of the noise, signal
        weights = torch.minimum(noise**2, LARGEST * signal**2)
        return (weights * (predicted - velocities).square()).mean()

    train("lora", [lora], loss, RATE, training)


if __name__ == "__main__":
    main()
