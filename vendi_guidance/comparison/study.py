"""The comparison: one run per entry, scored relative to the unguided run.

Every run is a folder as written by `vendi-guidance generate`. An interrupted comparison therefore
resumes, and other judges can score the images that exist.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch

from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.comparison.entries import OURS, Entry
from vendi_guidance.evaluation.comparison import compare
from vendi_guidance.evaluation.evaluator import Report, evaluate
from vendi_guidance.evaluation.judging import Judging, Outcome
from vendi_guidance.evaluation.measures import between
from vendi_guidance.features.weights import reason
from vendi_guidance.runs.models import BROKEN
from vendi_guidance.runs.setup import check_prompts_are_seen
from vendi_guidance.runs.sweep import Sweep
from vendi_guidance.storage.imagefolder import read_timings

SHORT = 2  # steps


@dataclass(frozen=True)
class Compared:
    """The scored run of an entry.

    Attributes:
        report: its scores.
        outcome: diversity and faithfulness relative to the unguided run.
        evaluations, seconds: evaluations of the network and time per image, on average.
    """

    entry: Entry
    report: Report
    outcome: Outcome
    evaluations: float
    seconds: float


@dataclass(frozen=True)
class Results:
    """The runs of a comparison.

    Attributes:
        runs: all runs, the unguided one first.
        keep: the share of the unguided faithfulness that an acceptable run keeps at least.
    """

    runs: list[Compared]
    keep: float

    @property
    def unguided(self) -> Compared:
        return self.runs[0]

    def best(self, *, ours: bool) -> Compared | None:
        """The most diverse acceptable run, of Vendi guidance or of other methods; None if none."""
        kept = [
            run
            for run in self.runs[1:]
            if (run.entry.family == OURS) == ours and run.outcome.kept >= self.keep
        ]
        return max(kept, key=lambda run: run.outcome.diversity, default=None)

    def verdict(self) -> str:
        """A summary in sentences: Vendi guidance against the best other method."""
        floor = f"at least {self.keep:g} of the unguided faithfulness"
        ours, other = self.best(ours=True), self.best(ours=False)
        best = ours or other
        if best is None:
            return f"No method keeps {floor}."
        if ours is None or other is None:
            text = f"{_summary(best)} and keeps {floor}."
            if len({run.entry.family == OURS for run in self.runs[1:]}) > 1:
                missing = "strength of Vendi guidance" if ours is None else "other method"
                text += f" No {missing} in this comparison keeps as much."
            return text
        difference = compare(other.report, ours.report).differences["conditional_vendi"]
        interval = _in_brackets(difference.interval)
        significance = "" if difference.is_significant else "; the difference is not significant"
        return (
            f"Among runs that keep {floor}, {_summary(ours)}, and {difference.change:.2f} times "
            f"that of the best other method, {other.entry.title}{interval}{significance}. Both "
            "were selected on these images, which the interval does not account for: compare the "
            "two again with another --seed."
        )


def refusal(runs: Sweep, entry: Entry, prompt: str) -> str | None:
    """Why the model does not support an entry; None if it does.

    Tries it with two images and two steps, unless the entry's run has begun. For Vendi guidance,
    checks only that the pipeline exposes its prompts.

    Raises:
        ValueError: the model cannot be loaded.
    """
    pipe, undistilled = runs.pipe, runs.undistilled
    try:
        if entry.family == OURS:
            settings = VendiGuidance(**entry.diversity).settings
            check_prompts_are_seen(runs.model.pipeline, settings)
        elif not (runs.options.output / entry.name).exists():
            pipe.guidance = VendiGuidance(diversity=0, undistilled=undistilled)
            arguments = runs.model.sampling.arguments([prompt] * 2) | {
                "generator": [torch.Generator().manual_seed(seed) for seed in range(2)],
                "num_inference_steps": SHORT,
            }
            entry.sampler().generate(pipe, arguments)
    except (ValueError, *BROKEN) as error:
        return reason(error)
    return None


def judged(folder: Path, entries: Sequence[Entry], judging: Judging) -> Iterator[Compared]:
    """Score the finished runs of these entries in a folder; the first is the unguided one."""
    unguided, settings = judging.unguided(folder / entries[0].name)
    for entry in entries:
        run = folder / entry.name
        report = unguided if entry is entries[0] else evaluate(run, **settings)
        outcome = Outcome.of(compare(unguided, report))
        evaluations = fmean(read_timings(run, "evaluations").values())
        seconds = fmean(read_timings(run, "seconds").values())
        yield Compared(entry, report, outcome, evaluations, seconds)


def _summary(run: Compared) -> str:
    times = f"{run.outcome.diversity:.2f} times the unguided Conditional-Vendi"
    return f"{run.entry.title} has {times}{_in_brackets(run.outcome.diversity_interval)}"


def _in_brackets(interval: tuple[float, float] | None) -> str:
    return f" (95% confidence interval {between(interval, '.2f')})" if interval else ""
