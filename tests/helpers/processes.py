"""Processes forked from this one: all modules are loaded, so they start at once."""

import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from socket import socket
from time import monotonic, sleep
from typing import NoReturn

import pytest
import torch

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def fork(act: Callable[[], object], log: Path) -> int:
    """Call `act` in a new process; returns its id.

    It exits as a script would: with the status of a `SystemExit`, with 0, or after any other
    exception with a traceback and 1. Its output is appended to the file `log`.
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


def wait(process: int, seconds: float = math.inf) -> int:
    """The exit status of a process, negative for a signal; it is killed after so many seconds."""
    end = monotonic() + seconds
    while monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        sleep(0.001)
    os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def fork_team(act: Callable[[int], object], logs: Sequence[Path]) -> list[int]:
    """Call `act(rank)` in several processes, with the environment that `torchrun` sets.

    Args:
        act: what each process does.
        logs: one for each process, see `fork`.

    Returns:
        Their exit statuses, negative for a signal, when all have ended.
    """
    with socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(any_port.getsockname()[1])}

    def member(rank: int) -> None:
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(logs))}
        os.environ |= address | own
        act(rank)

    team = [fork(partial(member, rank), log) for rank, log in enumerate(logs)]
    return [wait(process) for process in team]
