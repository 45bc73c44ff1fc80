"""9. R3: workers taken for dead that are not, on a machine with four times as many busy processes as cores.

    morpho bench cluster --only alarms                     # a minute
    morpho bench cluster --only alarms --count 60          # an hour; each minute is said when it is over

Four workers make texts all the time; the other processes compute without end.
"""

from __future__ import annotations

import subprocess
import sys
import time

from benchmarks.cluster.setup import PROMPT, alone, cut_plan, even_cuts, folder, pipeline
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.base.machine import machine

RANKS, TIMES, TOKENS = 4, 4, 16
BUSY = "while True: sum(range(1000))"


def run(session: Session) -> ThemeResult:
    """So many minutes, by default one; five seconds in quick mode."""
    result, table = ThemeResult("alarms"), Table("Texts on an oversubscribed machine", ["minute", "texts", "alarms"])
    result.tables.append(table)
    place = folder()
    expected = alone(place, TOKENS, None)
    wrong = alarms = 0
    with pipeline(place, cut_plan(place, even_cuts(place, RANKS)), streams=RANKS) as made:
        others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(TIMES * machine().cores - RANKS)]
        try:
            for minute in range(session.count or 1):
                texts, end = 0, time.monotonic() + (5.0 if session.quick else 60.0)
                while time.monotonic() < end:
                    found = [*made.generate([PROMPT] * RANKS, max_new_tokens=TOKENS, temperature=0)]
                    texts, wrong = texts + len(found), wrong + sum(text != expected for text in found)
                alarms = sum(event["event"] in ("gone", "silent") for event in made.events)
                table.rows.append([str(minute + 1), str(texts), str(alarms)])
                print(f"  minute {minute + 1}: {texts} texts, {alarms} alarms so far", flush=True)
        finally:
            for process in others:
                process.kill()
                process.wait()
    result.targets += [Target("workers taken for dead that were not", alarms, 0, False),
                       Target("texts that differ", wrong, 0, False)]
    return result
