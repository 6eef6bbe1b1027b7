"""The comparison: a run for each entry, judged beside the unguided one.

Every run is a folder as `vendi-guidance generate` writes, so a comparison that is killed goes on
where it was, and other judges need no new images.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch

from vendi_guidance.adapter.callback import VendiGuidance
from vendi_guidance.comparison.entries import OURS, Entry
from vendi_guidance.evaluation.comparison import Comparison, compare
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
        decided = "" if found.is_significant else ", which decides nothing"
        return (
            f"Of what keeps {floor}, {_in_words(ours)}, and {found.change:.2f} times that of the "
            f"best other method, {other.entry.title}{interval}{decided}. These images chose both, "
            "which the interval does not count: to be sure, compare the two with another --seed."
        )


@dataclass(frozen=True)
class Study:
    """Generates and judges.

    Attributes:
        runs: with the model, prompts and images per prompt. Their folder is the comparison's.
    """

    runs: Sweep
    judging: Judging

    def images_drawn(self, entry: Entry) -> float:
        """Images that it generates for each that is kept; those of fewer steps count by these."""
        steps = self.runs.model.sampling.steps
        return entry.build().steps_per_image(steps) / steps

    def refusal(self, entry: Entry, prompt: str) -> str | None:
        """Why the model cannot be sampled in this way, by two steps of two images; None if it can.

        An entry with a run has shown it.

        Raises:
            ValueError: the model cannot be loaded.
        """
        pipe, undistilled = self.runs.pipe, self.runs.undistilled
        try:
            if entry.family == OURS:
                settings = VendiGuidance(**entry.diversity).settings
                check_prompts_are_seen(self.runs.model.pipeline, settings)
            elif not self.folder(entry).exists():
                pipe.guidance = VendiGuidance(strength=0, undistilled=undistilled)
                arguments = self.runs.model.sampling.arguments([prompt] * 2) | {
                    "generator": [torch.Generator().manual_seed(seed) for seed in range(2)],
                    "num_inference_steps": SHORT,
                }
                entry.sampler().generate(pipe, arguments)
        except (ValueError, *BROKEN) as error:
            return reason(error)
        return None

    def generate(self, entry: Entry, on_images: Callable[[int], object]) -> Path:
        """Make an entry's run, or what is missing of it.

        Args:
            on_images: called with the number of images that were generated or found, as of
                `images_drawn`.

        Raises:
            SystemExit: a signal asked to stop.
            ValueError, OSError: it cannot be made.
        """
        share = self.images_drawn(entry)
        self.runs.on_images = lambda kept: on_images(round(kept * share))
        return self.runs.generate(entry.name, entry.diversity, sampler=entry.sampler())

    def judge(self, entries: Sequence[Entry]) -> Iterator[Compared]:
        """The finished runs of these entries, of which the first is the unguided one."""
        unguided, settings = self.judging.unguided(self.folder(entries[0]))
        for entry in entries:
            folder = self.folder(entry)
            report = unguided if entry is entries[0] else evaluate(folder, **settings)
            found: Comparison = compare(unguided, report)
            yield Compared(
                entry,
                report,
                Outcome.of(found),
                fmean(read_timings(folder, "evaluations").values()),
                fmean(read_timings(folder, "seconds").values()),
            )

    def folder(self, entry: Entry) -> Path:
        """Of its run."""
        return self.runs.options.output / entry.name


def _in_words(run: Compared) -> str:
    found = run.outcome
    times = f"{found.diversity:.2f} times the unguided Conditional-Vendi"
    return f"{run.entry.title} has {times}{_in_brackets(found.diversity_interval)}"


def _in_brackets(interval: tuple[float, float] | None) -> str:
    return f" (95% confidence interval {between(interval, '.2f')})" if interval else ""
