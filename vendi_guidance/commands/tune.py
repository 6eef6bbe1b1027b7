"""Find the strength of guidance that suits a model and prompts.

PROMPTS is as of `vendi-guidance generate`: take prompts like those that you will use. The search
generates some of them without guidance, then with one strength after another, and keeps the most
diverse images (Conditional-Vendi) whose faithfulness is at least --keep times that of the unguided
ones.

\b
  vendi-guidance tune prompts.txt --model MODEL --output tuned
  vendi-guidance generate prompts.txt --model MODEL \\
      --settings tuned/settings.json --output out
  vendi-guidance evaluate tuned/check-unguided tuned/check-tuned --output out

The search writes settings.json, frontier.png and every run that it made into the output folder.
Faithfulness is a CLIPScore, or without a CLIP the share of images whose prompt the model itself
recognises among others (own-model), at 20 evaluations of the network an image. That is the default
for the demo model, whose diversity is scored on pixels: the search is blind to its probe. At the
end the settings found are checked on seeds that the search has not seen.

The same command goes on after a kill. Given on several machines or GPUs (--device cuda:1) with one
output folder, the processes share the trials.
"""

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from vendi_guidance.commands.cli import Command, Option
from vendi_guidance.commands.judge_options import judged_run_options, open_judged_runs, progress
from vendi_guidance.commands.run_options import COUNT
from vendi_guidance.evaluation.judging import Outcome
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.runs.manifest import Manifest, versions
from vendi_guidance.runs.settings_file import save_settings
from vendi_guidance.runs.setup import check_prompts_are_seen, inputs_of
from vendi_guidance.storage.prompt_files import open_prompts
from vendi_guidance.tuning.frontier import save_frontier
from vendi_guidance.tuning.study import PROMPTS, Search, Trial, Tuner, begin

RUNS_BESIDE = 3  # the trials: one without guidance, and two that check what was found
FRONTIER = "frontier.png"

search = partial(click.option, cls=Option, group="Search")

COMMON = ("model", "images_per_prompt", "keep", "images", "faithfulness", "output", "device")


@click.command(cls=Command, common=COMMON, help=__doc__, context_settings={"show_default": True})
@judged_run_options
@search("--images", type=COUNT, default=2000, help="Budget: images to generate in all.")
@search(
    "--trials",
    type=COUNT,
    default=8,
    help="Most strengths to try; more trials mean fewer images in each. The search ends sooner "
    "when it would try the same again.",
)
def main(keep: float, images: int, trials: int, **given: Any) -> None:
    output, each = given["output"], given["images_per_prompt"]
    affordable = images // (trials + RUNS_BESIDE) // each
    if not affordable:
        raise ValueError(
            f"--images {images} is too small: {trials} trials and {RUNS_BESIDE} runs beside "
            f"them take {(trials + RUNS_BESIDE) * each} for one prompt"
        )
    prompts = open_prompts(given["prompts"]).spread(affordable)
    given["prompts"] = str(output / PROMPTS)
    runs, judging, about = open_judged_runs(given, prompts)
    check_prompts_are_seen(runs.model.pipeline, Rounds())
    wanted = Search(keep, trials, given["seed"])
    # expert, for searches that version 0.3 began
    settings = {"expert": False, **asdict(wanted), **about}
    begin(output, Manifest(settings, {**inputs_of(runs.model)}, versions()), prompts)
    count = len(prompts) * each
    with progress(runs, trials + RUNS_BESIDE, len(prompts)) as bar:
        tuner = Tuner(runs, wanted, judging)
        bar.update(count * len(tuner.finished()))
        best = best_of(tuner, output / FRONTIER, bar)
        if best is None:
            return
        outcome = tuner.check(best, runs.options.seed + count)
    about = {"model": runs.options.model, "keep": keep, "search": asdict(best.outcome)}
    about |= {"check": asdict(outcome), "images": count, "prompts": len(prompts)}
    save_settings(output / "settings.json", {"strength": best.strength}, about)
    click.echo(verdict(best, outcome, keep))
    click.echo(f"wrote {output / 'settings.json'} and {output / FRONTIER}")


def best_of(tuner: Tuner, figure: Path, bar: Any) -> Trial | None:
    """The best of all trials, with a figure of them; None where another process ends the search.

    Raises:
        ValueError: none keeps enough.
    """
    wanted = tuner.search
    for one in tuner.run():
        found = f"{one.outcome.diversity:.2f} x as diverse, keeps {one.outcome.kept:.3f}"
        bar.write(f"strength {one.strength:g}: {found}", file=sys.stderr)
        save_frontier(figure, wanted, tuner.finished())
    # asked before the trials are read: those that another process ends meanwhile count too
    finished = tuner.is_finished
    tried = tuner.finished()
    save_frontier(figure, wanted, tried)
    if not finished:
        text = "the last trials are made by another process, which ends the search"
        bar.write(text, file=sys.stderr)
        return None
    best = wanted.best(tried)
    if best is None:
        closest = max(tried, key=lambda one: one.outcome.kept)
        raise ValueError(
            f"no strength that was tried keeps {wanted.keep:g} of the unguided faithfulness; the "
            f"closest is {closest.strength:g}, which keeps {closest.outcome.kept:.3f}: "
            "in another folder, lower --keep, or try more with --trials"
        )
    return best


def verdict(best: Trial, outcome: Outcome, keep: float) -> str:
    """What was found, for the user."""
    interval = ""
    if outcome.kept_interval is not None:
        low, high = outcome.kept_interval
        interval = f" (95% confidence interval {low:.3f} to {high:.3f})"
    text = (
        f"strength {best.strength:g}: on new seeds {outcome.diversity:.2f} x as diverse as "
        f"unguided, and keeps {outcome.kept:.3f} of its faithfulness{interval}."
    )
    if outcome.kept < keep:
        text += f" That is less than --keep {keep:g}: search with more --images, elsewhere."
    return text
