"""Processes forked from this one, which has loaded all modules: they start at once."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from socket import socket
from typing import NoReturn

import torch


def fork(act: Callable[[], object], log: Path) -> int:
    """Do something in a process of its own; returns its id.

    It ends as a script that does only this: with the status of a `SystemExit`, or 0, or after any
    other exception with a traceback and 1. What it says is added to the file `log`.
    """
    process = os.fork()
    if process == 0:
        _act(act, log)
    return process


def _act(act: Callable[[], object], log: Path) -> NoReturn:
    status: object = 1
    try:
        torch.set_num_threads(1)  # threads do not survive a fork, and OpenMP would wait for them
        output = log.open("a", buffering=1, errors="backslashreplace")
        for handle in (1, 2):
            os.dup2(output.fileno(), handle)
        sys.stdout = sys.stderr = output
        act()
        status = 0
    except SystemExit as ending:
        status = ending.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status if isinstance(status, int) else 1)


def fork_team(act: Callable[[int], object], logs: Sequence[Path]) -> list[int]:
    """Do something in several processes that know of one another, as `torchrun` starts them.

    Args:
        act: what each does, given its rank.
        logs: for each, see `fork`.

    Returns:
        Their exit statuses, when all have ended; that of a signal is negative.
    """
    with socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(any_port.getsockname()[1])}

    def member(rank: int) -> None:
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(logs))}
        os.environ |= address | own
        act(rank)

    team = [fork(partial(member, rank), log) for rank, log in enumerate(logs)]
    return [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in team]
