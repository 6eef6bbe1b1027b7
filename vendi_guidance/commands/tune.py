"""Find the strength of guidance that suits a model and prompts.

PROMPTS is as of `vendi-guidance generate`: take prompts like those that you will use. The search
draws some of them without guidance, then with one strength after another, and keeps the most
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
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import click
import transformers
from tqdm import tqdm

from vendi_guidance.checks import check_device, counted
from vendi_guidance.commands.cli import Command, Option, Range, tell
from vendi_guidance.commands.judge_options import judge_options, judges_of, open_judging
from vendi_guidance.commands.run_options import (
    COUNT,
    PATH,
    machine_options,
    model_of,
    model_options,
    what,
    where,
)
from vendi_guidance.evaluation.judging import Outcome
from vendi_guidance.guidance.settings import Rounds
from vendi_guidance.runs.series import Series
from vendi_guidance.runs.settings_file import save_settings
from vendi_guidance.runs.setup import RunOptions, check_prompts_are_seen, find, settled
from vendi_guidance.runs.signals import Stop
from vendi_guidance.storage.prompt_files import open_prompts
from vendi_guidance.tuning.folder import PROMPTS, begin, manifest_of
from vendi_guidance.tuning.frontier import save_frontier
from vendi_guidance.tuning.study import Search, Trial, Tuner

RUNS_BESIDE = 3  # the trials: one without guidance, and two that check what was found
TRIALS = (8, 24)


def search(*args: Any, **settings: Any) -> Any:
    return click.option(*args, cls=Option, group="Search", **settings)


COMMON = ("model", "images_per_prompt", "keep", "pictures", "faithfulness", "output", "device")


@click.command(cls=Command, common=COMMON, help=__doc__, context_settings={"show_default": True})
@click.argument("prompts")
@model_options
@what("--images-per-prompt", type=click.IntRange(2), default=8, help="Images of each prompt.")
@what("--batch-size", type=COUNT, default=8, help="Number of images made at a time.")
@what("--seed", type=click.IntRange(0, 2**62), default=0, help="Seed of images and search.")
@search(
    "--keep",
    type=Range(0, 1, min_open=True),
    default=0.98,
    help="Least faithfulness, as a share of the unguided images'.",
)
@search("--pictures", type=COUNT, default=2000, help="Budget: images to draw in all.")
@search(
    "--trials",
    type=COUNT,
    show_default=f"{TRIALS[0]}, or {TRIALS[1]} with --all",
    help="Most settings to try; more trials mean fewer images in each. The search ends sooner "
    "when it would try the same again.",
)
@search("--all", "expert", is_flag=True, help="Search rounds, candidates, level and cfg too.")
@judge_options
@where("--output", type=PATH, required=True, help="Folder for the search.")
@machine_options
def main(
    keep: float,
    pictures: int,
    trials: int | None,
    expert: bool,
    image_embedder: str | None,
    prompt_embedder: str | None,
    faithfulness: str | None,
    **given: Any,
) -> None:
    transformers.utils.logging.disable_progress_bar()
    given["model"] = model_of(given["model"])
    check_device(given["device"])
    output, each = given["output"], given["images_per_prompt"]
    trials = trials or TRIALS[expert]
    affordable = pictures // (trials + RUNS_BESIDE) // each
    if not affordable:
        raise ValueError(
            f"--pictures {pictures} is too small: {trials} trials and {RUNS_BESIDE} runs beside "
            f"them take {(trials + RUNS_BESIDE) * each} for one prompt"
        )
    used = open_prompts(given["prompts"]).spread(affordable)
    options = RunOptions(**{**given, "prompts": str(output / PROMPTS)}, resume=True)
    options.check()
    model = find(options)
    check_prompts_are_seen(model.pipeline, Rounds())
    judged = judges_of(model.folder, image_embedder, prompt_embedder, faithfulness)
    runs = Series(settled(options, model), Stop(), tell=tell)
    judging = open_judging(*judged.values(), runs=runs, drawn=used)
    wanted = Search(keep, trials, expert, given["seed"])
    begin(output, manifest_of(options, model, wanted, judged, used), used)
    for remark in model.remarks:
        tell(remark)
    count = len(used) * each
    total = count * (trials + RUNS_BESIDE)
    drawn = f"{counted(len(used), 'prompt')} x {counted(each, 'image')}"
    tell(f"{counted(trials, 'trial')} of {drawn}: {total:,} in all")
    with ExitStack() as stack:
        stack.enter_context(runs.stop)
        bar = stack.enter_context(tqdm(total=total, unit="picture"))
        runs.on_pictures = bar.update
        tuner = Tuner(runs, wanted, judging)
        bar.update(count * len(tuner.finished()))
        for one in tuner.run():
            bar.write(sentence(one), file=sys.stderr)
            save_frontier(output / "frontier.png", wanted, tuner.finished())
        # asked before the trials are read: those that another process ends meanwhile count too
        finished = tuner.is_finished
        tried = tuner.finished()
        save_frontier(output / "frontier.png", wanted, tried)
        if not finished:
            bar.write(
                "the last trials are made by another process, which ends the search",
                file=sys.stderr,
            )
            return
        best = wanted.best(tried)
        if best is None:
            closest = max(tried, key=lambda one: one.outcome.kept)
            raise ValueError(
                f"no strength that was tried keeps {keep:g} of the unguided faithfulness; the "
                f"closest is {closest.settings['strength']:g}, which keeps "
                f"{closest.outcome.kept:.3f}: in another folder, lower --keep, or try more with "
                "--trials"
            )
        outcome = tuner.check(best, options.seed + count)
    about = {"model": options.model, "keep": keep, "search": asdict(best.outcome)}
    about |= {"check": asdict(outcome), "images": count, "prompts": len(used)}
    save_settings(output / "settings.json", best.settings, about)
    click.echo(verdict(best, outcome, keep))
    click.echo(f"wrote {output / 'settings.json'} and {output / 'frontier.png'}")


def sentence(one: Trial) -> str:
    settings = ", ".join(f"{name} {value:g}" for name, value in one.settings.items())
    found = one.outcome
    return f"{settings}: {found.diversity:.2f} x as diverse, keeps {found.kept:.3f}"


def verdict(best: Trial, outcome: Outcome, keep: float) -> str:
    """What was found, for the user."""
    interval = ""
    if outcome.kept_interval is not None:
        low, high = outcome.kept_interval
        interval = f" (95% confidence interval {low:.3f} to {high:.3f})"
    settings = ", ".join(f"{name} {value:g}" for name, value in best.settings.items())
    text = (
        f"{settings}: on new seeds {outcome.diversity:.2f} x as diverse as unguided, and keeps "
        f"{outcome.kept:.3f} of its faithfulness{interval}."
    )
    if outcome.kept < keep:
        text += f" That is less than --keep {keep:g}: search with more --pictures, elsewhere."
    return text
