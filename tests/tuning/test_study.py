"""The search's trials, which several processes share."""

import json
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

from vendi_guidance.evaluation.judging import Outcome
from vendi_guidance.tuning.study import FIRST, JOURNAL, Search, Trial, Tuner

AT_ONCE = 8


def test_processes_that_begin_together_enqueue_the_first_trials_once(tmp_path):
    options = SimpleNamespace(output=tmp_path)
    ready = Barrier(AT_ONCE)

    def begin(_: int) -> list:
        tuner = Tuner(SimpleNamespace(options=options), Search(0.98, 8, 0), None)
        ready.wait()
        return tuner.finished()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        assert list(threads.map(begin, range(AT_ONCE))) == [[]] * AT_ONCE
    operations = map(json.loads, (tmp_path / JOURNAL).read_text().splitlines())
    enqueued = [one for one in operations if "fixed_params" in json.dumps(one)]
    assert len(enqueued) == len(FIRST)


def test_the_best_is_the_most_diverse_that_keeps_enough():
    search = Search(keep=0.9, trials=8, seed=0)
    found = [(3.0, 0.89), (2.0, 0.9), (1.5, 1.0)]
    trials = [
        Trial(1.0, Outcome(diversity, (1.0, 9.0), kept, None, 2 * diversity, 0.5))
        for diversity, kept in found
    ]
    assert search.best(trials) is trials[1]
    assert search.best(trials[:1]) is None
