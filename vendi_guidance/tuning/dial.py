"""The same prompts and seeds at several values of the dial, each a run in its own folder, which is
compared with the run at 0, the stock pipeline, by the evaluator's scores; and the page of them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, nan
from pathlib import Path
from statistics import fmean
from typing import Any

from vendi_guidance.evaluation.embedding import Embedding, ImageReader
from vendi_guidance.evaluation.evaluator import compare, evaluate
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.evaluation.report.html import Run, evenly_spaced, render
from vendi_guidance.evaluation.results import Report
from vendi_guidance.runs.distributed import ProcessGroup
from vendi_guidance.runs.loading import Model, find, load
from vendi_guidance.runs.plan import RunOptions
from vendi_guidance.runs.runner import Sampler
from vendi_guidance.runs.setup import open_run
from vendi_guidance.runs.signals import Stop
from vendi_guidance.scores.subsampling import mean_over_prompts
from vendi_guidance.storage.files import whole_file
from vendi_guidance.storage.imagefolder import read_timings

PAGE = "tune.html"
PROMPTS, IMAGES = 12, 16  # most prompts shown, most images of each
NO_JUDGE = (
    "Without a judge, nothing says how much of what the prompts ask for each value keeps: look at "
    "the images. --clip clip, --attributes FILE (for prompts that name values) or --probe FOLDER "
    "adds a judge; the command then reuses these images."
)


@dataclass(eq=False)
class Sweep:
    """Generates runs of one model with different settings one after the other, each in its own
    folder, and loads the model once."""

    options: RunOptions  # shared by all runs; `output` is the parent of their folders
    stop: Stop
    # called with the number of images that a run has just generated or already had
    on_images: Callable[[int], object] = field(default=lambda count: None)
    tell: Callable[[str], object] = field(default=lambda remark: None)  # see `open_run`

    @cached_property
    def model(self) -> Model:
        """The model, not yet loaded; ValueError, OSError or ImportError if it cannot be used."""
        return find(self.options)

    @cached_property
    def _loaded(self) -> Any:
        return load(self.model, self.options.device)

    def generate(
        self, name: str, diversity: dict[str, Any], sampler: Sampler | None = None, **changes: Any
    ) -> Path:
        """Generate the run with this name, guidance settings and other changes of the options, or
        resume it if its folder, which is returned, exists. ValueError or OSError if it fails;
        SystemExit if a signal asked to stop, after which the next call resumes it.
        """
        folder = self.options.output / name
        changes = {"diversity": diversity, "output": folder, "resume": True, **changes}
        options = replace(self.model.options, **changes)
        with ExitStack() as stack:
            group = ProcessGroup(0, 1, options.device)
            run = open_run(options, group, self.stop, stack, self._loaded, self.tell)
            run.sampler = sampler
            self.on_images(run.progress.done)
            for made in run.rounds():
                self.on_images(made)
            if run.stopped_by is not None:
                raise SystemExit(128 + run.stopped_by)
        self.stop.in_batch = False
        return folder


@dataclass(frozen=True)
class Score:
    """A score of a run, with 95% confidence intervals unless there are too few images."""

    title: str
    value: float  # NaN if it is not known
    low: float | None
    high: float | None
    share: float  # the score as a multiple of the one at 0, paired by prompt
    share_interval: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class Point:
    """A value of the dial, the report of its run, and the scores by what they measure."""

    value: float
    report: Report
    diversity: list[Score]
    fidelity: list[Score]
    cost: list[Score]


def sweep(
    runs: Sweep, values: Sequence[float], embedding: Embedding, judges: Judges
) -> Iterator[Point]:
    """Generate and score a run at each value, the first of them 0; finished images are reused.
    SystemExit if a signal asked to stop; ValueError or OSError if a run fails."""
    reader = ImageReader(runs.options.output / ".features", on_bad_image="fail")
    first: Report | None = None
    for value in values:
        folder = runs.generate(f"diversity-{value}", {"diversity": value})
        report = evaluate(folder, embedding=embedding, judges=judges, reader=reader)
        embedding = embedding.with_kernels_of(report.inputs)
        first = first or report
        evaluations = [*read_timings(folder, "evaluations").values()]
        yield scored(value, first, report, fmean(evaluations or [nan]))


def choose(points: Sequence[Point], keep: float) -> Point | None:
    """The last point that keeps at least this share of the fidelity at 0, by every judge; None if
    there is no judge, or none above 0."""
    judged = [point for point in reversed(points[1:]) if point.fidelity]
    return next((one for one in judged if all(s.share >= keep for s in one.fidelity)), None)


def verdict(points: Sequence[Point], keep: float) -> str:
    """Which value `choose` finds and why, in sentences."""
    best = choose(points, keep)
    if not points[0].fidelity:
        return NO_JUDGE
    if best is None:
        return f"No value above 0 keeps {keep:g} of the fidelity at 0: the table shows the shares."
    least = min(best.fidelity, key=lambda score: score.share)
    text = f"{best.value:g} is the largest value here that keeps {keep:g} of the fidelity at 0: "
    text += f"{in_words(least)}, with {in_words(best.diversity[0])}."
    if any(one.share_interval and one.share_interval[0] < keep for one in best.fidelity):
        text += f" A judge's interval reaches below {keep:g}: more prompts would narrow it."
    return text


def in_words(score: Score) -> str:
    """A score as a multiple of the one at 0, as text."""
    text = f"{score.title} ×{score.share:.3f}"
    if score.share_interval is None:
        return text
    low, high = score.share_interval
    return f"{text} (95% confidence interval {low:.3f} to {high:.3f})"


def scored(value: float, first: Report, report: Report, evaluations: float) -> Point:
    """The point of a run with this report and network evaluations per image; `first` is at 0."""
    found = {"seconds_per_image": Score("seconds per image", nan, None, None, nan)}
    for name, change in compare(first, report).differences.items():
        score, base, ends = report.scores[name], change.first, change.interval
        if ends and not change.is_ratio:
            ends = (1 + ends[0] / base, 1 + ends[1] / base) if base else None
        share, title = change.second / base if base else 1.0, MEASURES[name].title
        found[name] = Score(title, score.value, score.low, score.high, share, ends)
    vendi, before = ([group.vendi for group in it.analysis.groups] for it in (report, first))
    within = Score(
        "Vendi within a prompt",
        *mean_over_prompts(vendi, is_ratio=True, limits=(1.0, inf)),
        fmean(vendi) / fmean(before),
    )
    fidelity = [found[name] for name in ("fidelity", "named_kept", "clip_score") if name in found]
    per_image = Score("evaluations per image", evaluations, None, None, nan)
    cost = [per_image, found["seconds_per_image"]]
    return Point(value, report, [found["conditional_vendi"], within], fidelity, cost)


def save_page(folder: Path, points: Sequence[Point], keep: float, settings: dict[str, Any]) -> Path:
    """Write `tune.html`, which is self-contained, with the settings that all runs share; returns
    its path. OSError if the folder cannot be written."""
    rows = [{one.label: one.rows for one in point.report.analysis.groups} for point in points]
    runs = [Run(point.report) for point in points]
    labels = [*dict.fromkeys(points[0].report.inputs.prompts or [])]
    prompts = {
        label: [(run, of_run[label][:IMAGES]) for run, of_run in zip(runs, rows, strict=True)]
        for label in evenly_spaced(labels, PROMPTS)
    }
    given: dict[str, Any] = {"points": points, "prompts": prompts, "settings": settings}
    given |= {"chosen": choose(points, keep), "verdict": verdict(points, keep)}
    text = render(PAGE, **given)
    with whole_file(folder / PAGE) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return folder / PAGE
