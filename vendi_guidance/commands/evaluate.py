"""Score one or two batches of images, and test whether they differ.

FOLDERS are one or two folders of images, with prompts in metadata.jsonl, as `vendi-guidance
generate` writes it, in metadata.csv or captions.csv, in a .txt beside each image, or as the names
of subfolders. Prints scores with 95% confidence intervals, and writes a report.

\b
  vendi-guidance evaluate out/waving
  vendi-guidance evaluate out/without out/with --output out/report
  vendi-guidance evaluate photos --image-embedder dinov2

The report is report.html (one page, works offline), report.json and PNG figures. Tables of captions
have a column of files, such as file_name, and one of captions, such as caption.

The default embedders are DINOv2 and CLIP. Where their weights are not on disk and cannot be
downloaded, images are compared by their pixels and prompts by their words, and the command says so.
For prompts that name emoji of the demo model, the default embedders, labels and reference images
are the demo's.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import click
import transformers
from rich.console import Console

from vendi_guidance.checks import check_device, counted
from vendi_guidance.commands.cli import Command
from vendi_guidance.commands.run_options import DEVICE, PATH, where
from vendi_guidance.commands.scoring_options import (
    attribute_options,
    embedding_options,
    judged,
    open_attributes,
    open_clip,
    open_embedding,
    scored,
)
from vendi_guidance.evaluation.attribute_diversity import read_mix
from vendi_guidance.evaluation.batches import Batch, Images, as_batch
from vendi_guidance.evaluation.comparison import Comparison, compare
from vendi_guidance.evaluation.embedding import Embedding, ImageReader
from vendi_guidance.evaluation.evaluator import Report, evaluate
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.evaluation.measures import describe_embedder, describe_kernel
from vendi_guidance.evaluation.report.tables import score_table
from vendi_guidance.evaluation.report.writer import read_report, relative, save_report
from vendi_guidance.features.base import load_features
from vendi_guidance.features.probe import open_labeler
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.files import UNFINISHED

NAMED = 10  # of the files that cannot be read


COMMON = (
    *("image_embedder", "prompt_embedder", "reference", "clip", "attributes"),
    *("output", "overwrite", "device"),
)


@click.command(cls=Command, common=COMMON, help=__doc__, context_settings={"show_default": True})
@click.argument("folders", nargs=-1, required=True, type=PATH)
@embedding_options
@scored(
    "--reference",
    type=PATH,
    show_default="the demo's training images for its prompts, else none",
    help="Real images to compare with: a folder, or a .npy, .npz or .safetensors file of features.",
)
@judged("--clip", help="Add the CLIPScore of this model: clip, or clip:MODEL/PRETRAINED.")
@judged(
    "--faithfulness",
    metavar="COLUMN",
    help="Column of numbers in metadata.jsonl to report as faithfulness: a VQAScore, HPS, ...",
)
@attribute_options
@where(
    "--output",
    type=PATH,
    show_default="FOLDER-report, beside FOLDER",
    help="Folder of the report. One of the same folders is replaced.",
)
@where("--overwrite", is_flag=True, help="Replace a report of other folders, too.")
@where("--cache", type=PATH, help="A folder to keep features in, for later evaluations.")
@where("--workers", type=click.IntRange(0), default=0, help="Processes that decode images.")
@where(
    "--on-bad-image",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    help="Skip files that cannot be read and name them, or stop at the first.",
)
@where("--device", default=DEVICE, help="Device of the embedders, such as cuda:0.")
def main(
    folders: tuple[Path, ...],
    output: Path | None,
    overwrite: bool,
    image_embedder: str | None,
    prompt_embedder: str | None,
    truncation: int | None,
    reference: Path | None,
    clip: str | None,
    faithfulness: str | None,
    attributes: Path | None,
    attribute_judge: str | None,
    probe: Path | None,
    cache: Path | None,
    workers: int,
    on_bad_image: Literal["skip", "fail"],
    device: str,
    **sigmas: Any,
) -> None:
    if len(folders) > 2:
        raise ValueError(f"got {len(folders)} folders: give one, or two to compare")
    if len({*folders}) < len(folders):
        raise ValueError(f"got the folder {folders[0]} twice: give two different ones to compare")
    check_device(device)
    transformers.utils.logging.disable_progress_bar()
    batches = [as_batch(folder) for folder in folders]
    without = [folder for folder, one in zip(folders, batches, strict=True) if one.prompts is None]
    if 0 < len(without) < len(folders):
        raise ValueError(f"{without[0]} has no prompts: give both folders prompts, to compare them")
    output = output or default_output(folders)
    check_earlier(output, folders, overwrite)
    prompts = [prompt for batch in batches for prompt in batch.prompts or []]
    labeler, mix = open_labeler(probe, prompts), None
    if probe and labeler:  # the demo's own embedders and images, for prompts that it knows
        mix, own = read_mix(probe), f"probe:{probe}"
        image_embedder = image_embedder or own
        encoder = asset("demo-sdxl")
        prompt_embedder = prompt_embedder or (encoder and f"sdxl:{encoder}")
        if reference is None and image_embedder == own:
            reference = next(probe.glob("training_features.safetensors"), None)
    names = image_embedder, prompt_embedder if prompts else "words"
    embedding, fallen = open_embedding(*names, device, **sigmas)
    clips = None if clip is None else open_clip(clip, device)
    judges = open_attributes(attributes, attribute_judge, labeler, device, prompts)
    reports = evaluate_alike(
        dict(zip(names_of(folders), batches, strict=True)),
        replace(embedding, truncation=truncation),
        replace(judges, clip=clips, faithfulness=faithfulness, mix=mix),
        load_features(reference) if reference and reference.is_file() else reference,
        ImageReader(cache, workers, on_bad_image, progress=True),
    )
    for report in reports:
        report.notes.extend(fallen)
    comparison = compare(*reports, progress=True) if len(reports) == 2 else None
    page = save_report(output, reports, comparison, folders)

    show(reports, comparison, said=fallen)
    click.echo(f"wrote {page} and, beside it, report.json and figures")


def evaluate_alike(
    batches: Mapping[str, Batch],
    embedding: Embedding,
    judges: Judges,
    references: Images | None,
    reader: ImageReader,
) -> list[Report]:
    """The reports of named batches, all by the kernels and the reference features of the first."""
    reports = []
    for name, batch in batches.items():
        given: dict[str, Any] = {"embedding": embedding, "references": references}
        report = evaluate(batch, name=name, judges=judges, reader=reader, **given)
        embedding = embedding.with_kernels_of(report.inputs)
        references = report.inputs.reference
        reports.append(report)
    return reports


def show(reports: Sequence[Report], comparison: Comparison | None, said: Sequence[str]) -> None:
    """Print scores, what they depend on, and the answer; of the notes, those not yet `said`."""
    Console().print(score_table(reports, comparison))
    for report in reports:
        click.echo(remark(report))
        for note in report.notes:
            if note not in said:
                click.echo(f"{report.name}: {note}")
        for bad in report.skipped[:NAMED]:
            click.echo(f"left out: {bad.name}: {bad.reason}", err=True)
        if len(report.skipped) > NAMED:
            more = len(report.skipped) - NAMED
            click.echo(f"and {more:,} more: report.json has them all", err=True)
    used = reports[0].settings
    for what in ("image", "prompt"):
        if f"{what}_embedder" in used:
            embedder = describe_embedder(used[f"{what}_embedder"])
            click.echo(f"{what}s: {embedder}, {describe_kernel(used[f'kernel_{what}'])}")
    click.echo(reports[0].answer() if comparison is None else comparison.verdict())


def default_output(folders: Sequence[Path]) -> Path:
    """The folder of the report, where none is named: beside the first of those evaluated."""
    places = [Path(os.path.abspath(folder)) for folder in folders]  # links keep their names
    name = f"{'-'.join(place.name for place in places)}-report"
    is_named = folders[0].name == places[0].name  # "." is not
    return (folders[0] if is_named else places[0]).parent / name


def check_earlier(output: Path, folders: Sequence[Path], overwrite: bool) -> None:
    """Raise OSError unless a report of these folders may be written there, before any work."""
    home = output.resolve()
    while not home.exists():
        home = home.parent
    if not home.is_dir() or not os.access(home, os.W_OK | os.X_OK):
        raise PermissionError(
            f"cannot write to {home}, for the report: name another folder with --output"
        )
    if not output.exists():
        return
    earlier = read_report(output)
    rest = [entry for entry in output.iterdir() if not entry.name.startswith(UNFINISHED[0])]
    if earlier is None and rest:
        raise FileExistsError(
            f"--output {output} is not empty and has no report, so it holds none to replace: name "
            "another folder"
        )
    inputs = relative(folders, output)
    if earlier is not None and earlier.get("inputs") != inputs and not overwrite:
        of = ", ".join(map(str, earlier.get("inputs") or ["which it does not name"]))
        raise FileExistsError(
            f"--output {output} has a report of other folders ({of}): name another folder, or "
            "replace that report with --overwrite"
        )


def names_of(folders: tuple[Path, ...]) -> list[str]:
    """The folders' own names; where these are the same, the paths."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def remark(report: Report) -> str:
    """How much was scored, and which scores are left out."""
    settings = report.settings
    images, prompts, labeled = (settings.get(key, 0) for key in ("images", "prompts", "labeled"))
    text = f"{report.name}: {counted(images, 'image')}"
    if not prompts:
        return f"{text} without prompts: conditional scores are left out."
    text += f" of {counted(prompts, 'prompt')}"
    if not labeled:
        return f"{text} without known labels: prompt fidelity and looks are left out."
    if labeled < images:
        return f"{text}; prompt fidelity and looks are of the {labeled} with known labels."
    return f"{text}."


if __name__ == "__main__":
    main()
