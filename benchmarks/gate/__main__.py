"""``python -m benchmarks.gate``: compare with the stored counts, or ``--store`` them."""

from __future__ import annotations

import argparse
import json
import sys
import time

from benchmarks.gate import collect, stored

SHOWN = 40


def main(arguments: list[str]) -> int:
    """0 where all counts are the stored ones."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gate", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose names begin so: core, kernels/linear, train, models")
    parser.add_argument("--store", action="store_true", help="write the counts of these cases anew")
    parser.add_argument("--part", type=int, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part is not None:
        found = {**collect.programs(options.only, options.part, collect.PARTS),
                 **collect.calls(options.only, options.part, collect.PARTS)}
        print(json.dumps(found))
        return 0
    started = time.perf_counter()
    found = collect.in_processes(options.only)
    print(f"GATE  {len(found)} cases counted in {time.perf_counter() - started:.0f} s")
    return judge(found, options.only, options.store)


def judge(found: stored.Table, only: str = "", store: bool = False) -> int:
    """Print what differs; store it if asked to."""
    here = collect.llvm_version()
    llvm, old = stored.load()
    same = llvm == here
    if old and not same:
        print(f"GATE  machine code was counted with LLVM {llvm}, this is LLVM {here}: {stored.ASSEMBLED} is left out")
    differences = stored.compare(old, found, assembled=same or store, only=only)
    for difference in differences[:SHOWN]:
        print(f"GATE  {difference.line()}")
    if len(differences) > SHOWN:
        print(f"GATE  and {len(differences) - SHOWN} more")
    worse = sum(difference.is_worse for difference in differences)
    if store:
        stored.save(here, stored.merged(old, found, only))
        print(f"GATE  stored {len(found)} cases: {worse} counts worse, {len(differences) - worse} better or new")
        return 0
    if not found:
        print(f"GATE  FAIL: no case begins with {only!r}")
        return 1
    if differences:
        print(f"GATE  FAIL: {worse} counts worse, {len(differences) - worse} better or new; a change that is meant is "
              "stored with `python -m benchmarks.gate --store`")
    else:
        print("GATE  PASS: all counts are the stored ones")
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
