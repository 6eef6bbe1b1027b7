"""Tests on a GPU: `pytest --device cuda`."""

import inspect
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors

TESTS = str(Path(__file__).parents[1])
ON_CPU = torch.Tensor.numpy, torch.Tensor.__array__, torch.equal, torch.allclose
BETWEEN = "torch.overrides", "torch._tensor", "_pytest.python_api", "_pytest.approx"


class OnDevice(TorchFunctionMode):
    """Tensors that tests create are drawn on the CPU, so that numbers are the same, and moved to a
    device; what tests compare or convert to arrays is moved back. Calls of the package stay as they
    are."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        torch.backends.cudnn.allow_tf32 = False  # otherwise float32 convolutions have 10 bits

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.compiler.is_dynamo_compiling() or not _is_called_by_tests():
            return function(*args, **kwargs)
        if function in ON_CPU:
            args = [it.cpu() if isinstance(it, torch.Tensor) else it for it in args]
        result = function(*args, **kwargs)
        is_new = function in _device_constructors() and kwargs.get("device") is None
        return result.to(self.device) if is_new else result


def _is_called_by_tests() -> bool:
    """Whether a test or a helper of tests calls, at most through `pytest.approx`."""
    frame: Any = inspect.currentframe().f_back.f_back
    while frame.f_globals.get("__name__") in BETWEEN:
        frame = frame.f_back
    return frame.f_code.co_filename.startswith(TESTS)
