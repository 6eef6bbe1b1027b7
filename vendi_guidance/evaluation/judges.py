"""Judges: models or data that say how well images match their prompts, and what they show."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from vendi_guidance.evaluation.attributes import Attribute, AttributeScores, attribute_scores
from vendi_guidance.evaluation.batches import LazyImages
from vendi_guidance.evaluation.embedding import Embedded, ImageReader, checked, embed_prompts
from vendi_guidance.features.base import ImageEmbedder, Labels, PromptEmbedder
from vendi_guidance.features.images import resized
from vendi_guidance.features.probe import Probe
from vendi_guidance.features.weights import reason
from vendi_guidance.kernels.precision import float32_by_default, isolated
from vendi_guidance.scores.alignment import clip_cosines
from vendi_guidance.scores.groups import as_keys, rows_by_label
from vendi_guidance.storage.messages import counted

TEMPLATES = (  # embeddings are averaged over phrases, because single ones are unreliable
    "a photo of {value} {attribute}",
    "an image with {value} {attribute}",
    "{attribute}: {value}",
    "a picture, {value} {attribute}",
)
TEMPERATURE = 0.01  # of the softmax of cosines, as in CLIP
PERCEPTUAL = ("dreamsim", "lpips")  # packages that load their own weights


class AttributeJudge(ABC):
    """A model that says which value of an attribute images show, from features of the images."""

    embedder: ImageEmbedder  # computes the features, which serve all attributes

    @abstractmethod
    def probabilities(self, features: Tensor, attribute: Attribute) -> Tensor:
        """(n, values) probabilities of the attribute's values; each row sums to 1."""

    def named(self, attribute: Attribute, prompts: Sequence[str]) -> dict[str, str | None]:
        """The value that each prompt names, or None; without prompts that the judge cannot read."""
        return {prompt: attribute.named(prompt) for prompt in prompts}


@dataclass(frozen=True, eq=False)
class ZeroShot(AttributeJudge):
    """Zero-shot classification with CLIP or SigLIP: softmax over cosines of image and phrases."""

    embedder: ImageEmbedder
    texts: PromptEmbedder

    def probabilities(self, features: Tensor, attribute: Attribute) -> Tensor:
        phrases = [
            template.format(value=value, attribute=attribute.name)
            for value in attribute.values
            for template in TEMPLATES
        ]
        texts = normalize(self.texts.embed(phrases), dim=-1)
        means = normalize(texts.unflatten(0, (-1, len(TEMPLATES))).mean(1), dim=-1)
        return (normalize(features, dim=-1) @ means.T / TEMPERATURE).softmax(dim=1)


@dataclass(frozen=True, eq=False)
class ProbeJudge(AttributeJudge):
    """A judge for the attributes of a demo model, by the demo's probe.

    The probe also parses the prompts ("red hair" names no red clothes), and leaves out those that
    it does not know.
    """

    embedder: Probe

    def probabilities(self, features: Tensor, attribute: Attribute) -> Tensor:
        place = self._place(attribute)
        shown = [attribute.values.index(look[place]) for look in self.embedder.looks_of(features)]
        return one_hot(torch.tensor(shown, device="cpu"), len(attribute.values))

    def named(self, attribute: Attribute, prompts: Sequence[str]) -> dict[str, str | None]:
        place = self._place(attribute)
        looks = zip(prompts, self.embedder.asked(prompts), strict=True)
        return {prompt: look[place] for prompt, look in looks if look is not None}

    def _place(self, attribute: Attribute) -> int:
        """The place of an attribute in a look, whose first part is the concept."""
        known = self.embedder.attributes
        if {*attribute.values} != {*known.get(attribute.name, [])}:
            about = f"these values of {attribute.name!r}, only {json.dumps(known)}"
            raise ValueError(f"the probe does not know {about}")
        return [*known].index(attribute.name) + 1


class Perceptual:
    """A distance of two images: "dreamsim" (Fu et al., NeurIPS 2023), or "lpips" (Zhang et al.,
    CVPR 2018) with AlexNet at 256 x 256 pixels. ImportError if the package of this name is not
    installed; ValueError if it cannot load its weights."""

    @float32_by_default()
    def __init__(self, name: str, device: str = "cpu") -> None:
        self.name, self.device = name, device
        try:
            library = import_module(name)
        except ImportError:
            raise ImportError(f"{name} is not installed: pip install {name}") from None
        try:
            if name == "dreamsim":
                folder = Path(torch.hub.get_dir(), name)  # by default the current folder
                folder.parent.mkdir(parents=True, exist_ok=True)  # it makes only the last one
                self.network, self.prepare = library.dreamsim(device=device, cache_dir=str(folder))
            else:
                self.network = library.LPIPS(net="alex", verbose=False).eval().to(device)
                self.prepare = lambda image: 2 * resized(image, 256)[None] - 1
        except Exception as error:  # libraries raise errors of every kind
            raise ValueError(f"{name} cannot load its weights: {reason(error)}") from error

    @isolated()
    def distances(self, images: LazyImages, prompts: Sequence[str]) -> Tensor:
        """(n,) float64 mean distances of each image from the others of its prompt; NaN without."""
        found = torch.empty(len(images), dtype=torch.float64, device="cpu")
        for rows in rows_by_label(prompts, len(images)).values():
            others = len(rows) - 1 or torch.nan
            pixels = torch.cat([self.prepare(images[row]) for row in rows]).to(self.device)
            for row, one in zip(rows, pixels, strict=True):  # an image is at distance 0 from itself
                found[row] = self.network(one.expand_as(pixels), pixels).sum() / others
        return found


@dataclass(frozen=True, eq=False)
class Judges:
    """Models or data that say how well images match their prompts, and what they show.

    Attributes:
        clip: the CLIP of the CLIPScore: a name, or its image and prompt embedders.
        faithfulness: how well each image matches its prompt: the name of a numeric column in
            `metadata.jsonl`, or n numbers (a VQAScore, HPS or ImageReward computed elsewhere).
        labels: what each image shows: n labels, or a probe, which is not asked without prompts.
            Prompt fidelity and looks need a prompt that asks for a known label.
        perceptual: `Perceptual` distances to compare the images of a prompt by.
        attributes: attributes to measure diversity in, such as those of `load_attributes`.
        attribute_judge: says which value of an attribute each image shows; needed for attributes.

    Example:
        >>> Judges(faithfulness="vqa_score").clip is None
        True
    """

    clip: str | tuple[ImageEmbedder, PromptEmbedder] | None = None
    faithfulness: str | Sequence[float] | Tensor | None = None
    labels: Labels | Probe | None = None
    perceptual: Sequence[Perceptual] = ()
    attributes: Sequence[Attribute] = ()
    attribute_judge: AttributeJudge | None = None


NO_JUDGES = Judges()


def judge_images(found: Embedded, judges: Judges, reader: ImageReader) -> Embedded:
    """Add CLIPScores, faithfulness and labels to a batch.

    ValueError if a judge has no prompts, or not one finite number or label for each image.
    """
    batch, inputs, settings = found.batch, found.inputs, dict(found.settings)
    columns = dict(inputs.columns)
    if judges.clip is not None:
        clip = (judges.clip,) * 2 if isinstance(judges.clip, str) else judges.clip
        clip_x, settings["clip_score"] = reader.embed(batch.images, clip[0])
        clip_t, _ = embed_prompts(batch.prompts or [], clip[1])
        columns["clip_score"] = 100 * clip_cosines(clip_x.features, clip_t)
    given = judges.faithfulness
    if isinstance(given, str):
        settings["faithfulness"] = {"name": f"column {given}"}
        columns["faithfulness"] = batch.column(given)
    elif given is not None:
        settings["faithfulness"] = {"name": "given numbers"}
        numbers = (given if isinstance(given, Tensor) else np.asarray(given)).reshape(-1, 1)
        values = checked(numbers, "the numbers for faithfulness", found.given)
        columns["faithfulness"] = values[found.kept, 0].double()
    for distance in judges.perceptual:
        columns[distance.name] = distance.distances(batch.images, batch.prompts or [])
        settings[distance.name] = {"name": distance.name}
    labels = _labels(found, judges.labels, reader)
    if labels is not None and (known := sum(asked is not None for asked in labels.asked)):
        inputs, settings["labeled"] = replace(inputs, labels=labels), known
    return replace(found, inputs=replace(inputs, columns=columns), settings=settings)


def judge_attributes(found: Embedded, judges: Judges, reader: ImageReader) -> list[AttributeScores]:
    """The values of each attribute in the images of each prompt.

    ValueError if there is no judge, or an attribute applies to no image's prompt.
    """
    judge, prompts = judges.attribute_judge, found.batch.prompts or []
    if not judges.attributes:
        return []
    if judge is None:
        raise ValueError("attributes need a judge: give Judges(attribute_judge=...)")
    features = _features(found, judge.embedder, reader)
    rows, scores = rows_by_label(prompts, len(features)), []
    for attribute in judges.attributes:
        named = judge.named(attribute, list(dict.fromkeys(prompts)))
        if not named:
            raise ValueError(f"attribute {attribute.name!r} applies to no image's prompt")
        p = judge.probabilities(features, attribute).cpu().double()
        by_prompt = {prompt: p[rows[prompt]] for prompt in named}
        scores.append(attribute_scores(attribute, by_prompt, named))
    return scores


def _labels(found: Embedded, given: Labels | Probe | None, reader: ImageReader) -> Labels | None:
    """The labels of the images that could be read."""
    prompts = found.batch.prompts
    if isinstance(given, Probe):
        return None if prompts is None else given.labels(_features(found, given, reader), prompts)
    if given is None:
        return None
    if not isinstance(given, Labels):
        kind = type(given).__name__
        raise ValueError(f"labels must be Labels(asked, shown, variant), got {kind}")
    labels = Labels._make(map(as_keys, given))
    for name, column in zip(labels._fields, labels, strict=True):
        if len(column) != found.given:
            both = f"{counted(found.given, 'image')} and {counted(len(column), f'{name} label')}"
            raise ValueError(f"got {both}: give one for each")
    return labels.take(found.kept)


def _features(found: Embedded, embedder: ImageEmbedder, reader: ImageReader) -> Tensor:
    """(n, d) features of the images, computed unless scores compare those of the same network."""
    known = found.settings["image_embedder"].get("settings", {})
    if "sha256" in known and known["sha256"] == embedder.settings.get("sha256"):
        return found.inputs.x
    return reader.embed(found.batch.images, embedder)[0].features
