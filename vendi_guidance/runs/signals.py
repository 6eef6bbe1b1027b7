"""Ctrl-C and SIGTERM: finish the current batch, then stop."""

import os
import signal
from contextlib import suppress
from time import monotonic
from types import FrameType

IMPATIENT = 1.0
"""Seconds within which another Ctrl-C counts as the same: a launcher forwards the signal that the
terminal has already sent to all its processes."""


class Stop:
    """Context manager that handles Ctrl-C and SIGTERM.

    The first signal lets the current batch finish. A second Ctrl-C, or any signal outside of a
    batch, ends the process at once with exit status 128 + signal.

    Attributes:
        signal: number of the signal received, or None.
        in_batch: whether a batch is being generated.
        is_silent: print nothing, because another process prints the messages.
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
            self._print("stopped: no image is lost")
            raise SystemExit(128 + number)
        if self.signal is None:
            self._print("finishing the current batch, then stopping; Ctrl-C again stops at once")
            self._since = monotonic()
        elif number == signal.SIGINT and monotonic() - self._since > IMPATIENT:
            self._print("stopped at once: --resume generates the current batch again")
            raise SystemExit(128 + number)
        self.signal = number

    def _print(self, text: str) -> None:
        if not self.is_silent:
            with suppress(OSError):
                # not through a Python stream, which the signal may have interrupted while writing
                os.write(2, f"\n{text}\n".encode())
