"""The scores of runs; a further one is a function of a run and an entry in `COLUMNS`."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from math import inf
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from torch import Tensor

from scripts.comparison import efficientnet
from scripts.comparison.models import NAMED, OPEN
from scripts.comparison.taste import Taste
from vendi_guidance import Cosine, vendi
from vendi_guidance.evaluation.batches import as_batch
from vendi_guidance.evaluation.inputs import ScoreInputs, looks_by_group
from vendi_guidance.features.base import Labels, load_features
from vendi_guidance.features.probe import TRAINING_FEATURES, Probe, load_probe
from vendi_guidance.scores.groups import rows_by_label
from vendi_guidance.scores.subsampling import Estimate, mean_over_prompts
from vendi_guidance.storage.imagefolder import read_timings


class Judged(NamedTuple):
    """The images of a run, in order: their prompts, and what the probe sees in them.

    Attributes:
        features: (n, 128) features by the probe.
        reference: (m, 128) features of real images; None if the probe has none.
        taste: what the model was tuned on; None if it was not.
    """

    folder: Path
    prompts: Sequence[str]
    labels: Labels
    features: Tensor
    reference: Tensor | None
    taste: Taste | None


Values = Mapping[str, float]
"""Value of each prompt. A score of a whole run has one value, under any name."""


def within_prompts(run: Judged) -> Values:
    """The Vendi score of each prompt's images: cosine kernel, EfficientNet's features."""
    features = efficientnet_features(run.folder)
    rows = rows_by_label(run.prompts, len(features))
    return {str(prompt): float(vendi(features[own], Cosine())) for prompt, own in rows.items()}


def taste_gained(run: Judged) -> Values:
    """How much more each prompt's images are liked than those of the model before tuning."""
    if run.taste is None:
        return {}
    liked = run.taste.of(efficientnet_features(run.folder)).tolist()
    base = run.taste.base
    means = _means(zip(run.prompts, liked, strict=True)).items()
    return {prompt: value - base[prompt] for prompt, value in means if prompt in base}


@cache
def efficientnet_features(folder: Path) -> Tensor:
    """(n, 1280) features of a run's images."""
    return efficientnet.embedder().embed([*as_batch(folder).images])


def against_references(run: Judged, score: str) -> Values:
    """A score of the run against real images, if the probe has any."""
    inputs = ScoreInputs(run.features, Cosine(), reference=run.reference)
    found = dict(inputs.against_reference())
    return {score: found[score]} if found else {}


class Column(NamedTuple):
    """A column of the table: the kind of prompts, the score of a run, its format, and where its
    interval ends at the latest, if it has one."""

    kind: str
    values: Callable[[Judged], Values]
    spec: str
    most: float | None = None


def looks(run: Judged) -> Values:
    """The distinct correct looks of each prompt's images."""
    return {str(one): count for one, count in looks_by_group(run.prompts, run.labels).items()}


def kept(run: Judged) -> Values:
    """The share of each prompt's images that show everything it names."""
    pairs = zip(run.labels.asked, run.labels.shown, strict=True)
    return _means(zip(run.prompts, (asked == shown for asked, shown in pairs), strict=True))


def evaluations(run: Judged) -> Values:
    """Rows that passed through the network for each image that is kept."""
    return _means(zip(run.prompts, read_timings(run.folder, "evaluations").values(), strict=True))


TASTE = "taste kept"
COLUMNS = {
    "looks": Column(OPEN, looks, ".2f", inf),
    "named kept": Column(NAMED, kept, ".3f", 1.0),
    "fidelity": Column(OPEN, kept, ".3f"),
    "Vendi": Column(OPEN, within_prompts, ".2f", inf),
    TASTE: Column(OPEN, taste_gained, ".3f"),  # divided by what the unguided images gain
    "precision": Column(OPEN, partial(against_references, score="precision"), ".3f"),
    "recall": Column(OPEN, partial(against_references, score="recall"), ".3f"),
    "FD": Column(OPEN, partial(against_references, score="frechet_distance"), ".3g"),
    "evaluations": Column(OPEN, evaluations, ".1f"),
}
"""By title."""


def scores(
    runs: Mapping[str, Sequence[Path]],
    probe: Path,
    real: str = TRAINING_FEATURES,
    taste: Taste | None = None,
) -> dict[str, Estimate]:
    """Scores by title, averaged over the seeds, with 95% intervals over prompts.

    Args:
        runs: kind of prompts -> the runs' folders, one for each seed.
        probe: the folder of the probe.
        real: the file of features of real images in it, if there is one.
        taste: what the model was tuned on, if it was.
    """
    judge, file = load_probe(probe), probe / real
    reference = load_features(file) if file.exists() else None
    judged = {
        kind: [_judge(folder, judge, reference, taste) for folder in own]
        for kind, own in runs.items()
    }
    found = {}
    for title, column in COLUMNS.items():
        pairs = (pair for run in judged[column.kind] for pair in column.values(run).items())
        if values := list(_means(pairs).values()):
            found[title] = Estimate(fmean(values), None, None)
            if column.most is not None:
                found[title] = mean_over_prompts(values, limits=(0.0, column.most))
    return found


def _judge(folder: Path, probe: Probe, reference: Tensor | None, taste: Taste | None) -> Judged:
    batch = as_batch(folder)
    prompts, features = batch.prompts or [], probe.embed(batch.images)
    return Judged(folder, prompts, probe.labels(features, prompts), features, reference, taste)


def _means(pairs: Iterable[tuple[str, float]]) -> Values:
    """The mean of each prompt's values."""
    by_prompt: dict[str, list[float]] = defaultdict(list)
    for prompt, value in pairs:
        by_prompt[prompt].append(value)
    return {prompt: fmean(own) for prompt, own in by_prompt.items()}
