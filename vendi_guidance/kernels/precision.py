"""Arithmetic in the precision that it states, whatever the caller has set around it.

Autocast, TF32 and bfloat16 products would change inner products by up to 1e-2, so that copies no
longer have similarity 1.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import Any

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Matrix products in the dtype of their factors: without autocast, TF32 or bfloat16."""
    accelerator = torch.accelerator.current_accelerator()
    kinds = ["cpu"] if accelerator is None else ["cpu", accelerator.type]
    with ExitStack() as stack:
        stack.enter_context(_products)
        for kind in filter(torch.is_autocast_enabled, kinds):
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def isolated() -> Iterator[None]:
    """`full_precision`, without gradients. Results are no inference tensors, which could not be
    changed later."""
    with torch.inference_mode(False), torch.no_grad(), full_precision():
        yield


@contextmanager
def float32_by_default() -> Iterator[None]:
    """New networks and converted images are float32, for libraries that ask for torch's default."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


class _Products:
    """A context with exact float32 products. The setting is one of the process: the first thread
    that enters changes it, and the last one that leaves restores it."""

    def __init__(self) -> None:
        self._lock, self._users = Lock(), 0
        self._before: tuple[str | None, dict[Any, str]] = None, {}

    def __enter__(self) -> None:
        with self._lock:
            if not self._users and any(self._settings()):
                self._before = self._settings()
                torch.set_float32_matmul_precision("highest")
                for backend in self._before[1]:
                    backend.fp32_precision = "ieee"
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users:
                return
            (of_all, of_each), self._before = self._before, (None, {})
            if of_all is not None:
                torch.set_float32_matmul_precision(of_all)
            for backend, value in of_each.items():
                backend.fp32_precision = "none"  # a more general setting applies
                if backend.fp32_precision != value:
                    backend.fp32_precision = value

    @staticmethod
    def _settings() -> tuple[str | None, dict[Any, str]]:
        """The precision of products, in PyTorch's older form, None where it has none, and by
        backend, which PyTorch has from 2.9 on; None and {} if products are exact."""
        cpu = (getattr(torch.backends.mkldnn, name, None) for name in ("matmul", "conv"))
        backends: Any = (torch.backends.cuda.matmul, *cpu)
        of_each = {it: it.fp32_precision for it in backends if hasattr(it, "fp32_precision")}
        if of_each and {*of_each.values()} <= {"ieee", "none"}:
            return None, {}
        try:
            of_all = torch.get_float32_matmul_precision()
        except RuntimeError:  # set for each backend
            of_all = None
        return None if of_all == "highest" and not of_each else of_all, of_each


_products = _Products()
