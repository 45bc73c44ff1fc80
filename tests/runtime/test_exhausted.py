"""A system that gives no more: threads, or memory when code is compiled. One sentence, and the process goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
from morpho.backends.code.compiler import llvm
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

LARGE_WORK_SPACE = """
import resource
import morpho as mo
resource.setrlimit(resource.RLIMIT_AS, (6 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
try:
    mo.fft.fft(mo.ones(2**29)).numpy()
except MemoryError as error:
    print(error)
print(mo.fft.fft(mo.ones(4))[0].item())
"""

FULL_DISK = """
import os, resource, signal, sys
from pathlib import Path
import numpy as np
import morpho as mo
from morpho.cli.program.onnx import run
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
large, layer = mo.ones((300, 300)).realise(), mo.nn.Linear(300, 300)
rule = mo.optim.SGD(layer.parameters(), lr=0.1)
mo.onnx.save(lambda x: x + 1, folder / "m.onnx", large)
np.save(folder / "x.npy", np.ones((300, 300), np.float32))
before = sorted(os.listdir(folder))
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
for act in (lambda: mo.weights.save(folder / "w.safetensors", {"w": large}),
            lambda: mo.models.Checkpoints(folder / "checkpoints").write(1, layer, rule, {}),
            lambda: mo.onnx.save(lambda x: x + large, folder / "n.onnx", large),
            lambda: run([str(folder / "m.onnx")], [str(folder / "x.npy")], folder / "y.npy"),
            lambda: run([str(folder / "m.onnx")], [str(folder / "x.npy")], folder / "y.npz")):
    try:
        act()
    except mo.errors.MorphoError as error:
        print(error)
left = sorted(os.listdir(folder))
print(left == sorted([*before, "checkpoints"]), os.listdir(folder / "checkpoints"))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
print((mo.tan(large * 0) + 1).sum().item())  # compiled, and not kept
"""

NO_HANDLES = """
import os, resource, sys
from pathlib import Path
import morpho as mo
from morpho.serve.http.server import Options, bound
folder = Path(sys.argv[1])
mo.models.save(folder / "model", mo.models.create("mlp"))
mo.onnx.save(lambda x: x + 1, folder / "m.onnx", mo.ones(3))
mo.models.load(folder / "model"), mo.onnx.load(folder / "m.onnx")
x = mo.asarray([3.0, 1.0, 2.0]).realise()
computed = (lambda: mo.fft.ifft(mo.fft.fft(x)), lambda: mo.linalg.inv(mo.eye(3) * 2) @ x, lambda: mo.sort(x),
            lambda: mo.cumulative_sum(x), lambda: mo.zeros(3).at[mo.asarray([1])].add(1.0), lambda: x @ x,
            lambda: mo.fori_loop(0, 3, lambda i, c: c + i, x), lambda: mo.random.normal(mo.random.key(0), (3,)))
resource.setrlimit(resource.RLIMIT_NOFILE, (40, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
handles = []
try:
    while True:
        handles.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for act in (lambda: mo.weights.load(folder / "model"), lambda: mo.models.load(folder / "model"),
            lambda: mo.onnx.load(folder / "m.onnx"), lambda: bound(Options(port=0)),
            lambda: mo.weights.save(folder / "w.safetensors", {"w": mo.ones(3)})):
    try:
        act()
    except mo.errors.MorphoError as error:
        print(error)
for act in computed:
    try:
        act().numpy()
    except mo.errors.CompileError as error:
        print(error)
for handle in handles:
    os.close(handle)
print(sum(float(mo.real(act()).sum().item()) > -9 for act in computed))
print(mo.weights.load(folder / "model") is not None)
"""


def lines_of(program: str, folder: Path) -> list[str]:
    result = subprocess.run([sys.executable, "-c", program, str(folder)], capture_output=True, text=True, timeout=120,
                            env={**os.environ, "MORPHO_CACHE_DIR": str(folder.parent / "cache")})
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_no_room_on_the_disk_is_a_sentence(tmp_path: Path) -> None:
    """Weights, checkpoints, ONNX files and the results of `morpho run`; nothing half written is left. Code is compiled
    and not kept."""
    (folder := tmp_path / "files").mkdir()
    *refused, clean, total = lines_of(FULL_DISK, folder)
    assert len(refused) == 5 and all("cannot be written: File too large" in line and "free some space" in line
                                     for line in refused), refused
    assert clean == "True []" and total == "90000.0"


def test_no_file_handles_is_a_sentence(tmp_path: Path) -> None:
    (folder := tmp_path / "files").mkdir()
    *refused, computed, after = lines_of(NO_HANDLES, folder)
    assert len(refused) >= 10 and all("Too many open files" in line for line in refused) and after == "True", refused
    assert all("[load] the system gives no handle to load morpho." in line for line in refused[5:]), refused
    assert all("At <string>:" in line for line in refused[5:]) and computed == "8", refused


def test_no_memory_left_for_code_is_a_sentence() -> None:
    """LLVM by itself would end the process."""
    found = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True, timeout=120, check=True,
                           env={**os.environ, "MORPHO_CACHE": "0"})
    refused, after = found.stdout.splitlines()
    assert refused.startswith("MemoryLimit [compile] the system gives no 64 MB for compiling code") and after == "50.0"


def test_code_whose_work_space_no_memory_holds_is_a_sentence() -> None:
    found = subprocess.run([sys.executable, "-c", LARGE_WORK_SPACE], capture_output=True, text=True, timeout=120,
                           check=True, env={**os.environ, "MORPHO_CACHE": "0"})
    refused, after = found.stdout.splitlines()
    assert refused.startswith("[compile] the system gives no ") and "MB for compiling code" in refused
    assert after == "(4+0j)"


def test_programs_go_on_with_the_threads_that_there_are() -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    assert found.stdout.split() == ["9000000.0", "300.0"] * 2
    assert found.stderr.count("gives 2 of 4 threads") == 1 and len(found.stderr.splitlines()) == 1, found.stderr


@pytest.mark.parametrize("threads", [4097, 2**40, 2**70])
def test_more_threads_than_a_process_has_are_refused(threads: int) -> None:
    with pytest.raises(ArgumentError, match=f"threads={threads} is more than 4096"), mo.settings(threads=threads):
        pass


def test_threads_that_are_refused_leave_none_behind() -> None:
    before = os.listdir("/proc/self/task")
    with pytest.raises(ArgumentError, match="more than 4096"), mo.settings(threads=10000):
        mo.ones((1000, 1000)).sum().item()
    assert len(os.listdir("/proc/self/task")) <= len(before)
    assert mo.ones(3).sum().item() == 3
