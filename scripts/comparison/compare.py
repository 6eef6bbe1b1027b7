"""Compare Vendi guidance with other ways to get different images of one prompt.

Two things are measured of every method: how many looks the images of a prompt have if it leaves the
look open, and how often images keep what a prompt does name, a skin tone, a vendor or both. Each
method is a curve over its own strength in the plane of the two. A sweep on tuning prompts chooses
the other settings. Then all curves are drawn on other prompts, the unguided and ours at its default
with further seeds. These, ours at its strongest and the best other method are also drawn with open
and named prompts interleaved, ours with other samplers, numbers of steps and batch sizes, and with
changes (ablations).

\b
  python -m scripts.comparison.compare --quick --output out/quick   a few minutes, for a first look
  python -m scripts.comparison.compare --output out/comparison      an hour on 2 cores

Writes comparison.csv and comparison.json with every number, tables.md, curves.png, evaluations.png
and pictures.png. Measured runs are cached in the output folder: after an interruption the same
command continues, and runs with other settings are kept beside them.

Prompts are emoji that the probe knows: it says what an image shows. A model of your own must draw
these; scripts.demo.train makes such models. Distances are measured from the pictures it was trained
on, and compared with the distances of images whose prompts name their look.
"""

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
import torch

from scripts.benchmarks.measuring import machine
from scripts.comparison.cache import Cache
from scripts.comparison.candidates import METHODS, UNGUIDED
from scripts.comparison.figures import save_curves, save_grids
from scripts.comparison.measures import KEPT, LOOKS
from scripts.comparison.models import demo_model, load_demo
from scripts.comparison.plan import FINAL, Plan
from scripts.comparison.prompts import select, split_prompts
from scripts.comparison.results import Row
from scripts.comparison.runner import Runner
from scripts.comparison.scorer import Scorer
from scripts.comparison.stages import announce, compare
from scripts.comparison.tables import save_csv, save_json, save_tables
from scripts.comparison.trials import IN_TURN, How, ImageGenerator, samplers_of
from vendi_guidance.commands.cli import Command, Option, asset
from vendi_guidance.runs.manifest import versions
from vendi_guidance.runs.models import fingerprint
from vendi_guidance.storage.files import sha256_of

TUNING = (6, 8)  # prompts that leave the look open, and prompts that name an attribute
REPORTED = (12, 32)
INTERLEAVED = (6, 6)
FURTHER = (3, 3)
QUICK = (4, 4)
SEED_STEP = 10_000

COUNT, PATH = click.IntRange(1), click.Path(path_type=Path)

what = partial(click.option, cls=Option, group="What is compared")
how = partial(click.option, cls=Option, group="Sampling")
where = partial(click.option, cls=Option, group="Output and machine")


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@what("--quick", is_flag=True, help="Fewer prompts, one seed, one or two strengths each.")
@what(
    "--method",
    "methods",
    type=click.Choice(list(METHODS)),
    multiple=True,
    show_default="all",
    help="Only this, beside the unguided. May be given more than once.",
)
@what(
    "--model",
    type=PATH,
    default=asset("demo-sdxl"),
    help="Folder with a demo model, or an SDXL of your own.",
)
@what("--probe", type=PATH, show_default="the model's", help="Folder with the probe.")
@what("--training-pictures", type=PATH, show_default="the model's", help="Folder with them.")
@what(
    "--prompts",
    type=PATH,
    show_default="the model's",
    help="Prompts of the final, one a line. The probe's other ones are for tuning.",
)
@what("--images-per-prompt", type=COUNT, default=16, help="Images of each prompt.")
@what("--seeds", type=COUNT, default=3, help="Seeds of the unguided and of ours.")
@how("--steps", type=COUNT, show_default="the model's", help="Denoising steps.")
@how(
    "--guidance-scale",
    type=float,
    show_default="the model's",
    help="Scale of classifier-free guidance; 1 is none.",
)
@how("--batch-size", type=COUNT, default=16, help="Images generated together.")
@where("--output", type=PATH, default=Path("out/comparison"))
@where("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="Such as cuda:0.")
@where(
    "--dtype",
    type=click.Choice(["float32", "float16", "bfloat16"]),
    default="bfloat16",
    help="bfloat16 is the fastest on new processors, float32 on old ones.",
)
def main(
    quick: bool,
    methods: tuple[str, ...],
    model: Path,
    probe: Path | None,
    training_pictures: Path | None,
    prompts: Path | None,
    images_per_prompt: int,
    seeds: int,
    steps: int | None,
    guidance_scale: float | None,
    batch_size: int,
    output: Path,
    device: str,
    dtype: str,
) -> None:
    demo = demo_model(model)
    probe, prompts = probe or asset(demo.probe), prompts or asset(demo.prompts)
    training_pictures = training_pictures or asset(demo.pictures)
    steps = steps or demo.steps
    guidance_scale = demo.guidance_scale if guidance_scale is None else guidance_scale
    text = model if (model / "text_encoder_2").is_dir() else asset("demo-sdxl")
    scorer = Scorer.load(probe, text, training_pictures)
    tuning, reported = split_prompts(prompts, scorer.probe.concepts)
    of = partial(select, scorer.probe, scorer.training)
    pipe = load_demo(model, dtype, device)
    generator = ImageGenerator(pipe, samplers_of(pipe))
    how_main = How(images_per_prompt, IN_TURN, next(iter(generator.samplers)), steps, batch_size)
    plan = Plan(
        [name for name in METHODS if name in (methods or METHODS) or name == UNGUIDED],
        guidance_scale,
        of(tuning, *TUNING),
        of(reported, *(QUICK if quick else REPORTED)),
        of(reported, *INTERLEAVED),
        of(reported, *FURTHER),
        how_main,
        range(0, SEED_STEP * (1 if quick else seeds), SEED_STEP),
        quick,
    )
    drawing = {
        "model": fingerprint(model),
        "dtype": dtype,
        "device": torch.device(device).type,
        "versions": versions(),
    }
    naming = {"guidance_scale": guidance_scale, **how_main._asdict()}
    scoring = {"probe": digest(probe), "training_pictures": digest(training_pictures)}
    cache = Cache(output, drawing, naming, scoring)
    runner = Runner(generator, scorer, cache, guidance_scale, how_main)
    announce(runner, plan)
    rows, chosen, mains = compare(runner, plan)
    about = {
        **drawing,
        **scoring,
        **how_main._asdict(),
        "guidance_scale": guidance_scale,
        "machine": machine(torch.device(device)),
        "tuning_prompts": [prompt.words for prompt in plan.tuning.all],
        "reported_prompts": [prompt.words for prompt in plan.reported.all],
        "named_as_asked": runner.share_as_named([prompt.concept for prompt in plan.reported.open]),
    }
    save(output, cache, rows, chosen, mains, about)
    click.echo(summary(cache, rows))
    click.echo(f"wrote {output / 'tables.md'}, comparison.csv, comparison.json and three pictures")


def save(
    output: Path,
    cache: Cache,
    rows: Sequence[Row],
    chosen: Sequence[Row],
    mains: Sequence[Row],
    about: dict[str, Any],
) -> None:
    """Write every file of the output but the cache."""
    save_csv(output / "comparison.csv", rows)
    save_json(output / "comparison.json", rows, about)
    save_tables(output / "tables.md", rows, chosen, about)
    save_curves(output / "curves.png", rows, KEPT)
    save_curves(output / "evaluations.png", rows, "evaluations")
    shown = [(in_words(row), cache.strips(row.trials[0])) for row in mains]
    save_grids(output / "pictures.png", shown)


def summary(cache: Cache, rows: Sequence[Row]) -> str:
    """The main results, a line a method, and warnings."""
    lines = [
        f"{in_words(row)}: {row.mean(LOOKS):.2f} looks, named kept {row.mean(KEPT):.3f}"
        for row in rows
        if row.kind == FINAL
    ]
    drawn = [trial for row in rows for trial in row.trials]
    old = sum(cache.is_of_other_code(trial) for trial in drawn)
    if old:
        lines.append(
            f"{old} of {len(drawn)} runs were made before the code changed: give a new --output to "
            "repeat them all"
        )
    return "\n".join(lines)


def in_words(row: Row) -> str:
    return " ".join(part for part in (row.method, row.candidate.in_words()) if part)


def digest(folder: Path) -> str:
    """SHA-256 of the files in a folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return sha256("".join(sha256_of(path) for path in files).encode()).hexdigest()


if __name__ == "__main__":
    main()
