"""The comparison: a run for each entry, judged beside the unguided one.

Every run is a folder as `vendi-guidance generate` writes, so a comparison that is killed goes on
where it was, and other judges need no new images.
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
    """An entry's run.

    Attributes:
        report: its scores.
        outcome: beside the unguided run.
        evaluations, seconds: of the network and of time, for each image on average.
    """

    entry: Entry
    report: Report
    outcome: Outcome
    evaluations: float
    seconds: float


@dataclass(frozen=True)
class Results:
    """All runs.

    Attributes:
        runs: the unguided one first.
        keep: the least share of the unguided faithfulness that is acceptable.
    """

    runs: list[Compared]
    keep: float

    @property
    def unguided(self) -> Compared:
        return self.runs[0]

    def best(self, *, ours: bool) -> Compared | None:
        """The most diverse run that keeps enough, of ours or of the others; None if none does."""
        kept = [
            run
            for run in self.runs[1:]
            if (run.entry.family == OURS) == ours and run.outcome.kept >= self.keep
        ]
        return max(kept, key=lambda run: run.outcome.diversity, default=None)

    def verdict(self) -> str:
        """What is best, in sentences."""
        floor = f"at least {self.keep:g} of the unguided faithfulness"
        ours, other = self.best(ours=True), self.best(ours=False)
        if ours is None and other is None:
            return f"No method keeps {floor}."
        if ours is None or other is None:
            [best] = [run for run in (ours, other) if run is not None]
            rest = "other method" if ours is not None else "strength of Vendi guidance"
            compared = len({run.entry.family == OURS for run in self.runs[1:]}) > 1
            return f"{_in_words(best)} and keeps {floor}." + (
                f" No {rest} that was compared keeps as much." if compared else ""
            )
        found = compare(other.report, ours.report).differences["conditional_vendi"]
        interval = _in_brackets(found.interval)
        decided = "" if found.is_significant else ", a difference that is not significant"
        return (
            f"Of what keeps {floor}, {_in_words(ours)}, and {found.change:.2f} times that of the "
            f"best other method, {other.entry.title}{interval}{decided}. Both were chosen on these "
            "images, which the interval does not count: compare the two again with another --seed."
        )


def refusal(runs: Sweep, entry: Entry, prompt: str) -> str | None:
    """Why the model cannot be sampled in this way, by two steps of two images; None if it can.

    An entry with a run has shown it.

    Raises:
        ValueError: the model cannot be loaded.
    """
    pipe, undistilled = runs.pipe, runs.undistilled
    try:
        if entry.family == OURS:
            settings = VendiGuidance(**entry.diversity).settings
            check_prompts_are_seen(runs.model.pipeline, settings)
        elif not (runs.options.output / entry.name).exists():
            pipe.guidance = VendiGuidance(strength=0, undistilled=undistilled)
            arguments = runs.model.sampling.arguments([prompt] * 2) | {
                "generator": [torch.Generator().manual_seed(seed) for seed in range(2)],
                "num_inference_steps": SHORT,
            }
            entry.sampler().generate(pipe, arguments)
    except (ValueError, *BROKEN) as error:
        return reason(error)
    return None


def judged(folder: Path, entries: Sequence[Entry], judging: Judging) -> Iterator[Compared]:
    """The finished runs of these entries in a folder, of which the first is the unguided one."""
    unguided, settings = judging.unguided(folder / entries[0].name)
    for entry in entries:
        run = folder / entry.name
        report = unguided if entry is entries[0] else evaluate(run, **settings)
        evaluations, seconds = (
            fmean(read_timings(run, cost).values()) for cost in ("evaluations", "seconds")
        )
        outcome = Outcome.of(compare(unguided, report))
        yield Compared(entry, report, outcome, evaluations, seconds)


def _in_words(run: Compared) -> str:
    found = run.outcome
    times = f"{found.diversity:.2f} times the unguided Conditional-Vendi"
    return f"{run.entry.title} has {times}{_in_brackets(found.diversity_interval)}"


def _in_brackets(interval: tuple[float, float] | None) -> str:
    return f" (95% confidence interval {between(interval, '.2f')})" if interval else ""
