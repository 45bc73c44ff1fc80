"""The product of a few rows with a small matrix that is not packed: most of the time would go into packing it.

Columns lie across the lanes. Where the right operand has k side by side, as a transposed weight does, four columns by
four values of k are turned in registers. Every output is one FMA chain, k ascending, as in `gemm.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.base.dtypes import DType, float32, float64
from morpho.base.machine import Isa
from morpho.kernels import scalars
from morpho.kernels.emit import Emitter, Value
from morpho.kernels.gemm import transpose

NAMES = ("m", "n", "k", "a_batch", "a_m", "a_k", "b_batch", "b_k", "b_n")
DTYPES = (float32, float64)
VECTORS = 8  # chains side by side, enough to hide the latency of an FMA
TURNED = 4  # columns and values of k that are turned together
GROUPS = 4  # such groups side by side


@dataclass(frozen=True)
class RowProduct:
    """C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n], C contiguous; called over the rows of all batches.

    `right` is how B lies: `columns` (n side by side) or `rows` (k side by side). Numbers as in `NAMES`.
    """

    dtype: DType
    right: str

    scratch_bytes_per_column = 0
    scratch_bytes = 0
    flops = 2

    def generate(self, isa: Isa, name: str) -> str:
        return _Code(self, isa).module(name)


class _Code:
    def __init__(self, kernel: RowProduct, isa: Isa) -> None:
        self.kernel = kernel
        self.lanes = max(1, isa.vector_bits // 8 // kernel.dtype.itemsize)
        self.e = Emitter(self.lanes, isa.native_half)
        self.element = scalars.memory_type(kernel.dtype)
        self.wide = isa.vector_bits >= 512

    def module(self, name: str) -> str:
        from morpho.kernels.loop_code import SIGNATURE

        e = self.e
        a, b, c = (e.load_pointer("%buffers", i) for i in range(3))
        self.v = v = {key: e.load(e.offset("%values", "i64", i), "i64", 1) for i, key in enumerate(NAMES)}
        with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as loop:
            batch = e.instruction("udiv", loop.index, v["m"])
            row = loop.index - batch * v["m"]
            self.a = e.offset(a, self.element, batch * v["a_batch"] + row * v["a_m"])
            self.b = e.offset(b, self.element, batch * v["b_batch"])
            self.c = e.offset(c, self.element, loop.index * v["n"])
            self.row()
        e.line("ret i32 0")
        wide = '"prefer-vector-width"="512"' if self.wide else ""
        head = f"define i32 @{name}({SIGNATURE}) nounwind {wide} {{\nentry:\n"
        return head + e.text() + "\n}\n" + "\n".join(sorted(e.declarations)) + "\n"

    def row(self) -> None:
        """One row, in chunks of columns of the largest width that fits, the last of which ends at the last column: what
        it shares with the one before is computed twice, alike."""
        e, n = self.e, self.v["n"]
        together = (self.lanes * VECTORS, self.lanes) if self.kernel.right == "columns" else (TURNED * GROUPS, TURNED)
        widths = [1] if self.lanes == 1 else [*together, 1]
        done = e.fresh("done")
        for width in widths:
            fits, narrower = e.fresh("fits"), e.fresh("narrower")
            e.branch_if(e.icmp("sge", n, width), fits, narrower)
            e.label(fits)
            with e.loop(0, n, width) as loop:
                self.chunk(e.intrinsic("smin", loop.index, n - width), width)
            e.branch(done)
            e.label(narrower)
        e.branch(done)
        e.label(done)

    def chunk(self, column: Value, width: int) -> None:
        if width == 1:
            self.chains(column, 1, 1)
        elif self.kernel.right == "columns":
            self.chains(column, self.lanes, width // self.lanes)
        else:
            self.turned(column, width // TURNED)

    def left(self, k: Value, lanes: int) -> Value:
        """A value of the row in all lanes."""
        e = self.e
        return e.splat(e.load(e.offset(self.a, self.element, k * self.v["a_k"]), self.element, 1), lanes)

    def right(self, k: Value, column: Value) -> str:
        v = self.v
        along = column if self.kernel.right == "columns" else column * v["b_n"]
        down = k if self.kernel.right == "rows" else k * v["b_k"]
        return self.e.offset(self.b, self.element, down + along)

    def chains(self, column: Value, lanes: int, vectors: int) -> None:
        """Vectors of columns that lie side by side, or one column."""
        e = self.e
        zeros = [e.constant(0, self.element, lanes)] * vectors
        with e.loop(0, self.v["k"], carried=zeros) as loop:
            spread, line = self.left(loop.index, lanes), self.right(loop.index, column)
            right = [e.load(e.offset(line, self.element, i * lanes), self.element, lanes) for i in range(vectors)]
            loop.next(*[e.intrinsic("fma", spread, b, total) for b, total in zip(right, loop.values, strict=True)])
        self.store(loop.values, column)

    def turned(self, column: Value, groups: int) -> None:
        """Groups of four columns, four values of k at a time, then the rest one by one."""
        e, k = self.e, self.v["k"]
        whole = k & -TURNED
        zeros = [e.constant(0, self.element, TURNED)] * groups
        with e.loop(0, whole, TURNED, carried=zeros) as loop:
            spread = [self.left(loop.index + i, TURNED) for i in range(TURNED)]
            totals = []
            for group, total in enumerate(loop.values):
                lines = [e.load(self.right(loop.index, column + (group * TURNED + i)), self.element, TURNED)
                         for i in range(TURNED)]
                for left, right in zip(spread, transpose(e, lines), strict=True):
                    total = e.intrinsic("fma", left, right, total)
                totals.append(total)
            loop.next(*totals)
        with e.loop(whole, k, carried=loop.values) as rest:
            spread_one = self.left(rest.index, TURNED)
            rest.next(*[e.intrinsic("fma", spread_one, self.gathered(rest.index, column + group * TURNED), total)
                        for group, total in enumerate(rest.values)])
        self.store(rest.values, column)

    def gathered(self, k: Value, column: Value) -> Value:
        """One value of k of four columns."""
        e = self.e
        found = Value(e, "poison", self.element, TURNED)
        for lane in range(TURNED):
            one = e.load(self.right(k, column + lane), self.element, 1)
            found = e.assign(f"insertelement {found.type} {found.name}, {one.type} {one.name}, i64 {lane}",
                             self.element, TURNED)
        return found

    def store(self, totals: list[Value], column: Value) -> None:
        e, target = self.e, self.e.offset(self.c, self.element, column)
        for number, total in enumerate(totals):
            e.store(total, e.offset(target, self.element, number * total.lanes))
