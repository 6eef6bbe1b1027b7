"""What a part of a model costs, without its weights: shapes on torch's meta device.

`FlopCounterMode` counts operations (two for each multiplication and addition), `Live` memory.
"""

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode


class Live(TorchDispatchMode):
    """Counts the bytes of the tensors that live on a device, of those made while it is on.

    Attributes:
        peak: the most at any time.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self.device = device
        self.now = self.peak = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        known = {storage._cdata for storage in self._storages((args, kwargs))}
        for storage in self._storages(result):
            if storage._cdata not in known:  # neither a view nor changed in place
                known.add(storage._cdata)
                self._add(storage.nbytes())
                weakref.finalize(storage, self._add, -storage.nbytes())
        return result

    def _storages(self, tree: Any) -> list[torch.UntypedStorage]:
        tensors = (x for x in tree_leaves(tree) if isinstance(x, Tensor))
        return [x.untyped_storage() for x in tensors if x.device.type == self.device]

    def note(self, size: int) -> None:
        """So many bytes more are used for a moment, by what computes elsewhere."""
        self.peak = max(self.peak, self.now + size)

    def _add(self, size: int) -> None:
        self.now += size
        self.note(0)


class Fused(TorchFunctionMode):
    """Attention as GPUs compute it, without its matrix in memory."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is F.scaled_dot_product_attention:
            return _attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    return torch.ops.aten._scaled_dot_product_flash_attention(query, key, value)[0]


class Evaluated(NamedTuple):
    """What a part returns on the meta device, its operations, and its peak memory in bytes."""

    output: Any
    flops: float
    activations: int


@torch.no_grad()
def evaluate(part: Callable[..., Any], *args: Any, **kwargs: Any) -> Evaluated:
    with Fused(), FlopCounterMode(display=False) as flops, Live("meta") as live:
        output = part(*args, **kwargs)
    return Evaluated(output, flops.get_total_flops(), live.peak)


def on_meta(build: Callable[[], Any]) -> Any:
    """A part without weights, in half precision."""
    with torch.device("meta"):
        return build().to(torch.bfloat16).eval()


def weights_of(part: nn.Module) -> int:
    return sum(weight.numel() for weight in part.parameters())
