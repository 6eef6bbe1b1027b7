"""The block of a network that is moved, and where its output holds what is moved.

In a UNet the middle block is moved, in a transformer the block after the first third: its tokens of
text where it returns them, as joint blocks do, since moves of image tokens lose more of what
prompts name; else its image tokens.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from vendi_guidance.adapter.patching import Patch, entry_of
from vendi_guidance.adapter.tokens import named_arguments, uncompiled
from vendi_guidance.guidance.inside import ABOVE, Moves

TEXT = "encoder_hidden_states", "txt"
"""Arguments of blocks with the tokens of the prompt, in diffusers and ComfyUI."""

OWN_TEXT = "context_block", "txt_attn"
"""Layers of ComfyUI's joint blocks, whose `forward` does not say that it returns text tokens."""

MIDDLE = "mid_block", "middle_block"
JOINT = (
    *("transformer_blocks", "joint_transformer_blocks", "double_stream_blocks"),
    *("double_blocks", "joint_blocks"),
)
"""Lists of blocks that are taken before longer ones."""


class MovedBlocks:
    """The blocks of networks, which are moved in the context `moving`, in calls that are `here`."""

    def __init__(self, networks: list[nn.Module], here: Callable[[], bool]) -> None:
        blocks = [block for block in map(block_of, networks) if block is not None]
        self._patches = [Patch(it, entry_of(it), partial(self._wrap, it), here) for it in blocks]
        self.has_any, self.has_text = bool(blocks), any(map(has_text, blocks))
        self._moves: Moves | None = None
        self._now: tuple[Moves, object, float] | None = None  # of the evaluation that is made

    def move_inside(self, moves: Moves | None) -> None:
        """See `Denoiser.move_inside`; None ends it."""
        self._moves = moves

    @contextmanager
    def moving(self, moves: Moves, at: object, ratio: float) -> Iterator[bool]:
        """Move the blocks while the context lasts; see `Moves.move`."""
        self._now = moves, at, ratio
        with ExitStack() as undo:
            undo.callback(setattr, self, "_now", None)
            for patch in self._patches:
                undo.enter_context(patch)
            yield True

    def moving_if_due(self, at: object, ratio: float) -> AbstractContextManager[bool]:
        """`moving` with the moves of `move_inside`, at a noise-to-signal ratio where they apply;
        its value is whether they do."""
        if self._moves is None or ratio <= ABOVE:
            return nullcontext(False)
        return self.moving(self._moves, at, ratio)

    def own_rows(self, rows: int, count: int) -> slice | None:
        """Of a block's output, the rows of `count` samples with their prompts; None if unknown."""
        raise NotImplementedError

    def _wrap(self, block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def moved(*args: Any, **kwargs: Any) -> Any:
            return self._moved(forward(*args, **kwargs), named_arguments(block, args, kwargs))

        return moved

    def _moved(self, output: Any, given: dict[str, Any]) -> Any:
        """A block's output with moved text tokens, or else with moved image tokens or features."""
        text = next((name for name in TEXT if isinstance(given.get(name), Tensor)), "")
        if isinstance(output, tuple | list):
            tokens = getattr(given.get(text), "shape", ())
            shapes = (getattr(it, "shape", None) for it in output)
            place = next((i for i, shape in enumerate(shapes) if shape == tokens), 0)
            moved = self._moved(output[place], given)
            return type(output)([*output[:place], moved, *output[place + 1 :]])
        if not isinstance(output, Tensor) or output.ndim not in (3, 4) or self._now is None:
            return output
        moves, at, ratio = self._now
        own = self.own_rows(len(output), len(moves.share))
        if own is None:
            return output
        moved = moves.move(output, own, at, ratio)
        mask = given.get(f"{text}_mask")
        if isinstance(mask, Tensor) and mask.shape == output.shape[:2]:
            return torch.where(mask[..., None] > 0, moved, output)  # padding stays
        return moved


def has_text(block: nn.Module) -> bool:
    """Whether a block is joint: it returns tokens of the prompt beside those of the image."""
    returned = str(signature(block.forward).return_annotation)
    return "tuple" in returned.lower() or any(hasattr(block, name) for name in OWN_TEXT)


def block_of(network: nn.Module) -> nn.Module | None:
    """The block of a network that is moved; None if there is none."""
    network = uncompiled(network)
    for middle in (getattr(network, name, None) for name in MIDDLE):
        if isinstance(middle, nn.Module):  # ComfyUI calls the layers of a sequence itself
            return middle[-1] if isinstance(middle, nn.Sequential) else middle
    children = dict(network.named_children())
    lists = {it: one for it, one in children.items() if isinstance(one, nn.ModuleList) and len(one)}
    longest = max(lists.values(), key=len, default=None)
    blocks = next((lists[name] for name in JOINT if name in lists), longest)
    return None if blocks is None else blocks[len(blocks) // 3]
