"""A reduction over very long rows in two kernels, so that several threads can share one row.

The first computes every block of 4096 columns apart and leaves one value per block and reduction; the second joins the
blocks of each row in the same pairwise tree as the single kernel and finishes the row. Same tree, same bits.
"""

from __future__ import annotations

from morpho.backends.code.emit import Value
from morpho.backends.kernels.loops.loop_code import LoopCode
from morpho.backends.kernels.loops.loop_spec import TREE_BLOCK
from morpho.backends.kernels.loops.reduction_tree import Tree
from morpho.backends.kernels.loops.reductions import block_pass


def partial_pointers(code: LoopCode) -> list[str]:
    """One buffer per reduction follows the kernel's own."""
    first = len(code.kernel.accesses)
    return [code.e.load_pointer("%buffers", first + i) for i in range(len(code.kernel.passes[0].reductions))]


class BlocksCode(LoopCode):
    """Rows of this kernel are blocks: block b of row r is r * blocks + b."""

    def walk_rows(self, first: Value, last: Value) -> None:
        e = self.e
        blocks = self.value(self.kernel.record.at("blocks"))
        columns = self.inner[0]
        for extent in self.inner[1:]:
            columns = columns * extent
        partials = partial_pointers(self)
        step = self.kernel.passes[0]
        trees = [Tree(self, number) for number in step.reductions]
        with e.loop(first, last) as loop:
            row = e.instruction("udiv", loop.index, blocks)
            begin = (loop.index - row * blocks) * TREE_BLOCK
            self.place_row(self.split(row, self.outer))
            self.row_values(0)
            self.prepare_pass(step)
            block_pass(self, step, trees, begin, e.intrinsic("smin", begin + TREE_BLOCK, columns))
            for tree, pointer in zip(trees, partials, strict=True):
                e.store(tree.folded(), e.offset(pointer, tree.element, loop.index))


class JoinCode(LoopCode):
    """Rows as in the single kernel; columns are blocks."""

    def walk_rows(self, first: Value, last: Value) -> None:
        e = self.e
        blocks = self.value(self.kernel.record.at("blocks"))
        partials = partial_pointers(self)
        trees = [Tree(self, number) for number in self.kernel.passes[0].reductions]
        with e.loop(first, last) as rows:
            self.place_row(self.split(rows.index, self.outer))
            self.row_values(0)
            for tree, pointer in zip(trees, partials, strict=True):
                with e.loop(0, blocks) as loop:
                    place = e.offset(pointer, tree.element, rows.index * blocks + loop.index)
                    tree.push(e.load(place, tree.element, 1), loop.index)
                self.rows[tree.number] = tree.result(blocks)
            self.row_values(1)
            self.store_rows()
