"""Copy the most diverse images of a folder into a new one.

FOLDER is a folder of images or a .tar file, as for `vendi-guidance evaluate`. The first image is
the one most similar to all others; each further one increases the determinant of the similarities
most. Copies of selected images are never selected, even if fewer images than asked for are left.

\b
  vendi-guidance select out/waving -k 8 --output out/eight
  vendi-guidance select out/run -k 4 --per-prompt --output out/best

Writes the images, numbered in the order of their selection, metadata.jsonl with their prompts and
sources, and sheet.html, a contact sheet.
"""

from itertools import chain
from pathlib import Path
from typing import Any

import click

from vendi_guidance.commands.cli import Command, tell
from vendi_guidance.commands.run_options import COUNT, PATH, device_option, output_option
from vendi_guidance.commands.scoring_options import image_embedder_option, open_scoring
from vendi_guidance.evaluation.batches import Batch, as_batch
from vendi_guidance.evaluation.embedding import ImageReader, embed_batch
from vendi_guidance.evaluation.report.html import render, thumbnail
from vendi_guidance.kernels.subsets import diverse_subset
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.storage.files import append_rows, whole_folder
from vendi_guidance.storage.imagefolder import METADATA
from vendi_guidance.storage.images import read_bytes
from vendi_guidance.storage.messages import counted

MOST = 30_000  # images, whose similarities take 7 GB


@click.command(cls=Command, help=__doc__)
@click.argument("folder", type=PATH)
@click.option("-k", "count", type=COUNT, required=True, help="Number of images to select.")
@click.option("--per-prompt", is_flag=True, help="Select that many images of each prompt.")
@image_embedder_option
@output_option("--output", type=PATH, required=True, help="New folder for the selected images.")
@device_option
def main(
    folder: Path,
    count: int,
    per_prompt: bool,
    image_embedder: str | None,
    output: Path,
    device: str,
) -> None:
    if output.exists():
        raise FileExistsError(f"--output {output} exists: name a new folder")
    batch = as_batch(folder)
    tell(batch.note)
    if per_prompt and batch.prompts is None:
        raise ValueError(f"{folder} has no prompts: leave --per-prompt out")
    embedding, *_ = open_scoring(
        batch.prompts or [], device, image_embedder=image_embedder, prompt_embedder="words"
    )
    embedded = embed_batch(batch, embedding, ImageReader(progress=True))
    for bad in embedded.skipped:
        tell(f"left out: {bad.name}: {bad.reason}")
    batch, x, kernel = embedded.batch, embedded.inputs.x, embedded.inputs.kernel_x
    labels = batch.prompts if per_prompt and batch.prompts else [str(folder)] * len(x)
    candidates = rows_by_label(labels, len(x))
    if (most := max(map(len, candidates.values()))) > MOST:
        raise ValueError(f"{most:,} images are too many to compare all pairs: select from parts")
    groups = {
        str(label): [rows[place] for place in diverse_subset(kernel.gram(x[rows].double()), count)]
        for label, rows in candidates.items()
    }
    with whole_folder(output) as new:
        save(new, batch, groups)
    found = sum(map(len, groups.values()))
    click.echo(f"{counted(found, 'image')} of {len(x):,} in {output}, with sheet.html")
    if few := sum(len(rows) < count for rows in groups.values()):
        of = f" of {counted(few, 'prompt')}" if per_prompt else ""
        click.echo(f"Fewer than {count}{of}: there are no others, or only copies.")


def save(folder: Path, batch: Batch, groups: dict[str, list[int]]) -> None:
    """Write the images of the groups' rows, metadata.jsonl and sheet.html."""
    lines: list[dict[str, str]] = []
    paths = batch.images.paths() or []
    for row in chain(*groups.values()):
        name = f"{len(lines) + 1:06d}{paths[row].suffix}"
        (folder / name).write_bytes(read_bytes(paths[row]))
        prompt = {} if batch.prompts is None else {"prompt": batch.prompts[row]}
        lines.append({"file_name": name, **prompt, "source": str(paths[row])})
    append_rows(folder / METADATA, lines)
    shown: Any = {"thumbnail": lambda row: thumbnail(batch.images[row]), "paths": paths}
    page = render("sheet.html", groups=groups, **shown)
    (folder / "sheet.html").write_text(page, encoding="utf-8")
