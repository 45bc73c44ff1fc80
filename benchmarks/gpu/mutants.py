"""Whether tests see faults in the code of kernels: `python -m benchmarks.gpu.mutants [words of names]`.

Each mutant is one textual replacement in a copy of the package: a barrier less, another comparison in a mask, another
stride or index. The named tests run on the copy, and fail if they are worth anything. The exit status is the number of
mutants that survive.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS, TAILS = "tests/backends/cuda", "test_tails.py"
LIMIT_S = 150  # threads that wait for ever are caught too
BARRIER = "e.barrier()"
ATTENTION = "test_kernels.py -k attention_by_warpgroups"


@dataclass(frozen=True)
class Mutant:
    """A fault: the `number`-th place of `old` in a module becomes `new`."""

    name: str
    module: str
    old: str
    new: str
    tests: str  # a file and a selection in it
    number: int = 0

    def applied(self, text: str) -> str:
        """The module with the fault."""
        parts = text.split(self.old)
        if len(parts) < self.number + 2:
            raise SystemExit(f"{self.name}: {self.module} has no such place {self.number}: {self.old!r}")
        head, tail = self.old.join(parts[:self.number + 1]), self.old.join(parts[self.number + 1:])
        return head + self.new + tail


MUTANTS = [
    Mutant("map: a row behind the last", "codegen/maps.py", "e.loop(thread, rows * pieces,",
           "e.loop(thread, rows * pieces + 1,", f"{TAILS} -k map"),
    Mutant("map: the column of another row", "codegen/maps.py", "(loop.index - row * pieces) * self.lanes",
           "(loop.index - row * pieces + 1) * self.lanes", f"{TAILS} -k map"),
    Mutant("rows: a row behind the last", "codegen/rows.py", 'self.valid = e.icmp("slt", mine, rows)',
           'self.valid = e.icmp("sle", mine, rows)', f"{TAILS} -k rows"),
    Mutant("rows: columns behind the last are summed", "codegen/rows.py",
           'joined = e.select(e.icmp("slt", column, end), joined, new[slot])',
           'joined = e.select(e.icmp("sle", column, end), joined, new[slot])', f"{TAILS} -k rows"),
    Mutant("rows: a column behind the last is stored", "codegen/rows.py",
           'None if end is None else e.icmp("slt", column, end))',
           'None if end is None else e.icmp("sle", column, end))',
           f"{TAILS} -k rows"),
    Mutant("rows: no barrier behind the blocks", "codegen/rows.py", "        if reductions:\n            e.barrier()\n",
           "", f"{TAILS} -k rows"),
    Mutant("long rows: no barrier between levels", "codegen/long_rows.py", "            e.barrier()\n", "",
           f"{TAILS} -k long"),
    Mutant("long rows: a pair without its second", "codegen/long_rows.py", 'e.icmp("slt", at + apart, blocks)',
           'e.icmp("sle", at + apart, blocks)', f"{TAILS} -k long"),
    Mutant("long rows: pairs in another order", "codegen/long_rows.py", "at = loop.index * (apart * 2)",
           "at = loop.index * apart", f"{TAILS} -k long"),
    Mutant("columns: no barrier behind the lanes", "gradients/columns.py", "e.barrier()", "pass",
           f"{TAILS} -k columns", 1),
    Mutant("columns: no barrier behind the sum", "gradients/columns.py", "e.barrier()", "pass",
           f"{TAILS} -k columns", 2),
    Mutant("columns: no barrier behind the blocks", "gradients/columns.py", "e.barrier()", "pass",
           f"{TAILS} -k columns", 0),
    Mutant("columns: a column behind the last", "gradients/columns.py", 'e.icmp("slt", row, rows)',
           'e.icmp("sle", row, rows)', f"{TAILS} -k columns"),
    Mutant("product: no barrier before the tile is read", "gemm/simt.py", BARRIER, "pass", f"{TAILS} -k product", 0),
    Mutant("product: no barrier before the next tile", "gemm/simt.py", BARRIER, "pass", f"{TAILS} -k product", 1),
    Mutant("product: values behind k", "gemm/simt.py", 'e.icmp("slt", depth + k, self.frame.k)',
           'e.icmp("sle", depth + k, self.frame.k)', f"{TAILS} -k product"),
    Mutant("product: a column behind the last", "gemm/simt.py", 'e.icmp("slt", column, frame.n)',
           'e.icmp("sle", column, frame.n)', f"{TAILS} -k product"),
    Mutant("product: strides changed places", "gemm/simt.py", "(start + line) * step + (depth + k) * along",
           "(start + line) * along + (depth + k) * step", f"{TAILS} -k product"),
    Mutant("attention: no barrier before keys are loaded", "attention/simt/forward.py", BARRIER, "pass",
           f"{TAILS} -k attention", 0),
    Mutant("attention: no barrier behind them", "attention/simt/forward.py", BARRIER, "pass",
           f"{TAILS} -k attention", 1),
    Mutant("attention: no barrier of the warp", "attention/simt/forward.py",
           '        e.line("call void @gpu.warp_barrier(ptr %ctx)")\n', "", f"{TAILS} -k attention"),
    Mutant("attention: a query behind the last", "attention/simt/forward.py", 'e.icmp("slt", query, self.n["queries"])',
           'e.icmp("sle", query, self.n["queries"])', f"{TAILS} -k attention"),
    Mutant("attention: a key behind the last", "attention/simt/tiles.py", 'e.icmp("slt", key, n["keys"])',
           'e.icmp("sle", key, n["keys"])', f"{TAILS} -k attention"),
    Mutant("convolution: values behind k", "gemm/conv.py", 'e.icmp("slt", depth + k, self.frame.k)',
           'e.icmp("sle", depth + k, self.frame.k)', f"{TAILS} -k convolved"),
    Mutant("convolution: half floats behind k", "gemm/conv.py", 'e.icmp("slt", k, f.k)', 'e.icmp("sle", k, f.k)',
           f"{TAILS} -k convolved"),
    Mutant("convolution: a row behind the last", "gemm/conv.py", 'e.icmp("slt", row, frame.m)',
           'e.icmp("sle", row, frame.m)', f"{TAILS} -k convolution"),
    Mutant("warpgroups: a stage is filled before it is empty", "gemm/half/wgmma.py",
           'self.call("mbarrier_wait", full + 8, phase ^ 1)', "pass", "test_generation.py -k rows_have"),
    Mutant("warpgroups: a stage is read before it is full", "gemm/half/wgmma.py",
           'self.call("mbarrier_wait", full, phase)', "pass", "test_generation.py -k rows_have"),
    Mutant("warpgroups: sums are taken before they are there", "gemm/half/handover.py", "self.wait(READY, turn)",
           "pass", "test_kernels.py -k handed"),
    Mutant("warpgroups: keys are loaded before they were read", "attention/hopper.py",
           'self.call("mbarrier_wait", self.ring(stage, 2), phase ^ 1)', "pass", ATTENTION),
    Mutant("sort: an element behind the last", "sorting/radix.py", 'e.icmp("slt", first + number, self.length)',
           'e.icmp("sle", first + number, self.length)', f"{TAILS} -k sorted"),
    Mutant("sort: no barrier before counting", "sorting/radix.py", BARRIER, "pass", f"{TAILS} -k sorted", 0),
    Mutant("sort: no barrier behind counting", "sorting/radix.py", BARRIER, "pass", f"{TAILS} -k sorted", 1),
    Mutant("sort: no barrier in the sum of threads", "sorting/radix.py", BARRIER, "pass", f"{TAILS} -k sorted", 4),
    Mutant("sort: an own number too many", "sorting/radix.py", 'has = e.icmp("sge", self.thread, step)',
           'has = e.icmp("sgt", self.thread, step)', f"{TAILS} -k sorted"),
    Mutant("scatter: an item behind the last", "gradients/scatter_lines.py", 'e.icmp("slt", item, items)',
           'e.icmp("sle", item, items)', "test_scatter_lines.py -k float32-sum"),
    Mutant("scatter: no barrier behind the zeros", "gradients/scatter.py", BARRIER, "pass", f"{TAILS} -k added", 0),
    Mutant("scatter: the first index alone", "gradients/scatter.py", 'e.icmp("slt", loop.index, block)',
           'e.icmp("sle", loop.index, block)', f"{TAILS} -k added"),
    Mutant("sparse: a row behind the last", "sparse/walk.py", 'self.here = e.icmp("slt", row, rows)',
           'self.here = e.icmp("sle", row, rows)', "test_sparse.py -k products_have and float32"),
]


def main(words: list[str]) -> int:
    """Run the mutants whose names have one of the words; how many survive."""
    survived = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        for mutant in MUTANTS:
            if words and not any(word in mutant.name for word in words):
                continue
            place = copy / "src/morpho/backends/cuda" / mutant.module
            text = place.read_text(encoding="utf-8")
            place.write_text(mutant.applied(text), encoding="utf-8")
            name, _, selection = mutant.tests.partition(" -k ")
            try:
                found = subprocess.run([sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "--seed", "1",
                                        f"{TESTS}/{name}", *(["-k", selection] if selection else [])], cwd=ROOT,
                                       env=environment, timeout=LIMIT_S, capture_output=True, text=True, check=False)
                caught, how = found.returncode not in (0, 5), f"exit status {found.returncode}"
            except subprocess.TimeoutExpired:
                caught, how = True, "no end"
            finally:
                place.write_text(text, encoding="utf-8")
            survived += [] if caught else [mutant.name]
            print(f"{'caught  ' if caught else 'SURVIVED'}  {mutant.name} ({how})", flush=True)
    return len(survived)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
