"""The block of a network that is moved, and where its output holds the image.

In a UNet this is the second transformer, in a transformer the second block: its image tokens.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

from torch import Tensor, nn

from vendi_guidance.adapter.patching import Patch
from vendi_guidance.adapter.tokens import named_arguments
from vendi_guidance.guidance.inside import Moves

TEXT = "encoder_hidden_states", "txt"
"""Arguments of blocks with the tokens of the prompt, in diffusers and ComfyUI."""

DOWN = "down_blocks", "input_blocks"
MIDDLE = "mid_block", "middle_block"
JOINT = "transformer_blocks", "joint_transformer_blocks", "double_blocks", "joint_blocks"
"""Lists of blocks that are taken before longer ones."""


class MovedBlocks:
    """The blocks of networks, which are moved in the context `moving`, in calls that are `here`."""

    def __init__(self, networks: list[nn.Module], here: Callable[[], bool]) -> None:
        self._patches = [
            Patch(block, "forward", partial(self._wrap, block), here)
            for block in map(block_of, networks)
            if block is not None
        ]
        self.has_any = bool(self._patches)
        self._moves: Moves | None = None
        self._now: Moves | None = None  # of the evaluation that is made

    def start(self) -> None:
        for patch in self._patches:
            patch.apply()

    def stop(self) -> None:
        """Restore the blocks."""
        for patch in self._patches:
            patch.remove()
        self._moves = None

    def move_inside(self, moves: Moves) -> None:
        """See `Denoiser.move_inside`."""
        self._moves = moves

    @contextmanager
    def moving(self, moves: Moves) -> Iterator[None]:
        """Move the blocks while the context lasts."""
        self._now = moves
        try:
            yield
        finally:
            self._now = None

    def moving_if_due(self, ratio: float) -> AbstractContextManager[None]:
        """`moving` with the moves of `move_inside`, at a noise-to-signal ratio where they apply."""
        if self._moves is None or ratio <= self._moves.until:
            return nullcontext()
        return self.moving(self._moves)

    def _wrap(self, block: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
        def moved(*args: Any, **kwargs: Any) -> Any:
            output = forward(*args, **kwargs)
            if self._now is None:
                return output
            return _moved(output, named_arguments(block, args, kwargs), self._now)

        return moved


def _moved(output: Any, given: dict[str, Any], moves: Moves) -> Any:
    """A block's output with moved features or image tokens."""
    if isinstance(output, tuple | list):
        texts = {getattr(given.get(name), "shape", None) for name in TEXT}
        images = (i for i, it in enumerate(output) if getattr(it, "shape", None) not in texts)
        place = next(images, len(output) - 1)  # where both have the same shape, text comes first
        moved = _moved(output[place], given, moves)
        return type(output)([*output[:place], moved, *output[place + 1 :]])
    is_known = isinstance(output, Tensor) and output.ndim in (3, 4)
    return moves.move(output) if is_known else output


def block_of(network: nn.Module) -> nn.Module | None:
    """The block of a network that is moved; None if there is none."""
    for middle in (getattr(network, name, None) for name in MIDDLE):
        if isinstance(middle, nn.Module):
            down = (getattr(network, name, None) for name in DOWN)
            found = [it for part in down if part is not None for it in _transformers(part)]
            # ComfyUI calls the layers of a sequence itself
            last = middle[-1] if isinstance(middle, nn.Sequential) else middle
            return found[min(1, len(found) - 1)] if found else last
    children = dict(network.named_children())
    lists = {it: one for it, one in children.items() if isinstance(one, nn.ModuleList) and len(one)}
    longest = max(lists.values(), key=len, default=None)
    blocks = next((lists[name] for name in JOINT if name in lists), longest)
    return None if blocks is None else blocks[min(1, len(blocks) - 1)]


def _transformers(part: nn.Module) -> list[nn.Module]:
    """Transformers of a UNet, in diffusers and ComfyUI."""
    names = "Transformer2DModel", "SpatialTransformer"
    return [it for it in part.modules() if type(it).__name__ in names]
