"""Generate the same prompts and seeds along the dial, to see which diversity suits a model.

PROMPTS is a prompt or a file of prompts, as for `vendi-guidance generate`; take prompts like those
that you will use. Writes tune.html (a single page that works offline): the images of each prompt
at each value, and a table of diversity, fidelity and cost with 95% confidence intervals.

\b
  vendi-guidance tune prompts.txt --model MODEL --clip clip --output tuned
  vendi-guidance generate prompts.txt --model MODEL \\
      --diversity 0.75 --output out

Fidelity takes a judge: --clip, --attributes for prompts that name values, or --probe, the default
for the demo model's prompts. The page then names the largest value that keeps at least --keep times
the fidelity at 0, by every judge.

Repeat the command to continue an interrupted sweep, or to add judges and values: it reuses images.
"""

from typing import Any

import click
from tqdm import tqdm

from vendi_guidance.commands.cli import Command, Range, tell
from vendi_guidance.commands.run_options import (
    FOLDER,
    guidance_option,
    output_option,
    run_options,
    sampling_option,
)
from vendi_guidance.commands.scoring_options import judge_option, open_scoring, scoring_options
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.runs.plan import RunOptions
from vendi_guidance.runs.setup import check_prompts_are_seen
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.messages import counted
from vendi_guidance.storage.prompt_files import open_prompts
from vendi_guidance.tuning.dial import Sweep, in_words, save_page, sweep, verdict

SEVERAL, SEED = click.IntRange(2), click.IntRange(0, 2**62)
SCORING = (
    *("image_embedder", "prompt_embedder", "clip", "attributes", "judge", "labelled", "probe"),
)
VALUES = (0.25, 0.5, 0.75, 1.0)
COMMON = ("model", "images_per_prompt", "values", "clip", "attributes", "keep", "output", "device")


@click.command(cls=Command, common=COMMON, help=__doc__)
@click.argument("prompts")
@sampling_option("--images-per-prompt", type=SEVERAL, default=8, help="Images per prompt.")
@sampling_option("--seed", type=SEED, default=0, help="Seed of the first image.")
@guidance_option(
    "--diversity",
    "values",
    type=Range(0, 1),
    multiple=True,
    default=VALUES,
    show_default=", ".join(f"{value:g}" for value in VALUES),
    help="Value of the dial to try beside 0. Repeat the option for several.",
)
@scoring_options
@judge_option(
    "--keep",
    type=Range(0, 1, min_open=True),
    default=0.98,
    help="Fidelity that the chosen value keeps at least, as a share of that at 0.",
)
@output_option("--output", type=FOLDER, required=True, help="Folder for all runs and the page.")
@run_options
def main(values: tuple[float, ...], keep: float, **given: Any) -> None:
    scoring = {name: given.pop(name) for name in SCORING}
    output, device, dial = given["output"], given["device"], sorted({0.0, *values})
    if len(dial) == 1:
        raise ValueError("--diversity 0 is always part of the sweep: give a value above it")
    runs = Sweep(RunOptions(**given, resume=True), Stop(), tell=tell)
    prompts = open_prompts(given["prompts"]).texts
    embedding, judges, *_ = open_scoring(prompts, device, **scoring)
    check_prompts_are_seen(runs.model.pipeline, Rounds())
    if output.is_dir() and any(output.iterdir()) and not any(output.glob("diversity-*")):
        raise FileExistsError(f"--output {output} is not empty and has no sweep: name another")
    for remark in runs.model.remarks:
        tell(remark)
    images = len(prompts) * given["images_per_prompt"]
    tell(f"{counted(len(dial), 'value')} of the dial, {counted(images, 'image')} at each")
    with runs.stop, tqdm(total=len(dial) * images, unit="image") as bar:
        runs.on_images = bar.update
        points = list(sweep(runs, dial, embedding, judges))
    options = vars(runs.model.options)
    settings = {name: options[name] for name in ("model", "lora", "undistilled", "dtype")}
    settings |= {**runs.model.sampling.about, "prompts": len(prompts), "keep": keep}
    settings |= {name: options[name] for name in ("images_per_prompt", "seed")}
    page = save_page(output, points, keep, settings)
    for point in points:
        click.echo(f"{point.value:g}: {', '.join(map(in_words, point.diversity + point.fidelity))}")
    click.echo(verdict(points, keep))
    click.echo(f"wrote {page}")
