"""Attribute diversity: how the images of a prompt spread over the values of attributes.

After DIMCIM (Teotia et al., 2025), prompts that name a value test whether the model can show it,
and prompts that leave an attribute open test whether its values vary. Effective values are the
exponential of the entropy, from 1 to the number of values. Looks are the distinct combinations of
all attributes that a prompt leaves open. Both grow with the number of images, so a run is shown
beside the same number of samples of the model's training images, and of equally likely values.

Values are sampled from a judge's probabilities, and scores are means over these samples: their
expectation over the true values if the judge is calibrated.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import exp, prod
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from vendi_guidance.evaluation.attributes import (
    Attribute,
    AttributeJudge,
    FeatureJudge,
    judged,
)
from vendi_guidance.evaluation.batches import Batch
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.subsampling import subsample

SAMPLES = 50
"""Number of samples of each image's value."""

FROM_MIX = 20_000
"""Fewest images sampled from a mix in all, at least `SAMPLES` for each image of the batch."""

LOOKS = "looks (combinations)"
MIX = "training_mix.json"

Mix: TypeAlias = Sequence[tuple[float, Mapping[str, Mapping[str, float]]]]
"""Kinds of training images: the share of each kind, and the shares of values by attribute within
it, for captions that leave the attribute open. Within a kind, attributes are independent."""


@dataclass(frozen=True)
class Shares:
    """One attribute in the images of one prompt.

    Attributes:
        count: number of images.
        shares: share of each value, by the judge's probabilities.
        named: the value that the prompt names, or None.
    """

    prompt: str
    count: int
    shares: tuple[float, ...]
    named: str | None


@dataclass(frozen=True)
class AttributeScores:
    """One attribute in all images.

    Attributes:
        by_prompt: the shares of values for each prompt.
        named_kept: the share of images that show the value that their prompt names, mean over
            prompts, and the ends of its 95% confidence interval (None for too few prompts), which
            covers the choice of prompts and the judge's uncertainty. None if no prompt names a
            value.
        drawn: (n, samples) indices of sampled values for all images of the batch; 0 for images of
            prompts that the attribute does not apply to.
    """

    attribute: Attribute
    by_prompt: list[Shares]
    named_kept: tuple[float, float | None, float | None] | None
    drawn: Tensor = field(repr=False, compare=False)

    def as_json(self) -> dict[str, Any]:
        """JSON values without the samples, under the names that `report.json` has always used."""
        return {
            "attribute": asdict(self.attribute),
            "spreads": [asdict(one) for one in self.by_prompt],
            "means": {} if self.named_kept is None else {"named_kept": self.named_kept},
        }


@dataclass(frozen=True)
class Spread:
    """The effective number of an attribute's values, or the number of looks, in a prompt's images.

    Attributes:
        title: the attribute's title, or `LOOKS`.
        most: the number of values, or the most looks that a prompt's images can show.
        by_prompt: entropy in nats, or looks, of each prompt that leaves the attribute open.
        value: the effective number of values, or the number of looks; mean over prompts.
        interval: the 95% confidence interval of `value`, for as many new prompts.
        even: `value` for as many images whose values are equally likely.
        training: `value` for as many training images; None if these are not known.
    """

    title: str
    most: float
    by_prompt: dict[str, float]
    value: float
    interval: tuple[float, float] | None
    even: float
    training: float | None


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
) -> list[AttributeScores]:
    """The values of each attribute in the images of each prompt.

    Args:
        judge: None uses labels (of people or another model) from the columns of `metadata.jsonl`
            with the attributes' names.
        features: (n, d) features by `judge.embed`, if known.

    Raises:
        ValueError: an attribute applies to no image's prompt, or the judge does not return a
            distribution for each image.
    """
    if attributes and features is None and isinstance(judge, FeatureJudge):
        features = torch.cat([judge.embed(images) for images in batch.images.chunks()])
    results = []
    for attribute in attributes:
        rows = [row for row, prompt in enumerate(batch.prompts or []) if attribute.is_for(prompt)]
        if not rows:
            raise ValueError(
                f"attribute {attribute.name!r} is for the prompt {attribute.prompt!r}, but there "
                "are no images of it"
            )
        some = batch.take(rows)
        prompts = some.prompts or []
        p = judged(some, attribute, judge, None if features is None else features[rows])
        # sampled once for all subsamples: intervals assume subsampling without replacement
        values = sample_values(p, SAMPLES, torch.Generator().manual_seed(0))
        drawn = values.new_zeros(len(batch.images), SAMPLES)
        drawn[rows] = values
        by_prompt = [
            Shares(prompt, len(own), tuple(p[own].mean(0).tolist()), attribute.named(prompt))
            for prompt, own in _rows_by_prompt(prompts)
        ]
        kept = _named_kept(attribute, prompts, values)
        results.append(AttributeScores(attribute, by_prompt, kept, drawn))
    return results


def attribute_spreads(
    scores: Sequence[AttributeScores], prompts: Sequence[str], mix: Mix | None = None
) -> list[Spread]:
    """The spread over each attribute that a prompt leaves open, and looks if one leaves two open.

    Args:
        scores: the result of `attribute_scores`.
        prompts: the prompts of the n images.
        mix: the mix of the training images, if known.
    """
    attributes = [one.attribute for one in scores]
    found = _counts(attributes, prompts, [one.drawn for one in scores])
    uniform: dict[str, dict[str, float]] = {}
    for one in attributes:  # attributes of different prompts may share a name
        uniform.setdefault(one.name, {}).update(dict.fromkeys(one.values, 1.0))
    even = _counts_of_mix(attributes, prompts, [(1.0, uniform)])
    known = [one for one in attributes if mix and all(_knows(kind, one) for _, kind in mix)]
    training = _counts_of_mix(known, prompts, mix or [])
    if known != attributes:
        training.pop(LOOKS, None)
    most = {one.title: len(one.values) for one in attributes}
    images = max((len(rows) for _, rows in _rows_by_prompt(prompts)), default=0)
    most[LOOKS] = min(images, prod(most.values()))
    spreads = []
    for title, by_prompt in found.items():
        mean, limit = partial(_mean, title), float(most[title])
        ends = _interval([*by_prompt], partial(mean, by_prompt))
        ends = ends and (max(1.0, ends[0]), min(limit, ends[1]))
        value, of_even = mean(by_prompt, by_prompt), mean(even[title], by_prompt)
        of_training = mean(training[title], by_prompt) if title in training else None
        spreads.append(Spread(title, limit, by_prompt, value, ends, of_even, of_training))
    return spreads


def change(first: Spread, second: Spread) -> tuple[float, tuple[float, float] | None] | None:
    """The ratio of two runs' `value` over their common prompts, with its 95% confidence interval;
    None without common prompts."""
    prompts = [prompt for prompt in first.by_prompt if prompt in second.by_prompt]
    if not prompts:
        return None

    def ratio(some: Iterable[str]) -> float:
        before, after = (_mean(first.title, one.by_prompt, some) for one in (first, second))
        return after / before

    return ratio(prompts), _interval(prompts, ratio)


def sample_values(p: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """(n, count) indices of values, sampled from probabilities p: (n, values).

    Samples are stratified (a Latin hypercube): each value occurs in a share p of an image's samples
    up to rounding, so means vary less than with independent samples.
    """
    shape = len(p), count
    order = torch.rand(shape, generator=generator, dtype=torch.float32, device="cpu").argsort(1)
    within = torch.rand(shape, generator=generator, dtype=p.dtype, device="cpu")
    edges = (p / p.sum(1, keepdim=True)).cumsum(1)
    indices = torch.searchsorted(edges, (order + within) / count, right=True)
    return indices.clamp(max=p.shape[1] - 1)  # the last edge may round to less than 1


def _named_kept(
    attribute: Attribute, prompts: Sequence[str], values: Tensor
) -> tuple[float, float | None, float | None] | None:
    """`AttributeScores.named_kept` of n images with sampled values: (n, samples)."""

    def kept(rows: Sequence[int]) -> Tensor | None:
        """(samples,) shares for some of the images; None if no prompt names a value."""
        some, shares = values[rows], []
        for prompt, own in _rows_by_prompt([prompts[row] for row in rows]):
            named = attribute.named(prompt)
            if named is not None:
                shares.append((some[own] == attribute.values.index(named)).double().mean(0))
        return torch.stack(shares).mean(0) if shares else None

    of_all = kept(range(len(prompts)))
    if of_all is None:
        return None
    subsamples, value, ends = subsample([prompts], [len(prompts)]), float(of_all.mean()), None
    parts = [] if subsamples is None else [kept(rows.tolist()) for (rows,) in subsamples.parts]
    of_parts = [float(part.mean()) for part in parts if part is not None]
    if subsamples is not None and len(of_parts) == len(parts):
        judge_error = float(of_all.std())
        ends = subsamples.interval(value, of_parts, is_ratio=False, common=judge_error)
    return (value, None, None) if ends is None else (value, max(0.0, ends[0]), min(1.0, ends[1]))


def _counts_of_mix(
    attributes: Sequence[Attribute], prompts: Sequence[str], mix: Mix
) -> dict[str, dict[str, float]]:
    """`_counts` for the same prompts with as many images sampled from a mix."""
    if not attributes:
        return {}
    generator, count = torch.Generator().manual_seed(0), max(SAMPLES, FROM_MIX // len(prompts))

    def sample(shares: Iterable[float]) -> Tensor:
        p = torch.tensor([*shares], dtype=torch.float64, device="cpu").expand(len(prompts), -1)
        return sample_values(p, count, generator)

    kind, sampled = sample(share for share, _ in mix)[None], []
    for one in attributes:
        of_kinds = [sample(values[one.name].get(v, 0.0) for v in one.values) for _, values in mix]
        sampled.append(torch.stack(of_kinds).gather(0, kind)[0])
    return _counts(attributes, prompts, sampled)


def _knows(kind: Mapping[str, Mapping[str, float]], attribute: Attribute) -> bool:
    """Whether a kind of training images has shares for an attribute, and for no other values."""
    return attribute.name in kind and {*kind[attribute.name]} <= {*attribute.values}


def _counts(
    attributes: Sequence[Attribute], prompts: Sequence[str], sampled: Sequence[Tensor]
) -> dict[str, dict[str, float]]:
    """By title and prompt: entropies of open attributes, and the number of looks."""
    titles = [*(one.title for one in attributes), LOOKS]
    found: dict[str, dict[str, float]] = {title: {} for title in titles}
    for prompt, rows in _rows_by_prompt(prompts):
        # `look` numbers the combinations of the open attributes' values
        look, n_open = torch.zeros((), dtype=torch.long, device="cpu"), 0
        for one, values in zip(attributes, sampled, strict=True):
            if not one.is_for(prompt) or one.named(prompt) is not None:
                continue
            shares = F.one_hot(values[rows], len(one.values)).double().mean(0)
            found[one.title][prompt] = float(torch.special.entr(shares).sum(1).mean())
            look, n_open = look * len(one.values) + values[rows], n_open + 1
        if n_open > 1:
            ordered = look.sort(dim=0).values
            found[LOOKS][prompt] = 1 + float((ordered.diff(dim=0) != 0).sum(0).double().mean())
    return {title: by_prompt for title, by_prompt in found.items() if by_prompt}


def _mean(title: str, by_prompt: Mapping[str, float], prompts: Iterable[str]) -> float:
    """Effective values, or looks, averaged over some prompts."""
    mean = fmean(by_prompt[prompt] for prompt in prompts)
    return mean if title == LOOKS else exp(mean)


def _interval(
    prompts: list[str], value: Callable[[list[str]], float]
) -> tuple[float, float] | None:
    """The confidence interval of a value over prompts; None if there are too few prompts."""
    subsamples = subsample([prompts], [len(prompts)])
    if subsamples is None or subsamples.unit != "prompts":
        return None
    of_parts = [value([prompts[row] for row in rows.tolist()]) for (rows,) in subsamples.parts]
    return subsamples.interval(value(prompts), of_parts, is_ratio=True)


def _rows_by_prompt(prompts: Sequence[str]) -> list[tuple[str, list[int]]]:
    return [(str(one), rows) for one, rows in rows_by_label(prompts, len(prompts)).items()]
