"""Score one or two batches of images, and test whether they differ.

FOLDERS are one or two Hugging Face imagefolders, such as `vendi-guidance generate` writes, or
folders of images without prompts. Prints a table of diversity and fidelity scores with 95%
confidence intervals, and writes report.html (one page, works offline), report.md, report.json and
PNG figures.

\b
  vendi-guidance evaluate out/without out/with --output report
  vendi-guidance evaluate photos --image-embedder dinov2 --output report
  vendi-guidance evaluate out/with --reference photos --output report

A benchmark's scores are computed with its own features and kernels:

\b
  vendi-guidance evaluate out/coco --protocol coco1000 --reference val2014 --output report

The default embedders are DINOv2 and CLIP. Their weights have to be on disk; if they are not, the
error message says how to download them. For prompts that name emoji of the demo model, the default
embedders, labels and reference images are the demo's.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import transformers
from rich.console import Console

from vendi_guidance.checks import check_device
from vendi_guidance.commands.attribute_options import attribute_options, judged, open_attributes
from vendi_guidance.commands.cli import Command, Option, Range, asset
from vendi_guidance.commands.protocol_options import follow, protocol_options
from vendi_guidance.commands.run_options import DEVICE, PATH, where
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.comparison import compare
from vendi_guidance.evaluation.evaluator import Report, evaluate
from vendi_guidance.evaluation.measures import describe_embedder, describe_kernel
from vendi_guidance.evaluation.protocols import Features
from vendi_guidance.evaluation.report.protocol import notes, terminal_table
from vendi_guidance.evaluation.report.writer import save_report, score_table
from vendi_guidance.features.base import load_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import open_labeler
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.kernels.standard import Gaussian
from vendi_guidance.storage.imagefolder import METADATA

NAMED = 10  # of the files that cannot be read

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
    *("output", "cache", "device"),
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
@where("--output", required=True, type=PATH, help="The folder of the report.")
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
    output: Path,
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
    check_output(output, [*folders, *([] if reference is None else [reference])])
    transformers.utils.logging.disable_progress_bar()
    batches = [as_batch(folder) for folder in folders]
    features = Features(image_embedder, sigma_image, prompt_embedder, sigma_prompt, clip)
    followed = follow(protocol, protocol_prompts, features, batches, attributes, attribute_judge)
    features = followed.features
    prompts = [prompt for batch in batches for prompt in batch.prompts or []]
    labeler = open_labeler(probe, prompts)
    usual = f"probe:{probe}" if labeler else "dinov2"
    images = open_image_embedder(features.image_embedder or usual, device=device)
    settings: dict[str, Any] = {"image_embedder": images, "labels": labeler, **options}
    if prompts:
        usual = f"sdxl:{text_encoder}" if labeler and text_encoder else "clip"
        name = features.prompt_embedder or usual
        settings["prompt_embedder"] = open_prompt_embedder(name, device=device)
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
    output.mkdir(parents=True, exist_ok=True)  # before the work, so that none is lost

    reports: list[Report] = []
    for batch, name in zip(batches, names_of(folders), strict=True):
        report = evaluate(batch, name=name, progress=True, **settings)
        reports.append(report)
        # the second batch is compared by the kernels and the reference features of the first
        inputs = report.inputs
        settings |= {"kernel_image": inputs.kernel_x, "kernel_prompt": inputs.kernel_t}
        settings["reference"] = inputs.reference
    comparison = compare(*reports, progress=True) if len(reports) == 2 else None
    table = followed.table(reports)
    page = save_report(output, reports, comparison, table)

    Console().print(score_table(reports, comparison))
    if table is not None:
        Console().print(terminal_table(table))
        click.echo("\n".join(notes(table)))
    for report in reports:
        click.echo(remark(report))
        for bad in report.skipped[:NAMED]:
            click.echo(f"left out: {bad.name}: {bad.reason}", err=True)
        if len(report.skipped) > NAMED:
            more = len(report.skipped) - NAMED
            click.echo(f"and {more} more: report.json has them all", err=True)
    used = reports[0].settings
    for what in ("image", "prompt"):
        if f"{what}_embedder" in used:
            embedder = describe_embedder(used[f"{what}_embedder"])
            click.echo(f"{what}s: {embedder}, {describe_kernel(used[f'kernel_{what}'])}")
    if comparison is not None:
        click.echo(comparison.verdict())
    also = "" if table is None else "protocol.md, "
    click.echo(f"wrote {page} and, beside it, {also}report.md, report.json and figures")


def check_output(output: Path, folders: Sequence[Path]) -> None:
    """Raise ValueError if a later evaluation of the folders would take the report's figures for
    images."""
    for folder in folders:
        is_inside = output.resolve().is_relative_to(folder.resolve())
        if is_inside and not (folder / METADATA).is_file():
            raise ValueError(
                f"--output {output} is inside {folder}, all of whose images are evaluated, and the "
                "report's figures would be the next time: give a folder outside it"
            )


def names_of(folders: tuple[Path, ...]) -> list[str]:
    """The folders' own names; where these are the same, the paths."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def remark(report: Report) -> str:
    """How much was scored, and which scores are left out."""
    settings = report.settings
    images, prompts, labeled = (settings.get(key) for key in ("images", "prompts", "labeled"))
    text = f"{report.name}: {images} image{'s' * (images != 1)}"
    if prompts is None:
        return f"{text} without prompts: conditional scores are left out."
    text += f" of {prompts} prompt{'s' * (prompts != 1)}"
    if labeled is None:
        return f"{text} without known labels: prompt fidelity and looks are left out."
    if labeled < images:
        return f"{text}; prompt fidelity and looks are of the {labeled} with known labels."
    return f"{text}."


if __name__ == "__main__":
    main()
