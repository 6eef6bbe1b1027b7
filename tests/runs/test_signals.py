"""Ctrl-C and SIGTERM."""

import os
import signal

import pytest

from vendi_guidance.runs.signals import Stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_between_batches_a_signal_ends_the_process_at_once(number, capfd):
    with pytest.raises(SystemExit) as ended, Stop() as stop:
        stop.in_batch = True
        stop.in_batch = False  # as between runs
        os.kill(os.getpid(), number)
    assert ended.value.code == 128 + number
    assert capfd.readouterr().err == "\nstopped: no image is lost\n"
