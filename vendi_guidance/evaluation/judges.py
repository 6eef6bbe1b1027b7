"""Judges: models or data that say how well images match their prompts, and what they show."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.confusion import reliability
from vendi_guidance.evaluation.embedding import (
    Embedded,
    ImageFeatures,
    ImageReader,
    checked,
    embed_prompts,
)
from vendi_guidance.evaluation.spread import AttributeScores, attribute_scores
from vendi_guidance.features.base import ImageEmbedder, Labels, PromptEmbedder
from vendi_guidance.features.probe import Probe
from vendi_guidance.scores.alignment import clip_score
from vendi_guidance.scores.groups import as_keys, rows_by_label
from vendi_guidance.storage.messages import counted

TEMPLATES = (  # embeddings are averaged over phrases, because single ones are unreliable
    "a photo of {value} {attribute}",
    "an image with {value} {attribute}",
    "{attribute}: {value}",
    "a picture, {value} {attribute}",
)
TEMPERATURE = 0.01  # of the softmax of cosines, as in CLIP


class AttributeJudge(ABC):
    """A model that says which value of an attribute images show, from features of the images."""

    embedder: ImageEmbedder  # computes the features, which serve all attributes

    @property
    def name(self) -> str:
        """Short name, for reports."""
        return self.embedder.name

    def look(self, found: Embedded, reader: ImageReader) -> Any:
        """What `probabilities` is given rows of: the (n, d) features of a batch's images."""
        return _features(found, self.embedder, reader)

    @abstractmethod
    def probabilities(self, features: Any, attribute: Attribute) -> Tensor:
        """(n, values) probabilities of the attribute's values; each row sums to 1, or is NaN if the
        judge has no answer."""

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


@dataclass(frozen=True, eq=False)
class Judges:
    """Models or data that say how well images match their prompts, and what they show.

    Attributes:
        clip: the CLIP of the CLIPScore: a name, or its image and prompt embedders.
        faithfulness: how well each image matches its prompt: the name of a numeric column in
            `metadata.jsonl`, or n numbers (a VQAScore, HPS or ImageReward computed elsewhere).
        labels: what each image shows: n labels, or a probe, which is not asked without prompts.
            Prompt fidelity and looks need a prompt that asks for a known label.
        attributes: attributes to measure diversity in, such as those of `load_attributes`.
        attribute_judge: says which value of an attribute each image shows; needed for attributes.
        labelled: a judge that is right, of some of the images (`Answers` of people): shares are
            then corrected for the errors that `attribute_judge` makes in these.

    Example:
        >>> Judges(faithfulness="vqa_score").clip is None
        True
    """

    clip: str | tuple[ImageEmbedder, PromptEmbedder] | None = None
    faithfulness: str | Sequence[float] | Tensor | None = None
    labels: Labels | Probe | None = None
    attributes: Sequence[Attribute] = ()
    attribute_judge: AttributeJudge | None = None
    labelled: AttributeJudge | None = None

    def embedders(self, image: ImageFeatures) -> list[ImageEmbedder]:
        """The image embedders of these judges and of scores, `image`, one of each network."""
        own: list[Any] = [self.labels, getattr(self.attribute_judge, "embedder", None), image]
        own += [self.clip[0]] if isinstance(self.clip, tuple) else []
        known = [it for it in own if hasattr(it, "embed")]
        return [*{it.settings.get("sha256", id(it)): it for it in known}.values()]


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
        columns["clip_score"] = clip_score(clip_x.features, clip_t)
        inputs = replace(inputs, clip=(clip_x.features, clip_t))
    given = judges.faithfulness
    if isinstance(given, str):
        settings["faithfulness"] = {"name": f"column {given}"}
        columns["faithfulness"] = batch.column(given)
    elif given is not None:
        settings["faithfulness"] = {"name": "given numbers"}
        numbers = (given if isinstance(given, Tensor) else np.asarray(given)).reshape(-1, 1)
        values = checked(numbers, "the numbers for faithfulness", found.given)
        columns["faithfulness"] = values[found.kept, 0].double()
    labels = _labels(found, judges.labels, reader)
    if labels is not None and (known := sum(asked is not None for asked in labels.asked)):
        inputs, settings["labeled"] = replace(inputs, labels=labels), known
    return replace(found, inputs=replace(inputs, columns=columns), settings=settings)


def judge_attributes(
    found: Embedded, judges: Judges, reader: ImageReader
) -> tuple[Embedded, list[AttributeScores]]:
    """The values of each attribute in the images of each prompt, also added to a batch's inputs.

    ValueError if there is no judge, or no attribute applies to an image's prompt.
    """
    judge, prompts = judges.attribute_judge, found.batch.prompts or []
    if not judges.attributes:
        return found, []
    if judge is None:
        raise ValueError("attributes need a judge: give Judges(attribute_judge=...)")
    sample = None if judges.labelled is None else judges.labelled.look(found, reader)
    view, n = judge.look(found, reader), len(prompts)
    rows: Any = rows_by_label(prompts, n)
    left_open, scores = list[tuple[Tensor, Tensor]](), list[AttributeScores]()
    kept, asked = torch.zeros(2, n, dtype=torch.float64, device="cpu")
    for attribute in judges.attributes:
        named = attribute.prompts or judge.named(attribute, [*rows])
        named = {prompt: value for prompt, value in named.items() if prompt in rows}
        if not named:
            continue
        places = {value: place for place, value in enumerate(attribute.values)} | {None: -1}
        # of each image: the place of the value that its prompt names, -1 if it leaves the attribute
        # open, and -2 if it has none
        wanted = torch.tensor([places.get(named.get(it, ""), -2) for it in prompts], device="cpu")
        p = wanted.new_full((n, len(attribute.values)), torch.nan, dtype=torch.float64)
        p[wanted > -2] = judge.probabilities(view[wanted > -2], attribute).cpu().double()
        is_judged = ~p[:, 0].isnan()
        is_open, is_named = is_judged & (wanted == -1), is_judged & (wanted >= 0)
        left_open.append((is_open.nonzero()[:, 0], p[is_open]))
        kept[is_named] += p[is_named].gather(1, wanted[is_named, None])[:, 0]
        asked[is_named] += 1
        one = attribute_scores(replace(attribute, prompts=None), p, rows, named)
        if judges.labelled is not None and sample is not None:
            truth = judges.labelled.probabilities(sample, attribute)
            one = replace(one, judge=reliability(p, truth, is_open))
        scores.append(one)
    if not scores:
        names = ", ".join(attribute.name for attribute in judges.attributes)
        raise ValueError(f"none of the attributes {names} applies to an image's prompt")
    columns = {**found.inputs.columns, "named_kept": kept / asked}
    inputs = replace(found.inputs, columns=columns, left_open=left_open)
    by_judge = {name: {"name": judge.name} for name in ("grade", "named_kept")}
    return replace(found, inputs=inputs, settings=found.settings | by_judge), scores


def _labels(found: Embedded, given: Labels | Probe | None, reader: ImageReader) -> Labels | None:
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
