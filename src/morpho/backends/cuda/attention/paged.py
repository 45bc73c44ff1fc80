"""Attention over pages: a block of 64 keys is a page of the pool, which the sequence's row of the table names.

All else is the forward kernel's: whatever number of queries, a row has the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

from morpho.backends.code.emit import Value
from morpho.backends.cuda.attention.forward import AttentionGrid, ForwardCode
from morpho.backends.cuda.codegen.grid import Header


@dataclass(frozen=True)
class PagedAttention(AttentionGrid):
    """A block per tile of queries of a head."""

    def code(self) -> ForwardCode:
        return PagedCode(self)


class PagedCode(ForwardCode):
    """Generator of the LLVM text of one paged kernel."""

    def find_tile(self) -> None:
        """The sequence's row of the table besides."""
        super().find_tile()
        table = self.e.address(int(Header.SIZE) + self.spec.places - 1)
        self.table = self.e.offset(table, "i64", self.batch[0] * self.n["t_batch"])

    def fetch_block(self, key: Value, stage: Value) -> None:
        """Queue a page of keys and of values; behind the last one there is nothing. Pages that are none are never
        looked at: a number outside the pool, in a row that has ended, must not be an address either."""
        e, spec, n = self.e, self.spec, self.n
        inside = e.icmp("slt", key, n["keys"])
        column = e.select(inside, key.shift_right(6), 0)
        page = e.load(e.offset(self.table, "i64", column * n["t_column"]), "i64", 1)
        last = n["pages"] - 1
        page = e.intrinsic("smax", e.intrinsic("smin", page, last), e.constant(0, "i64", 1))
        count = e.select(inside, e.constant(self.keys, "i64", 1), 0)
        zero = e.constant(0, "i64", 1)
        for source, name, at, depth, padded in ((self.k, "k", stage, spec.depth, self.depth),
                                                (self.v, "v", stage + 2 * self.keys * self.depth, spec.width,
                                                 self.width)):
            pool = e.offset(source, "i16", page * n[f"{name}_page"])
            self.fetch(pool, zero, count, n[f"{name}_row"], depth, padded, self.keys, at)
        e.line("call void @gpu.cp_commit(ptr %ctx)")
