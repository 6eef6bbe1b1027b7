"""DIMCIM: whether images vary in what a prompt leaves open, and show what it names.

After Teotia et al. (2025). The paper asks of each value by itself whether an image shows it, by
VQAScore. Here a judge says which of the values an image shows, so that scores mean the same kind of
thing but cannot be compared with the paper's.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean

from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.benchmarks import Asked
from vendi_guidance.evaluation.protocols import PROTOCOLS, ProtocolTable, settings_of
from vendi_guidance.evaluation.results import ReportData

COLUMNS = {
    "entropy": "Does-it: evenness ↑",
    "coverage": "Does-it: values drawn ↑",
    "named_kept": "Can-it: named kept ↑",
}
"""Of `attribute_diversity.MEASURES`. Does-it is of coarse prompts, can-it of dense ones."""


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
            concept: tuple(_mean(means[one.name].get(score) for one in some) for score in COLUMNS)
            for concept, some in concepts.items()
        }
        rows.append((report.name, tuple(map(_mean, zip(*each.values(), strict=True)))))
        rows += [(f"{report.name}: {concept}", values) for concept, values in each.items()]
    titles = ("Method", *COLUMNS.values())
    source = PROTOCOLS["dimcim"].source
    settings = settings_of(reports[0])
    return ProtocolTable("dimcim", source, titles, rows, settings, list(differs), list(remarks))


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
