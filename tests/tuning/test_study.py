"""The search's trials, which several processes share."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

from vendi_guidance.tuning.study import FIRST, JOURNAL, Search, Tuner

AT_ONCE = 8


def test_processes_that_begin_together_enqueue_the_first_trials_once(tmp_path):
    options = SimpleNamespace(output=tmp_path)
    ready = Barrier(AT_ONCE)

    def begin(_: int) -> list:
        tuner = Tuner(SimpleNamespace(options=options), Search(0.98, 8, False, 0), None)
        ready.wait()
        return tuner.finished()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert list(threads.map(begin, range(AT_ONCE))) == [[]] * AT_ONCE
    operations = map(json.loads, (tmp_path / JOURNAL).read_text().splitlines())
    enqueued = [one for one in operations if "fixed_params" in json.dumps(one)]
    assert len(enqueued) == len(FIRST)
