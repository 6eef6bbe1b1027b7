"""What a GPU would do and wait for, counted on a CPU."""

from collections.abc import Callable, Iterable

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITS = {"_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2"}
WAITS |= {"_linalg_check_errors"}
NO_KERNEL = {"promote_types", "scalar_tensor"}


class Launches(TorchDispatchMode):
    """Counts kernels and waits.

    Views and empty tensors launch no kernel. A product in chunks of rows, as on a CPU, counts once.
    """

    def __init__(self, on_cpu: Callable[[], Iterable[torch.Tensor]] = tuple) -> None:
        """`on_cpu` gives tensors that are on the CPU beside a GPU too, whose numbers are read."""
        super().__init__()
        self._on_cpu = on_cpu
        self.kernels = self.waits = 0
        self._last = ""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name, arguments = func.overloadpacket.__name__, func._schema.arguments
        by_mask = name == "index" and any(
            it is not None and it.dtype == torch.bool for it in args[1]
        )
        if name in WAITS or by_mask:
            places = {it.untyped_storage().data_ptr() for it in self._on_cpu()}
            self.waits += args[0].untyped_storage().data_ptr() not in places
        is_view = any(it.alias_info and not it.alias_info.is_write for it in arguments)
        if not (is_view or "empty" in name or name in NO_KERNEL):
            self.kernels += not (name == self._last == "addmm_")
        self._last = self._last if is_view else name
        return result
