"""Ctrl-C and SIGTERM: finish the current batch, then stop."""

import os
import signal
from contextlib import suppress
from time import monotonic
from types import FrameType

IMPATIENT = 1.0
"""Seconds after which another Ctrl-C is a second one. A launcher passes on the one that a terminal
has already sent to all its processes."""


class Stop:
    """Notices a request to stop, while it is entered as a context.

    Attributes:
        signal: what was received, or None.
        in_batch: whether a batch is being made, which the first signal lets finish. Otherwise a
            signal ends the process at once, as a second Ctrl-C always does; its exit status is then
            128 + signal.
        is_silent: print nothing, because another process does.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.in_batch = False
        self.is_silent = False
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
            self._say("stopped at once: --resume makes the current batch again")
            raise SystemExit(128 + number)
        self.signal = number

    def _say(self, text: str) -> None:
        if not self.is_silent:
            with suppress(OSError):
                # not through a Python stream: the signal may interrupt one while it writes
                os.write(2, f"\n{text}\n".encode())
