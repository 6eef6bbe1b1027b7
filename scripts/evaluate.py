"""Say how diverse and how faithful one or two runs of scripts/generate.py are.

FOLDERS are one or two imagefolders. Prints a table and writes report.json and comparison.png to
--output. With two folders, the table's last column is the second run against the first.

\b
  evaluate.py out/without out/with --output out
"""

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import click
import transformers
from rich.console import Console
from safetensors import SafetensorError

from cli import Command, asset
from vendi_guidance.embedders import Probe, TextEmbedder
from vendi_guidance.evaluator import evaluate
from vendi_guidance.kernels import Gaussian
from vendi_guidance.report import Evaluated, save_json, save_picture, score_table
from vendi_guidance.runs import Run, read_run

# Two looks of one emoji lie about 10 apart in the probe's features, two emoji about 18, variants of
# one look far less: at 4, looks count as different and variants as the same.
SIGMA_IMAGE = 4.0
SIGMA_PROMPT = 0.3


def gaussian(_context: click.Context, _option: click.Parameter, sigma: float) -> Gaussian:
    try:
        return Gaussian(sigma)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Where results go.")
@click.option(
    "--probe",
    "probe_folder",
    type=click.Path(path_type=Path),
    default=asset("demo-probe"),
    help="Gives picture features, and says what a picture shows.",
)
@click.option(
    "--text-encoder",
    "text_folder",
    type=click.Path(path_type=Path),
    default=asset("demo-sdxl"),
    help="An SDXL, whose second text encoder gives prompt features.",
)
@click.option(
    "--sigma-image",
    "kernel_image",
    type=float,
    default=SIGMA_IMAGE,
    callback=gaussian,
    help="Bandwidth of the Gaussian kernel on picture features.",
)
@click.option(
    "--sigma-prompt",
    "kernel_prompt",
    type=float,
    default=SIGMA_PROMPT,
    callback=gaussian,
    help="Bandwidth of the Gaussian kernel on unit-length prompt features.",
)
@click.option(
    "--truncation",
    type=click.IntRange(min=1),
    show_default="none",
    help="How many eigenvalues the two Vendi scores keep.",
)
def main(
    folders: tuple[Path, ...],
    output: Path,
    probe_folder: Path,
    text_folder: Path,
    kernel_image: Gaussian,
    kernel_prompt: Gaussian,
    truncation: int | None,
) -> None:
    if len(folders) > 2:
        raise ValueError(f"got {len(folders)} folders: give one, or two to compare")
    probe, text = load_probe(probe_folder), load_text_embedder(text_folder)
    runs = [read_run(folder) for folder in folders]
    evaluated = [
        Evaluated(
            name,
            run,
            evaluate(
                run.images,
                run.prompts,
                image_embedder=probe,
                prompt_embedder=text,
                kernel_image=kernel_image,
                kernel_prompt=kernel_prompt,
                truncation=truncation,
                seconds=seconds_of(run),
                probe=probe,
            ),
        )
        for name, run in zip(names_of(folders), runs, strict=True)
    ]
    output.mkdir(parents=True, exist_ok=True)
    origins = {"probe": str(probe_folder), "text_encoder": str(text_folder)}
    save_json(output / "report.json", evaluated, origins)
    save_picture(output / "comparison.png", evaluated)

    Console().print(score_table(evaluated))
    for item in evaluated:
        click.echo(remark(item))
    click.echo(f"kernels: {kernel_image} on picture features, {kernel_prompt} on prompt features")
    click.echo(f"truncation: {truncation or 'none'}")
    click.echo(f"wrote {output / 'report.json'} and {output / 'comparison.png'}")


def load_probe(folder: Path) -> Probe:
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"there is no probe in {folder}: it has no config.json")
    with damage_named(folder), redirect_stdout(None):  # huggingface_hub prints that it loads
        return Probe.from_pretrained(folder)


def load_text_embedder(folder: Path) -> TextEmbedder:
    for part in ("tokenizer_2", "text_encoder_2"):
        if not (folder / part).is_dir():
            raise FileNotFoundError(f"there is no SDXL in {folder}: it has no {part}")
    transformers.utils.logging.disable_progress_bar()
    with damage_named(folder):
        return TextEmbedder.from_pretrained(folder)


@contextmanager
def damage_named(folder: Path) -> Iterator[None]:
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"the weights in {folder} are damaged: {error}") from None


def names_of(folders: tuple[Path, ...]) -> list[str]:
    """The folders' own names; where these are the same, the paths."""
    names = [folder.resolve().name for folder in folders]
    return names if len(set(names)) == len(names) else [str(folder) for folder in folders]


def seconds_of(run: Run) -> list[float] | None:
    values = [row.get("seconds") for row in run.rows]
    seconds = [value for value in values if isinstance(value, int | float)]
    return seconds if len(seconds) == len(values) else None


def remark(item: Evaluated) -> str:
    report = item.report
    text = f"{item.name}: {report.images} pictures of {report.prompts} prompts"
    if not report.judged:
        return f"{text}; no prompt names what the probe knows: fidelity and looks are left out."
    if report.judged < report.images:
        return (
            f"{text}; fidelity and looks are of the {report.judged} whose prompt the probe knows."
        )
    return text + "."


if __name__ == "__main__":
    main()
