"""``python -m benchmarks.observe.verdicts``: every pathological program profiled; the share of right first verdicts,
and how much faster the program is with the advice applied.

``--stored`` prints the table from the stored traces, without running anything; ``--record`` stores
the traces in tests/observe/traces, where the test suite reads them: no timing there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import morpho as mo
from benchmarks.observe.pathologies import Pathology, Program, all_pathologies
from morpho.observe.analyse.analyser import analyse
from morpho.observe.trace.model import Trace

TRACES = Path(__file__).parents[2] / "tests" / "observe" / "traces"
MOST_SPANS = 40  # of one kind and name in a stored trace; totals are kept whole


def slug(name: str) -> str:
    """A file's name for a program.

    >>> slug("NumPy between calls")
    'numpy_between_calls'
    """
    return re.sub(r"\W+", "_", name.lower()).strip("_")


def profiled(one: Pathology, program: Program) -> Trace:
    """The trace of the bad version."""
    if not one.cold:
        program.bad()
    with mo.profile(one.name) as p:
        program.bad()
    return p.trace


def seconds(run: Callable[[], object], rounds: int) -> float:
    """The least of a few rounds."""
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return min(times)


def speed_up(one: Pathology, program: Program, rounds: int) -> float:
    """How many times faster the good version is, the two in turn."""
    if not one.cold:
        program.good()
    pairs = [(seconds(program.bad, 1), seconds(program.good, 1)) for _ in range(rounds)]
    return min(bad for bad, _ in pairs) / min(good for _, good in pairs)


def slim(trace: Trace) -> Trace:
    """What the analyser reads and little more: no events, no machine's paths, few spans."""
    trace.events, trace.stacks, trace.holders, trace.host = [], {}, [], ""
    trace.memory = trace.memory[:1]
    trace.lines = {Path(line).name: sampled_s for line, sampled_s in trace.lines.items()}
    short = {number: thread for thread, number in enumerate(trace.threads)}
    trace.threads = {short[number]: name for number, name in trace.threads.items()}
    kept, seen = [], {}
    for span in trace.spans:
        key = span.kind, span.name
        seen[key] = seen.get(key, 0) + 1
        span.thread = short.get(span.thread, 0)
        span.detail = {name: Path(value).name if name == "line" else value for name, value in span.detail.items()}
        if seen[key] <= MOST_SPANS or span.kind in ("compile", "trace"):
            kept.append(span)
    trace.spans = kept
    for row in trace.ops:
        row.line = Path(row.line).name if row.line else ""
    trace.machine = {name: value for name, value in trace.machine.items() if name != "cpu"}
    return trace


def store(one: Pathology, trace: Trace) -> None:
    """Keep a trace for the tests, with the verdicts that are right."""
    TRACES.mkdir(parents=True, exist_ok=True)
    written = {"name": one.name, "kinds": list(one.kinds), "trace": slim(trace).as_json()}
    text = json.dumps(written, separators=(",", ":"))
    (TRACES / f"{slug(one.name)}.json").write_text(
        re.sub(r"\d+\.\d{7,}(e[-+]?\d+)?|\d\.\d+e-\d+", lambda found: f"{float(found[0]):.6g}", text) + "\n",
        encoding="utf-8")


def stored() -> int:
    """The table of the stored traces: what the analyser says of each today."""
    rows = []
    for one in all_pathologies().values():
        read = json.loads((TRACES / f"{slug(one.name)}.json").read_text(encoding="utf-8"))
        found = analyse(Trace.of(read["trace"], one.name))
        rows.append((one, found[0].kind if found else "nothing"))
        print(f"{'ok ' if rows[-1][1] in one.kinds else 'BAD'} {one.name:48s} {rows[-1][1]:11s} "
              f"{'/'.join(one.kinds):20s} {'another author' if by_another(one) else ''}".rstrip())
    right = sum(kind in one.kinds for one, kind in rows)
    others = [(one, kind) for one, kind in rows if by_another(one)]
    print(f"{right} of {len(rows)} first verdicts right ({100 * right / len(rows):.0f} %); of {len(others)} by an "
          f"author who had not read the analyser {sum(kind in one.kinds for one, kind in others)}")
    return int(right < 0.9 * len(rows))


def by_another(one: Pathology) -> bool:
    """Whether somebody wrote it who had not read the analyser."""
    return one.make.__module__.rpartition(".")[2].startswith("others_")


def main(arguments: list[str]) -> int:
    """Run, print, and end with 1 where fewer than 90 % of first verdicts are right."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe.verdicts", description=__doc__)
    parser.add_argument("--only", default="", help="programs with this in their name")
    parser.add_argument("--record", action="store_true", help="store the traces for the tests")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the speed-up (3); 0: no speed-up")
    parser.add_argument("--stored", action="store_true", help="read the stored traces instead: nothing runs")
    chosen = parser.parse_args(arguments)
    if chosen.stored:
        return stored()
    right = faster = count = 0
    for one in all_pathologies().values():
        if chosen.only.lower() not in one.name.lower():
            continue
        program = one.make()
        trace = profiled(one, program)
        found = analyse(trace)
        first = found[0].kind if found else "nothing"
        gain = speed_up(one, program, chosen.rounds) if chosen.rounds else 0.0
        program.close()
        if chosen.record:
            store(one, trace)
        count, right, faster = count + 1, right + (first in one.kinds), faster + (gain > 1.05)
        mark = "ok " if first in one.kinds else "BAD"
        print(f"{mark} {one.name:48s} {first:11s} {'/'.join(one.kinds):20s} {gain:7.2f} x", flush=True)
        if first not in one.kinds:
            print(f"      {'; '.join(f'{v.kind} {100 * v.share:.0f} %' for v in found)}")
    print(f"{right} of {count} first verdicts right ({100 * right / max(count, 1):.0f} %); "
          f"{faster} of {count} faster with the advice applied ({100 * faster / max(count, 1):.0f} %)")
    return int(right < 0.9 * count)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
