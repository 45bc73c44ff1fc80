"""2. R2 and R3: workers killed or stopped at random tokens; texts equal, how soon it is noticed and goes on.

    morpho bench cluster --only kills
    python -m benchmarks.cluster.kills --kills 200 --seed 1
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from dataclasses import dataclass, field

import numpy as np

from benchmarks.cluster.setup import PROMPT, alone, cut_plan, even_cuts, folder, pipeline
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster import Pipeline

RANKS, COUNT, BACK_S = 4, 40, 120.0


@dataclass
class Found:
    """What a series of kills gave."""

    correct: int = 0
    total: int = 0
    noticed_s: dict[str, list[float]] = field(default_factory=lambda: {"SIGKILL": [], "SIGSTOP": []})
    again_s: list[float] = field(default_factory=list)
    false_alarms: int = 0


def one(made: Pipeline, rng: np.random.Generator, expected: list[int], found: Found) -> None:
    """A text, with one worker hit at a random token; then that worker comes back."""
    node = str(rng.choice([place.node for place in made.places]))
    kind = signal.SIGKILL if rng.random() < 0.7 else signal.SIGSTOP
    at, begun, epoch, text = int(rng.integers(1, COUNT - 5)), 0.0, made.epoch, []
    for token in made.generate(PROMPT, max_new_tokens=COUNT, temperature=0.9, seed=5):
        text.append(token)
        now = time.time()
        if len(text) == at:
            epoch, begun = made.epoch, now
            os.kill(made.processes[node], kind)
        elif begun and made.epoch > epoch:
            found.again_s.append(now - begun)
            epoch = 1 << 30
    found.correct, found.total = found.correct + (text == expected), found.total + 1
    gone = [event for event in made.events if event["event"] == "gone" and event["time"] >= begun]
    found.noticed_s[kind.name] += [event["time"] - begun for event in gone if event["node"] == node]
    found.false_alarms += sum(event["node"] != node for event in gone)
    made.restore(node)
    end = time.monotonic() + BACK_S
    while node not in made.processes and time.monotonic() < end:
        time.sleep(0.01)


def series(kills: int, seed: int) -> Found:
    """So many kills, on one pipeline whose workers come back."""
    place, found, rng = folder(), Found(), np.random.default_rng(seed)
    expected = alone(place, COUNT, 5)
    with pipeline(place, cut_plan(place, even_cuts(place, RANKS))) as made:
        for _ in range(kills):
            one(made, rng, expected, found)
    return found


def run(session: Session) -> ThemeResult:
    """A dozen in quick mode is four."""
    found = series(4 if session.quick else 200, seed=1)
    result = ThemeResult("kills")
    table = Table("Workers killed in mid-text", ["signal", "times", "noticed (median)", "(worst)"])
    for name, times in found.noticed_s.items():
        if times:
            table.rows.append([name, str(len(times)), f"{np.median(times):.3f} s", f"{max(times):.3f} s"])
    result.tables.append(table)
    result.figures = {"noticed_s": found.noticed_s, "again_s": found.again_s}
    result.targets.append(Target(f"texts of {found.total} that differ", found.total - found.correct, 0, False))
    for name, bar in (("SIGKILL", 0.5), ("SIGSTOP", 2.0)):
        if found.noticed_s[name]:
            result.targets.append(Target(f"{name} noticed, worst", max(found.noticed_s[name]), bar, False, " s"))
    if found.again_s:
        result.targets.append(Target("next token after a kill, median", float(np.median(found.again_s)), 2.0, False,
                                     " s"))
    result.targets.append(Target("workers taken for dead that were not", found.false_alarms, 0, False))
    return result


def main() -> int:
    """The long series as a command; 1 where a text differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = series(given.kills, given.seed)
    print(f"{found.correct} of {found.total} texts correct, {found.false_alarms} false alarms")
    for name, times in found.noticed_s.items():
        if times:
            print(f"{name}: {len(times)}, noticed after {np.median(times):.3f} s (worst {max(times):.3f} s)")
    if found.again_s:
        print(f"next token after {np.median(found.again_s):.3f} s (worst {max(found.again_s):.3f} s)")
    return 0 if found.correct == found.total else 1


if __name__ == "__main__":
    sys.exit(main())
