"""Ctrl-C and SIGTERM: finish what is in hand, then stop."""

import os
import signal
from contextlib import suppress
from time import monotonic
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)

IMPATIENT = 1.0
"""Seconds after which another Ctrl-C is a second one. A launcher passes on the one that a terminal
has already sent to all its processes."""


class Stop:
    """Notices a request to stop, while it is entered as a context.

    Attributes:
        signal: what was received, or None.
        in_hand: what will be finished first, in words; None while there is nothing, and a signal
            ends the process at once, as a second Ctrl-C always does. Exit status is 128 + signal.
        is_silent: say nothing; other processes do.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.in_hand: str | None = None
        self.is_silent = False
        self._since = 0.0

    def __enter__(self) -> "Stop":
        self._before = {number: signal.signal(number, self._notice) for number in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _notice(self, number: int, _frame: FrameType | None) -> None:
        if self.in_hand is None:
            self._say("stopped: nothing was in hand")
            raise SystemExit(128 + number)
        if self.signal is None:
            self._say(f"finishing {self.in_hand}, then stopping; Ctrl-C again stops at once")
            self._since = monotonic()
        elif number == signal.SIGINT and monotonic() - self._since > IMPATIENT:
            self._say(f"stopped at once: {self.in_hand} will be made again by --resume")
            raise SystemExit(128 + number)
        self.signal = number

    def _say(self, text: str) -> None:
        if not self.is_silent:
            with suppress(OSError):
                # not by a stream of Python's: the signal may have come while that was writing
                os.write(2, f"\n{text}\n".encode())
