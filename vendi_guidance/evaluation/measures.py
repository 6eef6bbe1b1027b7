"""What each number of a report is called, means, and may be."""

from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Measure:
    """How a number is shown and read.

    Attributes:
        title: its name for people.
        meaning: in a few words.
        form: as `format` takes it.
        is_ratio: whether two of them compare as a ratio, and not as a difference.
        better: 1 where more is better (more diverse, more faithful), -1 where less is, 0 neither.
        low, high: what it always lies between.
    """

    title: str
    meaning: str
    form: str
    is_ratio: bool
    better: int
    low: float = -inf
    high: float = inf

    def shown(self, value: float | None) -> str:
        """The number in words, "–" if there is none."""
        if value is None:
            return "–"
        form = ",.0f" if abs(value) >= 10_000 else self.form
        return format(value, form).replace("-", "−")

    def interval(self, low: float | None, high: float | None) -> str:
        """Its interval in words, "" if there is none."""
        return "" if low is None or high is None else f"{self.shown(low)} to {self.shown(high)}"

    def change(self, value: float, is_ratio: bool) -> str:
        """How another run differs, in words: a factor or a difference."""
        if is_ratio:
            return f"×\N{NO-BREAK SPACE}{value:.2f}"
        return ("+" if value >= 0 else "") + self.shown(value)


def _count(title: str, meaning: str, better: int = 1) -> Measure:
    return Measure(title, meaning, "#.4g", True, better, low=1)


def _share(title: str, meaning: str, better: int = 1) -> Measure:
    return Measure(title, meaning, ".3f", False, better, low=0, high=1)


SECTIONS: dict[str, dict[str, Measure]] = {
    "Diversity": {
        "conditional_vendi": _count(
            "Conditional-Vendi", "different pictures beyond what the prompts explain"
        ),
        "vendi": _count("Vendi", "different pictures in all"),
        "information_vendi": _count(
            "Information-Vendi", "different pictures that the prompts explain", 0
        ),
        "truncated_conditional_vendi": _count(
            "Conditional-Vendi, truncated", "the same, of the largest eigenvalues"
        ),
        "truncated_vendi": _count("Vendi, truncated", "the same, of the largest eigenvalues"),
        "truncated_information_vendi": _count(
            "Information-Vendi, truncated", "the same, of the largest eigenvalues", 0
        ),
        "conditional_rke": _count(
            "Conditional-RKE", "as Conditional-Vendi, rare pictures counting for less"
        ),
        "rke": _count("RKE", "as Vendi, rare pictures counting for less"),
        "information_rke": _count(
            "Information-RKE", "as Information-Vendi, rare pictures counting for less", 0
        ),
        "looks_per_prompt": Measure(
            "looks per prompt", "distinct correct looks of one prompt's pictures", ".2f", True, 1, 0
        ),
        "in_batch_similarity": Measure(
            "in-batch similarity",
            "mean cosine of two pictures of one prompt",
            ".3f",
            False,
            -1,
            -1,
            1,
        ),
    },
    "Fidelity": {
        "fidelity": _share("prompt fidelity", "pictures that show what the prompt asks for"),
        "clip_score": Measure(
            "CLIPScore", "how well pictures fit their prompts, of 100", ".2f", False, 1, 0, 100
        ),
    },
    "Against the reference pictures": {
        "kernel_distance": Measure(
            "kernel distance", "KD: squared MMD of a cubic kernel", "#.4g", False, -1
        ),
        "frechet_distance": Measure(
            "Fréchet distance", "FID: of means and covariances", "#.4g", False, -1, 0
        ),
        "precision": _share("precision", "pictures within the reference's region"),
        "recall": _share("recall", "reference pictures within these pictures' region"),
        "density": Measure("density", "how deep within the reference's region", ".3f", False, 1, 0),
        "coverage": _share("coverage", "reference pictures with one of these nearby"),
        "authenticity": _share("authenticity", "pictures that are no near copies"),
    },
    "Cost": {
        "seconds_per_image": Measure(
            "seconds per image", "as the run measured them", ".3f", True, -1, 0
        ),
    },
}

MEASURES = {name: measure for section in SECTIONS.values() for name, measure in section.items()}

HEADLINE = ("conditional_vendi", "vendi")
"""What "more diverse" is judged by: the first of these that there is."""
