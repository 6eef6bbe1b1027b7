"""Compare ways to get different images of one prompt, on your model and prompts.

PROMPTS is as of `vendi-guidance generate`. Generates the same prompts and seeds without guidance,
with Vendi guidance at some strengths, and with other methods. Writes comparison.html (one page,
works offline), comparison.json, curves.png, costs.png and, for each method, a folder of images.

\b
  vendi-guidance compare prompts.txt --model MODEL --output out/compared
  vendi-guidance compare prompts.txt --model MODEL --output out \\
      --method ours=0.3,0.6 --method cads --method seed-variance=8:stop=0.5

The other methods are noise on the prompts' embeddings (seed-variance), CFG in a limited interval of
the steps, selection from more images or previews, CADS, particle guidance and, with --undistilled,
the undistilled network at the first step (undistilled-first).

The same command goes on after a kill, and generates only what is missing. With other judges, or one
method more, it goes on with the images that are there.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from PIL import Image
from tqdm import tqdm

from vendi_guidance.commands.cli import Command, Option, tell
from vendi_guidance.commands.judge_options import (
    FEATURES,
    judged_run_options,
    open_judged_runs,
    progress,
)
from vendi_guidance.commands.run_options import undistilled_option
from vendi_guidance.commands.scoring_options import attribute_options, open_attributes
from vendi_guidance.comparison.entries import (
    FAMILIES,
    UNDISTILLED,
    UNGUIDED,
    USUAL,
    Entry,
    entries_of,
)
from vendi_guidance.comparison.page import JSON_FILE, save_comparison
from vendi_guidance.comparison.study import Results, judged, refusal
from vendi_guidance.evaluation.attribute_diversity import attribute_scores
from vendi_guidance.evaluation.attributes import Attribute, AttributeJudge
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.features.probe import open_labeler
from vendi_guidance.runs.manifest import MANIFEST, versions
from vendi_guidance.runs.options import RunOptions
from vendi_guidance.runs.sweep import Sweep
from vendi_guidance.storage.prompt_files import open_prompts

SETTINGS = "; ".join(
    f"{name}: {', '.join(of.settings)}" for name, of in FAMILIES.items() if of.settings
)
COMMON = ("methods", "model", "images_per_prompt", "seed", "output", "device")

HELP = f"{__doc__}\nSettings of methods: {SETTINGS}."


@click.command(cls=Command, common=COMMON, help=HELP, context_settings={"show_default": True})
@click.option(
    "--method",
    "methods",
    cls=Option,
    group="Methods",
    multiple=True,
    metavar="NAME[=STRENGTH,...][:SETTING=VALUE]...",
    show_default=", ".join(USUAL),
    help="Compare this with the unguided, at strengths of your choice or the usual ones: "
    + "; ".join(f"{name}={','.join(map(str, of.strengths))}" for name, of in FAMILIES.items())
    + ". May be given more than once.",
)
@undistilled_option
@judged_run_options
@attribute_options
def main(
    methods: tuple[str, ...],
    attributes: Path | None,
    attribute_judge: str | None,
    probe: Path | None,
    keep: float,
    **given: Any,
) -> None:
    output = given["output"]
    is_undistilled_named = given["undistilled"] not in (RunOptions.undistilled, "none")
    entries = entries_of(methods or USUAL + (UNDISTILLED,) * is_undistilled_named)
    prompts = list(open_prompts(given["prompts"]))
    labeler = open_labeler(probe, prompts)
    if attribute_judge == "labels":
        raise ValueError("--attribute-judge labels: new images have no labels yet")
    judges = open_attributes(attributes, attribute_judge, labeler, given["device"])
    if attributes is not None:
        check_attributes(judges.attributes, judges.attribute_judge, prompts)
    runs, judging, settings = open_judged_runs(given, prompts, judges)
    options = runs.model.options
    check_folder(output, entries)
    with runs.stop:
        entries = possible(runs, entries, prompts[0], has_choice=bool(methods))
    with progress(runs, len(entries), len(prompts)) as bar:
        for entry in entries:
            bar.set_postfix_str(entry.name)
            runs.generate(entry.name, entry.diversity, sampler=entry.sampler())
    judging_all = judged(output, entries, judging)
    results = Results(list(tqdm(judging_all, "judged", total=len(entries), unit="run")), keep)
    besides = {"lora": options.lora, "undistilled": options.undistilled}
    about: dict[str, Any] = {"model": options.model}
    about |= {name: value for name, value in besides.items() if value is not None}
    about |= {**settings, "seed": options.seed, "versions": versions()}
    page = save_comparison(output, results, about)
    for run in results.runs:
        found = run.outcome
        click.echo(
            f"{run.entry.title}: {found.diversity:.2f} x as diverse, keeps {found.kept:.3f}, "
            f"{run.evaluations:.1f} evaluations an image"
        )
    click.echo(results.verdict())
    click.echo(f"wrote {page} and, beside it, {JSON_FILE} and figures")


def check_attributes(
    attributes: Sequence[Attribute], judge: AttributeJudge | None, prompts: list[str]
) -> None:
    """Raise ValueError before anything is generated if the judge does not know some attribute, or
    it is for a prompt that is not among these."""
    asked = [prompts[0], *(one.prompt for one in attributes if one.prompt in prompts)]
    blank = [Image.new("RGB", (64, 64), "white")] * len(asked)
    attribute_scores(as_batch(blank, [str(prompt) for prompt in asked]), attributes, judge)


def check_folder(output: Path, entries: list[Entry]) -> None:
    """Raise FileExistsError where something else is than a comparison."""
    is_begun = (output / entries[0].name / MANIFEST).is_file()
    own = {FEATURES, entries[0].name}
    if output.is_dir() and not is_begun and {path.name for path in output.iterdir()} - own:
        raise FileExistsError(
            f"--output {output} is not empty and has no comparison: name another folder"
        )


def possible(runs: Sweep, entries: list[Entry], prompt: str, *, has_choice: bool) -> list[Entry]:
    """The entries that the model can be sampled by; the others are named.

    Args:
        has_choice: the user has chosen them.

    Raises:
        ValueError: one of the user's choice is impossible, or the unguided is.
    """
    found = []
    for entry in entries:
        why = refusal(runs, entry, prompt)
        if why is None:
            found.append(entry)
        elif entry.family == UNGUIDED:
            raise ValueError(f"the model cannot be sampled: {why}")
        elif has_choice:
            raise ValueError(f"--method {entry.family} cannot be compared: {why}")
        else:
            tell(f"{entry.name} is left out: {why}")
    return found
