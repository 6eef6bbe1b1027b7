"""Score one folder of images, or compare two, and write a report.

FOLDERS are one or two folders of images, or .tar files. Prompts are read from metadata.jsonl, as
`vendi-guidance generate` writes it, metadata.csv or captions.csv, a .txt beside each image, what
ComfyUI, Forge or another program wrote into the images, or names of subfolders. Prints scores with
95% confidence intervals, and tests whether two folders differ.

\b
  vendi-guidance evaluate out/waving
  vendi-guidance evaluate out/without out/with --output out/report
  vendi-guidance evaluate photos --image-embedder dinov2

The report consists of report.html (a single page that works offline), report.json and PNG figures.
A .csv file of captions needs a column of files, such as file_name, and one of captions, such as
caption.

Exit status: 0, 1 if a score is below --fail-below, or 2 if the folders cannot be scored. With
--format, the table alone is on stdout.

Several processes share the reading and embedding of images; a second start goes on:

\b
  torchrun --nproc-per-node 4 -m vendi_guidance evaluate out/many

The default embedders are DINOv2 and CLIP. If their weights are neither on disk nor downloadable,
images are compared by their pixels and prompts by their words, and the command says so. For prompts
that name emoji of the demo model, the default embedders, labels and reference images are the
demo's.
"""

import os
import shutil
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from vendi_guidance.commands.cli import Choice, Command, Range, tell
from vendi_guidance.commands.jobs import prepare, streamed
from vendi_guidance.commands.run_options import PATH, PROTOCOLS, device_option, output_option
from vendi_guidance.commands.score_tables import FORMATS, formatted, score_table
from vendi_guidance.commands.scoring_options import feature_option, judge_option, scoring_options
from vendi_guidance.evaluation.evaluator import compare
from vendi_guidance.evaluation.measures import MEASURES, describe_embedder, describe_kernel
from vendi_guidance.evaluation.report.html import read_report, save_report
from vendi_guidance.evaluation.results import Comparison, Report
from vendi_guidance.runs.distributed import process_group
from vendi_guidance.storage.files import UNFINISHED
from vendi_guidance.storage.messages import counted, nearest

LISTED = 10  # unreadable files that are listed by name
FEATURES = ".features"  # in the report's folder: what several processes share
SUMS = f"{FEATURES}-sums"  # likewise, of a stream
IDLE = "reference truncation protocol faithfulness clip attributes judge labelled"
"""Options that have no effect on a stream."""

COMMON = (
    *("image_embedder", "prompt_embedder", "reference", "clip", "attributes"),
    *("protocol", "output", "device"),
)


def sigma_option(kind: str) -> Any:
    return feature_option(
        f"--sigma-{kind}",
        type=Range(0, min_open=True),
        show_default="the embedder's usual value, else the median distance",
        help=f"Bandwidth of the Gaussian kernel on {kind} features.",
    )


def thresholds(
    context: click.Context, option: click.Parameter, given: Sequence[str]
) -> dict[str, float]:
    """Callback that reads the values of --fail-below, by the scores' names."""
    titles = {measure.title.lower(): name for name, measure in MEASURES.items()}
    found = {}
    for text in given:
        title, _, least = text.partition("=")
        key = title.strip().lower()
        name = titles.get(key, key.replace("-", "_"))
        try:
            found[name] = float(least)
        except ValueError:
            raise click.BadParameter(f"{text!r} is not SCORE=VALUE", context, option) from None
        if not isfinite(found[name]):
            raise click.BadParameter(f"{text!r} needs a finite number", context, option)
        if name not in MEASURES:
            raise click.BadParameter(f"there is no score {title!r}{nearest(name, [*MEASURES])}")
    return found


@click.command(cls=Command, common=COMMON, help=__doc__)
@click.argument("folders", nargs=-1, required=True, type=PATH)
@scoring_options
@sigma_option("image")
@sigma_option("prompt")
@feature_option(
    "--truncation",
    type=click.IntRange(1),
    help="Number of eigenvalues for truncated scores, which are left out by default.",
)
@feature_option(
    "--reference",
    type=PATH,
    show_default="the demo's training images for its prompts, else none",
    help="Real images to compare with: a folder or .tar file, or features in a .npy, .npz or "
    ".safetensors file.",
)
@feature_option(
    "--protocol", type=Choice([*PROTOCOLS]), help="Also score a prompt's images by 4, or 8 (sets)."
)
@feature_option(
    "--stream",
    type=click.IntRange(2),
    metavar="FEATURES",
    help="Vendi and RKE scores only, in one pass, by this even number of random Fourier features, "
    "such as 2000: for images whose features do not fit in memory.",
)
@judge_option(
    "--faithfulness",
    metavar="COLUMN",
    help="Column of metadata.jsonl to report as faithfulness, such as a VQAScore.",
)
@output_option(
    "--output",
    type=PATH,
    show_default="FOLDER-report, beside FOLDER",
    help="Folder for the report. An earlier report is replaced.",
)
@output_option(
    "--format",
    "form",
    type=Choice(FORMATS),
    default=FORMATS[0],
    help="How the scores are printed. csv has a row for each score and run.",
)
@output_option(
    "--fail-below",
    metavar="SCORE=VALUE",
    multiple=True,
    callback=thresholds,
    help="Exit with 1 if a run scores less, as in conditional-vendi=3. Repeat it for several.",
)
@output_option("--cache", type=PATH, help="Folder to store features in for reuse.")
@output_option("--workers", type=click.IntRange(0), default=0, help="Extra processes for decoding.")
@output_option(
    "--on-bad-image",
    type=Choice(["skip", "fail"]),
    default="skip",
    help="What to do with unreadable files: list them and go on, or stop at the first.",
)
@device_option
def main(
    folders: tuple[Path, ...],
    output: Path | None,
    form: str,
    fail_below: dict[str, float],
    stream: int | None,
    device: str,
    **given: Any,
) -> None:
    if len(folders) > 2:
        raise ValueError(f"got {len(folders)} folders: give one, or two to compare")
    if len({*folders}) < len(folders):
        raise ValueError(f"got the folder {folders[0]} twice: give two different ones to compare")
    if stream is not None and (idle := [name for name in IDLE.split() if given[name] is not None]):
        raise ValueError(f"--stream has Vendi and RKE scores only: leave out --{', --'.join(idle)}")
    output = output or default_output(folders)
    check_output(output)
    with process_group(device) as group:
        if group.count > 1 and stream is None:
            given["cache"] = given["cache"] or output / FEATURES
        job = group.agree(lambda: prepare(folders, group, stream, **given))
        if stream is not None:
            totals = streamed(job, folders, output / SUMS, stream, group)
        elif group.count > 1:
            group.agree(lambda: job.embed_share((group.rank, group.count)))
    if not group.is_first:
        return
    reports, comparison, is_table = list[Report](), None, form == FORMATS[0]
    if stream is not None:
        runs = {name: total.scores(stream) for name, total in totals.items()}
    else:
        reports = job.reports()
        comparison = compare(*reports, progress=True) if len(reports) == 2 else None
        page = save_report(output, reports, comparison)
        runs = {report.name: report.scores for report in reports}
    if is_table:
        Console().print(score_table(runs, comparison))
    else:
        click.echo(formatted(form, runs, comparison), nl=False)
    if reports:
        printed = [*job.scoring.notes, *(batch.note for batch in job.batches)]
        show(reports, comparison, printed, err=not is_table)
        click.echo(f"wrote {page} and, beside it, report.json and figures", err=not is_table)
    elif stream is not None:
        for name, total in totals.items():
            click.echo(f"{name}: {counted(total.count, 'image')}.", err=not is_table)
            list_skipped(total.skipped)
        shutil.rmtree(output / SUMS, ignore_errors=True)
        if not any(output.iterdir()):
            output.rmdir()
    missed = [
        f"{run}: {MEASURES[name].title} "
        + (f"is below {least:g}" if name in scores else "was not computed")
        for run, scores in runs.items()
        for name, least in fail_below.items()
        if name not in scores or scores[name].value < least
    ]
    if missed:
        tell("\n".join(missed))
        raise SystemExit(1)


def show(
    reports: Sequence[Report], comparison: Comparison | None, printed: Sequence[str], err: bool
) -> None:
    """Print the settings, the verdict, and all notes but those `printed` already."""
    for report in reports:
        images, prompts = (report.settings.get(key, 0) for key in ("images", "prompts"))
        of = f"of {counted(prompts, 'prompt')}" if prompts else "without prompts"
        click.echo(f"{report.name}: {counted(images, 'image')} {of}.", err=err)
        for note in report.notes:
            if note not in printed:
                click.echo(f"{report.name}: {note}", err=err)
        list_skipped(report.skipped, ": report.json lists them all")
    settings = reports[0].settings
    for kind in ("image", "prompt"):
        if f"{kind}_embedder" in settings:
            embedder = describe_embedder(settings[f"{kind}_embedder"])
            click.echo(
                f"{kind}s: {embedder}, {describe_kernel(settings[f'kernel_{kind}'])}", err=err
            )
    click.echo(reports[0].answer() if comparison is None else comparison.verdict(), err=err)


def list_skipped(skipped: Sequence[Sequence[str]], remark: str = "") -> None:
    for name, reason in skipped[:LISTED]:
        click.echo(f"left out: {name}: {reason}", err=True)
    if (more := len(skipped) - LISTED) > 0:
        click.echo(f"and {more:,} more{remark}", err=True)


def default_output(folders: Sequence[Path]) -> Path:
    """The folder for the report, beside the first folder evaluated."""
    absolute = [Path(os.path.abspath(folder)) for folder in folders]  # keeps the names of links
    name = f"{'-'.join(folder.name for folder in absolute)}-report"
    has_name = folders[0].name == absolute[0].name  # unlike "."
    return (folders[0] if has_name else absolute[0]).parent / name


def check_output(output: Path) -> None:
    """Raise OSError if a report cannot or must not be written to `output`."""
    parent = output.resolve()
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(
            f"cannot write the report to {parent}: name another folder with --output"
        )
    found = output.iterdir() if output.exists() and not read_report(output) else ()
    if any(not entry.name.startswith((UNFINISHED[0], FEATURES)) for entry in found):
        raise FileExistsError(
            f"--output {output} is not empty and has no report to replace: name another folder"
        )
