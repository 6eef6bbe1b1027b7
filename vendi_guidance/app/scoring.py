"""Scores of a generation, and their table on the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from diffusers import StableDiffusionXLPipeline
from markupsafe import Markup
from torch import Tensor

from vendi_guidance.app.session import Generation
from vendi_guidance.evaluation.comparison import Comparison, compare
from vendi_guidance.evaluation.embedding import Embedding
from vendi_guidance.evaluation.evaluator import evaluate
from vendi_guidance.evaluation.judges import Judges
from vendi_guidance.evaluation.measures import MEASURES
from vendi_guidance.features.base import FromFunction, ImageEmbedder, PromptEmbedder
from vendi_guidance.features.images import open_image_embedder
from vendi_guidance.features.probe import ProbeLabeler, load_probe
from vendi_guidance.features.prompts import open_prompt_embedder
from vendi_guidance.runs.setup import Model

SHOWN = {
    "conditional_vendi": "Conditional-Vendi: how many different images a prompt has, in effect",
    "looks_per_prompt": "looks: how many different correct ones a prompt has",
    "fidelity": "named kept: the share of images that show all that their prompt names",
}
"""The scores on the page, each with its title and meaning."""


@dataclass(frozen=True)
class Scorer:
    """Scores generations.

    Attributes:
        images, prompts: the embedders.
        of_known: labels and embeds images in place of `images`, for prompts that it knows.
    """

    images: ImageEmbedder
    prompts: PromptEmbedder
    of_known: tuple[ProbeLabeler, ImageEmbedder] | None = None

    def compare(self, generation: Generation) -> Comparison:
        """Compare the two arms.

        Raises:
            ValueError: there are too few images for any score.
        """
        labeler, images = None, self.images
        if self.of_known and any(self.of_known[0].probe.asked(list(generation.request.prompts))):
            labeler, images = self.of_known
        embedding, judges = Embedding(images, self.prompts), Judges(labels=labeler)
        reports = []
        for name, arm in generation.arms.items():
            title = f"with {generation.request.strength:g}" if name == "with" else name
            report = evaluate(arm.folder, name=title, embedding=embedding, judges=judges)
            embedding = embedding.with_kernels_of(report.inputs)
            reports.append(report)
        return compare(*reports)


def open_scorer(
    images: str | None, prompts: str | None, probe: Path | None, model: Model, device: str
) -> Scorer:
    """Open embedders by name, or defaults that need no download.

    Args:
        images, prompts: names of embedders, as for `evaluate`. By default, images are compared by
            pixels, and prompts by the second text encoder of an SDXL, or only by whether they are
            the same for other models.
        probe: folder of a classifier that labels images, or None.
        model: the model that generates.

    Raises:
        ValueError, OSError, ImportError: an embedder or the probe cannot be opened.
    """
    if prompts is None and model.pipeline.stock is StableDiffusionXLPipeline:
        prompts = f"sdxl:{model.folder}"
    of_images = open_image_embedder(images or "pixels", device=device)
    of_prompts = open_prompt_embedder(prompts, device=device) if prompts else SAME_WORDS
    if probe is None:
        return Scorer(of_images, of_prompts)
    of_known = open_image_embedder(f"probe:{probe}", device=device)
    return Scorer(of_images, of_prompts, (ProbeLabeler(load_probe(probe)), of_known))


def _one_hot(prompts: Sequence[str]) -> Tensor:
    """(n, m) one-hot features of n prompts, m of them distinct."""
    places = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
    return torch.eye(len(places))[[places[prompt] for prompt in prompts]]


SAME_WORDS: PromptEmbedder = FromFunction(_one_hot, "same words")


def table_of(comparison: Comparison) -> Markup:
    """The scores of `SHOWN` as an HTML table."""
    head = ("score", "without guidance", "with guidance", "change")
    rows = []
    for name, about in SHOWN.items():
        difference = comparison.differences.get(name)
        if difference is None:
            continue
        measure = MEASURES[name]
        cells = []
        for report in (comparison.first, comparison.second):
            score = report.scores[name]
            interval = measure.format_interval(score.low, score.high)
            cells.append((measure.format(score.value), interval))
        cells.append((difference.format_change(measure), difference.format_interval(measure)))
        shown = (Markup("<td>{} <small>{}</small></td>").format(*cell) for cell in cells)
        title = Markup('<th scope="row">{}<small>{}</small></th>').format(*about.split(": "))
        rows.append(Markup("<tr>{}{}</tr>").format(title, Markup("").join(shown)))
    columns = (Markup('<th scope="col">{}</th>').format(column) for column in head)
    table = Markup("<table><thead><tr>{}</tr></thead><tbody>{}</tbody></table>").format(
        Markup("").join(columns), Markup("").join(rows)
    )
    basis = comparison.second.scores["conditional_vendi"].basis
    note = f"{comparison.verdict()} In small type: 95% confidence intervals. Scored on {basis}."
    return Markup('<div class="scores">{}<p>{}</p></div>').format(table, note)
