"""Vendi and RKE scores of very many images, in one pass that can be stopped and resumed.

FOLDERS are searched for images, with all their subfolders. The scores are estimated with random
Fourier features (FKEA), so memory does not grow with the number of images. With --cache, image
features are kept on disk, and a run that was stopped goes on from there. With several processes:

\b
  accelerate launch --multi_gpu --num_processes 8 -m vendi_guidance score \\
      out/many --sigma 25 --cache out/cache
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import click
import torch
from torch import Tensor

from vendi_guidance.checks import check_device, counted
from vendi_guidance.commands.cli import Command
from vendi_guidance.commands.run_options import DEVICE, PATH
from vendi_guidance.features.files import BadImage, FileFeatures, stream_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.runs.distributed import process_group
from vendi_guidance.scores.entropy import Entropy
from vendi_guidance.scores.linalg import add_products, matrix_entropy, symmetric
from vendi_guidance.scores.spectra import RandomFourier
from vendi_guidance.storage.images import image_files

SHOWN = 20  # unusable files that are named one by one


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.argument("folders", nargs=-1, required=True, type=PATH)
@click.option(
    "--embedder",
    default="dinov2",
    help="Source of features: dinov2, clip, timm:NAME, pixels, probe:FOLDER, inception:FILE, "
    "swav:FILE.",
)
@click.option("--sigma", required=True, type=float, help="Bandwidth of the Gaussian kernel.")
@click.option(
    "--random-features",
    type=click.IntRange(1),
    default=2000,
    help="More give a more exact score; time and memory grow with their square.",
)
@click.option("--seed", default=0, help="Seed of the random Fourier features.")
@click.option(
    "--cache", type=PATH, help="Folder that keeps features, so that a stopped run goes on."
)
@click.option("--batch-size", type=click.IntRange(1), default=64, help="Images at a time.")
@click.option("--workers", type=click.IntRange(0), default=0, help="Processes that decode images.")
@click.option(
    "--on-bad-image",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    help="Leave out files that cannot be read, and name them, or stop at the first.",
)
@click.option("--device", default=DEVICE, help="Where features are computed, such as cuda:0.")
def main(
    folders: tuple[Path, ...],
    embedder: str,
    sigma: float,
    random_features: int,
    seed: int,
    cache: Path | None,
    batch_size: int,
    workers: int,
    on_bad_image: Literal["skip", "fail"],
    device: str,
) -> None:
    kernel, spectrum = Gaussian(sigma), RandomFourier(random_features, seed=seed)
    check_device(device)
    with process_group(device) as group:
        paths = group.agree(lambda: images_in(folders))
        network = group.agree(
            lambda: open_image_embedder(embedder, device=group.device, batch_size=batch_size)
        )
        batches = stream_features(
            paths[group.rank :: group.count],
            network,
            cache=cache,
            workers=workers,
            on_bad_image=on_bad_image,
            progress=group.is_first,
        )
        mine = group.agree(lambda: moments_of(batches, kernel, spectrum))
        totals, counts, bad = zip(*group.share(mine), strict=True)
        if group.is_first:
            unusable = [image for some in bad for image in some]
            for image in unusable[:SHOWN]:
                click.echo(f"left out {image.name}: {image.reason}", err=True)
            if len(unusable) > SHOWN:
                click.echo(f"left out {len(unusable) - SHOWN} more", err=True)
        count = sum(counts)
        if count == 0:
            raise ValueError(f"none of {counted(len(paths), 'file')} can be used")
        if group.is_first:
            moments = symmetric(sum(totals[1:], totals[0])).div_(count)
            for name, order in (("RKE", 2), ("Vendi", 1)):
                score = matrix_entropy(moments, Entropy(order)).exp()
                click.echo(f"{name} {float(score):.6g}")
            click.echo(f"n = {count}; {network.name} {network.settings}; {kernel}; {spectrum}")


def images_in(folders: Sequence[Path]) -> list[Path]:
    """All image files in folders and their subfolders, in order, each once."""
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
    given = {folder.resolve(): folder for folder in folders}
    outermost = [folder for path, folder in given.items() if given.keys().isdisjoint(path.parents)]
    paths = sorted(file for folder in outermost for file in image_files(folder))
    if not paths:
        raise ValueError(f"there are no images in {', '.join(map(str, folders))}")
    return paths


def moments_of(
    batches: Iterable[FileFeatures], kernel: Gaussian, spectrum: RandomFourier
) -> tuple[Tensor, int, list[BadImage]]:
    """The sum of z(x) z(x)^T over the features x of images, z being the spectrum's map.

    Returns:
        (w, w) float64, only its upper triangle added up (see `symmetric`), for w random features;
        how many images it is of, and the files that cannot be used.
    """
    total = torch.zeros(spectrum.features, spectrum.features, dtype=torch.float64)
    features_of, count, bad = None, 0, []
    for batch in batches:
        bad += batch.bad
        if batch.kept:
            features_of = features_of or spectrum.map(kernel, batch.features.shape[1])
            add_products(total, features_of(batch.features))
            count += len(batch.kept)
    return total, count, bad
