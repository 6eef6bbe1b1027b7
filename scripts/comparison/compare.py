"""Compare Vendi guidance with other ways to get different images of one prompt.

Every method draws the same prompts from the same seeds, in two stages. The sweep tries settings on
tuning prompts. The best setting of each method, the one with most looks among those that keep the
quality of images, goes to the final, on other prompts with several seeds. Ours is also drawn with a
second sampler, and with the prompts interleaved with versions of themselves that name a skin tone:
the window then holds similar images of other prompts, as when a subject is asked for in many ways.

\b
  python -m scripts.comparison.compare --quick --output out/quick   a few minutes, for a first look
  python -m scripts.comparison.compare --output out/comparison      an hour on 2 cores

Writes comparison.csv and comparison.json with every number, tables.md, two figures of prompt
fidelity against diversity, and pictures.png. Measured runs are cached in the output folder: after
an interruption the same command continues, and runs with other settings are kept beside them.

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
from diffusers import StableDiffusionXLPipeline
from tqdm import tqdm

from scripts.benchmarks.measuring import machine
from scripts.comparison.cache import Cache, spread
from scripts.comparison.candidates import METHODS, sweep
from scripts.comparison.figures import save_grids, save_pareto
from scripts.comparison.plan import Plan, split_prompts
from scripts.comparison.results import Choice, Row, choose, finals_by_kind
from scripts.comparison.runner import Runner, minutes
from scripts.comparison.scorer import Scorer, Values
from scripts.comparison.tables import records, save_csv, save_json, save_tables
from scripts.comparison.trials import SAMPLERS, ImageGenerator, Trial, samplers_of
from vendi_guidance.commands.cli import Command, Option, asset
from vendi_guidance.runs.manifest import versions
from vendi_guidance.runs.models import fingerprint, load_model
from vendi_guidance.storage.files import sha256_of

TUNING_PROMPTS = 8
INTERLEAVED_PROMPTS = 4  # and each with its tones named
RESAMPLED_PROMPTS = 16
QUICK_TUNING_PROMPTS, QUICK_PROMPTS, QUICK_INTERLEAVED = 1, 8, 1
SEED_STEP = 10_000

COUNT, PATH = click.IntRange(1), click.Path(path_type=Path)

what = partial(click.option, cls=Option, group="What is compared")
how = partial(click.option, cls=Option, group="Sampling")
where = partial(click.option, cls=Option, group="Output and machine")


@click.command(cls=Command, help=__doc__, context_settings={"show_default": True})
@what("--quick", is_flag=True, help="Fewer prompts, one seed and sampler, one setting each.")
@what(
    "--method",
    "methods",
    type=click.Choice(list(METHODS)),
    multiple=True,
    show_default="all",
    help="Only this, beside the unguided. May be given more than once.",
)
@what("--model", type=PATH, default=asset("demo-sdxl"), help="Folder with an SDXL.")
@what("--probe", type=PATH, default=asset("demo-probe"), help="Folder with the probe.")
@what("--training-pictures", type=PATH, default=asset("demo-pictures"), help="Of the model.")
@what(
    "--prompts",
    type=PATH,
    default=asset("prompts/demo.txt"),
    help="Prompts of the final, one a line. The probe's other ones are for tuning.",
)
@what("--images-per-prompt", type=COUNT, default=16, help="Images of each prompt.")
@what("--seeds", type=COUNT, default=3, help="Number of seeds of the final.")
@how("--steps", type=COUNT, default=16, help="Denoising steps.")
@how("--guidance-scale", type=float, default=5.0, help="Scale of classifier-free guidance.")
@how("--batch-size", type=COUNT, default=16, help="Images generated together.")
@how(
    "--second-sampler",
    type=click.Choice(list(SAMPLERS)),
    show_default="euler, or ddim for a model that has euler",
    help="Sampler of some finals, besides the model's own.",
)
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
    probe: Path,
    training_pictures: Path,
    prompts: Path,
    images_per_prompt: int,
    seeds: int,
    steps: int,
    guidance_scale: float,
    batch_size: int,
    second_sampler: str | None,
    output: Path,
    device: str,
    dtype: str,
) -> None:
    scorer = Scorer.load(probe, model, training_pictures)
    tuning, reported = split_prompts(prompts, scorer.probe.names[0])
    pipe = load_model(StableDiffusionXLPipeline, model, dtype, device)
    generator = ImageGenerator(pipe, steps, batch_size, samplers_of(pipe, second_sampler))
    plan = Plan(
        sweep(guidance_scale, methods or list(METHODS), quick),
        tuple(spread(tuning, QUICK_TUNING_PROMPTS if quick else TUNING_PROMPTS)),
        tuple(spread(reported, QUICK_PROMPTS) if quick else reported),
        tuple(spread(reported, QUICK_INTERLEAVED if quick else INTERLEAVED_PROMPTS)),
        tuple(spread(reported, RESAMPLED_PROMPTS)),
        images_per_prompt,
        range(0, SEED_STEP * (1 if quick else seeds), SEED_STEP),
        list(generator.samplers)[: 1 if quick else None],
    )
    drawing = {
        "model": fingerprint(model),
        "steps": steps,
        "batch_size": batch_size,
        "dtype": dtype,
        "device": torch.device(device).type,
        "versions": versions(),
    }
    scoring = {
        "probe": digest(probe),
        "training_pictures": digest(training_pictures),
        "named_guidance_scale": guidance_scale,
    }
    runner = Runner(generator, scorer, Cache(output, drawing, scoring), guidance_scale)
    announce(runner, plan)
    rows, choices = compare(runner, plan)
    named = runner.named(plan.reported, plan.samplers[0])
    about = {
        **drawing,
        **scoring,
        "guidance_scale": guidance_scale,
        "machine": machine(torch.device(device)),
        "tuning_prompts": plan.tuning,
        "reported_prompts": plan.reported,
        "named_as_asked": scorer.share_as_named(list(named.values()), list(named)),
    }
    save(output, runner.cache, rows, choices, about)
    click.echo(summary(runner.cache, rows, choices))
    click.echo(f"wrote {output / 'tables.md'}, comparison.csv, comparison.json and three pictures")


def announce(runner: Runner, plan: Plan) -> None:
    """Print the size of the comparison, and fail now where a method cannot work."""
    click.echo(
        f"{len(plan.candidates)} settings of {len(plan.firsts())} methods on {len(plan.tuning)} "
        f"prompts, then the best of each on {len(plan.reported)} others, seeds: {len(plan.seeds)}"
    )
    tried = plan.sweep()
    pictures = runner.missing(tried)
    expected = plan.firsts()  # what is chosen takes as long
    if not pictures:
        expected = [choice.row.candidate for choice in swept(runner, plan)[1]]
    finals = [trial for group in plan.finals(expected) for trial in group]
    pictures += runner.missing(finals)
    if pictures:
        each = runner.rehearse(plan.firsts(), plan.reported[0])
        click.echo(
            f"{pictures:,} pictures to draw, at {each:.3f} seconds each: about "
            f"{minutes(pictures, each):.0f} minutes; if interrupted, the same command continues"
        )


def compare(runner: Runner, plan: Plan) -> tuple[list[Row], list[Choice]]:
    """All rows, those of the sweep first, and each method's choice."""
    rows, choices = swept(runner, plan)
    groups = plan.finals([choice.row.candidate for choice in choices])
    found = iter(measure(runner, "final", [trial for group in groups for trial in group]))
    finals = [Row("final", group, tuple(next(found) for _ in group)) for group in groups]
    return [*rows, *finals], choices


def swept(runner: Runner, plan: Plan) -> tuple[list[Row], list[Choice]]:
    """The rows of the sweep, the unguided's first, and each method's choice."""
    trials = plan.sweep()
    values = measure(runner, "sweep", trials)
    rows = [Row("sweep", (trial,), (of,)) for trial, of in zip(trials, values, strict=True)]
    of_methods = [[row for row in rows if row.method == one.method] for one in plan.firsts()]
    return rows, [choose(of, rows[0]) for of in of_methods]


def measure(runner: Runner, title: str, trials: Sequence[Trial]) -> list[Values]:
    pictures = runner.missing(trials)
    with tqdm(total=pictures, desc=title, unit="picture", disable=not pictures) as bar:
        found = []
        for trial in trials:
            bar.set_postfix_str(f"{trial.candidate.method}, seed {trial.seed}")
            found.append(runner.measure(trial, bar.update))
        return found


def save(
    output: Path,
    cache: Cache,
    rows: Sequence[Row],
    choices: Sequence[Choice],
    about: dict[str, Any],
) -> None:
    """Write every file of the output but the cache."""
    found = records(rows, choices)
    save_csv(output / "comparison.csv", found)
    save_json(output / "comparison.json", found, about)
    save_tables(output / "tables.md", rows, choices, about)
    save_pareto(output / "looks.png", rows, "looks")
    save_pareto(output / "similarity.png", rows, "in_batch_similarity")
    finals = next(iter(finals_by_kind(rows).values()))
    save_grids(
        output / "pictures.png", [(row.method, cache.strips(row.trials[0])) for row in finals]
    )


def summary(cache: Cache, rows: Sequence[Row], choices: Sequence[Choice]) -> str:
    """The main results, a line a method, and warnings."""
    lines = [
        f"{row.method}: {row.mean('looks'):.2f} looks, fidelity {row.mean('fidelity'):.3f}"
        for row in next(iter(finals_by_kind(rows).values()))
    ]
    spoilt = [choice.row.method for choice in choices if not choice.qualifies]
    if spoilt:
        lines.append(
            f"no setting keeps within the limits, so the closest was taken: {'; '.join(spoilt)}"
        )
    drawn = [trial for row in rows for trial in row.trials]
    old = sum(cache.is_of_other_code(trial) for trial in drawn)
    if old:
        lines.append(
            f"{old} of {len(drawn)} runs were made before the code changed: give a new --output to "
            "repeat them all"
        )
    return "\n".join(lines)


def digest(folder: Path) -> str:
    """SHA-256 of the files in a folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return sha256("".join(sha256_of(path) for path in files).encode()).hexdigest()


if __name__ == "__main__":
    main()
