"""Moves inside a pipeline's network: which block is moved, and how.

In a UNet the middle block is moved, in a transformer the block after the first third: its tokens of
text where it returns them, as joint blocks do, since moves of image tokens lose more of what
prompts name; else its image tokens.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.arguments import tensor_of
from vendi_guidance.adapter.cfg import ScaledCFG
from vendi_guidance.adapter.patching import Patch
from vendi_guidance.adapter.schedule import Watch
from vendi_guidance.adapter.tokens import named_arguments
from vendi_guidance.adapter.undistilled import answer
from vendi_guidance.guidance.inside import ABOVE, Moves

TEXT = "encoder_hidden_states"
"""The argument of blocks with the tokens of the prompt."""


class Blocks:
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
        self._patches = [
            Patch(block, "forward", partial(self._wrap, block), watch.is_here)
            for block in map(block_of, networks)
            if block is not None
        ]
        self.has_any = bool(self._patches)
        self._watch = watch
        self._cfg = cfg
        self._part = part
        self._prompts_first = prompts_first
        self._scale = 1.0  # of CFG
        self._moves: Moves | None = None
        self._now: tuple[Moves, object, float] | None = None  # of the evaluation that is made

    def stop(self) -> None:
        """Restore the blocks."""
        for patch in self._patches:
            patch.remove()
        self._moves = None

    def without_prompts(self) -> tuple[Tensor, float] | None:
        """See `Denoiser.without_prompts`."""
        count, found = len(self._watch.step.sample), self._cfg.evaluations
        if self._cfg.is_off or sum(it.rows for it in found) != 2 * count:
            return None
        own, other = self._parts([tensor_of(it.output) for it in found])
        added, given = (own - other).flatten().float(), (self._watch.step.output - other).flatten()
        self._scale = float(given.float() @ added / (added @ added))
        return self._clean(other), self._scale

    def denoise_moved(self, moves: Moves) -> Tensor:
        """See `Denoiser.denoise_moved`."""
        for patch in self._patches:
            patch.apply()
        with self._moving(moves, object(), self._watch.levels[0].ratio):
            outputs = [tensor_of(answer(None, *it[:4])) for it in self._cfg.evaluations]
        own, *others = self._parts(outputs)
        return self._clean(others[0].lerp(own, self._scale) if others else own)

    def _parts(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """What the scheduler sees of the rows with prompts, and of those without, if any."""
        rows, sample = self._cfg.prompt_rows(self._cfg.evaluations[0]), self._watch.step.sample
        parts = outputs[0][rows], *outputs[1:], outputs[0][rows.stop :], outputs[0][: rows.start]
        return [self._part(it, sample) for it in parts if len(it)]

    def _clean(self, output: Tensor) -> Tensor:
        return self._watch.denoise(self._watch.step.sample, output, self._watch.levels[0])

    def move_inside(self, moves: Moves) -> None:
        """See `Denoiser.move_inside`."""
        self._moves = moves

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Move the blocks in the sampler's evaluations within this context, where they are due."""
        moves, watch = self._moves, self._watch
        ratio = max(watch.ahead[:1], default=0) if moves is not None and watch.steps else 0
        with self._moving(moves, watch.steps, ratio) if ratio > ABOVE else nullcontext():
            yield

    @contextmanager
    def _moving(self, *now: Any) -> Iterator[None]:
        self._now = now
        try:
            yield
        finally:
            self._now = None

    def _wrap(self, block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def moved(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            if self._now is None:
                return output
            return self._moved(output, named_arguments(block, args, kwargs))

        return moved

    def _moved(self, output: Any, given: dict[str, Any]) -> Any:
        """A block's output with moved text tokens, or else with moved image tokens or features."""
        if isinstance(output, tuple | list):
            tokens = getattr(given.get(TEXT), "shape", ())
            shapes = (getattr(it, "shape", None) for it in output)
            place = next((i for i, shape in enumerate(shapes) if shape == tokens), 0)
            moved = self._moved(output[place], given)
            return type(output)([*output[:place], moved, *output[place + 1 :]])
        count = len(self._watch.step.sample)
        if not isinstance(output, Tensor) or output.ndim not in (3, 4) or self._now is None:
            return output
        moves, at, ratio = self._now
        if len(output) not in (count, 2 * count) or len(moves.share) != count:
            return output
        first = 0 if self._prompts_first or len(output) == count else count
        moved = moves.move(output, slice(first, first + count), at, ratio)
        mask = given.get(f"{TEXT}_mask")
        if isinstance(mask, Tensor) and mask.shape == output.shape[:2]:
            return torch.where(mask[..., None] > 0, moved, output)  # padding stays
        return moved


def block_of(network: nn.Module) -> nn.Module | None:
    """The block of a network that is moved; None if there is none."""
    middle = getattr(network, "mid_block", None)
    if isinstance(middle, nn.Module):
        return middle
    children = dict(network.named_children())
    lists = {it: one for it, one in children.items() if isinstance(one, nn.ModuleList) and len(one)}
    blocks = lists.get("transformer_blocks") or max(lists.values(), key=len, default=None)
    return None if blocks is None else blocks[len(blocks) // 3]
