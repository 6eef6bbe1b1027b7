"""Classifier-free guidance (CFG) at part of its scale, for any pipeline.

A pipeline extrapolates from its network's outputs without prompts, which are rows of one batch or
of a second evaluation, past those with prompts. Replacing the former by

    prompt output + share x (output without prompts - prompt output)

multiplies what CFG adds by `share`. If the share is 0, only the rows of the prompts are evaluated.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import in_form_of, input_of, only_rows, tensor_of
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.schedule import Watch

logger = logging.getLogger(__name__)


class Evaluation(NamedTuple):
    """One evaluation of a pipeline's network: its arguments by name and, once made, its output."""

    module: nn.Module
    forward: Callable[..., Any]
    given: dict[str, Any]
    output: Any = None

    def make(self) -> Any:
        """The network's output."""
        return self.forward(**self.given)

    @property
    def rows(self) -> int:
        """The number of rows of latents that the network is given."""
        return len(input_of(self.given))

    def of_rows(self, rows: slice) -> "Evaluation":
        """The same evaluation of these rows only."""
        in_lists = isinstance(input_of(self.given), list)
        return self._replace(given=only_rows(self.given, self.rows, rows, in_lists))


@dataclass
class ScaledCFG:
    """Evaluates a pipeline's network so that CFG has only part of its effect."""

    _pipeline: Any
    _watch: Watch
    # whether each evaluation has all rows that the pipeline gives, at the cost of all of them,
    # because attention processors that are not of diffusers may treat the halves of CFG themselves
    keeps_rows: bool = False
    # of CFG at the next steps, from 0 (off) to 1 (the pipeline's own CFG). The first step always
    # uses full CFG, because the batch size is not known yet
    share: float = 1.0
    # of the last step; the first has the prompts' rows
    evaluations: list[Evaluation] = field(default_factory=list)
    _key: object = None  # of the step of `evaluations`
    _share: float = 1.0  # at that step

    def forget(self) -> None:
        """Release the tensors of the last step."""
        self.evaluations = []

    @property
    def is_off(self) -> bool:
        """Whether CFG had no effect at the last step."""
        return self._share == 0

    def prompt_rows(self, evaluation: Evaluation) -> slice:
        """The rows of a batch that belong to the prompts, one for each sample."""
        rows, count = evaluation.rows, len(self._watch.step.sample)
        if family_of(self._pipeline).layers_first:
            raise no_rounds(self._pipeline, "its embeddings are layers of batches")
        if rows % count:
            raise no_rounds(self._pipeline, f"its network gets {rows} rows for {count} samples")
        parts = rows // count
        part = 0 if parts == 1 or family_of(self._pipeline).prompts_first else parts - 1
        return slice(part * count, (part + 1) * count)

    def of_rows(self, evaluation: Evaluation, rows: slice) -> tuple[Evaluation, slice]:
        """An evaluation of these rows, of all if they are kept, and where its output has them."""
        if self.keeps_rows:
            return evaluation, rows
        return evaluation.of_rows(rows), slice(0, rows.stop - rows.start)

    @property
    def prompt_output(self) -> Tensor:
        """The rows of the prompts in the last step's output."""
        first = self.evaluations[0]
        return tensor_of(first.output)[self.prompt_rows(first)]

    def evaluate(self, evaluation: Evaluation) -> Any:
        """The output that the pipeline gets from its network."""
        if self._key != self._watch.key:
            self._key, self.evaluations = self._watch.key, []
            self._share = self.share if self._watch.steps else 1.0
        output = evaluation.make() if self._share == 1 else self._scaled(evaluation)
        # pipelines may change an argument's items before the next evaluation
        own = {name: {**it} if type(it) is dict else it for name, it in evaluation.given.items()}
        self.evaluations.append(evaluation._replace(given=own, output=output))
        return output

    def _scaled(self, evaluation: Evaluation) -> Any:
        """The output for a share below 1."""
        first = self.evaluations[0] if self.evaluations else None  # a later one has no prompts
        rows, prompts = evaluation.rows, self.prompt_rows(first or evaluation)
        is_alone = not first and prompts == slice(0, rows)
        if self._share and not is_alone:
            raw = evaluation.make()
            output = tensor_of(raw)
            own = repeated_rows(tensor_of(first.output if first else raw)[prompts], rows)
            return in_form_of(raw, own.lerp(output, self._share))
        if first:
            raw, output = first.output, self.prompt_output
        else:
            whole = is_alone or self.keeps_rows
            raw = (evaluation if whole else evaluation.of_rows(prompts)).make()
            output = tensor_of(raw)
            output = output[prompts] if len(output) == rows else output
        return in_form_of(raw, repeated_rows(output, rows))


def has_own_processors(network: nn.Module) -> bool:
    """Whether attention processors of a network are not diffusers' own, which is said once."""
    found = (getattr(module, "processor", None) for module in network.modules())
    kinds = {type(it) for it in found if it is not None}
    own = {it.__name__ for it in kinds if not it.__module__.startswith("diffusers.")}
    if own:
        say_rows_are_kept(", ".join(sorted(own)))
    return bool(own)


@cache
def say_rows_are_kept(processors: str) -> None:
    logger.warning(
        "%s may compare rows of a batch, so that guidance evaluates all that the pipeline gives: "
        "with CFG, its own evaluations cost twice as much",
        processors,
    )


def repeated_rows(output: Tensor, rows: int) -> Tensor:
    """What is of one part of a batch, repeated for all parts of a batch of `rows`."""
    return torch.cat([output] * (rows // len(output)))


def no_rounds(pipeline: Any, why: str) -> ValueError:
    """The error for a pipeline whose use of its network is not understood."""
    return ValueError(
        f"no rounds can be made with a {type(pipeline).__name__}, {why}: "
        'use VendiGuidance(Published()) or preset="published"'
    )
