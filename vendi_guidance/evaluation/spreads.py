"""How images of a prompt spread over the values of attributes.

A prompt that names a value asks whether it is drawn (*can it*); one that leaves an attribute open
asks whether its values vary (*does it*), as DIMCIM does for benchmarks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import stdev

import torch
from torch import Tensor

from vendi_guidance.evaluation.attribute_judges import Calibrated
from vendi_guidance.evaluation.attributes import Attribute, AttributeJudge, judged, labelled
from vendi_guidance.evaluation.batches import Batch
from vendi_guidance.evaluation.calibration import Calibration
from vendi_guidance.evaluation.intervals import draw_parts
from vendi_guidance.scores.functional import rows_by_label

MEASURES = {
    "entropy": "evenness over the values, 0 for one value alone to 1 for all alike",
    "coverage": "share of the values that were drawn",
    "commonest": "share of the commonest value",
    "named_kept": "share of images that show the value that their prompt names",
}


@dataclass(frozen=True)
class Spread:
    """One attribute in the images of one prompt.

    Attributes:
        shares: of each value.
        named: the value that the prompt names, or None.
        scores: by the names of `MEASURES`: `named_kept` where a value is named, else the others.
    """

    prompt: str
    count: int
    shares: tuple[float, ...]
    named: str | None
    scores: dict[str, float]


@dataclass(frozen=True)
class AttributeScores:
    """One attribute in all images.

    Attributes:
        spreads: of each prompt.
        means: over prompts, by the names of `MEASURES`: value, low and high of the 95% confidence
            interval, None where there are too few prompts.
        calibration: how the judge was corrected by labelled images, or None.
    """

    attribute: Attribute
    spreads: list[Spread]
    means: dict[str, tuple[float, float | None, float | None]]
    calibration: Calibration | None = None


def attribute_scores(
    batch: Batch, attributes: Sequence[Attribute], judge: AttributeJudge | None
) -> list[AttributeScores]:
    """How the images of each prompt spread over each attribute's values.

    Args:
        judge: None takes labels, a person's or another model's, from the columns of
            `metadata.jsonl` with the attributes' names.

    Raises:
        ValueError: the batch has no prompts, or not those that attributes are for, or the judge
            does not return a distribution for each image.
    """
    if batch.prompts is None:
        raise ValueError("attributes are counted for each prompt: give the prompts too")
    results = []
    for attribute in attributes:
        rows = [row for row, prompt in enumerate(batch.prompts) if attribute.is_for(prompt)]
        if not rows:
            asked = attribute.asked[0][0] if attribute.asked else attribute.prompt
            raise ValueError(
                f"attribute {attribute.name!r} is for the prompt {asked!r}, of which there are no "
                "images"
            )
        some = batch.take(rows)
        calibration = None
        if judge is None:
            p = labelled(some, attribute)
        elif isinstance(judge, Calibrated):
            p, calibration = judged(some, attribute, judge.judge), judge.calibration(attribute)
        else:
            p = judged(some, attribute, judge)
        results.append(_scores(attribute, some.prompts or [], p, calibration))
    return results


def _scores(
    attribute: Attribute,
    prompts: Sequence[str],
    p: Tensor,
    calibration: Calibration | None,
) -> AttributeScores:
    # an error of the correction is the same in all images, however many there are
    others = (
        []
        if calibration is None
        else [_means(_spreads(attribute, prompts, q)) for q in calibration.drawn(p)]
    )
    p = p if calibration is None else calibration(p)
    spreads = _spreads(attribute, prompts, p)
    generator = torch.Generator().manual_seed(0)
    draws = draw_parts([prompts], [len(prompts)])
    parts = []
    for (rows,) in [] if draws is None else draws.parts:
        # the values are drawn as the judge believes, so that its doubts widen the interval
        values = torch.multinomial(p[rows], 1, generator=generator)[:, 0]
        certain = torch.eye(p.shape[1], dtype=p.dtype)[values]
        parts.append(_means(_spreads(attribute, [prompts[i] for i in rows.tolist()], certain)))
    means: dict[str, tuple[float, float | None, float | None]] = {}
    for name, value in _means(spreads).items():
        low = high = None
        if draws is not None and all(name in part for part in parts):
            common = stdev(other[name] for other in others) if others else 0.0
            of_parts = [part[name] for part in parts]
            low, high = draws.interval(value, of_parts, is_ratio=False, common=common)
        if low is not None and high is not None:
            low, high = max(0.0, low), min(1.0, high)
        means[name] = (value, low, high)
    return AttributeScores(attribute, spreads, means, calibration)


def _spreads(attribute: Attribute, prompts: Sequence[str], p: Tensor) -> list[Spread]:
    found = []
    for prompt, rows in rows_by_label(prompts, len(prompts)).items():
        share = p[rows].mean(0)
        named = attribute.named(str(prompt))
        drawn = p[rows].argmax(1).unique()
        if named is not None:
            scores = {"named_kept": float(share[attribute.values.index(named)])}
        else:
            entropy = float(torch.special.entr(share).sum()) / log(len(share))
            scores = {
                "entropy": max(0.0, entropy),
                "coverage": len(drawn) / len(share),
                "commonest": float(share.max()),
            }
        found.append(Spread(str(prompt), len(rows), tuple(share.tolist()), named, scores))
    return found


def _means(spreads: Sequence[Spread]) -> dict[str, float]:
    found = {}
    for name in MEASURES:
        values = [spread.scores[name] for spread in spreads if name in spread.scores]
        if values:
            found[name] = sum(values) / len(values)
    return found
