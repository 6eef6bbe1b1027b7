"""The launcher of this process, `torchrun` or `accelerate launch`, and that it is still there.

A process that outlives its launcher may wait for the others for half an hour, in C++ code, where
Python handles no SIGTERM. So it ends itself.
"""

import os
from contextlib import suppress
from threading import Thread
from time import sleep

PARENT = os.getppid()
"""Read when this is first imported, before the imports that take seconds."""


def is_launched() -> bool:
    """Whether torchrun, or accelerate by it, has started this process and looks after it."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def restarts() -> int:
    """How often the launcher has started its processes again, because one had failed."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))


def end_with_launcher() -> None:
    """From now on, end this process within seconds of its launcher (not on Windows, where a process
    does not see that its parent has ended)."""
    if is_launched():
        Thread(target=_watch, name="launcher", daemon=True).start()


def _watch() -> None:
    while os.getppid() == PARENT:
        sleep(1)
    if os.environ.get("RANK") == "0":
        with suppress(OSError):
            os.write(2, b"\nthe launcher has ended, so this run stops: --resume continues it\n")
    os._exit(1)
