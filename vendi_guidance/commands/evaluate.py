"""Score one or two batches of images, and test whether they differ.

FOLDERS are one or two folders of images, with prompts in metadata.jsonl, as `vendi-guidance
generate` writes it, in a .csv or .tsv of files and captions, in a .txt beside each image, or as the
names of subfolders. Prints scores with 95% confidence intervals, and writes a report.

\b
  vendi-guidance evaluate out/waving
  vendi-guidance evaluate out/without out/with --output out/report
  vendi-guidance evaluate photos --image-embedder dinov2

A benchmark's scores are computed with its own features and kernels:

\b
  vendi-guidance evaluate out/coco --protocol coco1000 --reference val2014 --output report

The report is report.html (one page, works offline), report.md, report.json and PNG figures. Files
of captions are metadata, captions or prompts, .csv or .tsv, with a column of files and one of
captions.

The default embedders are DINOv2 and CLIP. Where their weights are not on disk and cannot be
downloaded, images are compared by their pixels and prompts by their words, and the command says so.
For prompts that name emoji of the demo model, the default embedders, labels and reference images
are the demo's.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click
import transformers
from rich.console import Console

from vendi_guidance.checks import check_device, counted
from vendi_guidance.commands.attribute_options import attribute_options, judged, open_attributes
from vendi_guidance.commands.cli import Command, Option, Range
from vendi_guidance.commands.protocol_options import follow, protocol_options
from vendi_guidance.commands.run_options import DEVICE, PATH, where
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.comparison import Comparison, compare
from vendi_guidance.evaluation.evaluator import Report, evaluate
from vendi_guidance.evaluation.measures import describe_embedder, describe_kernel
from vendi_guidance.evaluation.protocols import Features, ProtocolTable
from vendi_guidance.evaluation.report.protocol import notes, terminal_table
from vendi_guidance.evaluation.report.writer import (
    read_report,
    relative,
    save_report,
    score_table,
)
from vendi_guidance.features.base import Embedder, load_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import open_labeler
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.storage.assets import asset
from vendi_guidance.storage.files import UNFINISHED

NAMED = 10  # of the files that cannot be read


class Usual(NamedTuple):
    """An embedder that is used if none is named, what replaces it where it is not at hand, and the
    sentence that says what that costs."""

    open: Callable[..., Embedder[Any]]
    spec: str
    fallback: str
    note: str


DINOV2 = Usual(
    open_image_embedder,
    "dinov2",
    "pixels",
    "DINOv2 is not at hand, so images are compared by their pixels: scores then say how "
    "much colours and layout differ, not what is shown, and cannot be compared with "
    "scores by other embedders.",
)
CLIP = Usual(
    open_prompt_embedder,
    "clip",
    "words",
    "CLIP is not at hand, so prompts are compared by their words: two that say the same "
    "in other words count as different.",
)

scored = partial(click.option, cls=Option, group="Features and scores")
known = partial(click.option, cls=Option, group="Demo and benchmarks")


def sigma(what: str) -> Any:
    """The option of a kernel's bandwidth."""
    return scored(
        f"--sigma-{what}",
        type=Range(0, min_open=True),
        show_default="the embedder's usual one, else the median distance",
        help=f"Bandwidth of the Gaussian kernel on {what} features.",
    )


COMMON = (
    *("image_embedder", "prompt_embedder", "reference", "clip", "attributes"),
    *("output", "overwrite", "device"),
)


@click.command(cls=Command, common=COMMON, help=__doc__, context_settings={"show_default": True})
@click.argument("folders", nargs=-1, required=True, type=PATH)
@scored(
    "--image-embedder",
    show_default="probe for the demo's prompts, else dinov2",
    help="Features of images: dinov2, clip:MODEL, inception:FILE, timm:NAME, pixels, ...",
)
@scored(
    "--prompt-embedder",
    show_default="sdxl for the demo's prompts, else clip",
    help="Features of prompts: clip:MODEL, sentence-transformers:NAME, sdxl:FOLDER, ...",
)
@sigma("image")
@sigma("prompt")
@scored(
    "--truncation",
    type=click.IntRange(1),
    help="How many eigenvalues the truncated scores keep; without it, these are left out.",
)
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
@known(
    "--probe",
    type=PATH,
    default=asset("demo-probe"),
    show_default=False,
    help="The demo's classifier of emoji.",
)
@known(
    "--text-encoder",
    type=PATH,
    default=asset("demo-sdxl"),
    show_default=False,
    help="The demo's SDXL, for prompts.",
)
@protocol_options(
    known,
    "Features, kernels, CLIPScore and table of a benchmark, whose runs these have to be; with "
    "dimcim, --attributes is the file of its prompts. Other features are possible, and the table "
    "says that it is not comparable then.",
)
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
    sigma_image: float | None,
    sigma_prompt: float | None,
    clip: str | None,
    attributes: Path | None,
    attribute_judge: str | None,
    attribute_calibration: Path | None,
    reference: Path | None,
    probe: Path | None,
    text_encoder: Path | None,
    protocol: str | None,
    protocol_prompts: int | None,
    device: str,
    **options: Any,  # of `evaluate`: faithfulness, truncation, cache, workers, on_bad_image
) -> None:
    if len(folders) > 2:
        raise ValueError(f"got {len(folders)} folders: give one, or two to compare")
    check_device(device)
    transformers.utils.logging.disable_progress_bar()
    batches = [as_batch(folder) for folder in folders]
    output = output or default_output(folders)
    check_earlier(output, folders, overwrite)
    features = Features(image_embedder, sigma_image, prompt_embedder, sigma_prompt, clip)
    followed = follow(protocol, protocol_prompts, features, batches, attributes, attribute_judge)
    features = followed.features
    prompts = [prompt for batch in batches for prompt in batch.prompts or []]
    labeler = open_labeler(probe, prompts)
    fallen: list[str] = []
    opened = partial(open_or_fall_back, notes=fallen, device=device)
    usual = f"probe:{probe}" if labeler else None
    images = opened(features.image_embedder or usual, DINOV2)
    settings: dict[str, Any] = {"image_embedder": images, "labels": labeler, **options}
    if prompts:
        usual = f"sdxl:{text_encoder}" if labeler and text_encoder else None
        settings["prompt_embedder"] = opened(features.prompt_embedder or usual, CLIP)
    if features.clip is not None:
        settings["clip"] = tuple(
            open_half(features.clip, device=device)
            for open_half in (open_image_embedder, open_prompt_embedder)
        )
    judging = (attributes, attribute_judge, attribute_calibration, labeler, device)
    settings |= open_attributes(*judging, known=followed.attributes)
    if reference is None and probe and labeler and images.name == "probe":
        beside = probe / "training_features.safetensors"
        reference = beside if beside.is_file() else None
    if reference is not None:
        settings["reference"] = load_features(reference) if reference.is_file() else reference
    sigmas = {"kernel_image": features.sigma_image, "kernel_prompt": features.sigma_prompt}
    settings |= {what: None if it is None else Gaussian(it) for what, it in sigmas.items()}

    reports: list[Report] = []
    for batch, name in zip(batches, names_of(folders), strict=True):
        report = evaluate(batch, name=name, progress=True, **settings)
        report.notes.extend(fallen)
        reports.append(report)
        # the second batch is compared by the kernels and the reference features of the first
        inputs = report.inputs
        settings |= {"kernel_image": inputs.kernel_x, "kernel_prompt": inputs.kernel_t}
        settings["reference"] = inputs.reference
    comparison = compare(*reports, progress=True) if len(reports) == 2 else None
    table = followed.table(reports)
    page = save_report(output, reports, comparison, table, folders)

    show(reports, comparison, table, said=fallen)
    also = "" if table is None else "protocol.md, "
    click.echo(f"wrote {page} and, beside it, {also}report.md, report.json and figures")


def open_or_fall_back(
    spec: str | None, usual: Usual, *, notes: list[str], device: str
) -> Embedder[Any]:
    """An embedder by its name; None is the usual one or, where that is not at hand, the fallback,
    with a note of what that costs."""
    if spec is not None:
        return usual.open(spec, device=device)
    try:
        return usual.open(usual.spec, device=device)
    except (ImportError, OSError) as error:
        notes.append(usual.note)
        click.echo(f"{usual.note}\nTo have it: {error}", err=True)
        return usual.open(usual.fallback, device=device)


def show(
    reports: Sequence[Report],
    comparison: Comparison | None,
    table: ProtocolTable | None,
    said: Sequence[str],
) -> None:
    """Print scores, what they depend on, and the answer; of the notes, those not yet `said`."""
    Console().print(score_table(reports, comparison))
    if table is not None:
        Console().print(terminal_table(table))
        click.echo("\n".join(notes(table)))
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
