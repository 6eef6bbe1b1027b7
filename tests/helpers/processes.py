"""Processes forked from this one, which start fast because all modules are loaded already."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from socket import socket

import pytest
import torch

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


def fork(act: Callable[[], object], log: Path) -> int:
    """Call `act` in a new process; returns the process id.

    It exits like a script: with the status of a `SystemExit`, with a traceback and 1 after another
    exception, and with 0 otherwise. Its output is appended to the file `log`.
    """
    process = os.fork()
    if process != 0:
        return process
    status: object = 1
    try:
        torch.set_num_threads(1)  # OpenMP would wait for threads that do not survive a fork
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


def wait(process: int) -> int:
    """The exit status of a process, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def fork_team(act: Callable[[int], object], logs: Sequence[Path]) -> list[int]:
    """Call `act(rank)` in several processes, in the environment of `torchrun`, each with a log (see
    `fork`), and wait for all. Returns their exit statuses, negative for a signal."""
    with socket() as any_port:
        any_port.bind(("127.0.0.1", 0))
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(any_port.getsockname()[1])}

    def member(rank: int) -> None:
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(logs))}
        os.environ |= address | own
        act(rank)

    team = [fork(partial(member, rank), log) for rank, log in enumerate(logs)]
    return [wait(process) for process in team]
