"""The processes that make a run together.

`accelerate launch` or `torchrun` starts them, and accelerate connects them. Each has a rank,
counted from 0.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from accelerate import PartialState
from accelerate.utils import gather_object

logger = logging.getLogger(__name__)

T = TypeVar("T")

OTHER_FAILED = 2
"""Exit status of a process that ends because another has failed, and said why."""


@dataclass(frozen=True)
class Ranks:
    """This process among all.

    Attributes:
        rank: which it is.
        count: how many there are.
        device: where this one computes.
    """

    rank: int
    count: int
    device: str

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, mine: T) -> list[T]:
        """What each process gave, by rank; every process has to call this. CPU tensors may be
        part of it.

        Raises:
            ConnectionError: another process is gone.
        """
        if self.count == 1:
            return [mine]
        try:
            return gather_object([mine])
        except RuntimeError as error:
            raise ConnectionError(
                "another process of this run has ended: see what it says; what is finished is "
                "safe, and --resume goes on"
            ) from error

    def agree(self, step: Callable[[], T]) -> T:
        """What `step()` returned here, if it succeeded everywhere; every process has to call this.

        Raises:
            ValueError, OSError: it failed here.
            SystemExit: it failed elsewhere, where the error is raised.
        """
        result, error = None, None
        try:
            result = step()
        except (ValueError, OSError) as caught:
            error = caught
        succeeded = self.share(error is None)
        if error is not None and succeeded.index(False) == self.rank:
            raise error
        if not all(succeeded):
            raise SystemExit(OTHER_FAILED)
        return cast(T, result)


@contextmanager
def joined(device: str) -> Iterator[Ranks]:
    """The processes, if several were started, connected for a while.

    Args:
        device: where each shall compute; a "cuda" without a number becomes each one's own.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) < 2:
        if "MASTER_ADDR" in os.environ and "WORLD_SIZE" not in os.environ:
            logger.warning(
                "accelerate has started one process only: on CPUs, `accelerate launch --multi_gpu "
                "--num_processes ...` starts several"
            )
        yield Ranks(0, 1, device)
        return
    state = PartialState(cpu=torch.device(device).type == "cpu")
    own = str(state.device) if device == state.device.type else device
    yield Ranks(state.process_index, state.num_processes, own)
    state.destroy_process_group()
