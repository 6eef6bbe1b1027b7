"""Protocols: what the tables of papers are computed from, so that numbers can be compared.

The features are those of Jalali et al. (Conditional-Vendi, AISTATS 2026), section 7 and appendix E:
DINOv2 for images, with a Gaussian kernel of bandwidth 20 to 30, and CLIP for prompts, with one of
0.1 to 0.8; of both ranges we take a value in the middle. CLIPScore is that of Hessel et al. (2021),
by CLIP ViT-B/32, which the paper does not say.

DIMCIM, after Teotia et al. (2025), is of attributes: whether images vary in what a prompt leaves
open, and show what it names. The paper asks of each value by itself whether an image shows it, by
VQAScore. Here a judge says which of the values an image shows, so that scores mean the same kind of
thing but cannot be compared with the paper's.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from vendi_guidance.checks import counted
from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.batches import Batch
from vendi_guidance.evaluation.benchmarks import BENCHMARKS, Asked
from vendi_guidance.evaluation.measures import MEASURES, describe_embedder, describe_kernel
from vendi_guidance.evaluation.results import ReportData

TRUNCATION = 10_000
"""Eigenvalues that the paper keeps; no protocol with its scores has more images."""

DIMCIM = {
    "entropy": "Does-it: evenness ↑",
    "coverage": "Does-it: values shown ↑",
    "named_kept": "Can-it: named kept ↑",
}
"""Of `attribute_diversity.TITLES`. Does-it is of coarse prompts, can-it of dense ones."""


@dataclass(frozen=True)
class Features:
    """What scores are computed from: names of embedders, and bandwidths of Gaussian kernels. None
    is the embedder's usual bandwidth."""

    image_embedder: str | None = None
    sigma_image: float | None = None
    prompt_embedder: str | None = None
    sigma_prompt: float | None = None
    clip: str | None = None

    def replaced_by(self, given: "Features") -> tuple["Features", list[str]]:
        """These, or those given where there are any, and what differs then, in words.

        Example:
            >>> chosen, differs = Features("dinov2", 25.0).replaced_by(Features("pixels"))
            >>> chosen.image_embedder, chosen.sigma_image, differs
            ('pixels', None, ['image embedder pixels instead of dinov2'])
        """
        asked = {name: it for name, it in vars(given).items() if it is not None}
        usual = vars(self)
        differs = [
            f"{name.replace('_', ' ')} {it} instead of {usual[name]}"
            for name, it in asked.items()
            if it != usual[name]
        ]
        kept = usual | {
            f"sigma_{what}": None  # it was of the other embedder
            for what in ("image", "prompt")
            if asked.get(f"{what}_embedder", usual[f"{what}_embedder"]) != usual[f"{what}_embedder"]
        }
        return Features(**(kept | asked)), differs


@dataclass(frozen=True)
class Column:
    """A column of a paper's table.

    Attributes:
        score: its name in `measures.MEASURES`.
        heading: the paper's.
        missing: what to do where it is missing.
        factor: by which the paper multiplies the score.
    """

    score: str
    heading: str
    missing: str
    factor: float = 1.0

    @property
    def title(self) -> str:
        """The heading, with an arrow to where it is better."""
        return f"{self.heading} {'↑' if MEASURES[self.score].better > 0 else '↓'}"


@dataclass(frozen=True)
class Protocol:
    """How the table of a paper is computed; `evaluation.benchmarks` has what is generated.

    Attributes:
        source: the paper, and what differs from it.
        columns: of the table; none where its rows are concepts (see `table_of_concepts`).
        features: what scores are computed from.
    """

    source: str
    columns: tuple[Column, ...]
    features: Features = Features("dinov2", 25.0, "clip", 0.4, "clip")


@dataclass(frozen=True)
class ProtocolTable:
    """Results in the layout of a paper.

    Attributes:
        protocol, source: its name, and the paper.
        headings: of the columns; the first is that of the names.
        rows: each a name, and the values, None where one is missing.
        settings: what decides whether numbers can be compared.
        differs: what is not as in the protocol; if anything is not, numbers cannot be compared.
        remarks: on what is missing, or measured otherwise than in the paper.
    """

    protocol: str
    source: str
    headings: tuple[str, ...]
    rows: list[tuple[str, tuple[float | None, ...]]]
    settings: str
    differs: list[str]
    remarks: list[str]


def check_batch(name: str, batch: Batch, prompts: int) -> None:
    """Raise ValueError unless a batch has so many prompts, each with a protocol's images."""
    each = BENCHMARKS[name].images_per_prompt
    counts = Counter(batch.prompts or [])
    if len(counts) == prompts and set(counts.values()) == {each}:
        return
    fewest, most = min(counts.values(), default=0), max(counts.values(), default=0)
    images = counted(most, "image")
    images = images if fewest == most else f"{fewest} to {images}"
    raise ValueError(
        f"{batch.name or 'the batch'} has {counted(len(counts), 'prompt')} with {images} each, and "
        f"--protocol {name} takes {prompts:,} with {each}: make them with vendi-guidance generate "
        f"FILE --protocol {name}, or fewer for a trial, with --protocol-prompts N on both commands"
    )


def table_of_scores(
    name: str, reports: Sequence[ReportData], differs: Sequence[str]
) -> ProtocolTable:
    """The table of a protocol with columns, a row for each run.

    Args:
        name: one of `PROTOCOLS`.
        differs: what is not as in the protocol.
    """
    protocol = PROTOCOLS[name]
    columns = protocol.columns
    rows = []
    for report in reports:
        found = [(report.scores.get(column.score), column.factor) for column in columns]
        values = tuple(None if it is None else it.value * factor for it, factor in found)
        rows.append((report.name, values))
    remarks = [
        f"{column.heading} is missing: {column.missing}."
        for place, column in enumerate(columns)
        if any(values[place] is None for _, values in rows)
    ]
    titles = ("Method", *(column.title for column in columns))
    about = protocol.source, titles, rows, settings_of(reports[0])
    return ProtocolTable(name, *about, list(differs), remarks)


def attributes_of(
    asked: Sequence[Asked], drawn: Collection[str]
) -> tuple[dict[str, list[Attribute]], list[str]]:
    """The attributes of each concept, and those that cannot be judged, in words.

    Args:
        asked: what the prompts of a file ask for.
        drawn: the prompts with images.
    """
    kinds: dict[tuple[str, str], list[Asked]] = {}
    for row in asked:
        kinds.setdefault((row.concept, row.kind), []).append(row)
    found: dict[str, list[Attribute]] = {}
    left_out = []
    for (concept, kind), rows in kinds.items():
        values = tuple(dict.fromkeys(row.value for row in rows if row.value is not None))
        prompts = tuple((row.prompt, row.value) for row in rows if row.prompt in drawn)
        if len(values) < 2:
            left_out.append(f"{concept} {kind} is left out: it has one value only, {values[0]}.")
        elif prompts:
            attribute = Attribute(f"{concept} {kind}", values, asked=prompts)
            found.setdefault(concept, []).append(attribute)
    return found, left_out


def table_of_concepts(
    reports: Sequence[ReportData],
    concepts: Mapping[str, Sequence[Attribute]],
    differs: Sequence[str],
    remarks: Sequence[str],
) -> ProtocolTable:
    """The table of DIMCIM: for each run the mean over concepts, then each concept's."""
    rows: list[tuple[str, tuple[float | None, ...]]] = []
    for report in reports:
        means = {
            one.attribute.name: {score: value for score, (value, _, _) in one.means.items()}
            for one in report.attributes
        }
        each = {
            concept: tuple(_mean(means[one.name].get(score) for one in some) for score in DIMCIM)
            for concept, some in concepts.items()
        }
        rows.append((report.name, tuple(map(_mean, zip(*each.values(), strict=True)))))
        rows += [(f"{report.name}: {concept}", values) for concept, values in each.items()]
    titles = ("Method", *DIMCIM.values())
    about = PROTOCOLS["dimcim"].source, titles, rows, settings_of(reports[0])
    return ProtocolTable("dimcim", *about, list(differs), list(remarks))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def settings_of(report: ReportData) -> str:
    """What decides whether scores can be compared, as a line."""
    used = report.settings
    words = [
        f"{what}s by {describe_embedder(used[f'{what}_embedder'])}, "
        f"{describe_kernel(used[f'kernel_{what}'])}"
        for what in ("image", "prompt")
    ]
    if "clip" in used:
        words.append(f"CLIPScore by {describe_embedder(used['clip'])}")
    n, prompts = used["images"], used["prompts"]
    pairs = sum(math.comb(size, 2) for size in Counter(report.inputs.groups).values())
    batch = f"{counted(n, 'image')} of {counted(prompts, 'prompt')}"
    words.append(f"n = {batch}, {counted(pairs, 'pair')} of one prompt")
    if n <= TRUNCATION:
        words.append(f"truncation to {TRUNCATION:,} eigenvalues, which are all")
    if used["spectrum"]["name"] != "Exact":
        words.append(f"entropies by {used['spectrum']['name']}")
    if "references" in used:
        words.append(f"KD against {counted(used['references'], 'image')}")
    return "; ".join(words)


_DIVERSITY = (
    Column("conditional_vendi", "Cond-Vendi", "give a folder with prompts"),
    Column("vendi", "Vendi", "give images"),
    Column("in_batch_similarity", "In-batch Sim. × 10²", "it needs several images a prompt", 100.0),
)
_CLIP = Column("clip_score", "CLIPScore", "add --clip clip")
_KD = Column(
    "kernel_distance",
    "KD × 10²",
    "add --reference with real images, such as those of the captions",
    100.0,
)
_CORRECT = Column(
    "faithfulness",
    "GenEval",
    "add --faithfulness COLUMN with what GenEval's own detector says of each image, 0 or 1",
)
_JALALI = "Jalali et al. (2026), table 1"

PROTOCOLS = {
    "coco1000": Protocol(
        f"{_JALALI}, on 1,000 captions with 4 images each", (_CLIP, _KD, *_DIVERSITY)
    ),
    "coco10000": Protocol(
        f"{_JALALI}; how many images in-batch similarity had is not said there",
        (_CLIP, _KD, *_DIVERSITY),
    ),
    "geneval": Protocol(
        f"Ghosh et al. (2023), with the diversity of {_JALALI}; GenEval is the share of correct "
        "images here, not the mean over tasks",
        (_CORRECT, _CLIP, *_DIVERSITY),
    ),
    "dimcim": Protocol("Teotia et al. (2025)", ()),
}
