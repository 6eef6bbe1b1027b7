"""Moves inside a pipeline's network, in one call."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import tensor_of
from vendi_guidance.adapter.cfg import ScaledCFG
from vendi_guidance.adapter.moved import MovedBlocks
from vendi_guidance.adapter.patching import entry_of
from vendi_guidance.adapter.schedule import Watch
from vendi_guidance.adapter.tokens import uncompiled
from vendi_guidance.adapter.undistilled import answer
from vendi_guidance.guidance.inside import Moves
from vendi_guidance.kernels.precision import isolated


def eager(network: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """What evaluates a network with its patched blocks: `forward`, unless that is compiled."""
    inner = uncompiled(network) if entry_of(network) == "forward" else network._call_impl
    if inner is network:
        return forward
    return lambda *args, **kwargs: answer(None, network, inner, args, kwargs)


class Blocks(MovedBlocks):
    """The blocks that are moved in one call of a pipeline, and its predictions with moves.

    Args:
        networks: the networks that denoise.
        part: maps rows of a network's output, and the latents, to what the scheduler sees of them.
        prompts_first: whether rows with prompts precede those without.
    """

    def __init__(
        self,
        networks: list[nn.Module],
        watch: Watch,
        cfg: ScaledCFG,
        part: Callable[[Tensor, Tensor], Tensor],
        prompts_first: bool,
    ) -> None:
        super().__init__(networks, watch.is_here)
        self._watch = watch
        self._cfg = cfg
        self._part = part
        self._prompts_first = prompts_first

    @isolated()
    def without_prompts(self) -> tuple[Tensor, Tensor] | None:
        """See `Denoiser.without_prompts`."""
        count, found = len(self._watch.step.sample), self._cfg.evaluations
        if self._cfg.is_off or sum(it.rows for it in found) != 2 * count:
            return None
        own, other = self._parts([tensor_of(it.output) for it in found])
        added, given = (own - other).flatten().float(), (self._watch.step.output - other).flatten()
        scale = given.float() @ added / (added @ added)
        return self._clean(other), scale.nan_to_num(1.0)  # where CFG adds nothing

    def denoise_moved(self, moves: Moves, scale: Tensor | float) -> Tensor:
        """See `Denoiser.denoise_moved`."""
        found = self._cfg.evaluations
        with self.moving(moves, object(), self._watch.levels[0].ratio):
            answers = (answer(None, it.module, eager(*it[:2]), *it[2:4]) for it in found)
            outputs = [*map(tensor_of, answers)]
        own, *others = self._parts(outputs)
        return self._clean(others[0].lerp(own, torch.as_tensor(scale).to(own)) if others else own)

    def _parts(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """What the scheduler sees of the rows with prompts, and of those without, if any."""
        rows, sample = self._cfg.prompt_rows(self._cfg.evaluations[0]), self._watch.step.sample
        parts = outputs[0][rows], *outputs[1:], outputs[0][rows.stop :], outputs[0][: rows.start]
        return [self._part(it, sample) for it in parts if len(it)]

    def _clean(self, output: Tensor) -> Tensor:
        return self._watch.denoise(self._watch.step.sample, output, self._watch.levels[0])

    def evaluating(self) -> AbstractContextManager[bool]:
        """Move the blocks in the sampler's evaluations within this context, where they are due; its
        value is whether they are."""
        watch = self._watch
        ratio = max(watch.ahead[:1], default=0) if self._moves and watch.steps else 0
        return self.moving_if_due(watch.steps, ratio)

    def own_rows(self, rows: int, count: int) -> slice | None:
        """See `MovedBlocks.own_rows`."""
        if rows not in (count, 2 * count) or count != len(self._watch.step.sample):
            return None
        first = 0 if self._prompts_first or rows == count else count
        return slice(first, first + count)
