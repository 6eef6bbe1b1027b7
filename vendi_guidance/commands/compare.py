"""Compare diversity methods on your model and prompts.

PROMPTS is a prompt or a file of prompts, as for `vendi-guidance generate`. The same prompts and
seeds are generated without guidance, with Vendi guidance at several strengths, and with other
methods. Writes comparison.html (a single page that works offline), comparison.json, curves.png,
costs.png and a folder of images for each method.

\b
  vendi-guidance compare prompts.txt --model MODEL --output out/compared
  vendi-guidance compare prompts.txt --model MODEL --output out \\
      --method ours=0.3,0.6 --method cads --method seed-variance=8:stop=0.5

The other methods are noise on the prompt embeddings (seed-variance), CFG in a limited interval of
the steps, selection from a larger pool of images or previews, CADS, particle guidance and, with
--undistilled, the undistilled network at the first step (undistilled-first).

Repeat the command to continue an interrupted comparison: only missing images are generated. After a
change of judges or with an additional method, it also reuses the images that exist.
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
    help="Method to compare, at these strengths or the usual ones: "
    + "; ".join(f"{name}={','.join(map(str, of.strengths))}" for name, of in FAMILIES.items())
    + ". Repeat the option for several methods.",
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
    has_undistilled = given["undistilled"] not in (RunOptions.undistilled, "none")
    default = (*USUAL, UNDISTILLED) if has_undistilled else USUAL
    entries = entries_of(methods or default)
    prompts = list(open_prompts(given["prompts"]))
    labeler = open_labeler(probe, prompts)
    if attribute_judge == "labels":
        raise ValueError("--attribute-judge labels: generated images have no labels yet")
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
    compared = tqdm(judged(output, entries, judging), "judged", total=len(entries), unit="run")
    results = Results(list(compared), keep)
    about: dict[str, Any] = {"model": options.model}
    optional = {"lora": options.lora, "undistilled": options.undistilled}
    about |= {name: value for name, value in optional.items() if value is not None}
    about |= {**settings, "seed": options.seed, "versions": versions()}
    page = save_comparison(output, results, about)
    for run in results.runs:
        outcome = run.outcome
        click.echo(
            f"{run.entry.title}: {outcome.diversity:.2f} x as diverse, keeps {outcome.kept:.3f}, "
            f"{run.evaluations:.1f} evaluations per image"
        )
    click.echo(results.verdict())
    click.echo(f"wrote {page} and, beside it, {JSON_FILE} and figures")


def check_attributes(
    attributes: Sequence[Attribute], judge: AttributeJudge | None, prompts: list[str]
) -> None:
    """Raise ValueError if the judge cannot score an attribute, or its prompt is not among these.

    Scores blank images, so that nothing is generated in vain.
    """
    scored = [prompts[0], *(str(one.prompt) for one in attributes if one.prompt in prompts)]
    blank = [Image.new("RGB", (64, 64), "white")] * len(scored)
    attribute_scores(as_batch(blank, scored), attributes, judge)


def check_folder(output: Path, entries: list[Entry]) -> None:
    """Raise FileExistsError if the folder holds anything but a comparison."""
    has_begun = (output / entries[0].name / MANIFEST).is_file()
    own = {FEATURES, entries[0].name}
    if output.is_dir() and not has_begun and {path.name for path in output.iterdir()} - own:
        raise FileExistsError(
            f"--output {output} is not empty and has no comparison: name another folder"
        )


def possible(runs: Sweep, entries: list[Entry], prompt: str, *, has_choice: bool) -> list[Entry]:
    """The entries that the model supports; a remark names each of the others.

    Args:
        has_choice: True if the user has named the methods.

    Raises:
        ValueError: the model supports no sampling at all, or not a method that the user has named.
    """
    supported = []
    for entry in entries:
        why = refusal(runs, entry, prompt)
        if why is None:
            supported.append(entry)
        elif entry.family == UNGUIDED:
            raise ValueError(f"the model cannot be sampled: {why}")
        elif has_choice:
            raise ValueError(f"--method {entry.family} cannot be compared: {why}")
        else:
            tell(f"{entry.name} is left out: {why}")
    return supported
