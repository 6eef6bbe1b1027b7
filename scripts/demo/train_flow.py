"""Train the flow demo, a tiny Stable Diffusion 3 of letters, and its probe, from scratch.

Stages, each resumable: the probe, the autoencoder, the transformer with both text encoders.
Checkpoints are in --work; the same command resumes.
"""

from itertools import product
from pathlib import Path

import click
import torch
from diffusers import StableDiffusion3Pipeline

from scripts.demo.cards import write_card
from scripts.demo.flow import Flow, train_flow
from scripts.demo.held_out import Measured, measure
from scripts.demo.letters import (
    ATTRIBUTES,
    CAPTION,
    CONCEPTS,
    SHARES,
    Letters,
    caption,
    fetch,
    load,
)
from scripts.demo.probing import make_probe
from scripts.demo.training import Training, dtype_option, encode, save_half, train_vae
from vendi_guidance.features.probe import Probe

VAE_WIDTHS = 8, 16, 32
SHAPE = Flow(heads=4, layers=4, patch=2, tokens=12, shift=3.0)
FILES = "letters.txt", "letters-named.txt"  # of prompts
CFG, SAMPLING_STEPS = 4.0, 16  # of the images that the model card counts


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--data", type=click.Path(path_type=Path), default="out/letters", help="Typefaces.")
@click.option("--work", type=click.Path(path_type=Path), default="out/flow", help="Checkpoints.")
@click.option("--output", type=click.Path(path_type=Path), default="assets", help="The results.")
@click.option("--prompts", type=click.Path(path_type=Path), default="assets/prompts")
@click.option("--vae-steps", type=click.IntRange(1), default=900)
@click.option("--flow-steps", type=click.IntRange(1), default=9_000)
@click.option("--probe-steps", type=click.IntRange(1), default=900)
@click.option("--batch-size", type=click.IntRange(1), default=32)
@click.option("--device", default="cuda" if torch.cuda.is_available() else "cpu", is_eager=True)
@dtype_option
@click.option("--stage", type=click.Choice(["all", "diffusion", "probe"]), default="all")
def main(
    data: Path,
    work: Path,
    output: Path,
    prompts: Path,
    vae_steps: int,
    flow_steps: int,
    probe_steps: int,
    batch_size: int,
    device: str,
    dtype: torch.dtype,
    stage: str,
) -> None:
    fetch(data)
    letters = load(data)
    work.mkdir(parents=True, exist_ok=True)
    training = Training(work, flow_steps, batch_size, device, dtype)
    judge = output / "demo-letters-probe"
    if stage in ("all", "probe"):
        of_probe = training._replace(steps=probe_steps, batch=2 * batch_size)
        make_letters_probe(judge, letters, of_probe)

    if stage in ("all", "diffusion"):
        of_vae = training._replace(steps=vae_steps, batch=batch_size // 2)
        vae = train_vae(letters.images, VAE_WIDTHS, of_vae)
        shown = letters.where(~letters.held_out)
        means = encode(vae, shown.images, device).unflatten(0, shown.pixels.shape[:2])
        captions = (caption(*words) for words in product(CONCEPTS, *ATTRIBUTES.values()))
        pipeline, _ = train_flow(shown, captions, means, vae, SHAPE, training)
        save_half(pipeline, output / "demo-flow")
        write_card(
            output / "demo-flow",
            "demo-flow",
            images=shown,
            measured=measure_flow(output / "demo-flow", prompts, judge, device, dtype),
            vae_steps=vae_steps,
            flow_steps=flow_steps,
            batch=batch_size,
            machine=training.machine,
        )


def measure_flow(
    folder: Path,
    prompts: Path,
    probe: Path,
    device: str,
    dtype: torch.dtype,
    files: tuple[str, str] = FILES,
) -> dict[str, Measured]:
    """What the saved pipeline draws."""
    pipeline = StableDiffusion3Pipeline.from_pretrained(folder, dtype=dtype).to(device)
    sampling = {"num_inference_steps": SAMPLING_STEPS, "guidance_scale": CFG}
    measured = measure(pipeline, sampling, prompts, probe, files=files)
    return {f"{SAMPLING_STEPS} steps, CFG scale {CFG:g}": measured}


def make_letters_probe(folder: Path, letters: Letters, training: Training) -> None:
    """A classifier of letter, class, weight and slant, tested on a tenth of the images of the
    families that it knows, and on families that it does not."""
    torch.manual_seed(2)
    probe = Probe(CONCEPTS, list(ATTRIBUTES.items()), CAPTION)
    known = letters.where(~letters.held_out)
    unseen = letters.where(letters.held_out)
    tests = {"a tenth of the images": None, "unseen families": (unseen.images, unseen.labels)}
    mix = [(1.0, list(SHARES.values()))]
    make_probe(folder, probe, (known.images, known.labels), tests, mix, training)


if __name__ == "__main__":
    main()
