"""A system that gives no more threads: programs go on with those that there are."""

from __future__ import annotations

import subprocess
import sys

import pytest

import morpho as mo
from morpho.base.errors import ArgumentError

PROGRAM = """
import threading
import morpho as mo
start, started = threading.Thread.start, []
def limited(self):
    if started:
        raise RuntimeError("can't start new thread")
    started.append(self)
    start(self)
threading.Thread.start = limited
x, m = mo.ones((1500, 1500)), mo.ones((300, 300))
for _ in range(2):
    with mo.settings(threads=4):
        print((x * 3 + 1).sum().item(), (m @ m)[0, 0].item())
"""


def test_programs_go_on_with_the_threads_that_there_are() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.split() == ["9000000.0", "300.0"] * 2
    assert found.stderr.count("gives 2 of 4 threads") == 1 and len(found.stderr.splitlines()) == 1, found.stderr


@pytest.mark.parametrize("threads", [4097, 2**40, 2**70])
def test_more_threads_than_a_process_has_are_refused(threads: int) -> None:
    with pytest.raises(ArgumentError, match=f"threads={threads} is more than 4096"), mo.settings(threads=threads):
        pass
