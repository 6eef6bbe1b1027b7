"""What ends this process: Ctrl-C and SIGTERM, after the current batch, and the end of its launcher
(`torchrun` or `accelerate launch`)."""

import ctypes
import os
import signal
import sys
from contextlib import suppress
from time import monotonic
from types import FrameType

PARENT = os.getppid()  # process id of the launcher, read before the imports that take seconds
DEATH_SIGNAL = 1
"""The option of Linux's prctl for the signal that a process gets when its parent ends."""

IMPATIENT = 1.0
"""Seconds within which another Ctrl-C counts as the same: a launcher forwards the signal that the
terminal has already sent to all its processes."""


class Stop:
    """Context manager that handles Ctrl-C and SIGTERM.

    The first signal lets the current batch finish. A second Ctrl-C, or any signal outside of a
    batch, ends the process at once with exit status 128 + signal.
    """

    def __init__(self) -> None:
        self.signal: int | None = None  # that was received
        self.in_batch = False  # whether a batch is being generated
        self.is_silent = False  # whether another process prints the messages
        self._since = 0.0

    def __enter__(self) -> "Stop":
        numbers = (signal.SIGINT, signal.SIGTERM)
        self._before = {number: signal.signal(number, self._notice) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _notice(self, number: int, _frame: FrameType | None) -> None:
        if not self.in_batch:
            self._say("stopped: no image is lost")
            raise SystemExit(128 + number)
        if self.signal is None:
            self._say("finishing the current batch, then stopping; Ctrl-C again stops at once")
            self._since = monotonic()
        elif number == signal.SIGINT and monotonic() - self._since > IMPATIENT:
            self._say("stopped at once: --resume generates the current batch again")
            raise SystemExit(128 + number)
        self.signal = number

    def _say(self, text: str) -> None:
        if not self.is_silent:
            with suppress(OSError):
                # not through a Python stream, which the signal may have interrupted while writing
                os.write(2, f"\n{text}\n".encode())


def end_with_launcher() -> None:
    """Have the kernel kill this process when its launcher ends (on Linux): it could wait half an
    hour for the other processes, in C++ code where Python does not handle SIGTERM."""
    if "TORCHELASTIC_RUN_ID" in os.environ and sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != PARENT:  # it has ended already
            os._exit(1)
