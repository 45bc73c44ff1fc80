"""Count right first verdicts of whole scripts, and those that their remedy makes faster.

    python -m benchmarks.observe.scripts visit3a                  # after runs that fill the caches; with remedies
    python -m benchmarks.observe.scripts visit3a --fill --no-remedy
    python -m benchmarks.observe.scripts visit3a --empty          # an empty cache folder for each script
    python -m benchmarks.observe.scripts visit3a --only kmeans
    python -m benchmarks.observe.scripts visit4 --processor       # remedies by processor time, not by the clock
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from morpho.observe.analyse.analyser import analyse
from morpho.observe.trace.model import Trace

MORPHO = (sys.executable, "-m", "morpho")
LIMIT_S = 170
MARGIN = 1.05  # a script is faster by its remedy from here on


def field(text: str, name: str) -> list[str]:
    """The words behind `name:` in a script's docstring."""
    found = re.search(rf'^(?:""")?{name}: (.*)$', text, re.MULTILINE)
    return found.group(1).replace(",", " ").replace(" or ", " ").split() if found else []


def processor_s() -> float:
    """Processor time of all processes that were waited for, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: Sequence[str | Path], environment: dict[str, str],
        clock: Callable[[], float] = time.perf_counter) -> tuple[float, subprocess.CompletedProcess[str]]:
    """The seconds a command took, and what it printed."""
    start = clock()
    done = subprocess.run(
        [str(part) for part in command], env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    return clock() - start, done


def launcher(ranks: list[str]) -> list[str]:
    """What starts a script, on as many ranks as it wants."""
    return [*MORPHO, "launch", "-n", *ranks, "--"] if ranks else [sys.executable]


def gain(script: Path, ranks: list[str], environment: dict[str, str], clock: Callable[[], float]) -> float:
    """How many times faster the script is with its remedy, after a run that compiles."""
    taken = {}
    for words in ((), ("better",)) * 2:  # the second of each counts
        taken[words], done = run([*launcher(ranks), script, *words], environment, clock)
        if done.returncode:
            print(done.stderr[-600:])
    return taken[()] / taken[("better",)]


def main() -> None:
    """Profile every script of a folder; run it plainly and with the remedy."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observe.scripts", description="see the docstring")
    parser.add_argument("folder")
    parser.add_argument("--only", default="")
    parser.add_argument("--empty", action="store_true", help="profile with an empty cache folder for each script")
    parser.add_argument("--fill", action="store_true", help="run each script once before it is profiled")
    parser.add_argument("--no-remedy", action="store_true", help="count verdicts alone")
    parser.add_argument("--processor", action="store_true", help="remedies by processor time, for a machine that "
                        "others use; it says nothing of waiting and of threads")
    parser.add_argument("--words", type=int, default=6, help="lines of the report to print")
    options = parser.parse_args()
    right = faster = seen = 0
    for script in sorted((Path(__file__).parent / options.folder).glob("*.py")):
        if options.only not in script.stem:
            continue
        text = script.read_text(encoding="utf-8")
        expected, ranks = field(text, "expects"), field(text, "ranks")
        ratio = float("nan")
        if options.fill:
            run([*launcher(ranks), script], dict(os.environ))
        if not options.no_remedy:
            clock = processor_s if options.processor else time.perf_counter
            ratio = gain(script, ranks, dict(os.environ), clock)
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ) | ({"MORPHO_CACHE_DIR": folder} if options.empty else {})
            out = Path(folder) / "trace.json"
            several = ["-n", *ranks] if ranks else []
            _, done = run([*MORPHO, "profile", *several, "--out", out, script], environment)
            kinds = []
            if out.exists():
                found = analyse(Trace.of(json.loads(out.read_text(encoding="utf-8")), script.stem))
                kinds = [f"{verdict.kind} {100 * verdict.share:.0f} %" for verdict in found[:3]]
        if done.returncode:
            print(f"FAILED {script.stem}: {done.stderr[-600:]}")
        seen += 1
        good = bool(kinds) and kinds[0].split()[0] in expected
        right += good
        faster += ratio >= MARGIN
        print(f"{'right' if good else 'WRONG'}  {script.stem}: {' or '.join(expected)}; said {', '.join(kinds)}; "
              f"remedy {ratio:.2f} x; load {os.getloadavg()[0]:.0f}")
        report = [line for line in (done.stdout or done.stderr).splitlines() if line.strip()]
        print("\n".join(f"       {line}" for line in report[:options.words]), flush=True)
    print(f"{right} of {seen} first verdicts right, {faster} faster with the remedy")


if __name__ == "__main__":
    main()
