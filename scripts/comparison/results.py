"""The measures of a method over prompts and seeds, and comparisons of methods by their curves.

Intervals are percentiles of bootstrap samples of prompts, each with the mean over its seeds. With
few prompts the usual percentiles are too narrow, so that these are further out (the expanded
percentile interval; Hesterberg, The American Statistician 69, 2015); fewer than `FEWEST_PROMPTS`
have none. All rows share their resampled prompts, so that differences are paired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isnan, nan, sqrt
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t as student

from scripts.comparison.candidates import METHODS, OURS, OURS_DEFAULT, UNGUIDED, Candidate
from scripts.comparison.measures import KEPT, LOOKS, MEASURES, Scores
from scripts.comparison.plan import FINAL
from scripts.comparison.trials import Trial
from vendi_guidance.evaluation.intervals import FEWEST_PROMPTS

CONFIDENCE = 0.95
RESAMPLES = 2000

LEVELS = (0.99, 0.97, 0.95, 0.93, 0.90)
"""Of named kept, at which looks are compared; in a sweep, shares of what the unguided keeps."""

Array = NDArray[np.float64]
Interval = tuple[float, float]
Point = tuple[float, float]
"""Named kept and looks."""


@dataclass(frozen=True)
class Row:
    """The same trial with one or more seeds.

    Attributes:
        kind: of the trials: "sweep", "final" and so on.
        trials: one a seed.
        scores: of each.
        name: of an ablation; else the method.
    """

    kind: str
    trials: tuple[Trial, ...]
    scores: tuple[Scores, ...]
    name: str = ""

    @property
    def candidate(self) -> Candidate:
        return self.trials[0].candidate

    @property
    def method(self) -> str:
        return self.candidate.method

    def mean(self, measure: str) -> float | None:
        """Over the seeds for which it is defined; None if it is for none."""
        if measure.endswith("_nearest_ratio"):
            terms = self._terms(measure)
            return None if terms is None else float(terms[0].mean() / terms[1].mean())
        known = [value for of in self.scores if (value := of.values[measure]) is not None]
        return fmean(known) if known else None

    def interval(self, measure: str) -> Interval | None:
        """The confidence interval; None for measures that are not means over prompts, or over too
        few."""
        resampled = self.resampled(measure)
        return None if resampled is None else percentiles(resampled, self.prompts(measure))

    def prompts(self, measure: str) -> int:
        """How many prompts a measure is a mean over."""
        terms = self._terms(measure)
        return 0 if terms is None else len(terms[0])

    def resampled(self, measure: str) -> Array | None:
        """(RESAMPLES,) values of a measure, each with other prompts; None where undefined."""
        terms = self._terms(measure)
        if terms is None:
            return None
        above, below = terms
        rows = np.random.default_rng(0).integers(len(above), size=(RESAMPLES, len(above)))
        means: Array = above[rows].mean(axis=1) / below[rows].mean(axis=1)
        return means

    def _terms(self, measure: str) -> tuple[Array, Array] | None:
        """By prompt, what is averaged: a ratio's distances and those of named images, of prompts
        that have both; for other measures the second is ones."""
        if measure.endswith("_nearest_ratio"):
            above = self._by_prompt(measure.replace("ratio", "distance"))
            below = self._by_prompt(measure.replace("ratio", "named"))
        else:
            above = self._by_prompt(measure)
            below = None if above is None else np.ones_like(above)
        if above is None or below is None:
            return None
        known = ~np.isnan(above) & ~np.isnan(below)
        return (above[known], below[known]) if known.any() else None

    def _by_prompt(self, measure: str) -> Array | None:
        """(prompts,) means over seeds, NaN where one is undefined; None if not known by prompt."""
        if not self.scores[0].by_prompt.get(measure):
            return None
        return np.array([of.by_prompt[measure] for of in self.scores], dtype=float).mean(axis=0)

    def as_dict(self) -> dict[str, Any]:
        """JSON values: the trial, its measures with their intervals, and those by prompt."""
        trial = self.trials[0]
        about = {
            "kind": self.kind,
            "name": self.name or self.method,
            "method": self.method,
            "strength": self.candidate.strength,
            "settings": self.candidate.settings,
            "guidance_scale": self.candidate.guidance_scale,
            **trial.how._asdict(),
            "prompts": [prompt.words for prompt in trial.prompts],
            "seeds": [trial.seed for trial in self.trials],
        }
        for measure in MEASURES:
            low, high = self.interval(measure) or (None, None)
            about |= {measure: self.mean(measure), f"{measure}_low": low, f"{measure}_high": high}
        return about | {"scores": [of._asdict() for of in self.scores]}


def percentiles(resampled: Array, prompts: int) -> Interval | None:
    """The central interval of level `CONFIDENCE`, expanded for a number of prompts; None if these
    are too few."""
    if prompts < FEWEST_PROMPTS:
        return None
    # bootstrap samples vary by (n - 1) / n as much as means of n do, whose deviation is unknown
    width = student.ppf((1 + CONFIDENCE) / 2, prompts - 1) * sqrt(prompts / (prompts - 1))
    tail = float(norm.cdf(-width))
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return float(low), float(high)


def curves(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The finals of each method, from weak to strong and after the unguided, by its name."""
    finals = [row for row in rows if row.kind == FINAL]
    plain = [row for row in finals if row.method == UNGUIDED]
    found = {}
    for method in METHODS:
        own = [row for row in finals if row.method == method]
        if own and method != UNGUIDED:
            found[method] = plain + own
    return found


def point(row: Row) -> Point:
    """Named kept and looks; NaN where undefined."""
    kept, looks = row.mean(KEPT), row.mean(LOOKS)
    return nan if kept is None else kept, nan if looks is None else looks


def looks_at(points: Sequence[Point], level: float) -> float | None:
    """The most looks that a curve has at a level of named kept, or at a higher one.

    Args:
        points: the curve, linear between neighbours.

    Returns:
        None if no point keeps so much.
    """
    found = [looks for kept, looks in points if kept >= level]
    for (kept, looks), (next_kept, next_looks) in pairwise(points):
        if (kept - level) * (next_kept - level) < 0:
            share = (level - kept) / (next_kept - kept)
            found.append(looks + share * (next_looks - looks))
    return max(found, default=None)


@dataclass(frozen=True)
class Gain:
    """What ours gains in looks over the best other method at a level of named kept.

    Attributes:
        level: of named kept.
        looks: of each method, by its name; None where it does not keep so much.
        best_other: the name of the other method with most looks, or None.
        difference: of ours from it, or None.
        interval: of the difference, or None.
    """

    level: float
    looks: Mapping[str, float | None]
    best_other: str | None
    difference: float | None
    interval: Interval | None


def gain(of_methods: Mapping[str, Sequence[Row]], level: float) -> Gain:
    """The comparison of all curves at a level of named kept."""
    looks = {name: looks_at([*map(point, rows)], level) for name, rows in of_methods.items()}
    others = {name: value for name, value in looks.items() if value is not None and name != OURS}
    best, ours = max(others, key=others.__getitem__, default=None), looks.get(OURS)
    if best is None or ours is None:
        return Gain(level, looks, best, None, None)
    samples = zip(
        _resampled_looks_at(of_methods[OURS], level),
        _resampled_looks_at(of_methods[best], level),
        strict=True,
    )
    differences = [a - b for a, b in samples if a is not None and b is not None]
    rare = len(differences) < CONFIDENCE * RESAMPLES  # the level is often out of reach
    prompts = min(of_methods[OURS][0].prompts(measure) for measure in (KEPT, LOOKS))
    interval = None if rare else percentiles(np.array(differences), prompts)
    return Gain(level, looks, best, ours - others[best], interval)


def _resampled_looks_at(rows: Sequence[Row], level: float) -> list[float | None]:
    pairs = [(row.resampled(KEPT), row.resampled(LOOKS)) for row in rows]
    known = [(kept, looks) for kept, looks in pairs if kept is not None and looks is not None]
    samples = np.array(known).transpose(2, 0, 1)  # sample, row, measure
    return [looks_at([(kept, looks) for kept, looks in sample], level) for sample in samples]


def choose(of_method: Sequence[Row], plain: Row) -> Row:
    """The row of a sweep with most looks, on the line from the unguided, on average over `LEVELS`
    as shares of what the unguided keeps."""
    kept = point(plain)[0]

    def merit(row: Row) -> float:
        looks = [looks_at([point(plain), point(row)], share * kept) for share in LEVELS]
        return fmean([value for value in looks if value is not None] or [-inf])

    return max(of_method, key=merit)


AFFORDABLE = 2.0
"""Of the unguided's network evaluations: drawing four times as many is on the curves only."""


def best_other(finals: Sequence[Row]) -> Row:
    """The row of another method with most looks, of those that keep what ours keeps by default and
    take at most `AFFORDABLE` times the unguided's evaluations.

    Without ours, or if none keeps so much, the one that keeps most.
    """
    plain = max(
        (row.mean("evaluations") or 0 for row in finals if row.method == UNGUIDED), default=0
    )
    others = [row for row in finals if row.method not in (UNGUIDED, OURS)]
    limit = AFFORDABLE * plain or inf
    others = [row for row in others if (row.mean("evaluations") or 0) <= limit] or list(finals)
    level = max(
        (
            point(row)[0]
            for row in finals
            if row.candidate.strength == OURS_DEFAULT and row.method == OURS
        ),
        default=inf,
    )
    within = [row for row in others if point(row)[0] >= level]
    if within:
        return max(within, key=lambda row: point(row)[1])
    return max(others, key=lambda row: -inf if isnan(point(row)[0]) else point(row)[0])
