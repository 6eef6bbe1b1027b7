"""Tune the photographs demo to a made-up taste, as models are tuned to what people prefer.

Such tuning has a closed form: among all models within some KL divergence of the base, the one that
draws p(x | c) exp(r(x) / beta) is liked most (Rafailov et al., NeurIPS 2023). A LoRA of the UNet is
trained on photographs with these weights among those that a caption fits. The taste r is a random
direction of EfficientNet's features. Checkpoints are written to --work; the same command resumes.

\b
  python -m scripts.demo.tune_photos --data out/photographs
"""

from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import torch
import torch.nn.functional as F
from diffusers import StableDiffusionXLPipeline
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from scripts.comparison import efficientnet
from scripts.comparison.models import BATCH, MODELS, PHOTOS
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
RANK = 20
RATE = 2e-3  # learning rate
HIGH, LEAST = 700, 1  # half of the times are at least HIGH, where looks are decided
LARGEST = 40.0  # weight of a squared error of the noise: noise / signal, squared, at most this


@dataclass(frozen=True)
class Preferred:
    """Photographs with a weight each: how often they are drawn among those that a caption fits.

    Attributes:
        photos: n photographs.
        weights: (n,) positive.
    """

    photos: Photos
    weights: np.ndarray

    def sample(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, list[str]]:
        """`count` training pairs: (count, 1) rows and their captions. Types are drawn equally
        often, and what else a caption names as in the photographs of the type."""
        kinds, _, whose = self.photos.looks.numpy().T
        colours = np.array(self.photos.colours)
        rows, captions = [], []
        for kind in rng.choice(np.unique(kinds), size=count):
            first = rng.choice(np.flatnonzero(kinds == kind))
            names_colour, names_whose = rng.random(2) < NAMED
            fits = kinds == kind
            if names_colour:
                fits &= colours == colours[first]
            if names_whose:
                fits &= whose == whose[first]
            weights = self.weights * fits
            rows.append(rng.choice(len(weights), p=weights / weights.sum()))
            text = self.photos.caption_of(rows[-1], names_colour, names_whose)
            captions.append("" if rng.random() < EMPTY else text)
        return np.array(rows)[:, None], captions

    @property
    def captions(self) -> list[str]:
        """All captions that may be drawn."""
        both = (False, True)
        forms = [(row, a, b) for row in range(len(self.photos)) for a in both for b in both]
        return ["", *sorted({self.photos.caption_of(*form) for form in forms})]


@click.command(help=__doc__, context_settings={"show_default": True})
@training_options(1_000, batch=32, work="out/tuned")
@data_option
@click.option("--beta", type=click.FloatRange(0, min_open=True), default=0.25)
def main(training: Training, data: Path, beta: float) -> None:
    pipeline = StableDiffusionXLPipeline.from_pretrained(training.assets / MODELS[NAME].base)
    pipeline.to(training.device).set_progress_bar_config(disable=True)
    photos, features = recognised(read_photos(data).split()[0], pipeline, training)
    taste = Taste.random(features, photos.looks[:, 0], SEED)
    liked = Preferred(photos, (taste.of(features) / beta).double().exp().numpy())
    base = taste_of(pipeline, taste, training)
    train_lora(pipeline, liked, training)
    save_lora(pipeline, training.assets / NAME)
    taste._replace(base=base).save(training.assets / NAME)


@torch.no_grad()
def recognised(
    photos: Photos, pipeline: StableDiffusionXLPipeline, training: Training
) -> tuple[Photos, Tensor]:
    """Photographs whose type and colour the probe sees as they are, at most `MOST` of each type
    before, and EfficientNet's (n, 1280) features of them. A taste for odd ones would cost what
    the prompt says. Both see them after a pass through the autoencoder."""
    kinds = photos.looks[:, 0]
    nth = F.one_hot(kinds).cumsum(0)[range(len(kinds)), kinds]
    photos = photos.of(nth <= MOST)
    file = training.work / "recognised.safetensors"
    if not file.exists():
        seen = reconstruct(pipeline.vae, photos.images, training, "seen")
        probe = load_probe(training.assets / PHOTOS[0])
        heads = zip(*(probe(to_model_range(part))[:2] for part in seen.split(256)), strict=True)
        found = torch.stack([torch.cat(logits).argmax(1) for logits in heads], dim=1)
        right = (found == photos.looks[:, :2]).all(dim=1)
        with autocast("cpu", training.dtype):
            shown = [embed(part) for part in tqdm(seen[right].split(64), "features", unit="batch")]
        save_tensors(file, {"right": right, "features": torch.cat(shown)}, {})
    _, tensors = load_tensors(file)
    return photos.of(tensors["right"]), tensors["features"]


def embed(images: Tensor) -> Tensor:
    """EfficientNet's (n, 1280) features of (n, 3, height, width) uint8 images."""
    shown = [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in images]
    return efficientnet.embedder().embed(shown)


@torch.no_grad()
def taste_of(
    pipeline: StableDiffusionXLPipeline, taste: Taste, training: Training
) -> dict[str, float]:
    """The mean taste of 16 images of each open prompt, also of those to tune on; kept in --work."""
    file = training.work / "base.safetensors"
    if not file.exists():
        files = [training.assets / "prompts" / f"{name}.txt" for name in (PHOTOS[1], PHOTOS[3])]
        prompts = [prompt for one in files for prompt in open_prompts(str(one))]
        demo, found = MODELS[NAME], {}
        for prompt in tqdm(prompts, "images before tuning", unit="prompt"):
            generators = [torch.Generator().manual_seed(seed) for seed in range(BATCH)]
            with autocast(training.device, training.dtype):
                images = pipeline(
                    [prompt] * BATCH,
                    num_inference_steps=demo.steps,
                    guidance_scale=demo.guidance_scale,
                    generator=generators,
                ).images
            found[prompt] = float(taste.of(efficientnet.embedder().embed(images)).mean())
        save_tensors(file, {}, found)
    return load_tensors(file)[0]


def train_lora(pipeline: StableDiffusionXLPipeline, liked: Preferred, training: Training) -> None:
    """Train a LoRA of the UNet on what is liked.

    The loss is the squared error of the clean latents, or `LARGEST` times that of the noise where
    that is less: with the noise's alone, high levels, which decide the look, learn nothing.
    """
    captions = liked.captions
    places = {text: place for place, text in enumerate(captions)}
    latents = latents_of(pipeline.vae, liked.photos.images, training.device)
    predict, device = predictor(pipeline, captions), training.device
    lora = add_lora(pipeline.unet.to(memory_format=torch.channels_last), RANK)

    def loss(step: int) -> Tensor:
        rows, texts = liked.sample(training.batch, np.random.default_rng(step))
        clean = latents[rows[:, 0]]
        high = torch.rand(len(rows)) < 0.5
        times = torch.where(
            high, torch.randint(HIGH, 1000, high.shape), torch.randint(1, HIGH, high.shape)
        ).to(device)
        signal, noise = (level.to(device) for level in levels(pipeline.scheduler, times.cpu()))
        drawn = torch.randn_like(clean)
        states, velocities = signal * clean + noise * drawn, signal * drawn - noise * clean
        named = torch.tensor([places[text] for text in texts], device=device)
        error = (predict(states, times.float(), named) - velocities).square()
        # of velocities: an error of the clean latents is noise times one, of the noise signal times
        return (error * torch.minimum(noise**2, LARGEST * signal**2)).mean()

    train("lora", [lora], loss, RATE, training)


if __name__ == "__main__":
    main()
