"""The scores of a report: titles, number formats, ranges, and the settings that each depends on."""

from dataclasses import dataclass
from math import inf
from pathlib import PurePath
from typing import Any

from vendi_guidance.evaluation.inputs import NEIGHBOURS, most_for
from vendi_guidance.scores.references import ManifoldScores
from vendi_guidance.storage.messages import counted


@dataclass(frozen=True)
class Measure:
    """How a score is displayed and interpreted; its range is [low, high]."""

    title: str
    meaning: str
    form: str = ".3f"
    is_ratio: bool = False  # whether two scores are compared by ratio rather than difference
    better: int = 1  # 1 if higher is better, -1 if lower is better, 0 if neither
    low: float = -inf
    high: float = inf

    def format(self, value: float) -> str:
        form = ",.0f" if abs(value) >= 10_000 else self.form
        return format(value, form).replace("-", "−")

    def format_interval(self, low: float | None, high: float | None) -> str:
        """The confidence interval as text, "" without one."""
        return "" if low is None or high is None else f"{self.format(low)} to {self.format(high)}"


def _count(title: str, meaning: str, better: int = 1) -> Measure:
    return Measure(title, meaning, "#.4g", True, better, low=1)


def _share(title: str, meaning: str) -> Measure:
    return Measure(title, meaning, low=0, high=1)


_TRUNCATED = "from the largest eigenvalues only"
_ORDER_2 = "like its Vendi counterpart, but less sensitive to rare images"

SECTIONS: dict[str, dict[str, Measure]] = {
    "Diversity": {
        "conditional_vendi": _count("Conditional-Vendi", "distinct images given the prompts"),
        "vendi": _count("Vendi", "distinct images in all"),
        "information_vendi": _count("Information-Vendi", "distinct images due to the prompts", 0),
        "truncated_conditional_vendi": _count("Conditional-Vendi, truncated", _TRUNCATED),
        "truncated_vendi": _count("Vendi, truncated", _TRUNCATED),
        "truncated_information_vendi": _count("Information-Vendi, truncated", _TRUNCATED, 0),
        "conditional_rke": _count("Conditional-RKE", _ORDER_2),
        "rke": _count("RKE", _ORDER_2),
        "information_rke": _count("Information-RKE", _ORDER_2, 0),
        "looks_per_prompt": Measure(
            "looks per prompt", "distinct correct looks among a prompt's images", ".2f", True, low=0
        ),
        "grade": _share("GRADE", "normalised entropy of what prompts leave open, by attribute"),
    },
    "As papers report it": {
        "group_vendi": _count("in-group Vendi", "distinct images in a group of one prompt's"),
        "in_batch_similarity": Measure(
            "in-batch similarity", "mean cosine of two images of a prompt", ".3f", False, -1, -1, 1
        ),
        "pairwise_distance": Measure(
            "pairwise distance", "1 - that, mean over prompts instead of pairs", low=0, high=2
        ),
        "spread_along_text": Measure(
            "spread along text", "max - min of a prompt's images along its text", low=0, high=2
        ),
        "spread_beside_text": Measure(
            "spread beside text", "the same along their principal other direction", low=0, high=2
        ),
        "seed_identifiability": Measure(
            "seed identifiability", "accuracy of a linear probe of the seed", ".3f", False, -1, 0, 1
        ),
    },
    "Fidelity": {
        "fidelity": _share("prompt fidelity", "share of images that show what the prompt asks for"),
        "named_kept": _share("named kept", "share of named attributes that images show"),
        "clip_score": Measure(
            "CLIPScore", "how well images match their prompts, 0 to 100", ".2f", low=0, high=100
        ),
        "faithfulness": Measure("faithfulness", "how well images match their prompts, by a judge"),
    },
    "Against the reference images": {
        "kernel_distance": Measure(
            "kernel distance", "KD: squared MMD with a cubic kernel", "#.4g", better=-1
        ),
        "frechet_distance": Measure(
            "Fréchet distance", "FID: distance of means and covariances", "#.4g", better=-1, low=0
        ),
        "precision": _share("precision", "share of images on the manifold of the references"),
        "recall": _share("recall", "share of reference images on the manifold of the images"),
        "density": Measure("density", "how densely references surround images", low=0),
        "coverage": _share("coverage", "share of reference images with an image nearby"),
        "authenticity": _share("authenticity", "share of images that are not near copies"),
    },
    "Cost": {
        "seconds_per_image": Measure("seconds per image", "generation time", ".3f", True, -1, 0)
    },
}

MEASURES = {name: measure for section in SECTIONS.values() for name, measure in section.items()}

HEADLINE = ("conditional_vendi", "vendi")  # the first that is available decides a comparison


def basis(name: str, settings: dict[str, Any]) -> str:
    """The settings of a report that the score of this name depends on, as text."""
    n = f"n = {settings['images']:,}"
    images = describe_embedder(settings["image_embedder"])
    if name == "seconds_per_image":
        return n
    if name in settings:  # what gives each image a number
        return f"{describe_embedder(settings[name])}; {n}"
    if name in ("fidelity", "looks_per_prompt"):
        return f"labels; n = {settings['labeled']:,}"
    if name == "group_vendi":
        return f"{images}, cosine; groups of {settings['group_size']}, {n}"
    if name.startswith("spread"):
        return f"{describe_embedder(settings['clip_score'])}; {n}"
    if name in SECTIONS["As papers report it"]:
        return f"{images}; {n}"
    if name in SECTIONS["Against the reference images"]:
        neighbours = 1 if name == "authenticity" else NEIGHBOURS
        k = f", k = {neighbours}" if name in ManifoldScores._fields else ""
        return f"{images}{k}; {n}, {counted(settings['references'], 'reference')}"
    text = f"{images}, {describe_kernel(settings['kernel_image'])}"
    if "conditional" in name or "information" in name:
        prompts = describe_embedder(settings["prompt_embedder"])
        text += f"; prompts by {prompts}, {describe_kernel(settings['kernel_prompt'])}"
    if "rke" in name:
        return f"{text}; order 2, {n}"
    kept = f"t = {settings['truncation']:,}" if name.startswith("truncated") else "all eigenvalues"
    most = most_for(settings["truncation"])
    return f"{text}; {kept}, {f'{most:,} of ' * (settings['images'] > most)}{n}"


def describe_embedder(embedder: dict[str, Any]) -> str:
    """The embedder's name and that of its weights, without the folders of a path."""
    weights = embedder.get("settings", {}).get("weights")
    if not isinstance(weights, str):
        return str(embedder["name"])
    is_path = weights.count("/") > 1 or "\\" in weights
    return f"{embedder['name']} {PurePath(weights).name if is_path else weights}"


def describe_kernel(kernel: dict[str, Any]) -> str:
    """The kernel's name, and the bandwidth of a Gaussian."""
    if kernel["name"] != "Gaussian":
        return str(kernel["name"]).lower()
    chosen = f" ({kernel['chosen']})" if "chosen" in kernel else ""
    return f"Gaussian σ = {kernel['sigma']:.4g}{chosen}"
