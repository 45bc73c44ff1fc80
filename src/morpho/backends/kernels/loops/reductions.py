"""A pass over the columns that reduces: block by block, lanes in registers where they fit (`reduction_tree.py`)."""

from __future__ import annotations

from dataclasses import replace

from morpho.backends.code.emit import BITS, Value
from morpho.backends.kernels.loops.loop_spec import TREE_BLOCK, TREE_LANES, Pass
from morpho.backends.kernels.loops.reduction_tree import Tree
from morpho.backends.kernels.loops.software_pipeline import pipelined_loop
from morpho.backends.kernels.loops.values import LoopState, is_long, write_chunk

CHEAP = 12  # operations per element of walks that may repeat some


def reduce_pass(code: LoopState, step: Pass) -> None:
    """Walk the columns of a row block by block, leaving each reduction's value among the row's values."""
    e = code.e
    trees = [Tree(code, number) for number in step.reductions]
    for tree in trees:  # the join of a partial stack reads only slots that were written; this keeps LLVM sure of it
        e.store(tree.start(1), tree.stack)
    with e.loop(code.begin, code.end, TREE_BLOCK) as blocks:
        last = e.intrinsic("smin", blocks.index + TREE_BLOCK, code.end)
        block_pass(code, step, trees, blocks.index, last)
        number = blocks.index.shift_right(TREE_BLOCK.bit_length() - 1)
        for tree in trees:
            tree.finish_block(number)
    count = (code.end + (TREE_BLOCK - 1)).shift_right(TREE_BLOCK.bit_length() - 1)
    for tree in trees:
        code.rows[tree.number] = tree.result(count)


def block_pass(code: LoopState, step: Pass, trees: list[Tree], first: Value, last: Value) -> None:
    """The lanes of one block: whole groups of 64 in registers where the body is short, the rest in memory."""
    e, width = code.e, code.lanes
    parts = TREE_LANES // width
    if is_long(code, step) or width == 1:
        for tree in trees:
            tree.store_lanes([tree.start(width)] * parts)
        tail(code, step, trees, first, last)
        return
    whole = first + ((last - first) & -TREE_LANES)
    for some, walk in walks(code, step, trees):
        starts = [tree.start(width) for tree in some for _ in range(parts)]
        with e.loop(first, whole, TREE_LANES, carried=starts) as loop:
            sums = list(loop.values)
            for part in range(parts):
                values = write_chunk(code, walk, loop.index + part * width, None)
                for t, tree in enumerate(some):
                    slot = t * parts + part
                    sums[slot] = tree.join(sums[slot], tree.as_lane(values[tree.input]))
            loop.next(*sums)
        for t, tree in enumerate(some):
            tree.store_lanes(loop.values[t * parts:(t + 1) * parts])
    tail(code, step, trees, whole, last)


def walks(code: LoopState, step: Pass, trees: list[Tree]) -> list[tuple[list[Tree], Pass]]:
    """A pass as one walk over a block, or as one for each reduction where their lanes would not all fit the registers
    and what they need is cheap to compute again: the block is still in the first-level cache."""
    kernel, bits = code.kernel, max(code.isa.vector_bits, 1)
    registers = 32 if code.isa.architecture == "aarch64" or bits >= 512 else 16
    lanes = sum(-(-TREE_LANES * BITS[tree.element] // bits) for tree in trees)
    parts = [sorted(kernel.needed_for(tree.number, step.kept)) for tree in trees]
    again = sum(kernel.instructions[n].flops for part in parts for n in part if n not in step.kept)
    if len(trees) == 1 or 4 * lanes <= 3 * registers or step.stores or step.keep or again > CHEAP:
        return [(trees, step)]
    return [([tree], replace(step, reductions=(tree.number,), needed=tuple(part)))
            for tree, part in zip(trees, parts, strict=True)]


def tail(code: LoopState, step: Pass, trees: list[Tree], first: Value, last: Value) -> None:
    """Chunks whose lanes stand in memory; the last one may be short."""
    e, width = code.e, code.lanes
    if code.pipelined and is_long(code, step) and pipelined_loop(code, step, first, last, trees):
        return
    with e.loop(first, last, width) as loop:
        if width == 1:
            values = write_chunk(code, step, loop.index, None)
            for tree in trees:
                tree.add_chunk(values[tree.input], loop.index, None)
        else:
            count = e.intrinsic("smin", last - loop.index, e.constant(width, "i64", 1))
            values = write_chunk(code, step, loop.index, count, maybe_whole=True)
            # Where all chunks come here, most of them are whole and need no mask.
            for whole in e.both(e.icmp("eq", count, width)) if is_long(code, step) else (False,):
                mask = None if whole else e.first_lanes(count)
                for tree in trees:
                    tree.add_chunk(values[tree.input], loop.index, mask)
