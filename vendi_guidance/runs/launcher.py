"""The launcher of this process (`torchrun` or `accelerate launch`), and an exit when it ends.

A process that outlives its launcher could wait half an hour for the other processes, in C++ code
where Python does not handle SIGTERM. It therefore ends itself.
"""

import os
from contextlib import suppress
from threading import Thread
from time import sleep

PARENT = os.getppid()
"""Process id of the launcher, read before the imports that take seconds."""


def is_launched() -> bool:
    """Whether torchrun, used directly or through accelerate, has started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def restarts() -> int:
    """Number of times that the launcher has restarted its processes after a failure."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def end_with_launcher() -> None:
    """End this process within seconds after its launcher ends (not on Windows, where a process
    cannot see that its parent has ended)."""
    if is_launched():
        Thread(target=_watch, name="launcher", daemon=True).start()


def _watch() -> None:
    while os.getppid() == PARENT:
        sleep(1)
    if os.environ.get("RANK") == "0":
        with suppress(OSError):
            os.write(2, b"\nthe launcher has ended, so this run stops; --resume continues it\n")
    os._exit(1)
