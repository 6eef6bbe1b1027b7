"""Attribute diversity: how the images of a prompt spread over the values of attributes.

After DIMCIM (Teotia et al., 2025), prompts that name a value test whether the model can show it,
and prompts that leave an attribute open test whether its values vary. Effective values are the
exponential of the entropy, from 1 to the number of values. They grow with the number of images, so
those of a run are shown beside those of as many images with equally likely values, and of as many
of the model's training images.

A judge gives probabilities. Scores are expectations over the true values, if it is calibrated.
"""

import json
from collections.abc import Mapping, Sequence
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
from vendi_guidance.scores.subsampling import with_interval

MIX = "training_mix.json"

Mix: TypeAlias = Sequence[tuple[float, Mapping[str, Mapping[str, float]]]]
"""Kinds of training images: the share of each kind, and the shares of values by attribute within
it, for captions that leave the attribute open."""

Estimate: TypeAlias = tuple[float, float | None, float | None]
"""A score and the ends of its 95% confidence interval, which are None for too few prompts."""


@dataclass(frozen=True)
class Shares:
    """One attribute in the images of one prompt.

    Attributes:
        count: number of images.
        shares: share of each value, by the judge's probabilities.
        named: the value that the prompt names, or None.
        entropy: expected entropy of the values in nats.
    """

    prompt: str
    count: int
    shares: tuple[float, ...]
    named: str | None
    entropy: float


@dataclass(frozen=True)
class AttributeScores:
    """One attribute in all images.

    Attributes:
        by_prompt: the shares of values for each prompt.
        effective_values: the effective number of values in the images of prompts that leave the
            attribute open: exp of the entropy's mean over these prompts; None without any.
        even: the same for as many images whose values are equally likely.
        training: the same for as many training images; None if these are not known.
        named_kept: the share of images that show the value that their prompt names, mean over
            prompts; None if no prompt names one. Its interval covers the choice of prompts and the
            judge's uncertainty.
    """

    attribute: Attribute
    by_prompt: list[Shares]
    effective_values: Estimate | None
    even: float | None
    training: float | None
    named_kept: Estimate | None

    @property
    def entropies(self) -> dict[str, float]:
        """The entropy for each prompt that leaves the attribute open."""
        return {one.prompt: one.entropy for one in self.by_prompt if one.named is None}


def read_mix(folder: Path) -> Mix | None:
    """Read the mix of the training images from a probe's folder; None if it has none.

    Raises:
        ValueError: the file is damaged.
    """
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

    Args:
        features: (n, d) features by `judge.embed`, if known.
        mix: the mix of the training images, if known.

    Raises:
        ValueError: there is no judge, or an attribute applies to no image's prompt.
    """
    if not attributes:
        return []
    if judge is None:
        raise ValueError("attributes need a judge: give Judges(attribute_judge=...)")
    if features is None:
        features = torch.cat([judge.embed(images) for images in batch.images.chunks()])
    prompts = rows_by_label(batch.prompts or [], len(batch.images))
    results = []
    for attribute in attributes:
        p, by_prompt, shown = judge.probabilities(features, attribute).cpu().double(), [], {}
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
        effective = _effective_values(attribute, by_prompt, mix)
        results.append(AttributeScores(attribute, by_prompt, *effective, _named_kept(shown)))
    return results


def change(first: AttributeScores, second: AttributeScores) -> Estimate | None:
    """The ratio of two runs' effective values over the prompts of both that leave the attribute
    open; None without such prompts."""
    before, after = first.entropies, second.entropies
    changes = [after[prompt] - before[prompt] for prompt in before if prompt in after]
    return _exp_of_mean(changes) if changes else None


def expected_entropy(p: Tensor) -> float:
    """The expected entropy, in nats, of the values of n images with probabilities p: (n, values).

    The number of images with a value has a Poisson binomial distribution.
    """
    counts = p.new_ones(p.shape[1], 1)  # the probability of 0, 1, ... images with each value
    for row in p[..., None]:
        counts = F.pad(counts * (1 - row), (0, 1)) + F.pad(counts * row, (1, 0))
    shares = torch.linspace(0, 1, len(p) + 1, dtype=p.dtype, device=p.device)
    return float((counts @ torch.special.entr(shares)).sum())


def _effective_values(
    attribute: Attribute, by_prompt: Sequence[Shares], mix: Mix | None
) -> tuple[Estimate | None, float | None, float | None]:
    """The effective values of an attribute, of even draws and of training images."""
    name, values, training = attribute.name, attribute.values, None
    left_open = [one for one in by_prompt if one.named is None]
    if not left_open:
        return None, None, None
    counts = [one.count for one in left_open]
    if mix and all(name in kind and {*kind[name]} <= {*values} for _, kind in mix):
        shares = dict.fromkeys(values, 0.0)
        for share, kind in mix:
            for shown, within in kind[name].items():
                shares[shown] += share * within / sum(kind[name].values())
        training = _of_draws(counts, [*shares.values()])
    value, low, high = _exp_of_mean([one.entropy for one in left_open])
    ends = (low and max(1.0, low), high and min(float(len(values)), high))
    return (value, *ends), _of_draws(counts, [1.0] * len(values)), training


def _of_draws(counts: Sequence[int], shares: Sequence[float]) -> float:
    """Effective values of prompts with these numbers of images, with these shares of values."""
    p = torch.tensor([shares], dtype=torch.float64, device="cpu")
    entropy = cache(lambda count: expected_entropy((p / p.sum()).expand(count, -1)))
    return exp(fmean(map(entropy, counts)))


def _exp_of_mean(logarithms: Sequence[float]) -> Estimate:
    """exp of the mean over prompts."""

    def value(rows: list[int]) -> float:
        return exp(fmean(logarithms[row] for row in rows))

    found, ends = with_interval(value, range(len(logarithms)), is_ratio=True)
    return found, *(ends or (None, None))


def _named_kept(shown: Mapping[str, Tensor]) -> Estimate | None:
    """`AttributeScores.named_kept` from the probabilities, by prompt, that images show the value
    that the prompt names."""
    if not shown:
        return None
    prompts = [prompt for prompt, p in shown.items() for _ in range(len(p))]
    every = torch.cat([*shown.values()])

    def kept(rows: list[int]) -> float:
        groups = rows_by_label([prompts[row] for row in rows], len(rows)).values()
        return fmean(float(every[rows][own].mean()) for own in groups)

    doubt = sqrt(sum(float((p * (1 - p)).sum()) / len(p) ** 2 for p in shown.values())) / len(shown)
    value, ends = with_interval(kept, prompts, common=doubt)
    return (value, None, None) if ends is None else (value, max(0.0, ends[0]), min(1.0, ends[1]))
