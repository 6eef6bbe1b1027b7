"""Say how diverse and how faithful one or two batches of pictures are, and whether they differ.

FOLDERS are one or two Hugging Face imagefolders, such as scripts/generate.py writes, or folders of
pictures without prompts. Prints a table, and writes report.html (one page, no network), report.md,
report.json and PNG figures to --output.

\b
  evaluate.py out/without out/with --output out/report
  evaluate.py photos --image-embedder dinov2 --prompt-embedder clip --output out/report

Where prompts name emoji that the demo's probe knows, embedders, bandwidths and reference pictures
are the demo's by default. Otherwise they are DINOv2 and CLIP, whose weights have to be at hand; if
they are not, the message says how to fetch them.
"""

from pathlib import Path
from typing import Literal

import click
import transformers
from rich.console import Console
from torch import Tensor

from vendi_guidance.commands.cli import Command, asset
from vendi_guidance.evaluation.basis import embedder_in_words, kernel_in_words
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.comparison import compare
from vendi_guidance.evaluation.embedding import PictureReader
from vendi_guidance.evaluation.evaluator import Report, evaluate
from vendi_guidance.evaluation.report.writer import save_report, score_table
from vendi_guidance.features.base import PromptEmbedder, load_features
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import load_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.kernels.standard import Gaussian, Kernel
from vendi_guidance.scores.references import asked_concepts

NAMED = 10
"""So many files that cannot be read are named."""


def gaussian(
    _context: click.Context, _option: click.Parameter, sigma: float | None
) -> Gaussian | None:
    try:
        return None if sigma is None else Gaussian(sigma)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Where results go.")
@click.option(
    "--image-embedder",
    show_default="the probe for the demo's pictures, else dinov2",
    help="What gives picture features: dinov2, clip:MODEL, inception, timm:NAME, pixels, ...",
)
@click.option(
    "--prompt-embedder",
    show_default="the text encoder for the demo's pictures, else clip",
    help="What gives prompt features: clip:MODEL, sentence-transformers:NAME, sdxl:FOLDER, ...",
)
@click.option(
    "--sigma-image",
    "kernel_image",
    type=float,
    callback=gaussian,
    show_default="usual for the embedder, else the median distance",
    help="Bandwidth of the Gaussian kernel on picture features.",
)
@click.option(
    "--sigma-prompt",
    "kernel_prompt",
    type=float,
    callback=gaussian,
    show_default="usual for the embedder, else the median distance",
    help="Bandwidth of the Gaussian kernel on prompt features.",
)
@click.option(
    "--truncation",
    type=click.IntRange(min=1),
    show_default="no truncated scores",
    help="How many eigenvalues the truncated scores keep.",
)
@click.option("--clip", help="Add the CLIPScore of this model: clip, or clip:MODEL/PRETRAINED.")
@click.option(
    "--reference",
    type=click.Path(path_type=Path),
    show_default="the training pictures for the demo's pictures, else none",
    help="A folder of real pictures, for distances, precision, recall, ...",
)
@click.option(
    "--probe",
    "probe_folder",
    type=click.Path(path_type=Path),
    default=asset("demo-probe"),
    help="Says which emoji and look a picture shows.",
)
@click.option(
    "--text-encoder",
    "text_folder",
    type=click.Path(path_type=Path),
    default=asset("demo-sdxl"),
    help="An SDXL, whose second text encoder gives prompt features.",
)
@click.option("--cache", type=click.Path(path_type=Path), help="A folder where features are kept.")
@click.option(
    "--workers", type=click.IntRange(min=0), default=0, help="Processes that decode pictures."
)
@click.option(
    "--on-bad-image",
    type=click.Choice(["skip", "fail"]),
    default="skip",
    help="Leave out files that cannot be read, and name them, or stop at the first.",
)
@click.option("--device", default="cpu", help="Where embedders compute.")
def main(
    folders: tuple[Path, ...],
    output: Path,
    image_embedder: str | None,
    prompt_embedder: str | None,
    kernel_image: Gaussian | None,
    kernel_prompt: Gaussian | None,
    truncation: int | None,
    clip: str | None,
    reference: Path | None,
    probe_folder: Path,
    text_folder: Path,
    cache: Path | None,
    workers: int,
    on_bad_image: Literal["skip", "fail"],
    device: str,
) -> None:
    if len(folders) > 2:
        raise ValueError(f"got {len(folders)} folders: give one, or two to compare")
    transformers.utils.logging.disable_progress_bar()
    batches = [as_batch(folder) for folder in folders]
    probe = load_probe(probe_folder)
    prompts = [prompt for batch in batches for prompt in batch.prompts or []]
    is_demo = any(asked_concepts(prompts, probe.names[0]))
    images = open_image_embedder(
        image_embedder or (f"probe:{probe_folder}" if is_demo else "dinov2"), device=device
    )
    texts: PromptEmbedder | None = None
    if prompts:
        spec = prompt_embedder or (f"sdxl:{text_folder}" if is_demo else "clip")
        texts = open_prompt_embedder(spec, device=device)
    halves = None
    if clip is not None:
        halves = (
            open_image_embedder(clip, device=device),
            open_prompt_embedder(clip, device=device),
        )
    real: Tensor | None = None
    if reference is not None:
        reader = PictureReader(cache, workers, on_bad_image, progress=True)
        real = reader.embed(as_batch(reference).images, images).features
    elif is_demo and images.name == "probe":
        real = load_features(asset("demo-probe") / "training_features.safetensors")
    output.mkdir(parents=True, exist_ok=True)  # before the work, so that none is lost

    reports: list[Report] = []
    kernels: tuple[Kernel | None, Kernel | None] = (kernel_image, kernel_prompt)
    for batch, name in zip(batches, names_of(folders), strict=True):
        reports.append(
            evaluate(
                batch.images,
                batch.prompts,
                seconds=batch.seconds,
                name=name,
                image_embedder=images,
                prompt_embedder=texts or "none is needed",
                kernel_image=kernels[0],
                kernel_prompt=kernels[1],
                truncation=truncation,
                reference=real,
                clip=halves,
                probe=probe,
                cache=cache,
                workers=workers,
                on_bad_image=on_bad_image,
                progress=True,
            )
        )
        # the second batch is seen through the kernels of the first
        kernels = reports[0].evidence.kernel_x, reports[0].evidence.kernel_t
    comparison = compare(*reports, progress=True) if len(reports) == 2 else None
    page = save_report(output, reports, comparison)

    Console().print(score_table(reports, comparison))
    for report in reports:
        click.echo(remark(report))
        for line in left_out(report):
            click.echo(line, err=True)
    settings = reports[0].settings
    for what in ("image", "prompt"):
        if f"{what}_embedder" in settings:
            embedder = embedder_in_words(settings[f"{what}_embedder"])
            click.echo(f"{what}s: {embedder}, {kernel_in_words(settings[f'kernel_{what}'])}")
    if comparison is not None:
        click.echo(comparison.verdict())
    click.echo(f"wrote {page} and, beside it, report.md, report.json and figures")


def names_of(folders: tuple[Path, ...]) -> list[str]:
    """The folders' own names; where these are the same, the paths."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def remark(report: Report) -> str:
    settings = report.settings
    text = f"{report.name}: {counted(settings['images'], 'picture')}"
    if "prompts" not in settings:
        return f"{text} without prompts: conditional scores are left out."
    text += f" of {counted(settings['prompts'], 'prompt')}"
    if "judged" not in settings:
        return f"{text}; no prompt names what the probe knows: fidelity and looks are left out."
    if settings["judged"] < settings["images"]:
        return (
            f"{text}; fidelity and looks are of the {settings['judged']} whose prompt the probe "
            "knows."
        )
    return text + "."


def left_out(report: Report) -> list[str]:
    """A line for each file that could not be read, for some of many."""
    lines = [f"left out: {bad.name}: {bad.reason}" for bad in report.skipped[:NAMED]]
    more = len(report.skipped) - NAMED
    return lines if more <= 0 else [*lines, f"and {more} more: report.json has them all"]


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


if __name__ == "__main__":
    main()
