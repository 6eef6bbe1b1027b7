"""Classifier-free guidance (CFG) scaled down, whatever the pipeline.

A pipeline evaluates its network for the prompts and without them, as rows of one batch or in two
evaluations, and goes beyond the outputs for the prompts by a multiple of the difference. It adds a
share of that if its outputs without prompts are replaced by

    output for prompts + share x (output without prompts - output for prompts).

Where the share is 0 or the difference is known from an earlier step, the network is evaluated for
the prompts alone.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import in_form_of, input_of, only_rows, tensor_of
from vendi_guidance.adapter.families import family_of
from vendi_guidance.adapter.schedule import Watch


class Evaluation(NamedTuple):
    """How a pipeline called its network, and what it got."""

    module: nn.Module
    forward: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output: Any = None

    @property
    def rows(self) -> int:
        """How many rows of latents the network was given."""
        return len(input_of(self.args, self.kwargs))

    def of_rows(self, own: slice, times: int = 1) -> "Evaluation":
        """The same for the rows `own` only, all of them so many times."""
        args, kwargs = only_rows(self.args, self.kwargs, self.rows, own, times)
        return self._replace(args=args, kwargs=kwargs)


class ScaledCFG:
    """Evaluates a pipeline's network, with a share of CFG.

    Args:
        pipeline: whose call it is.
        watch: of the pipeline's scheduler, which counts the steps.
        every: of so many steps with a share of CFG, the first finds the difference that the prompts
            make, and the others take it over.

    Attributes:
        share: of CFG at the next steps: 1, as the pipeline is called, to 0, none. The first step
            always uses full CFG, because the batch size is not known yet.
        evaluations: of the last step; the first of them is for the prompts.
        rows_evaluated: since the start, of all steps.
    """

    def __init__(self, pipeline: Any, watch: Watch, every: int = 1) -> None:
        self.share = 1.0
        self.evaluations: list[Evaluation] = []
        self.rows_evaluated = 0
        self._pipeline = pipeline
        self._watch = watch
        self._every = every
        self._step = -1  # whose evaluations they are
        self._share = 1.0  # at that step
        # by the number of an evaluation in its step: the step where it was found, the difference
        self._differences: dict[int, tuple[int, Tensor]] = {}

    def forget(self) -> None:
        """Let go of the last step."""
        self.evaluations = []
        self._differences = {}

    @property
    def every(self) -> int:
        """As given, where the network can be evaluated for the prompts alone; 1 elsewhere."""
        return self._every if self.is_divisible else 1

    @property
    def is_divisible(self) -> bool:
        """Whether rows of a batch can be evaluated without the others."""
        return not getattr(self._pipeline, "do_perturbed_attention_guidance", False)

    @property
    def is_off(self) -> bool:
        """Whether CFG had no effect at the last step."""
        return self._share == 0 and self.is_divisible

    def prompt_rows(self, call: Evaluation) -> slice:
        """The rows of a batch that are for the prompts; ValueError if that is not known."""
        rows, count = call.rows, len(self._watch.step.sample)
        if rows % count:
            raise no_rounds(self._pipeline, f"its network gets {rows} rows for {count} samples")
        parts = rows // count
        first = 0 if parts == 1 or family_of(self._pipeline).prompts_first else parts - 1
        if not self.is_divisible and parts > 1:
            first -= 1  # perturbed attention comes last
        return slice(first * count, (first + 1) * count)

    def evaluate(self, call: Evaluation) -> Any:
        """What the pipeline gets where it calls its network."""
        if self._step != self._watch.steps:
            self._step, self.evaluations = self._watch.steps, []
            self._share = self.share if self._step else 1.0
        output = self._forward(call) if self._share == 1 else self._scaled(call)
        self.evaluations.append(call._replace(output=output))
        return output

    def _scaled(self, call: Evaluation) -> Any:
        """What `evaluate` returns for a share below 1."""
        number, rows = len(self.evaluations), call.rows
        first = self.evaluations[0] if number else None  # then this one is not for the prompts
        own = self.prompt_rows(first or call)
        if not first and own == slice(0, rows):
            return self._forward(call)
        found_at, difference = self._differences.get(number, (self._step, None))
        if not (self._share and 0 < self._step - found_at < self.every):  # of an earlier step
            difference = None
        can_do_without = self._share == 0 and (first or self.is_divisible)
        if can_do_without or difference is not None:
            raw = first.output if first else self._forward(call.of_rows(own))
            output = _repeated(tensor_of(raw)[own] if first else tensor_of(raw), rows)
            if difference is not None:
                output = output + self._share * difference
            return in_form_of(raw, output)
        raw = self._forward(call)
        output = tensor_of(raw)
        for_prompts = _repeated((tensor_of(first.output) if first else output)[own], rows)
        self._differences[number] = self._step, output - for_prompts
        return in_form_of(raw, for_prompts.lerp(output, self._share))

    def _forward(self, call: Evaluation) -> Any:
        self.rows_evaluated += call.rows
        return call.forward(*call.args, **call.kwargs)


def _repeated(output: Tensor, rows: int) -> Tensor:
    """The rows of prompts, in the place of the others of a batch too."""
    return torch.cat([output] * (rows // len(output)))


def no_rounds(pipeline: Any, why: str) -> ValueError:
    """The error about a pipeline that uses its network in a way that is not known."""
    return ValueError(
        f"no rounds can be made with a {type(pipeline).__name__}, {why}: "
        'use VendiGuidance(Published()) or preset="published"'
    )
