"""Accesses to arrays: the address of each element of a tile, and which elements are inside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.emit import Emitter, Value
from morpho.backends.kernels.tiles.device import Chunk, sides
from morpho.ops.tiles import ir
from morpho.ops.tiles.ir import Operation


class Access:
    """Where the elements of a tile lie in an array, and which of them are there."""

    def __init__(self, code: Any, one: Operation, inputs: Sequence[ir.Value], shape_of_tile: ir.Tile) -> None:
        self.code, self.tile = code, shape_of_tile
        self.e: Emitter = code.e
        self.width = sides(shape_of_tile)[1]
        self.index = one.attributes["array"]
        self.array = code.program.arrays[self.index]
        self.memory = scalars.memory_type(self.array.dtype)
        given = list(inputs)
        self.mask = given.pop() if one.attributes["masked"] else None
        self.other = given.pop() if one.name == "load" else None
        self.gathers = "t" in one.attributes["form"]
        self.tiles: list[ir.Value] = [value for value in given if value.shape]
        self.tiles += [self.mask] if self.mask is not None else []
        e, shape, strides = code.e, code.shapes[self.index], code.strides[self.index]
        zero = e.constant(0, "i64", 1)
        self.offset, self.there = zero, None  # of the window; whether its integers are inside
        self.axes: list[tuple[Value, Value, Value]] = []  # first and last index of each slice, its stride
        self.indices: list[tuple[ir.Value, Value, Value]] = []  # index tiles, with size and stride
        for axis, letter in enumerate(one.attributes["form"]):
            value = given.pop(0)
            if letter == "t" and value.shape:
                self.indices.append((value, shape[axis], strides[axis]))
                continue
            start = code.scalar(value)
            self.offset = self.offset + start * strides[axis]
            if letter == "s":
                stop = e.intrinsic("smin", code.scalar(given.pop(0)), shape[axis])
                self.axes.append((0 - start, stop - start, strides[axis]))
            else:
                inside = e.icmp("ult", start, shape[axis])
                self.there = inside if self.there is None else self.both(self.there, inside)
        self.unit = bool(self.axes) and code.kernel.units[self.index] and one.attributes["form"][-1] == "s"
        self.base = e.offset(code.bases[self.index], self.memory, self.offset)

    def both(self, a: Value, b: Value) -> Value:
        return self.e.assign(f"and {a.type} {a.name}, {b.name}", "i1", a.lanes)

    @property
    def is_vector(self) -> bool:
        """Whether chunks lie side by side in memory."""
        return not self.gathers and self.unit

    def place(self, chunk: Chunk, row: Any, column: Any, lanes: int) -> tuple[str, Value | None, Value | None]:
        """Address of the first element of a chunk, whether its row is there, and offsets of elements that lie apart."""
        e, there = self.e, self.there
        if self.gathers:
            offsets: Value | None = None
            for tile, size, stride in self.indices:
                index = self.code.operand(tile, self.tile, chunk, row, column, lanes)
                inside = e.icmp("ult", index, e.splat(size, lanes))
                there = inside if there is None else self.both(
                    there if there.lanes == lanes else e.splat(there, lanes), inside)
                step = index * e.splat(stride, lanes)
                offsets = step if offsets is None else offsets + step
            return self.base, there, offsets
        base = self.base
        if len(self.axes) == 2:
            first, last, stride = self.axes[0]
            at = e.constant(row, "i64", 1) if isinstance(row, int) else row
            inside = self.both(e.icmp("sge", at, first), e.icmp("slt", at, last))
            there = inside if there is None else self.both(there, inside)
            base = e.offset(base, self.memory, at * stride)
        return base, there, None

    def window(self, chunk: Chunk, row: Any, column: Any, lanes: int) -> tuple[str, Value, Value, Value | None]:
        """Address of a chunk, a mask of its elements that are there, whether all are, and offsets of elements."""
        e = self.e
        base, there, offsets = self.place(chunk, row, column, lanes)
        yes = e.constant(True, "i1", 1)
        mask, whole = there, there
        if not self.gathers and self.axes:
            first, last, stride = self.axes[-1]
            at = e.constant(column, "i64", 1) if isinstance(column, int) else column
            inside = self.both(e.icmp("sge", at, first), e.icmp("sle", at + lanes, last))
            whole = inside if there is None else self.both(there, inside)
            indices = self.code.lane_indices(at, lanes)
            mask = self.both(e.icmp("sge", indices, e.splat(first, lanes)),
                             e.icmp("slt", indices, e.splat(last, lanes)))
            mask = mask if there is None else self.both(e.splat(there, lanes), mask)
            if self.unit:
                base = e.offset(base, self.memory, at)
            else:
                offsets = indices * e.splat(stride, lanes)
        mask = e.splat(yes if mask is None else mask, lanes)
        whole = yes if whole is None else whole
        if self.mask is not None:
            mask = self.both(mask, self.code.operand(self.mask, self.mask.shape, chunk, row, column, lanes))
            whole = e.constant(False, "i1", 1)
        return base, mask, whole, offsets

    def load(self, chunk: Chunk, row: Any, column: Any, lanes: int) -> Value:
        e, dtype = self.e, self.array.dtype
        old, e.lanes = e.lanes, lanes
        base, mask, whole, offsets = self.window(chunk, row, column, lanes)
        assert self.other is not None
        other = e.splat(self.code.scalar(self.other), lanes)
        if offsets is not None:
            x = e.gather_some(base, self.memory, offsets, mask)
        elif lanes == 1:
            x = e.load_some(base, self.memory, mask)
        else:
            full, part, after = e.fresh("full"), e.fresh("part"), e.fresh("after")
            test, align = self.code.device.aligned(base, lanes, self.memory)
            e.branch_if(whole if test is None else self.both(whole, test), full, part)
            e.label(full)
            one = e.load(base, self.memory, lanes, align)
            e.branch(after)
            e.label(part)
            two = e.load_some(base, self.memory, mask)
            latch = e.block
            e.branch(after)
            e.label(after)
            x = e.assign(f"phi {one.type} [ {one.name}, %{full} ], [ {two.name}, %{latch} ]", self.memory, lanes)
        result = e.select(mask, scalars.from_memory(e, x, dtype), other)
        e.lanes = old
        return result

    def store(self, chunk: Chunk, value: Value) -> None:
        e, lanes = self.e, chunk.lanes
        base, mask, whole, offsets = self.window(chunk, chunk.row, chunk.column, lanes)
        mask = self.in_tile(chunk, mask)
        stored = scalars.to_memory(e, value, self.array.dtype)
        if lanes == 1:
            with e.when(mask):
                e.store(stored, base if offsets is None else e.offset(base, self.memory, offsets))
        elif offsets is not None:
            raise AssertionError("elements that lie apart are stored one by one")
        else:
            if self.width % lanes:
                whole = self.both(whole, e.icmp("sle", chunk.column + lanes, self.width))
            test, align = self.code.device.aligned(base, lanes, self.memory)
            for holds in e.both(whole if test is None else self.both(whole, test)):
                if holds:
                    e.store(stored, base, align)
                else:
                    e.store_some(stored, base, mask)

    def in_tile(self, chunk: Chunk, mask: Value) -> Value:
        """A mask without the lanes behind the tile's last column."""
        if self.width % chunk.lanes == 0:
            return mask
        e = self.e
        left = e.splat(e.constant(self.width, "i64", 1), chunk.lanes)
        return self.both(mask, e.icmp("slt", self.code.lane_indices(chunk.column, chunk.lanes), left))

    def atomic(self, chunk: Chunk, value: Value, op: str) -> None:
        e = self.e
        base, mask, _, offsets = self.window(chunk, chunk.row, chunk.column, 1)
        kind = self.array.dtype.kind
        word = {"add": "fadd" if kind == "f" else "add"}.get(op, op if kind == "i" else "u" + op)
        with e.when(mask):
            place = base if offsets is None else e.offset(base, self.memory, offsets)
            e.line(f"atomicrmw {word} ptr {place}, {value.type} {value.name} {self.code.device.syncscope}monotonic")
