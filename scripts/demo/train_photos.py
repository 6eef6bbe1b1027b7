"""Train the photographs demo, a small SDXL of 80x80 photographs, and its probe, from scratch.

The stages are the autoencoder, the UNet with both text encoders, and the probe, which sees
photographs as the autoencoder reconstructs them. Checkpoints are written to --work; the same
command resumes.

\b
  python -m scripts.demo.train_photos --data out/photographs --device cuda
  python -m scripts.demo.train_photos --data out/photographs --only-probe
"""

from itertools import islice
from pathlib import Path

import click
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, EulerDiscreteScheduler
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from scripts.demo.photos import CAPTION, COLOURS, SIZE, TYPES, WHOSE, Photos, read_photos
from scripts.demo.probing import make_probe, save_features
from scripts.demo.sdxl import Shape, train_sdxl
from scripts.demo.training import (
    Training,
    autocast,
    latents_of,
    save_half,
    to_model_range,
    train_vae,
    training_options,
)
from vendi_guidance.features.probe import TRAINING_FEATURES, Probe
from vendi_guidance.storage.prompt_files import open_prompts
from vendi_guidance.storage.tensors import load_tensors, save_tensors

VAE_WIDTHS = 32, 64, 128
SHAPE = Shape(size=SIZE, widths=(128, 192, 192), heads=(4, 6, 6), texts=(128, 192), groups=32)
REFERENCES = 2_000  # photographs whose features generated ones are compared with

data_option = click.option(
    "--data",
    type=click.Path(path_type=Path),
    default="out/photographs",
    help="Folder with the data set's parquet files.",
)


@click.command(help=__doc__, context_settings={"show_default": True})
@training_options(6_000, batch=512, work="out/photos", vae_steps=1_700, probe_steps=4_500)
@data_option
@click.option("--only-probe", is_flag=True, help="Use the model in --assets.")
def main(training: Training, data: Path, only_probe: bool) -> None:
    known, held_out = read_photos(data).split()
    folder = training.assets / "demo-photos"
    if not only_probe:
        vae = train_vae(known.images, VAE_WIDTHS, training.of_vae)
        scheduler = DDPMScheduler.from_config(noise_schedule().config)
        latents = latents_of(vae, known.images, training.device)
        given = known.captions, latents, scheduler, SHAPE
        pipeline = train_sdxl(vae, known, *given, training)
        pipeline.scheduler = noise_schedule()
        save_half(pipeline, folder)
    vae = AutoencoderKL.from_pretrained(folder, subfolder="vae").to(training.device)
    known = known.with_images(reconstruct(vae, known.images, training, "known"))
    held_out = held_out.with_images(reconstruct(vae, held_out.images, training, "held-out"))
    make_photos_probe(known, held_out, training.of_probe)


def noise_schedule() -> EulerDiscreteScheduler:
    """SDXL's own scheduler."""
    return EulerDiscreteScheduler(
        beta_schedule="scaled_linear",
        beta_start=0.00085,
        beta_end=0.012,
        timestep_spacing="leading",
        steps_offset=1,
    )


@torch.no_grad()
def reconstruct(vae: AutoencoderKL, images: Tensor, training: Training, name: str) -> Tensor:
    """(n, 3, 80, 80) uint8 images after a pass through the autoencoder, as those that are generated
    have all passed it; kept in --work."""
    file = training.work / f"{name}.safetensors"
    if not file.exists():
        seen = []
        with autocast(training.device, training.dtype):
            for part in tqdm(images.split(64), desc=f"{name} photographs", unit="batch"):
                latents = vae.encode(to_model_range(part.to(training.device))).latent_dist.mean
                pixels = vae.decode(latents).sample.float().cpu()
                seen.append(((pixels + 1) * 127.5).round().clamp(0, 255).byte())
        save_tensors(file, {"images": torch.cat(seen)}, {})
    return load_tensors(file)[1]["images"]


def make_photos_probe(known: Photos, held_out: Photos, training: Training) -> None:
    """Train a classifier of type, colour and wearer on reconstructed photographs, and save its
    features of references, which show the types of the open prompts equally often."""
    torch.manual_seed(2)
    folder = training.assets / "demo-photos-probe"
    attributes = [("colour", [*COLOURS]), ("whose", [*WHOSE])]
    probe = Probe([*TYPES], attributes, CAPTION, SIZE)
    heads = zip(known.looks[:, 1:].T, probe.attributes.values(), strict=True)
    mix = [(1.0, [F.one_hot(one, len(names)).double().mean(0).tolist() for one, names in heads])]
    tests = {"held-out photographs": (held_out.images, held_out.looks)}
    make_probe(folder, probe, (known.images, known.looks), tests, mix, training)
    probe = probe.float()
    asked = probe.asked(open_prompts(str(training.assets / "prompts/photos.txt")).texts)
    types = [probe.concepts.index(str(look[0])) for look in asked if look]
    shown = references(known, held_out, types)
    save_features(probe.cpu(), shown, folder / TRAINING_FEATURES)


def references(known: Photos, held_out: Photos, types: list[int]) -> list[Image.Image]:
    """At most `REFERENCES` photographs, equally many of each type: held-out ones first."""
    images: list[Tensor] = []
    for kind in types:
        own = (one for part in (held_out, known) for one in part.images[part.looks[:, 0] == kind])
        images += islice(own, REFERENCES // len(types))
    return [Image.fromarray(one.permute(1, 2, 0).numpy()) for one in images]


if __name__ == "__main__":
    main()
