"""The names of the measures, how they are shown, and the measures of one trial."""

from typing import NamedTuple

FEATURES = ("probe", "pixels")
LOOKS, KEPT = "looks", "named_kept"

Values = dict[str, float | None]
"""By measure; None where it is undefined."""


class Scores(NamedTuple):
    """The measures of a trial.

    Attributes:
        values: all of `MEASURES`.
        by_prompt: some of them for each prompt in its order, those that leave the look open or,
            for `KEPT`, the others.
    """

    values: Values
    by_prompt: dict[str, list[float | None]]


class Measure(NamedTuple):
    """How a measure is shown.

    Attributes:
        title: above its column.
        form: as `format` takes it.
        best: "high", "low", or "" where neither is better.
    """

    title: str
    form: str
    best: str


MEASURES = {
    "fidelity": Measure("prompt fidelity", ".3f", "high"),
    "looks": Measure("looks per prompt", ".2f", "high"),
    "named_kept": Measure("named kept", ".3f", "high"),
    "look_entropy": Measure("entropy of looks", ".2f", "high"),
    "in_batch_similarity": Measure("in-batch similarity", ".3f", "low"),
    "conditional_vendi": Measure("Conditional-Vendi", ".2f", "high"),
    "vendi": Measure("Vendi", ".1f", "high"),
    "seconds_per_image": Measure("seconds per image", ".3f", "low"),
    "evaluations": Measure("network evaluations per image", ".1f", "low"),
} | {
    f"{features}_{name}": Measure(f"{title}, {features}", form, best)
    for features in FEATURES
    for name, title, form, best in (
        ("nearest_distance", "nearest distance", ".3g", "low"),
        ("nearest_named", "nearest distance of named", ".3g", ""),
        ("nearest_ratio", "nearest ratio", ".3f", "low"),
        ("kernel_distance", "kernel distance", ".3g", "low"),
        ("kernel_named", "kernel distance of named", ".3g", ""),
        ("kernel_ratio", "kernel ratio", ".3f", "low"),
        ("kernel_noise", "noise of the kernel distance", ".2g", ""),
        ("recall", "recall", ".3f", "high"),
        ("coverage", "coverage", ".3f", "high"),
    )
}

DISTANCES = tuple(f"{kind}_{name}" for kind in FEATURES for name in ("nearest", "kernel"))

RATIOS = tuple(f"{distance}_ratio" for distance in DISTANCES)
