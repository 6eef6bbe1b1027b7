"""Attribute diversity: how the images of a prompt spread over the values of attributes.

After DIMCIM (Teotia et al., 2025), prompts that name a value test whether the model can show it,
and prompts that leave an attribute open test whether its values vary. Effective values are the
exponential of the entropy, from 1 to the number of values. They grow with the number of images, so
those of a run are shown beside those of as many images with equally likely values, and of as many
of the model's training images.

A judge gives probabilities. Scores are expectations over the true values, if it is calibrated.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, sqrt
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from vendi_guidance.evaluation.attributes import Attribute, AttributeJudge
from vendi_guidance.evaluation.batches import Batch
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.subsampling import Estimate, with_interval

MIX = "training_mix.json"

Mix: TypeAlias = Sequence[tuple[float, Mapping[str, Mapping[str, float]]]]
"""Kinds of training images: the share of each kind, and the shares of values by attribute within
it, for captions that leave the attribute open."""


@dataclass(frozen=True)
class Shares:
    """One attribute in the images of one prompt: the share of each value by the judge's
    probabilities, the value that the prompt names, and the expected entropy in nats."""

    prompt: str
    count: int
    shares: tuple[float, ...]
    named: str | None
    entropy: float


@dataclass(frozen=True)
class AttributeScores:
    """One attribute in all images; None for what no prompt or no training mix tells."""

    attribute: Attribute
    by_prompt: list[Shares]
    effective_values: Estimate | None  # exp of the mean entropy over prompts that leave it open
    even: float | None  # the same for as many images with equally likely values
    training: float | None  # the same for as many training images
    # share of images that show the value named, mean over prompts that name one; the interval
    # covers the choice of prompts and the judge's uncertainty
    named_kept: Estimate | None


def read_mix(folder: Path) -> Mix | None:
    """The mix of the training images in a probe's folder, if any; ValueError if it is damaged."""
    path = folder / MIX
    if not path.is_file():
        return None
    try:
        content = json.loads(path.read_text("utf-8"))
        mix = [(float(one["share"]), dict(one["values"])) for one in content]
        if not mix or not all(sum(p.values()) > 0 for _, values in mix for p in values.values()):
            raise ValueError("it has no shares")
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        example = '[{"share": 1, "values": {"hair": {"brown": 1}}}]'
        raise ValueError(f"{path} must be a list such as {example}: {error}") from None
    return mix


def attribute_scores(
    batch: Batch,
    attributes: Sequence[Attribute],
    judge: AttributeJudge | None,
    features: Tensor | None = None,
    mix: Mix | None = None,
) -> list[AttributeScores]:
    """The values of each attribute in the images of each prompt.

    `features` are (n, d) features by `judge.embed`, computed here if None. ValueError if there is
    no judge, or an attribute applies to no image's prompt.
    """
    if not attributes:
        return []
    if judge is None:
        raise ValueError("attributes need a judge: give Judges(attribute_judge=...)")
    if features is None:
        features = torch.cat([judge.embed(images) for images in batch.images.chunks()])
    prompts = rows_by_label(batch.prompts or [], len(batch.images))
    return [
        _scores(attribute, judge.probabilities(features, attribute).cpu().double(), prompts, mix)
        for attribute in attributes
    ]


def change(first: AttributeScores, second: AttributeScores) -> Estimate | None:
    """The ratio of two runs' effective values over the prompts of both that leave the attribute
    open; None without such prompts."""
    before, after = (
        {one.prompt: one.entropy for one in run.by_prompt if one.named is None}
        for run in (first, second)
    )
    return _exp_of_mean([after[prompt] - before[prompt] for prompt in before if prompt in after])


def expected_entropy(p: Tensor) -> float:
    """The expected entropy, in nats, of the values of n images with probabilities p: (n, values).

    The number of images with a value has a Poisson binomial distribution.
    """
    counts = p.new_ones(p.shape[1], 1)  # the probability of 0, 1, ... images with each value
    for row in p[..., None]:
        counts = F.pad(counts * (1 - row), (0, 1)) + F.pad(counts * row, (1, 0))
    shares = torch.linspace(0, 1, len(p) + 1, dtype=p.dtype, device=p.device)
    return float((counts @ torch.special.entr(shares)).sum())


def _scores(
    attribute: Attribute, p: Tensor, prompts: Mapping[Hashable, list[int]], mix: Mix | None
) -> AttributeScores:
    """One attribute's scores from p: (n, values) and the rows of each prompt's images."""
    by_prompt, shown = [], {}
    for prompt, rows in prompts.items():
        if attribute.is_for(str(prompt)):
            own, named = p[rows], attribute.named(str(prompt))
            shares, entropy = tuple(own.mean(0).tolist()), expected_entropy(own)
            by_prompt.append(Shares(str(prompt), len(own), shares, named, entropy))
            if named is not None:
                shown[str(prompt)] = own[:, attribute.values.index(named)]
    if not by_prompt:
        raise ValueError(
            f"attribute {attribute.name!r} is for the prompt {attribute.prompt!r}, but there "
            "are no images of it"
        )
    left_open = [one for one in by_prompt if one.named is None]
    counts, values = [one.count for one in left_open], len(attribute.values)
    return AttributeScores(
        attribute,
        by_prompt,
        _exp_of_mean([one.entropy for one in left_open], least=1.0, most=float(values)),
        _of_draws(counts, [1.0] * values),
        _of_draws(counts, _training_shares(attribute, mix or [])),
        _named_kept(shown),
    )


def _training_shares(attribute: Attribute, mix: Mix) -> list[float]:
    """The share of each value in the training images; [] if the mix does not have them all."""
    name, shares = attribute.name, dict.fromkeys(attribute.values, 0.0)
    if not all(name in kind and {*kind[name]} <= {*shares} for _, kind in mix):
        return []
    for share, kind in mix:
        for shown, within in kind[name].items():
            shares[shown] += share * within / sum(kind[name].values())
    return [*shares.values()] if mix else []


def _of_draws(counts: Sequence[int], shares: Sequence[float]) -> float | None:
    """Effective values of prompts with these numbers of images, with these shares of values."""
    if not counts or not shares:
        return None
    p = torch.tensor([shares], dtype=torch.float64, device="cpu")
    entropy = cache(lambda count: expected_entropy((p / p.sum()).expand(count, -1)))
    return exp(fmean(map(entropy, counts)))


def _exp_of_mean(logarithms: Sequence[float], **limits: float) -> Estimate | None:
    """exp of the mean over prompts."""

    def value(rows: list[int]) -> float:
        return exp(fmean(logarithms[row] for row in rows))

    prompts = range(len(logarithms))
    return with_interval(value, prompts, is_ratio=True, **limits) if logarithms else None


def _named_kept(shown: Mapping[str, Tensor]) -> Estimate | None:
    """The score from the probabilities that each prompt's images show the value it names."""
    if not shown:
        return None
    prompts = [prompt for prompt, p in shown.items() for _ in range(len(p))]
    every = torch.cat([*shown.values()])

    def kept(rows: list[int]) -> float:
        groups = rows_by_label([prompts[row] for row in rows], len(rows)).values()
        return fmean(float(every[rows][own].mean()) for own in groups)

    doubt = sqrt(sum(float((p * (1 - p)).sum()) / len(p) ** 2 for p in shown.values())) / len(shown)
    return with_interval(kept, prompts, common=doubt, least=0.0, most=1.0)
