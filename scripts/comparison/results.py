"""The measures of a method over seeds, and the choice of its best setting."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student

from scripts.comparison.candidates import METHODS, Candidate
from scripts.comparison.scorer import DISTANCES, MEASURES, Values
from scripts.comparison.trials import Trial

MOST_LOSS = 0.01
"""The prompt fidelity that a setting may lose against the unguided."""

MOST_RATIO = 1.1
"""The largest ratio of a distance from the training pictures to that of named images."""

NOISE = 2.0
"""Kernel distances within this many standard deviations count as 0: for images as varied as the
training pictures they are about 0, and ratios to them are meaningless."""

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Row:
    """The same trial with one or more seeds.

    Attributes:
        stage: "sweep" or "final".
        trials: one a seed.
        values: the measures of each.
    """

    stage: str
    trials: tuple[Trial, ...]
    values: tuple[Values, ...]

    @property
    def candidate(self) -> Candidate:
        return self.trials[0].candidate

    @property
    def method(self) -> str:
        return self.candidate.method

    def known(self, measure: str) -> list[float]:
        """A measure for every seed for which it is defined."""
        return [value for of in self.values if (value := of[measure]) is not None]

    def mean(self, measure: str) -> float | None:
        """Over seeds; None if undefined for all."""
        known = self.known(measure)
        return fmean(known) if known else None

    def half_width(self, measure: str) -> float | None:
        """Of the 95% interval around the mean, Student's t over seeds; None for less than two."""
        known = self.known(measure)
        if len(known) < 2:
            return None
        quantile = float(student.ppf((1 + CONFIDENCE) / 2, len(known) - 1))
        return quantile * stdev(known) / sqrt(len(known))

    def as_dict(self) -> dict[str, Any]:
        """JSON values: the trial, means and half widths of its measures, and all seeds' values."""
        trial = self.trials[0]
        about = {
            "stage": self.stage,
            "method": self.method,
            "settings": self.candidate.settings,
            "guidance_scale": self.candidate.guidance_scale,
            "protocol": trial.protocol,
            "sampler": trial.sampler,
            "prompts": len(trial.prompts),
            "images_per_prompt": trial.images_per_prompt,
            "seeds": [trial.seed for trial in self.trials],
        }
        for measure in MEASURES:
            about |= {
                measure: self.mean(measure),
                f"{measure}_half_width": self.half_width(measure),
            }
        return about | {"values": list(self.values)}


def finals_by_kind(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """The finals by protocol and sampler, in the order of `METHODS`; the main ones first."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.stage == "final":
            kinds.setdefault((row.trials[0].protocol, row.trials[0].sampler), []).append(row)
    order = list(METHODS)
    return {kind: sorted(of, key=lambda row: order.index(row.method)) for kind, of in kinds.items()}


def used(row: Row, unguided: Row) -> float:
    """The largest loss of a setting as a share of its limit: 1 at the limit.

    The limits are `MOST_LOSS` of fidelity, and `MOST_RATIO` of the nearest and the kernel distance,
    in either kind of features, to which `NOISE` is added. Infinite where one of these is unknown.
    """
    fidelity, before = row.mean("fidelity"), unguided.mean("fidelity")
    if fidelity is None or before is None:
        return inf
    return max((before - fidelity) / MOST_LOSS, *(used_of(row, name) for name in DISTANCES))


def used_of(row: Row, distance: str) -> float:
    """The same for one of `DISTANCES` alone."""
    own, named = row.mean(f"{distance}_distance"), row.mean(f"{distance}_named")
    if own is None or named is None:
        return inf
    chance = row.mean(f"{distance}_noise") or 0.0 if distance.endswith("kernel") else 0.0
    allowed = (MOST_RATIO - 1) * abs(named) + NOISE * chance
    return (own - named) / allowed if allowed else inf


@dataclass(frozen=True)
class Choice:
    """A method's best setting.

    Attributes:
        row: its row of the sweep.
        qualifies: whether it is within the limits; if not, none of the method is, and it is the
            closest.
        tried: the number of settings it was chosen from.
    """

    row: Row
    qualifies: bool
    tried: int


def choose(rows: Sequence[Row], unguided: Row) -> Choice:
    """The row with most looks among those within the limits, or the one closest to them.

    Args:
        rows: one method's, of the sweep.
        unguided: the unguided, at the default scale of classifier-free guidance.
    """
    rounding = 1e-9
    within = [row for row in rows if used(row, unguided) <= 1 + rounding]
    if not within:
        return Choice(min(rows, key=lambda row: used(row, unguided)), False, len(rows))
    best = max(within, key=lambda row: (row.mean("looks") or 0.0, -used(row, unguided)))
    return Choice(best, True, len(rows))
