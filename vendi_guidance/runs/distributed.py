"""Communication between the processes of a run, started by `accelerate launch` or `torchrun`."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import torch
from accelerate import PartialState
from accelerate.utils import gather
from torch import Tensor
from torch.distributed import PrefixStore
from torch.distributed.rendezvous import rendezvous

from vendi_guidance.runs.signals import end_with_launcher
from vendi_guidance.storage.tensors import pack, unpack

T = TypeVar("T")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run, as seen by one of them."""

    rank: int  # number of this process, from 0
    count: int  # number of processes
    device: str  # device that this process computes on

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, values: Any, **tensors: Tensor | None) -> list[tuple[Any, dict[str, Any]]]:
        """Gather JSON values and named tensors of all processes, by rank; all must call this.

        The others' tensors are on the CPU. ConnectionError if a process has ended.
        """
        if self.count == 1:
            return [(values, tensors)]
        device = PartialState().device  # the device that the backend communicates through
        message = torch.frombuffer(bytearray(pack(tensors, values)), dtype=torch.uint8)
        try:
            sizes = gather(torch.tensor([len(message)], device=device)).tolist()
            padded = torch.zeros(max(sizes), dtype=torch.uint8, device=device)
            padded[: len(message)] = message
            rows = gather(padded).cpu().view(self.count, -1)
        except RuntimeError as error:
            raise ConnectionError(
                "another process of this run has ended: see its message; finished images are "
                "safe, and --resume continues the run"
            ) from error
        messages = (row[:size] for row, size in zip(rows, sizes, strict=True))
        return [unpack(message.numpy().tobytes()) for message in messages]

    def agree(self, step: Callable[[], T]) -> T:
        """Return `step()` if it succeeds in all processes; every process must call this. Its error
        is raised where it failed, SystemExit in the others."""
        result, error = None, None
        try:
            result = step()
        except (ValueError, OSError) as caught:
            error = caught
        succeeded = [succeeds for succeeds, _ in self.share(error is None)]
        if error is not None and succeeded.index(False) == self.rank:
            raise error
        if not all(succeeded):
            raise SystemExit(2)  # the process that failed prints the reason
        return cast(T, result)


@contextmanager
def process_group(device: str) -> Iterator[ProcessGroup]:
    """Connect the processes, if several were started, for the duration of the context. The device
    "cuda" without a number gives each process its own GPU."""
    end_with_launcher()
    if int(os.environ.get("WORLD_SIZE", 1)) < 2:
        yield ProcessGroup(0, 1, device)
        return
    # the prefix hides addresses that the processes before a restart left in the launcher's store
    store, rank, count = next(rendezvous("env://"))
    attempt = f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    place = {"store": PrefixStore(attempt, store), "rank": rank, "world_size": count}
    state = PartialState(cpu=torch.device(device).type == "cpu", **place)
    own = str(state.device) if device == state.device.type else device
    yield ProcessGroup(state.process_index, state.num_processes, own)
    state.destroy_process_group()
