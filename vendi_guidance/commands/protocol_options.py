"""Options of the commands that follow a protocol."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click
from click.core import ParameterSource

from vendi_guidance.checks import counted
from vendi_guidance.commands.run_options import COUNT, Decorator, together
from vendi_guidance.evaluation.attributes import Attribute
from vendi_guidance.evaluation.batches import Batch
from vendi_guidance.evaluation.benchmarks import BENCHMARKS, read_dimcim
from vendi_guidance.evaluation.protocols import (
    PROTOCOLS,
    Features,
    ProtocolTable,
    attributes_of,
    check_batch,
    table_of_concepts,
    table_of_scores,
)
from vendi_guidance.evaluation.results import ReportData


def protocol_options(option: Callable[..., Decorator], what: str) -> Decorator:
    """The options, made by `click.option` or the like; `what` is what a protocol sets."""
    return together(
        option("--protocol", type=click.Choice([*PROTOCOLS]), help=what),
        option(
            "--protocol-prompts",
            type=COUNT,
            metavar="N",
            help="Only so many of the protocol's prompts, for a trial that is not comparable.",
        ),
    )


def check_is_given(protocol: str | None, prompts: int | None) -> None:
    """Raise ValueError for a trial of no protocol."""
    if protocol is None and prompts is not None:
        raise ValueError("--protocol-prompts needs --protocol, whose prompts it takes fewer of")


def images_per_prompt(protocol: str, given: int) -> int:
    """A protocol's.

    Raises:
        ValueError: the user's option says otherwise.
    """
    source = click.get_current_context().get_parameter_source("images_per_prompt")
    wanted = BENCHMARKS[protocol].images_per_prompt
    if source is not ParameterSource.DEFAULT and given != wanted:
        raise ValueError(
            f"--images-per-prompt {given} contradicts --protocol {protocol}, which takes {wanted}: "
            "leave one of them out"
        )
    return wanted


@dataclass(frozen=True)
class ProtocolRun:
    """Runs evaluated by a protocol, or by none.

    Attributes:
        name: of the protocol, or None.
        features: what scores are computed from.
        differs: what is not as the protocol has it, in words.
        concepts: DIMCIM's, with their attributes.
        remarks: on attributes.
    """

    name: str | None
    features: Features
    differs: list[str] = field(default_factory=list)
    concepts: dict[str, list[Attribute]] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    @property
    def attributes(self) -> list[Attribute] | None:
        """Those of all concepts, or None."""
        return [one for some in self.concepts.values() for one in some] or None

    def table(self, reports: Sequence[ReportData]) -> ProtocolTable | None:
        """The protocol's table of evaluated runs, if there is a protocol."""
        if self.name is None:
            return None
        differs = self.differs + [
            f"{counted(len(report.skipped), 'image')} of {report.name} or its reference could not "
            "be read"
            for report in reports
            if report.skipped
        ]
        if self.concepts:
            return table_of_concepts(reports, self.concepts, differs, self.remarks)
        return table_of_scores(self.name, reports, differs)


def follow(
    name: str | None,
    trial: int | None,
    given: Features,
    batches: list[Batch],
    attributes: Path | None,
    judge: str | None,
) -> ProtocolRun:
    """A protocol, or none, for finished runs.

    Args:
        trial: how many prompts to expect in place of the protocol's.
        given: features by the user's options.
        attributes: DIMCIM's file of prompts.
        judge: of attributes, by its name.

    Raises:
        ValueError: a run has not the protocol's prompts and images, or DIMCIM's file is missing.
    """
    check_is_given(name, trial)
    if name is None:
        return ProtocolRun(None, given)
    features, differs = PROTOCOLS[name].features.replaced_by(given)
    concepts: dict[str, list[Attribute]] = {}
    remarks: list[str] = []
    if (count := BENCHMARKS[name].prompts) is None:
        count, concepts, remarks = _of_file(attributes, batches, judge)
    if trial is not None and trial != count:
        differs.append(f"{counted(trial, 'prompt')} instead of {count:,}")
    for batch in batches:
        check_batch(name, batch, count if trial is None else trial)
    return ProtocolRun(name, features, differs, concepts, remarks)


def _of_file(
    path: Path | None, batches: list[Batch], judge: str | None
) -> tuple[int, dict[str, list[Attribute]], list[str]]:
    """The number of prompts in DIMCIM's file, its concepts, and remarks on how they are judged."""
    if path is None:
        raise ValueError(
            "--protocol dimcim needs --attributes FILE, the file that its prompts were read from"
        )
    asked = read_dimcim(path)
    known = {row.prompt for row in asked}
    generated = {prompt for batch in batches for prompt in batch.prompts or []}
    if other := generated - known:
        raise ValueError(f"{path} lacks the prompt {min(other)!r}: give the file of these prompts")
    concepts, left_out = attributes_of(asked, generated)
    if not concepts:
        raise ValueError(f"{path} has no attribute of at least two values in what was generated")
    remark = (
        f"Values are told by {judge or 'clip'}, which chooses one of each attribute, and not by "
        "VQAScore, which scores each: numbers do not compare with the paper's DIM and CIM."
    )
    return len(known), concepts, [remark, *left_out]
