"""The commit that made a case worse: `git bisect run` in a temporary worktree, on a ratio, a count or any number.

    morpho bench bisect GOOD BAD "gelu/gelu L1 vs numpy"                    # a ratio: more is better
    morpho bench bisect GOOD BAD kernels/linear --counter launches          # a count of benchmarks.gate: less is better
    morpho bench bisect GOOD BAD size --command "python count.py"           # the last number it prints: less is better

A commit is bad where its figure is nearer to that of BAD than to that of GOOD; one that cannot be measured is skipped.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SKIP, LEAST_DIFFERENCE = 125, 0.03
LIMIT_S = 1800


class BisectError(ValueError):
    """What is wrong, in one sentence."""


@dataclass(frozen=True)
class Figure:
    """What is measured in a checkout."""

    case: str
    counter: str = ""
    command: str = ""

    @property
    def more_is_better(self) -> bool:
        return not self.counter and not self.command

    def measure(self, checkout: Path) -> float:
        """The figure of a checkout, with its own benchmarks and its own source."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(checkout / "src"), str(checkout)])}
        if self.command:
            return _last_number(_output(shlex.split(self.command), checkout, environment))
        if self.counter:
            return self._count(checkout, environment)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "out.json"
            suite, theme = suite_of(self.case), self.case.split("/")[0]
            _output([sys.executable, "-m", "benchmarks", suite, "--only", theme, "--quick", "--json", str(out)],
                    checkout, environment)
            ratios = json.loads(out.read_text())["ratios"]
        if self.case not in ratios:
            raise BisectError(f"[bench] {checkout.name} has no ratio {self.case!r}.")
        return float(ratios[self.case])

    def _count(self, checkout: Path, environment: dict[str, str]) -> float:
        """The sum of a count over cases that begin so, and over all machines."""
        program = ("import json\nfrom benchmarks.gate import collect\n"
                   f"case = {self.case!r}\n"
                   "print(json.dumps({**collect.programs(case, 0, 1), **collect.calls(case, 0, 1)}))")
        table = json.loads(_output([sys.executable, "-c", program], checkout, environment).strip().splitlines()[-1])
        found = [counts[self.counter] for targets in table.values() for counts in targets.values()
                 if self.counter in counts]
        if not found:
            names = sorted({name for targets in table.values() for counts in targets.values() for name in counts})
            raise BisectError(f"[bench] no case begins with {self.case!r} and counts {self.counter!r}"
                              + (f": there are {', '.join(names)}." if names else "."))
        return float(sum(found))


def suite_of(case: str) -> str:
    """The suite that a ratio's theme belongs to."""
    from benchmarks.harness.run import SUITES

    theme = case.split("/")[0]
    found = [name for name, suite in SUITES.items() if theme in suite.themes]
    if not found or "/" not in case:
        raise BisectError(f"[bench] {case!r} is no ratio: it begins with a theme, as in `gelu/gelu L1 vs numpy`.")
    return found[0]


def _output(command: list[str], checkout: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise BisectError(f"[bench] {shlex.join(command[:4])} failed with {done.returncode}: {' '.join(last)[:200]}")
    return done.stdout


def _last_number(text: str) -> float:
    for word in reversed(text.split()):
        try:
            value = float(word)
        except ValueError:
            continue
        if math.isfinite(value) and value > 0:
            return value
    raise BisectError("[bench] the command printed no positive number.")


def is_bad(value: float, good: float, bad: float) -> bool:
    """Whether a figure is nearer to the bad one, by its logarithm.

    >>> is_bad(1.9, 1.0, 2.0), is_bad(1.2, 1.0, 2.0), is_bad(0.6, 1.0, 0.5)
    (True, False, True)
    """
    return abs(math.log(value / bad)) < abs(math.log(value / good))


def find_commit(checkout: Path, good: str, bad: str, case: str, counter: str = "", command: str = "") -> int:
    """Find and print the first bad commit; 0, or 1 where none was found, 2 on a mistake."""
    figure = Figure(case, counter, command)
    try:
        first, last = (_commit(checkout, name) for name in (good, bad))
        if subprocess.run(["git", "merge-base", "--is-ancestor", first, last], cwd=checkout).returncode:
            raise BisectError(f"[bench] {good} is not an ancestor of {bad}.")
        if figure.more_is_better:
            suite_of(case)
        with tempfile.TemporaryDirectory(prefix="morpho-bisect-") as folder:
            place = Path(folder) / "checkout"
            _git(checkout, "worktree", "add", "--detach", "--quiet", str(place), last)
            try:
                return _bisect(place, first, last, figure)
            finally:
                subprocess.run(["git", "bisect", "reset"], cwd=place, capture_output=True)
                _git(checkout, "worktree", "remove", "--force", str(place))
    except (BisectError, subprocess.TimeoutExpired) as error:
        print(error)
        return 2


def _bisect(place: Path, first: str, last: str, figure: Figure) -> int:
    bad = figure.measure(place)
    _git(place, "checkout", "--quiet", first)
    good = figure.measure(place)
    print(f"good {first[:12]}: {good:g}; bad {last[:12]}: {bad:g}", flush=True)
    worse = good / bad if figure.more_is_better else bad / good
    if worse < 1 + LEAST_DIFFERENCE:
        raise BisectError(f"[bench] {last[:12]} is not worse than {first[:12]}: nothing to bisect.")
    _git(place, "bisect", "start", last, first)
    given = json.dumps([figure.case, figure.counter, figure.command, good, bad])
    here = Path(__file__).resolve()
    step = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(here.parents[2])!r})\n"
            f"from benchmarks.harness.bisect import step\nsys.exit(step({given!r}))"]
    done = subprocess.run(["git", "bisect", "run", *step], cwd=place, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("figure "):
            print(line, flush=True)
    found = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("is the first bad commit")]
    if not found:
        print("[bench] no commit was found: " + " ".join((done.stderr or done.stdout).strip().splitlines()[-2:])[:300])
        return 1
    print(f"first bad commit: {_git(place, 'show', '--no-patch', '--format=%h %an %as %s', found[0])}")
    return 0


def step(given: str) -> int:
    """One commit of a bisection, in the current folder: 0 good, 1 bad, 125 cannot be measured."""
    case, counter, command, good, bad = json.loads(given)
    place = Path.cwd()
    try:
        value = Figure(case, counter, command).measure(place)
    except (BisectError, subprocess.TimeoutExpired, ValueError, OSError, KeyError) as error:
        print(f"figure {_git(place, 'rev-parse', '--short=12', 'HEAD')} skipped: {error}", flush=True)
        return SKIP
    wrong = is_bad(value, good, bad)
    print(f"figure {_git(place, 'rev-parse', '--short=12', 'HEAD')} {value:g} {'bad' if wrong else 'good'}", flush=True)
    return 1 if wrong else 0


def _commit(checkout: Path, name: str) -> str:
    try:
        return _git(checkout, "rev-parse", "--verify", f"{name}^{{commit}}")
    except BisectError:
        raise BisectError(f"[bench] {name} is no commit of {checkout.name}. Hint: `git log --oneline` "
                          "lists them.") from None


def _git(place: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=place, capture_output=True, text=True)
    if done.returncode:
        raise BisectError(f"[bench] git {' '.join(words[:2])}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return done.stdout.strip()
