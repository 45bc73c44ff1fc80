"""A system that gives no more: threads, or memory when code is compiled. One sentence, and the process goes on."""

from __future__ import annotations

import os
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

NO_MEMORY = """
import mmap, resource
import morpho as mo
from morpho.backends.cpu.compiler import llvm
mo.ones(3).numpy()
x = mo.ones((50, 50)).realise()
used = int(open("/proc/self/statm").read().split()[0]) * mmap.PAGESIZE
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
try:
    print(mo.tan(x @ x).numpy())
except MemoryError as error:
    print(type(error).__name__, error)
resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)
print((x @ x)[0, 0].item())
"""


def test_no_memory_left_for_code_is_a_sentence() -> None:
    """LLVM by itself would end the process."""
    found = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, timeout=120, check=True,
                           env={**os.environ, "MORPHO_CACHE": "0"})
    refused, after = found.stdout.splitlines()
    assert refused.startswith("MemoryLimit [compile] the system gives no 64 MB for compiling code") and after == "50.0"


def test_programs_go_on_with_the_threads_that_there_are() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.split() == ["9000000.0", "300.0"] * 2
    assert found.stderr.count("gives 2 of 4 threads") == 1 and len(found.stderr.splitlines()) == 1, found.stderr


@pytest.mark.parametrize("threads", [4097, 2**40, 2**70])
def test_more_threads_than_a_process_has_are_refused(threads: int) -> None:
    with pytest.raises(ArgumentError, match=f"threads={threads} is more than 4096"), mo.settings(threads=threads):
        pass
