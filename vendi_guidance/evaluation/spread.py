"""How images spread over the values of attributes: our scores, and those of papers.

Prompts that leave an attribute open test whether its values vary, and prompts that name a value
test whether the model shows it. Effective values are the exponential of the entropy, from 1 to the
number of values. They grow with the number of images, so those of a run are shown beside those of
as many images with equally likely values, and of as many of the model's training images.

Of papers:

* GRADE (Rassin et al., 2024): the entropy of the values in all images whose prompts leave the
  attribute open, divided by the log of the number of values.
* Does and Can of DIM-CIM (Teotia et al., 2025), as shares: of each value where it is left open, and
  where it is named. The paper's own scores average VQAScores.
* Under- and over-diversification, the failures that DivBench (Friedrich et al., 2025) tells apart:
  1 minus the normalised entropy of a prompt's images, mean over prompts, and the share of images
  that do not show a named value. Both are our formulas.

A judge gives probabilities. Scores are expectations over the true values, if it is calibrated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log
from statistics import fmean

import torch
from scipy.stats import binomtest
from torch import Tensor
from torch.nn import functional as F

from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.confusion import Reliability
from vendi_guidance.scores.entropy import normalised_entropy
from vendi_guidance.scores.subsampling import UNLIMITED, Estimate, mean_over_prompts, subsample


@dataclass(frozen=True)
class Shares:
    """One attribute in the images of one prompt.

    Attributes:
        shares: of each value, by the judge's probabilities.
        counts: the number of images whose most likely value this is.
        named: the value that the prompt names.
        entropy: expected, in nats.
        changed: row numbers of the images whose most likely value is another than the named one.
    """

    prompt: str
    count: int
    shares: tuple[float, ...]
    counts: tuple[int, ...]
    named: str | None
    entropy: float
    changed: tuple[int, ...]


@dataclass(frozen=True)
class AttributeScores:
    """One attribute in all images; None for what no prompt or no share of training images tells."""

    attribute: Attribute
    by_prompt: list[Shares]
    effective_values: Estimate | None  # exp of the mean entropy over prompts that leave it open
    even: float | None  # the same for as many images with equally likely values
    training: float | None  # the same for as many training images
    named_kept: Estimate | None  # share that show the value named, mean over prompts that name one
    grade: Estimate | None
    does: tuple[float, ...] | None  # share of each value where it is left open
    can: tuple[float | None, ...]  # share of each value where it is named
    under_diversification: float | None
    over_diversification: float | None
    never: tuple[str, ...]  # values that no image of a prompt that leaves it open shows
    judge: Reliability | None = None  # by a labelled sample


def attribute_scores(
    attribute: Attribute,
    p: Tensor,
    rows: Mapping[str, Sequence[int]],
    named: Mapping[str, str | None],
) -> AttributeScores:
    """One attribute's scores, for (n, values) probabilities of the values in n images, NaN where
    the judge has no answer, the rows of each prompt, and the value that it names, or None."""
    values, k = attribute.values, len(attribute.values)
    best, is_judged = p.nan_to_num(-1).argmax(1), ~p[:, 0].isnan()
    by_prompt = []
    for prompt, value in named.items():
        own = torch.tensor(rows[prompt], device="cpu")
        if len(own := own[is_judged[own]]):
            seen, wanted = best[own], None if value is None else values.index(value)
            changed = own[seen != wanted].tolist() if wanted is not None else []
            shares, counts = (*p[own].mean(0).tolist(),), (*seen.bincount(minlength=k).tolist(),)
            about = prompt, len(own), shares, counts, value, expected_entropy(p[own])
            by_prompt.append(Shares(*about, (*changed,)))
    left_open = [one for one in by_prompt if one.named is None]
    sizes, kept, can = [one.count for one in left_open], list[float](), list[float | None]()
    for place, value in enumerate(values):
        of_value = [one.shares[place] for one in by_prompt if one.named == value]
        kept += of_value
        can.append(fmean(of_value) if of_value else None)
    effective = _exp_of_mean([one.entropy for one in left_open], (0.0, log(k)))
    named_kept = mean_over_prompts(kept, limits=(0.0, 1.0)) if kept else None
    of_open = [[one.count * share for share in one.shares] for one in left_open]
    images = torch.tensor(of_open, dtype=torch.float64, device="cpu")
    total = images.sum(0) if left_open else None
    seen_in_all = map(sum, zip(*(one.counts for one in left_open), strict=True))
    return AttributeScores(
        attribute,
        by_prompt,
        effective,
        _of_draws(sizes, [1.0] * k),
        _of_draws(sizes, attribute.training),
        named_kept,
        _grade(images),
        None if total is None else tuple((total / total.sum()).tolist()),
        tuple(can),
        None if effective is None else 1 - log(effective.value) / log(k),
        None if named_kept is None else 1 - named_kept.value,
        tuple(value for value, count in zip(values, seen_in_all, strict=False) if not count),
    )


def _grade(images: Tensor) -> Estimate | None:
    if not len(images):
        return None
    subsamples = subsample([range(len(images))], [len(images)])
    of_parts = [normalised_entropy(images[rows].sum(0)) for (rows,) in subsamples.parts]
    return subsamples.estimate(normalised_entropy(images.sum(0)), of_parts, limits=(0.0, 1.0))


@dataclass(frozen=True)
class BinomialTest:
    """How often one run's images of a prompt show more values of an attribute left open than the
    other's, after Albuquerque et al. (2025), who let people say which of two sets varies more."""

    more: int  # prompts and attributes with more values in the second run
    fewer: int
    ties: int
    p_value: float  # two-sided, of as many ones that are not ties, if both are equally likely


def binomial_test(
    first: Sequence[AttributeScores], second: Sequence[AttributeScores]
) -> BinomialTest:
    """Compare two runs by each prompt and attribute with as many images in both."""
    known: dict[tuple[str, str], Shares] = {}
    signs = []
    for one in first:
        known |= {(one.attribute.name, it.prompt): it for it in one.by_prompt if not it.named}
    for other in second:
        for after in other.by_prompt:
            before = known.get((other.attribute.name, after.prompt))
            if before is not None and before.count == after.count:
                number, earlier = (sum(map(bool, it.counts)) for it in (after, before))
                signs.append((number > earlier) - (number < earlier))
    more, fewer = signs.count(1), signs.count(-1)
    p_value = float(binomtest(more, more + fewer).pvalue) if more + fewer else 1.0
    return BinomialTest(more, fewer, signs.count(0), p_value)


def change(first: AttributeScores, second: AttributeScores) -> Estimate | None:
    """The ratio of two runs' effective values over the prompts of both that leave the attribute
    open; None without such prompts."""
    before, after = (
        {one.prompt: one.entropy for one in run.by_prompt if one.named is None}
        for run in (first, second)
    )
    changes = [after[prompt] - before[prompt] for prompt in before if prompt in after]
    return _exp_of_mean(changes, UNLIMITED)


def expected_entropy(p: Tensor) -> float:
    """The expected entropy, in nats, of the values of n images with probabilities p: (n, values).

    The number of images with a value has a Poisson binomial distribution.
    """
    counts = p.new_ones(p.shape[1], 1)  # the probability of 0, 1, ... images with each value
    for row in p[..., None]:
        counts = F.pad(counts * (1 - row), (0, 1)) + F.pad(counts * row, (1, 0))
    shares = torch.linspace(0, 1, len(p) + 1, dtype=p.dtype, device=p.device)
    return float((counts @ torch.special.entr(shares)).sum())


def _of_draws(counts: Sequence[int], shares: Sequence[float] | None) -> float | None:
    """Effective values of prompts with these numbers of images, with these shares of values."""
    if not counts or shares is None:
        return None
    p = torch.tensor([shares], dtype=torch.float64, device="cpu")
    entropy = cache(lambda count: expected_entropy((p / p.sum()).expand(count, -1)))
    return exp(fmean(map(entropy, counts)))


def _exp_of_mean(logarithms: Sequence[float], limits: tuple[float, float]) -> Estimate | None:
    """exp of the mean over prompts, with its interval; None without prompts."""
    if not logarithms:
        return None
    found = mean_over_prompts(logarithms, limits=limits)
    return Estimate._make(None if end is None else exp(end) for end in found)
