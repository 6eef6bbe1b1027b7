"""Find the guidance strength that suits a model and its prompts.

PROMPTS is a prompt or a file of prompts, as for `vendi-guidance generate`; take prompts like those
that you will use. The search generates some of them without guidance, then with one strength after
another, and selects the strength with the most diverse images (Conditional-Vendi) whose
faithfulness is at least --keep times that of the unguided images.

\b
  vendi-guidance tune prompts.txt --model MODEL --output tuned
  vendi-guidance generate prompts.txt --model MODEL \\
      --settings tuned/settings.json --output out
  vendi-guidance evaluate tuned/check-unguided tuned/check-tuned --output out

The output folder receives settings.json, frontier.png and all generated runs. Faithfulness is
CLIPScore or, without CLIP, the share of images whose prompt the model itself recognises among
others (own-model), which takes 20 network evaluations per image. For the demo model the default is
own-model, and diversity is scored on pixels, so that the search does not see the demo's probe. At
the end, the strength that was found is checked on seeds that the search has not used.

Repeat the command to continue an interrupted search. Run it on several machines or GPUs (--device
cuda:1) with the same output folder to share the trials among them.
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

CHECKS = 2  # runs that check the strength found: without guidance, and with it
OTHER_RUNS = 1 + CHECKS  # beside the trials: the first one is unguided
FRONTIER = "frontier.png"

search_option = partial(click.option, cls=Option, group="Search")

COMMON = ("model", "images_per_prompt", "keep", "images", "faithfulness", "output", "device")


@click.command(cls=Command, common=COMMON, help=__doc__, context_settings={"show_default": True})
@judged_run_options
@search_option("--images", type=COUNT, default=2000, help="Total number of images to generate.")
@search_option(
    "--trials",
    type=COUNT,
    default=8,
    help="Maximum number of strengths to try; the more, the fewer images each. The search ends "
    "early if it would repeat a strength.",
)
def main(keep: float, images: int, trials: int, **given: Any) -> None:
    output, each, count_of_runs = given["output"], given["images_per_prompt"], trials + OTHER_RUNS
    affordable = images // count_of_runs // each
    if not affordable:
        raise ValueError(
            f"--images {images} is too small: {trials} trials and {OTHER_RUNS} other runs take "
            f"{count_of_runs * each} for one prompt"
        )
    prompts = open_prompts(given["prompts"]).spread(affordable)
    given["prompts"] = str(output / PROMPTS)
    runs, judging, about = open_judged_runs(given, prompts)
    check_prompts_are_seen(runs.model.pipeline, Rounds())
    search = Search(keep, trials, given["seed"])
    # version 0.3 wrote "expert" too; without it, searches begun then could not be continued
    settings = {"expert": False, **asdict(search), **about}
    begin(output, Manifest(settings, {**inputs_of(runs.model)}, versions()), prompts)
    count = len(prompts) * each
    with progress(runs, count_of_runs, len(prompts)) as bar:
        tuner = Tuner(runs, search, judging)
        bar.update(count * len(tuner.finished()))
        best = best_of(tuner, output / FRONTIER, bar)
        if best is None:
            return
        bar.total += CHECKS * count
        outcome = tuner.check(best, runs.options.seed + count)
    about = {"model": runs.options.model, "keep": keep, "search": asdict(best.outcome)}
    about |= {"check": asdict(outcome), "images": count, "prompts": len(prompts)}
    save_settings(output / "settings.json", {"diversity": best.strength}, about)
    click.echo(verdict(best, outcome, keep))
    click.echo(f"wrote {output / 'settings.json'} and {output / FRONTIER}")


def best_of(tuner: Tuner, figure: Path, bar: Any) -> Trial | None:
    """Run the search and plot its trials; returns the best, or None if another process ends it.

    The total of the progress bar becomes the number of images made so far.

    Raises:
        ValueError: no trial keeps enough faithfulness.
    """
    search = tuner.search
    for trial in tuner.run():
        result = f"{trial.outcome.diversity:.2f} x as diverse, keeps {trial.outcome.kept:.3f}"
        bar.write(f"strength {trial.strength:g}: {result}", file=sys.stderr)
        save_frontier(figure, search, tuner.finished())
    bar.total = bar.n  # the search may end early, or other processes may have made trials
    # read before the trials, so that those that other processes finish in between are included
    is_finished = tuner.is_finished
    trials = tuner.finished()
    save_frontier(figure, search, trials)
    if not is_finished:
        text = "another process is running the last trials and will finish the search"
        bar.write(text, file=sys.stderr)
        return None
    best = search.best(trials)
    if best is None:
        closest = max(trials, key=lambda trial: trial.outcome.kept)
        raise ValueError(
            f"no strength that was tried keeps {search.keep:g} of the unguided faithfulness; the "
            f"closest is {closest.strength:g}, which keeps {closest.outcome.kept:.3f}: use "
            "another folder with a lower --keep or with more --trials"
        )
    return best


def verdict(best: Trial, outcome: Outcome, keep: float) -> str:
    """The result of the search, as text for the user."""
    interval = ""
    if outcome.kept_interval is not None:
        low, high = outcome.kept_interval
        interval = f" (95% confidence interval {low:.3f} to {high:.3f})"
    text = (
        f"strength {best.strength:g}: on new seeds {outcome.diversity:.2f} x as diverse as without "
        f"guidance, and keeps {outcome.kept:.3f} of the faithfulness{interval}."
    )
    if outcome.kept < keep:
        text += f" That is less than --keep {keep:g}: search with more --images in another folder."
    return text
