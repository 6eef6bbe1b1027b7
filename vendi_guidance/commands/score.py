"""Say how diverse very many pictures are, in one pass that can be stopped and taken up again.

FOLDERS are searched for pictures, all the way down. Prints Vendi and RKE by random Fourier features
(FKEA), for which memory does not grow with the number of pictures: their features stay on disk, in
--cache. For several processes:

\b
  accelerate launch --multi_gpu --num_processes 8 -m vendi_guidance score out/many --cache out/cache
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import click
from torchmetrics import MetricCollection

from vendi_guidance.commands.cli import Command
from vendi_guidance.features.base import ImageEmbedder
from vendi_guidance.features.files import BadImage, stream_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.runs.distributed import Ranks, joined
from vendi_guidance.scores.metrics import RKEScore, VendiScore
from vendi_guidance.scores.spectra import RandomFourier
from vendi_guidance.storage.images import SUFFIXES

SHOWN = 20
"""Bad pictures that are named one by one."""


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--embedder",
    "spec",
    default="dinov2",
    help="Gives features: dinov2, clip, inception, swav, timm:NAME, pixels, probe:FOLDER.",
)
@click.option(
    "--sigma", required=True, type=float, help="Bandwidth of the Gaussian kernel on features."
)
@click.option(
    "--random-features",
    type=click.IntRange(min=1),
    default=2000,
    help="More are more exact; time and memory grow with their square.",
)
@click.option("--seed", type=int, default=0, help="Of the random Fourier features.")
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    show_default="none",
    help="Where features are kept, so that a run that was killed goes on.",
)
@click.option("--batch-size", type=click.IntRange(min=1), default=64, help="Pictures at once.")
@click.option(
    "--workers",
    type=click.IntRange(min=0),
    default=0,
    help="Processes that decode pictures; 0 decodes in between.",
)
@click.option(
    "--on-bad-image",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    help="What to do about files that cannot be used.",
)
@click.option("--device", default="cpu", help="Where features are computed, such as cuda.")
def main(
    folders: tuple[Path, ...],
    spec: str,
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
    with joined(device) as ranks:
        paths = ranks.agree(lambda: pictures_in(folders))
        embedder = ranks.agree(
            lambda: open_image_embedder(spec, device=ranks.device, batch_size=batch_size)
        )
        scores = MetricCollection(
            {
                "Vendi": VendiScore(kernel, spectrum=spectrum),
                "RKE": RKEScore(kernel, spectrum=spectrum),
            },
            compute_groups=[["Vendi", "RKE"]],
        )
        bad = ranks.agree(
            lambda: take_in(paths, embedder, scores, ranks, cache, workers, on_bad_image)
        )
        bad = [image for each in ranks.share(bad) for image in each]
        count = len(paths) - len(bad)
        if ranks.is_first:
            name_bad(bad)
        if count == 0:
            raise ValueError(f"none of the {len(paths)} files can be used")
        values = scores.compute()
        if ranks.is_first:
            for name, value in values.items():
                click.echo(f"{name} {float(value):.6g}")
            click.echo(f"n = {count}; {embedder.name} {embedder.settings}; {kernel}; {spectrum}")


def pictures_in(folders: Sequence[Path]) -> list[Path]:
    """All picture files in folders, in order."""
    for folder in folders:
        if not folder.is_dir():
            raise FileNotFoundError(f"there is no folder {folder}")
    files = (
        Path(parent, name)
        for folder in folders
        for parent, _, names in os.walk(folder)
        for name in names
    )
    paths = sorted(file for file in files if file.suffix.lower() in SUFFIXES)
    if not paths:
        raise ValueError(f"there are no pictures in {', '.join(map(str, folders))}")
    return paths


def take_in(
    paths: Sequence[Path],
    embedder: ImageEmbedder,
    scores: MetricCollection,
    ranks: Ranks,
    cache: Path | None,
    workers: int,
    on_bad_image: Literal["skip", "fail"],
) -> list[BadImage]:
    """Update the scores with this process's share of the pictures.

    Returns:
        Which of them could not be used.
    """
    bad = []
    for part in stream_features(
        paths[ranks.rank :: ranks.count],
        embedder,
        cache=cache,
        workers=workers,
        on_bad_image=on_bad_image,
        progress=ranks.is_first,
    ):
        bad += part.bad
        if part.kept:
            scores.update(part.features)
    return bad


def name_bad(bad: Sequence[BadImage]) -> None:
    for image in bad[:SHOWN]:
        click.echo(f"left out {image.name}: {image.reason}", err=True)
    if len(bad) > SHOWN:
        click.echo(f"left out {len(bad) - SHOWN} more", err=True)


if __name__ == "__main__":
    main()
