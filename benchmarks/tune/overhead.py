"""3. What exploring costs a program that runs meanwhile: at most one hundredth of the time.

    morpho bench tune --only overhead
"""

from __future__ import annotations

import statistics
import threading
import time

import numpy as np

import morpho as mo
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from benchmarks.tune.programs import own_choices
from morpho.runtime.tuner.background import Background

WINDOW_S = 0.5


def run(session: Session) -> ThemeResult:
    """A program calls a function all the time; in every other window the tuner explores beside it."""
    result = ThemeResult("overhead")
    windows = 20 if session.quick else 60
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    with mo.settings(threads=session.threads), own_choices():
        compiled, x = mo.compile(lambda x, w: mo.gelu(x @ w)), mo.asarray(weight, copy=True)
        compiled(x, x)
        assert compiled.current is not None
        plan, rates = compiled.current.plan, ([], [])  # type: tuple[object, tuple[list[float], list[float]]]
        worker = Background(sleep=lambda seconds: time.sleep(min(seconds, 0.05)))
        settings = mo.settings(threads=session.threads)

        def explore() -> None:
            with settings:
                while not worker.is_over:
                    worker.looked.clear()
                    worker.explore(plan)

        thread = threading.Thread(target=explore, daemon=True)
        for number in range(windows):
            if number == 1:
                worker.ration.started_s = worker.clock()
                thread.start()
            rates[number % 2 if number else 0].append(_rate(lambda: compiled(x, x)))
        elapsed_s = worker.clock() - worker.ration.started_s
        share = worker.ration.spent_s / elapsed_s
        worker.stop()
        thread.join(timeout=60)
        alone = _rate(lambda: compiled(x, x))
    beside = statistics.median([*rates[0][1:], *rates[1]])
    result.tables.append(Table("Exploring beside a program",
                               ["calls/s alone", "beside the tuner", "spent on exploring"],
                               [[f"{alone:.0f}", f"{beside:.0f}", f"{share:.2%}"]]))
    result.targets += [Target("share of the time spent on exploring", 100 * share, 1.0, False, " %"),
                       Target("calls beside the tuner over calls alone", beside / alone, 0.99)]
    result.ratios["calls beside the tuner over calls alone"] = beside / alone
    return result


def _rate(call: object) -> float:
    assert callable(call)
    started, count = time.perf_counter(), 0
    while time.perf_counter() - started < WINDOW_S:
        call()
        count += 1
    return count / (time.perf_counter() - started)
