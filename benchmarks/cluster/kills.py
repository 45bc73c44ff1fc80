"""2. R2 and R3: workers killed or stopped at random tokens; texts equal, how soon it is noticed and goes on.

    morpho bench cluster --only kills                        # a dozen
    morpho bench cluster --only kills --count 200            # each is said when it is over
    python -m benchmarks.cluster.kills --kills 200 --seed 1 --at-once 3

Every fourth text has a prompt of a thousand tokens: what a recovery must read again.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass, field

import numpy as np

from benchmarks.cluster.setup import PROMPT, alone, cut_plan, even_cuts, folder, pipeline
from benchmarks.harness.results import Table, Target, ThemeResult
from benchmarks.harness.session import Session
from morpho.cluster import Pipeline

RANKS, COUNT, BACK_S = 4, 40, 120.0
LONG = tuple(int(word) for word in np.random.default_rng(3).integers(3, 500, 1000))  # a prompt of a thousand tokens
EVERY = 4  # text with that prompt


@dataclass
class Found:
    """What a series of kills gave."""

    correct: int = 0
    total: int = 0
    noticed_s: dict[str, list[float]] = field(default_factory=lambda: {"SIGKILL": [], "SIGSTOP": []})
    again_s: dict[str, list[float]] = field(default_factory=lambda: {"8 tokens": [], "1k tokens": []})
    false_alarms: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


def one(made: Pipeline, rng: np.random.Generator, prompt: tuple[int, ...], expected: list[int], found: Found) -> str:
    """A text, with one worker hit at a random token; then that worker comes back. What happened, as a line."""
    node = str(rng.choice([place.node for place in made.places]))
    kind = signal.SIGKILL if rng.random() < 0.7 else signal.SIGSTOP
    at, begun, epoch, text, again = int(rng.integers(1, COUNT - 5)), 0.0, made.epoch, list[int](), float("nan")
    for token in made.generate([*prompt], max_new_tokens=COUNT, temperature=0.9, seed=5):
        text.append(token)
        now = time.time()
        if len(text) == at:
            epoch, begun = made.epoch, now
            os.kill(made.processes[node], kind)
        elif begun and made.epoch > epoch:
            again, epoch = now - begun, 1 << 30
    gone = [event for event in made.events if event["event"] == "gone" and event["time"] >= begun]
    noticed = [event["time"] - begun for event in gone if event["node"] == node]
    with found.lock:
        found.correct, found.total = found.correct + (text == expected), found.total + 1
        found.noticed_s[kind.name] += noticed
        if again == again:
            found.again_s["1k tokens" if prompt is LONG else "8 tokens"].append(again)
        found.false_alarms += sum(event["node"] != node for event in gone)
        told = (f"{found.total}: {kind.name} to {node} at token {at} of a prompt of {len(prompt)}; "
                f"{'equal' if text == expected else 'DIFFERS'}; noticed after {max(noticed, default=0):.3f} s, next "
                f"token after {again:.3f} s")
    made.restore(node)
    end = time.monotonic() + BACK_S
    while node not in made.processes and time.monotonic() < end:
        time.sleep(0.01)
    return told


def series(kills: int, seed: int, at_once: int = 1) -> Found:
    """So many kills, on pipelines whose workers come back; each is said when it is over."""
    place, found, left = folder(), Found(), iter(range(kills))
    expected = {prompt: alone(place, COUNT, 5, prompt) for prompt in (tuple(PROMPT), LONG)}

    def run(number: int) -> None:
        rng = np.random.default_rng((seed, number))
        with pipeline(place, cut_plan(place, even_cuts(place, RANKS))) as made:
            while (kill := next(left, None)) is not None:
                prompt = LONG if kill % EVERY == EVERY - 1 else tuple(PROMPT)
                begun = time.monotonic()
                told = one(made, rng, prompt, expected[prompt], found)
                print(f"  {told}; all back after {time.monotonic() - begun:.1f} s", flush=True)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(at_once)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def run(session: Session) -> ThemeResult:
    """A dozen, or as many as are asked for; four in quick mode."""
    kills = session.count or (4 if session.quick else 12)
    found = series(kills, seed=1)
    result = ThemeResult("kills")
    table = Table("Workers killed in mid-text", ["signal", "times", "noticed (median)", "(worst)"])
    for name, times in found.noticed_s.items():
        if times:
            table.rows.append([name, str(len(times)), f"{np.median(times):.3f} s", f"{max(times):.3f} s"])
    result.tables.append(table)
    result.figures = {"noticed_s": found.noticed_s, "again_s": found.again_s}
    result.targets.append(Target(f"texts of {kills} that differ or never came", kills - found.correct, 0, False))
    for name, bar in (("SIGKILL", 0.5), ("SIGSTOP", 2.0)):
        if found.noticed_s[name]:
            result.targets.append(Target(f"{name} noticed, worst", max(found.noticed_s[name]), bar, False, " s"))
    for name, times in found.again_s.items():
        if times:
            result.targets.append(Target(f"next token after a kill, prompt of {name}, median", float(np.median(times)),
                                         2.0, False, " s"))
    result.targets.append(Target("workers taken for dead that were not", found.false_alarms, 0, False))
    return result


def main() -> int:
    """The long series as a command; 1 where a text differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=1, help="pipelines of four workers, each with its own kills")
    given = parser.parse_args()
    found = series(given.kills, given.seed, given.at_once)
    print(f"{found.correct} of {found.total} texts correct, {found.false_alarms} false alarms")
    for name, times in {**found.noticed_s, **{f"next token, {key}": value for key, value in found.again_s.items()}
                        }.items():
        if times:
            print(f"{name}: {len(times)}, after {np.median(times):.3f} s (worst {max(times):.3f} s)")
    return 0 if found.correct == found.total == given.kills else 1


if __name__ == "__main__":
    sys.exit(main())
