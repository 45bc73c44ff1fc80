"""Code of kernels over tiles, for vectors of a CPU and for threads of a GPU.

Elementwise operations are evaluated where they are used, in loops over chunks of a tile. A tile that is used more than
once, or in a loop, gets a buffer; the first loop over all of it fills the buffer on the way. What differs between the
devices is in a `Device` (`device.py`; the CPU's in `cpu.py`), accesses to arrays in `access.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from morpho.backends.code import scalars
from morpho.backends.code.elementwise import emit
from morpho.backends.code.emit import BITS, Value
from morpho.backends.code.kernel_abi import FAULT_INDEX
from morpho.backends.code.vector_math import BY_TABLE
from morpho.backends.kernels.tiles.access import Access
from morpho.backends.kernels.tiles.device import (
    ROW_PARTIALS,
    Buffer,
    Chunk,
    Device,
    False_,
    True_,
    is_matrix,
    pitch_of,
    sides,
    stored_type,
)
from morpho.backends.kernels.tiles.spec import TileKernel
from morpho.base.dtypes import DType, bool_, int64
from morpho.ops.tiles import ir
from morpho.ops.tiles.interpret import first_value
from morpho.ops.tiles.ir import SEGMENTS, Operation, partials, segment

CHEAP = frozenset({"add", "subtract", "multiply", "negative", "cast", "where", "equal", "not_equal", "less",
                   "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "logical_not", "bitwise_and",
                   "bitwise_or", "bitwise_xor", "maximum", "minimum"})
COMBINED = {"max": "maximum", "min": "minimum"}


class TileCode:
    """One kernel being written."""

    def __init__(self, kernel: TileKernel, device: Device) -> None:
        self.kernel, self.device, self.e = kernel, device, device.e
        self.program = kernel.program
        self.scalars: dict[int, Value] = {}
        self.waiting: dict[int, Operation] = {}  # tiles that are evaluated where they are used
        self.buffers: dict[int, Buffer] = {}
        self.accesses: dict[int, Access] = {}  # of loads that wait
        self.uses = Counter(v.number for one in self.program.operations for v in one.inputs)
        self.home: dict[int, ir.Block] = {}  # where a value is defined
        self.current = self.program.body
        for block in all_blocks(self.program.body):
            self.uses.update(v.number for v in block.results)
            for value in (*block.arguments, *(result for one in block.operations for result in one.results)):
                self.home[value.number] = block
        self.top = self.most = 0  # bytes of scratch in use, and at most
        self.tees: dict[int, Buffer] = {}  # buffers that the loop being written fills on the way
        self.pending: list[tuple[int, int, bool, Any]] = []  # accesses since the last barrier
        self.operands, self.numbers = "%buffers", "%values"  # where addresses and numbers lie

    # -- scratch memory --
    def allocate(self, shape: ir.Tile, dtype: DType, element: str = "") -> Buffer:
        element = element or stored_type(dtype)
        rows, columns = sides(shape)
        apart = self.device.padding if rows > 1 and columns > 1 else 0
        buffer = Buffer(self.top, element, rows, columns, pitch_of(shape) + apart)
        self.top = -(-buffer.end // 64) * 64
        self.most = max(self.most, self.top)
        return buffer

    def address(self, buffer: Buffer, row: Value | int, column: Value | int) -> str:
        e = self.e
        base = e.offset(self.device.scratch, "i8", buffer.offset)
        if isinstance(row, int) and isinstance(column, int):
            return e.offset(base, buffer.element, row * buffer.pitch + column)
        place = column if buffer.rows == 1 or (isinstance(row, int) and row == 0) else (
            row * buffer.pitch + (column if isinstance(column, Value) or column else 0)
            if isinstance(row, Value) else column + row * buffer.pitch)
        return e.offset(base, buffer.element, place)

    def read(self, buffer: Buffer, dtype: DType, row: Value | int, column: Value | int, lanes: int) -> Value:
        x = self.e.load(self.address(buffer, row, column), buffer.element, lanes, self.device.align(buffer, lanes))
        return self.e.icmp("ne", x, 0) if dtype is bool_ else x

    def write(self, buffer: Buffer, value: Value, row: Value | int, column: Value | int) -> None:
        value = self.e.convert("zext", value, "i8") if value.element == "i1" else value
        self.e.store(value, self.address(buffer, row, column), self.device.align(buffer, value.lanes))

    def touch(self, start: int, end: int, writes: bool, mapping: Any) -> bool:
        """Note an access of scratch; whether a barrier must stand before it."""
        meets = any(start < last and first < end and (writes or wrote) and (mapping is None or mapping != theirs)
                    for first, last, wrote, theirs in self.pending)
        return meets

    def before_loop(self, accesses: Sequence[tuple[int, int, bool, Any]]) -> None:
        """A barrier where a loop meets elements that other threads have touched; then note its accesses."""
        if any(self.touch(*one) for one in accesses):
            self.settle()
        self.pending += accesses

    def settle(self) -> None:
        if self.pending:
            self.device.barrier()
            self.pending = []

    # -- the whole kernel --
    def write_program(self, number: Value) -> None:
        """The code of one program of the grid."""
        e, record = self.e, self.kernel.record
        loaded = record.load(e, self.numbers)
        self.grid = record.loaded("grid", loaded)
        levels = record.loaded("levels", loaded)
        rest, ids = number, list[Value]()
        for size in self.grid[:2]:
            quotient = e.instruction("udiv", rest, size)
            ids.append(rest - quotient * size)
            rest = quotient
        quotient = e.instruction("udiv", rest, self.grid[2])
        self.ids = [*ids, rest - quotient * self.grid[2]]
        rest, places = quotient, list[Value]()
        for size in reversed(levels):
            quotient = e.instruction("udiv", rest, size)
            places.insert(0, rest - quotient * size)
            rest = quotient
        self.shapes, self.strides, self.bases = list[list[Value]](), list[list[Value]](), list[str]()
        for index, array in enumerate(self.program.arrays):
            self.shapes.append(record.loaded(f"shape{index}_", loaded))
            self.strides.append(record.loaded(f"strides{index}_", loaded))
            base = e.load_pointer(self.operands, index)
            for place, stride in zip(places, record.loaded(f"moves{index}_", loaded), strict=True):
                base = e.offset(base, scalars.memory_type(array.dtype), place * stride)
            self.bases.append(base)
        self.block(self.program.body)

    def block(self, block: ir.Block) -> None:
        outer, self.current = self.current, block
        for operation in block.operations:
            getattr(self, f"do_{operation.name}")(operation)
        self.current = outer

    @contextmanager
    def nested(self) -> Iterator[None]:
        """Code of a loop or a branch: buffers that it makes are not there behind it."""
        top, buffers = self.top, dict(self.buffers)
        yield
        self.top, self.buffers = top, buffers

    # -- scalars --
    def scalar(self, value: ir.Value) -> Value:
        return self.scalars[value.number]

    def do_program_id(self, one: Operation) -> None:
        self.scalars[one.result.number] = self.ids[one.attributes["axis"]]

    def do_num_programs(self, one: Operation) -> None:
        self.scalars[one.result.number] = self.grid[one.attributes["axis"]]

    def do_size(self, one: Operation) -> None:
        self.scalars[one.result.number] = self.shapes[one.attributes["array"]][one.attributes["axis"]]

    def do_constant(self, one: Operation) -> None:
        self.scalars[one.result.number] = self.e.constant(one.attributes["value"],
                                                          scalars.register_type(one.result.dtype), 1)

    def do_map(self, one: Operation) -> None:
        if one.result.shape:
            self.wait(one)
        else:
            self.scalars[one.result.number] = self.applied(one, [self.scalar(v) for v in one.inputs])

    def applied(self, one: Operation, values: list[Value]) -> Value:
        old, self.e.lanes = self.e.lanes, values[-1].lanes
        result = emit(self.e, one.attributes["op"], values, one.inputs[-1].dtype, one.result.dtype)
        self.e.lanes = old
        return result

    # -- tiles that wait --
    def wait(self, one: Operation) -> None:
        self.waiting[one.result.number] = one

    def do_iota(self, one: Operation) -> None:
        self.wait(one)

    def do_full(self, one: Operation) -> None:
        self.wait(one)

    def do_view(self, one: Operation) -> None:
        if one.attributes["kind"] == "transpose":
            self.buffer_of(one.inputs[0])
        self.wait(one)

    def is_trivial(self, value: ir.Value) -> bool:
        """Whether a tile follows from scalars by a few cheap operations."""
        if not value.shape:
            return True
        one = self.waiting.get(value.number)
        if one is None or value.number in self.buffers or one.name == "load":
            return False
        if one.name in ("iota", "full"):
            return True
        if one.name == "map" and one.attributes["op"] not in CHEAP:
            return False
        return (one.name != "view" or one.attributes["kind"] != "transpose") and all(map(self.is_trivial, one.inputs))

    def wants_buffer(self, value: ir.Value) -> bool:
        if self.uses[value.number] < 2 or self.is_trivial(value):
            return False
        one = self.waiting[value.number]
        return one.name == "map" or (one.name == "load" and self.device.syncscope != "")

    def plan(self, value: ir.Value, shape: ir.Tile, mapping: Any, identity: bool = True,
             accesses: list[tuple[int, int, bool, Any]] | None = None) -> list[tuple[int, int, bool, Any]]:
        """Buffers that the evaluation of a tile reads, and those that it fills on the way."""
        accesses = [] if accesses is None else accesses
        if not value.shape:
            return accesses
        same = identity and sides(value.shape) == sides(shape) and len(value.shape) == len(shape)
        buffer = self.buffers.get(value.number) or self.tees.get(value.number)
        if buffer is not None:
            accesses.append((buffer.offset, buffer.end, False, mapping if same else None))
            return accesses
        one = self.waiting[value.number]
        if one.name == "load":
            array = one.attributes["array"]
            if self.program.arrays[array].written:
                accesses.append((-array - 1, -array, False, None))
        for child in one.inputs if one.name != "load" else self.accesses[value.number].tiles:
            if one.name == "view" and one.attributes["kind"] == "transpose":
                self.buffer_of(child)
            stays = same and one.name in ("map", "load") and len(child.shape) == len(value.shape)
            self.plan(child, shape, mapping, stays, accesses)
        if same and mapping not in (None, "own") and self.wants_buffer(value):
            buffer = self.tees[value.number] = self.allocate(value.shape, value.dtype)
            accesses.append((buffer.offset, buffer.end, True, mapping))
        return accesses

    def tile(self, value: ir.Value, chunk: Chunk, row: Value | int, column: Value | int, lanes: int) -> Value:
        """Elements of a tile from a row and a column on."""
        if not value.shape:
            return self.scalar(value)
        _, columns = sides(value.shape)
        key = (value.number, row if isinstance(row, int) else row.name,
               column if isinstance(column, int) else column.name, lanes)
        known = chunk.known.get(key)
        if known is not None:
            return known
        if value.number in self.buffers:
            result = self.read(self.buffers[value.number], value.dtype, row, column, lanes)
        else:
            one = self.waiting[value.number]
            result = getattr(self, f"eval_{one.name}")(one, chunk, row, column, lanes)
            buffer = self.tees.get(value.number)
            same = column is chunk.column and lanes == chunk.lanes and value.number in self.tees
            if buffer is not None and same and (row is chunk.row or buffer.rows == 1):
                self.write(buffer, result, row, column)
        chunk.known[key] = result
        return result

    def operand(self, child: ir.Value, shape: ir.Tile, chunk: Chunk, row: Value | int, column: Value | int,
                lanes: int) -> Value:
        """Elements of an operand that broadcasts to a shape."""
        if not child.shape:
            return self.e.splat(self.scalar(child), lanes)
        (rows, columns), (_, width) = sides(child.shape), sides(shape)
        if rows == 1:
            row = 0
        if columns == 1 and width > 1:
            return self.e.splat(self.tile(child, chunk, row, 0, 1), lanes)
        return self.tile(child, chunk, row, column, lanes)

    def eval_map(self, one: Operation, chunk: Chunk, row: Any, column: Any, lanes: int) -> Value:
        values = [self.operand(child, one.result.shape, chunk, row, column, lanes) for child in one.inputs]
        return self.applied(one, values)

    def eval_full(self, one: Operation, chunk: Chunk, row: Any, column: Any, lanes: int) -> Value:
        return self.e.splat(self.scalar(one.inputs[0]), lanes)

    def eval_iota(self, one: Operation, chunk: Chunk, row: Any, column: Any, lanes: int) -> Value:
        return self.lane_indices(column, lanes)

    def lane_indices(self, column: Value | int, lanes: int) -> Value:
        e = self.e
        if isinstance(column, int):
            column = e.constant(column, "i64", 1)
        return column if lanes == 1 else e.splat(column, lanes) + e.lane_numbers("i64", lanes)

    def eval_view(self, one: Operation, chunk: Chunk, row: Any, column: Any, lanes: int) -> Value:
        (child,), kind = one.inputs, one.attributes["kind"]
        if kind == "row":
            return self.tile(child, chunk, 0, column, lanes)
        if kind == "column":
            return self.tile(child, chunk, 0, row, 1)
        buffer = self.buffers[child.number]
        if lanes == 1:
            return self.read(buffer, child.dtype, column, row, 1)
        several = [self.read(buffer, child.dtype, column + lane, row, 1) for lane in range(lanes)]
        return self.e.vector_of(several)

    # -- loops --
    def width(self, values: Sequence[ir.Value], shape: ir.Tile) -> int:
        """Lanes of the chunks of a loop that evaluates these tiles."""
        widest, plain = 4, True
        stack, visited = list(values), set[int]()
        while stack:
            value = stack.pop()
            if value.number in visited or not value.shape:
                continue
            visited.add(value.number)
            if value.dtype is not int64:
                widest = max(widest, value.dtype.compute.itemsize)
            one = self.waiting.get(value.number)
            if one is not None and value.number not in self.buffers:
                if one.name == "load" and not self.accesses[value.number].is_vector:
                    plain = False
                if (one.name == "map" and one.attributes["op"] in BY_TABLE) or (
                        one.name == "view" and one.attributes["kind"] == "transpose"):
                    plain = False
                stack += one.inputs if one.name != "load" else self.accesses[value.number].tiles
        return self.device.lanes(shape, widest, plain)

    def traverse(self, shape: ir.Tile, values: Sequence[ir.Value], body: Callable[[Chunk], None],
                 writes: Sequence[tuple[int, int, bool, Any]] = (), lanes: int = 0) -> None:
        """A loop over a tile of a shape, in which tiles of that shape are evaluated."""
        rows, columns = sides(shape)
        lanes = lanes or self.width(values, shape)
        mapping = (rows, columns, len(shape), lanes)
        accesses: list[tuple[int, int, bool, Any]] = []
        outer, self.tees = self.tees, {}
        for value in values:
            self.plan(value, shape, mapping, True, accesses)
        accesses += [(start, end, wrote, mapping if how == "own" else how) for start, end, wrote, how in writes]
        self.before_loop(accesses)
        with self.device.chunks(rows, columns, lanes) as (row, column):
            body(Chunk(row, column, lanes))
        self.buffers.update(self.tees)
        self.tees = outer

    def fill(self, value: ir.Value, buffer: Buffer) -> None:
        """Evaluate a tile into a buffer."""
        def body(chunk: Chunk) -> None:
            self.write(buffer, self.operand(value, value.shape, chunk, chunk.row, chunk.column, chunk.lanes),
                       chunk.row, chunk.column)

        self.traverse(value.shape, [value], body, [(buffer.offset, buffer.end, True, "own")])

    def buffer_of(self, value: ir.Value) -> Buffer:
        """The buffer of a tile, filled now if it waits."""
        if value.number not in self.buffers:
            uses, self.uses[value.number] = self.uses[value.number], 1
            buffer = self.allocate(value.shape, value.dtype)
            self.fill(value, buffer)
            self.uses[value.number], self.buffers[value.number] = uses, buffer
        return self.buffers[value.number]

    def inside(self, chunk: Chunk, columns: int) -> Value | None:
        """Lanes of a chunk that are elements of the tile; None where all are."""
        if columns % chunk.lanes == 0:
            return None
        left = self.e.splat(self.e.constant(columns, "i64", 1), chunk.lanes)
        return self.e.icmp("slt", self.lane_indices(chunk.column, chunk.lanes), left)

    # -- reductions --
    def combine(self, op: str, dtype: DType) -> Callable[[Value, Value], Value]:
        def apply(a: Value, b: Value) -> Value:
            if op in ("sum", "prod"):
                return a + b if op == "sum" else a * b
            return emit(self.e, COMBINED[op], [a, b], dtype, dtype)

        return apply

    def neutral(self, op: str, dtype: DType, lanes: int) -> Value:
        return self.e.constant(first_value(op, dtype.numpy).item(), scalars.register_type(dtype), lanes)

    def do_reduce(self, one: Operation) -> None:
        (tile,), op, axis = one.inputs, one.attributes["op"], one.attributes["axis"]
        if is_matrix(tile.shape):
            target = self.allocate(one.result.shape, one.result.dtype)
            if axis == 1:
                self.device.rows(self, tile, op, target)
            else:
                self.columns(tile, op, target, one.result.shape)
            self.buffers[one.result.number] = target
        else:
            self.scalars[one.result.number] = self.whole(tile, op)

    def whole(self, tile: ir.Value, op: str) -> Value:
        """The reduction of a line to a scalar."""
        e, dtype, count = self.e, tile.dtype, partials(tile.shape)
        combine = self.combine(op, dtype)
        lanes = min(self.width([tile], tile.shape), count)
        start = self.top
        sums = self.allocate((count,), dtype)
        (columns,) = tile.shape
        first = self.neutral(op, dtype, lanes)

        def begin(chunk: Chunk) -> None:
            self.write(sums, first, 0, chunk.column)

        def add(chunk: Chunk) -> None:
            x = self.tile(tile, chunk, chunk.row, chunk.column, chunk.lanes)
            left = self.inside(chunk, columns)
            x = x if left is None else e.select(left, x, first)
            place = self.address(sums, 0, chunk.column & (count - 1) if columns > count else chunk.column)
            e.store(combine(e.load(place, sums.element, chunk.lanes), x), place)

        # A thread adds to sums that it alone touches: of either loop's chunks it takes the same columns modulo `count`.
        own = ("sums", sums.offset)
        self.traverse((count,), [], begin, [(sums.offset, sums.end, True, own)], lanes)
        self.traverse(tile.shape, [tile], add, [(sums.offset, sums.end, True, own)], lanes)
        self.before_loop([(sums.offset, sums.end, False, None)])
        result = self.device.joined(self, sums, count, combine)
        if self.top == -(-sums.end // 64) * 64:  # nothing was put behind it
            self.top = start
        return result

    def columns(self, tile: ir.Value, op: str, target: Buffer, shape: ir.Tile) -> None:
        """The reduction of each column: one chain."""
        e, combine, (rows, _) = self.e, self.combine(op, tile.dtype), sides(tile.shape)
        lanes = min(self.width([tile], tile.shape), ROW_PARTIALS)
        accesses = self.plan(tile, tile.shape, None)
        self.before_loop([*accesses, (target.offset, target.end, True, None)])
        with self.device.chunks(1, tile.shape[1], lanes) as (_, column):
            total = self.tile(tile, Chunk(e.constant(0, "i64", 1), column, lanes), 0, column, lanes)
            with e.loop(1, rows, carried=[total]) as loop:
                x = self.tile(tile, Chunk(loop.index, column, lanes), loop.index, column, lanes)
                loop.next(combine(loop.values[0], x))
            self.write(target, loop.values[0], 0, column)

    def do_scan(self, one: Operation) -> None:
        """Running sums: a chain in each segment, the segments' sums by doubling distances."""
        e, (tile,), op = self.e, one.inputs, one.attributes["op"]
        combine = self.combine(op, tile.dtype)
        (columns,), size = tile.shape, segment(tile.shape[0])
        source = self.buffer_of(tile)
        target = self.allocate(one.result.shape, one.result.dtype)
        start = self.top
        sums = [self.allocate((SEGMENTS,), tile.dtype) for _ in range(2)]
        zero = self.neutral(op, tile.dtype, 1)
        self.before_loop([(source.offset, source.end, False, None), (target.offset, sums[1].end, True, None)])

        def bounds(index: Value) -> tuple[Value, Value]:
            first = index * size
            return first, e.intrinsic("smin", first + size, e.constant(columns, "i64", 1))

        with self.device.each(SEGMENTS) as index:
            first, last = bounds(index)
            with e.loop(first, last, carried=[zero]) as loop:
                loop.next(combine(loop.values[0], self.read(source, tile.dtype, 0, loop.index, 1)))
                self.write(target, loop.values[0], 0, loop.index)
            self.write(sums[0], loop.values[0], 0, index)
        for step in range(SEGMENTS.bit_length() - 1):
            old, new = sums[step % 2], sums[1 - step % 2]
            self.device.barrier()
            with self.device.each(SEGMENTS) as index:
                own = self.read(old, tile.dtype, 0, index, 1)
                at = e.select(e.icmp("slt", index, 1 << step), index, index - (1 << step))
                both = combine(self.read(old, tile.dtype, 0, at, 1), own)
                self.write(new, e.select(e.icmp("slt", index, 1 << step), own, both), 0, index)
        self.device.barrier()
        final = sums[(SEGMENTS.bit_length() - 1) % 2]
        with self.device.each(SEGMENTS) as index:
            first, last = bounds(index)
            earlier = e.icmp("sgt", index, 0)
            before = self.read(final, tile.dtype, 0, e.select(earlier, index - 1, index), 1)
            before = e.select(earlier, before, zero)
            with e.loop(first, last) as loop:
                self.write(target, combine(before, self.read(target, tile.dtype, 0, loop.index, 1)), 0, loop.index)
                loop.next()
        self.top = start
        self.pending = [(target.offset, sums[1].end, True, None)]
        self.buffers[one.result.number] = target

    def do_sort(self, one: Operation) -> None:
        """A bitonic network over a power of two of elements; those that pad it come last."""
        e, (tile,) = self.e, one.inputs
        (columns,), dtype = tile.shape, tile.dtype
        count = 1 << max(0, columns - 1).bit_length()
        target = self.allocate((count,), dtype)
        last = self.e.constant(float("nan") if dtype.is_float else first_value("min", dtype.numpy).item(),
                               scalars.register_type(dtype), 1)

        def body(chunk: Chunk) -> None:
            self.write(target, self.operand(tile, tile.shape, chunk, chunk.row, chunk.column, chunk.lanes), 0,
                       chunk.column)

        uses, self.uses[tile.number] = self.uses[tile.number], 1
        self.traverse(tile.shape, [tile], body, [(target.offset, target.end, True, None)])
        self.uses[tile.number] = uses
        self.settle()
        if count > columns:
            with self.device.each(count - columns) as index:
                self.write(target, last, 0, index + columns)
            self.device.barrier()
        if dtype is bool_ or count == 1:
            if dtype is bool_:
                raise NotImplementedError
            self.buffers[one.result.number] = target
            return
        one_bit = e.constant(1, "i64", 1)
        with e.loop(1, count.bit_length()) as outer:
            size = one_bit << outer.index
            with e.loop(0, outer.index) as inner:
                shift = outer.index - inner.index - 1
                distance = one_bit << shift
                with self.device.each(count // 2) as index:
                    high = index.shift_right(shift) << (shift + 1)
                    low_place = high | (index & (distance - 1))
                    places = low_place, low_place + distance
                    a, b = (self.read(target, dtype, 0, place, 1) for place in places)
                    ascending = e.icmp("eq", low_place & size, 0)
                    less = self.before(b, a, dtype)
                    swap = e.assign(f"xor i1 {less.name}, {e.select(ascending, False_(e), True_(e)).name}", "i1", 1)
                    self.write(target, e.select(swap, b, a), 0, places[0])
                    self.write(target, e.select(swap, a, b), 0, places[1])
                self.device.barrier()
                inner.next()
            outer.next()
        self.buffers[one.result.number] = target

    def before(self, a: Value, b: Value, dtype: DType) -> Value:
        """Whether a comes before b: -0.0 before 0.0, NaN last."""
        e = self.e
        if not a.is_float:
            return e.icmp("ult" if dtype.kind == "u" else "slt", a, b)
        keys = []
        for x in (a, b):
            bits = e.bits(x)
            low = (1 << (BITS[x.element] - 1)) - 1
            key = e.select(e.icmp("slt", bits, 0), bits ^ low, bits)
            keys.append(e.select(e.is_nan(x), e.constant(low, bits.element, 1), key))
        return e.icmp("slt", *keys)

    # -- products --
    def do_dot(self, one: Operation) -> None:
        """Blocks of one FMA chain for each element."""
        a, b, *acc = one.inputs
        left, right = self.buffer_of(a), self.buffer_of(b)
        (rows, columns), depth, dtype = one.result.shape, a.shape[1], one.result.dtype
        if acc and self.is_last_use(acc[0]):
            target = self.buffers[acc[0].number]
        else:
            target = self.allocate(one.result.shape, dtype)
            if acc:
                self.fill(acc[0], target)
        self.before_loop([(left.offset, left.end, False, None), (right.offset, right.end, False, None),
                          (target.offset, target.end, True, None)])
        height, lanes = self.device.units((rows, columns))
        self.product(left, right, target, (rows, columns, depth), (height, lanes), bool(acc), dtype)
        self.buffers[one.result.number] = target

    def product(self, left: Buffer, right: Buffer, target: Buffer, sizes: tuple[int, int, int],
                unit: tuple[int, int], begins: bool, dtype: DType) -> None:
        e, (rows, columns, depth), (height, lanes) = self.e, sizes, unit
        register = scalars.register_type(dtype)
        across = -(-columns // lanes)
        with self.device.each(rows // height * across) as index:
            above = e.instruction("udiv", index, e.constant(across, "i64", 1))
            row, column = above * height, (index - above * across) * lanes
            places = [row + n for n in range(height)]
            first = [self.read(target, dtype, place, column, lanes) if begins else e.constant(0, register, lanes)
                     for place in places]
            with e.loop(0, depth, carried=first) as loop:
                b = self.read(right, dtype, loop.index, column, lanes)
                loop.next(*[e.fma(e.splat(self.read(left, dtype, place, loop.index, 1), lanes), b, total)
                            for place, total in zip(places, loop.values, strict=True)])
            for place, total in zip(places, loop.values, strict=True):
                self.write(target, total, place, column)

    # -- control --
    def materialise_for(self, blocks: Sequence[ir.Block]) -> None:
        """Buffers for tiles that blocks read and that wait."""
        for block in blocks:
            for value in outer_values(block):
                if value.shape and value.number in self.waiting and value.number not in self.buffers and (
                        not self.is_trivial(value)):
                    self.buffer_of(value)

    def begin_carried(self, values: Sequence[ir.Value]) -> dict[int, Buffer]:
        """Buffers of tiles that an iteration hands to the next, by position."""
        carried: dict[int, Buffer] = {}
        for position, value in enumerate(values):
            if value.shape:
                if self.is_last_use(value):
                    carried[position] = self.buffers[value.number]
                else:
                    carried[position] = self.allocate(value.shape, value.dtype)
                    self.fill(value, carried[position])
        return carried

    def end_carried(self, results: Sequence[ir.Value], carried: dict[int, Buffer]) -> None:
        """Put the tiles of the next iteration where those of this one lie."""
        moves: list[tuple[ir.Value, Buffer]] = []
        for position, buffer in carried.items():
            value = results[position]
            if self.buffers.get(value.number) is not buffer:
                moves.append((value, buffer))
        for position, (value, buffer) in enumerate(moves):
            others = [target for number, (_, target) in enumerate(moves) if number != position]
            reads = self.plan(value, value.shape, "own")
            if any(start < other.end and other.offset < end for start, end, _, _ in reads for other in others) or any(
                    how is None and start < buffer.end and buffer.offset < end for start, end, _, how in reads):
                self.buffers[value.number] = self.copied(value)
        for value, buffer in moves:
            self.fill(value, buffer)

    def is_last_use(self, value: ir.Value) -> bool:
        """Whether the operation being written may take over the buffer of a value."""
        return (value.number in self.buffers and self.uses[value.number] == 1
                and self.home[value.number] is self.current)

    def copied(self, value: ir.Value) -> Buffer:
        buffer = self.allocate(value.shape, value.dtype)
        self.fill(value, buffer)
        return buffer

    def do_for(self, one: Operation) -> None:
        e, (block,) = self.e, one.blocks
        start, stop, step = (self.scalar(value) for value in one.inputs[:3])
        initial = one.inputs[3:]
        self.materialise_for(one.blocks)
        carried = self.begin_carried(initial)
        self.settle()
        first = [self.scalar(value) for value in initial if not value.shape]
        with self.nested(), e.loop(start, stop, step, carried=first) as loop:
            self.scalars[block.arguments[0].number] = loop.index
            self.arguments(block.arguments[1:], loop.values, carried)
            self.block(block)
            ends = [self.scalar(value) for value in block.results if not value.shape]
            self.end_carried(block.results, carried)
            self.settle()
            loop.next(*ends)
        self.arguments(one.results, loop.values, carried)

    def arguments(self, values: Sequence[ir.Value], numbers: Sequence[Value], carried: dict[int, Buffer]) -> None:
        """Values of a block, or results of a loop: scalars in registers, tiles in their buffers."""
        remaining = iter(numbers)
        for position, value in enumerate(values):
            if value.shape:
                self.buffers[value.number] = carried[position]
            else:
                self.scalars[value.number] = next(remaining)

    def do_while(self, one: Operation) -> None:
        e, (test, body) = self.e, one.blocks
        self.materialise_for(one.blocks)
        carried = self.begin_carried(one.inputs)
        self.settle()
        first = [self.scalar(value) for value in one.inputs if not value.shape]
        head, inside, done = e.fresh("head"), e.fresh("inside"), e.fresh("done")
        before = e.block
        e.branch(head)
        e.label(head)
        phis = [Value(e, "%" + e.fresh("c"), value.element, 1) for value in first]
        place = len(e.lines)
        with self.nested():
            self.arguments(test.arguments, phis, carried)
            self.block(test)
            self.settle()
            e.branch_if(self.scalar(test.results[0]), inside, done)
            e.label(inside)
            self.arguments(body.arguments, phis, carried)
            self.block(body)
            ends = [self.scalar(value) for value in body.results if not value.shape]
            self.end_carried(body.results, carried)
            self.settle()
        latch = e.block
        e.branch(head)
        e.lines[place:place] = [f"  {phi.name} = phi {phi.type} [ {old.name}, %{before} ], [ {new.name}, %{latch} ]"
                                for phi, old, new in zip(phis, first, ends, strict=True)]
        e.label(done)
        self.arguments(one.results, phis, carried)

    def do_if(self, one: Operation) -> None:
        e = self.e
        self.materialise_for(one.blocks)
        carried = {position: self.allocate(value.shape, value.dtype)
                   for position, value in enumerate(one.results) if value.shape}
        self.settle()
        labels, end = [e.fresh("then"), e.fresh("else")], e.fresh("end")
        e.branch_if(self.scalar(one.inputs[0]), *labels)
        ways: list[tuple[str, list[Value]]] = []
        for label, block in zip(labels, one.blocks, strict=True):
            e.label(label)
            with self.nested():
                self.block(block)
                for position, buffer in carried.items():
                    self.fill(block.results[position], buffer)
                self.settle()
            ways.append((e.block, [self.scalar(value) for value in block.results if not value.shape]))
            e.branch(end)
        e.label(end)
        numbers = [e.assign(f"phi {a.type} [ {a.name}, %{ways[0][0]} ], [ {b.name}, %{ways[1][0]} ]", a.element, 1)
                   for a, b in zip(ways[0][1], ways[1][1], strict=True)]
        self.arguments(one.results, numbers, carried)

    # -- memory --
    def do_load(self, one: Operation) -> None:
        array = one.attributes["array"]
        access = Access(self, one, one.inputs, one.result.shape)
        written = self.program.arrays[array].written
        if not one.result.shape:
            self.before_loop([(-array - 1, -array, False, None)] if written else [])
            zero = self.e.constant(0, "i64", 1)
            self.scalars[one.result.number] = access.load(Chunk(zero, zero, 1), 0, 0, 1)
            return
        self.accesses[one.result.number] = access
        self.wait(one)
        if written:
            self.buffer_of(one.result)

    def eval_load(self, one: Operation, chunk: Chunk, row: Any, column: Any, lanes: int) -> Value:
        return self.accesses[one.result.number].load(chunk, row, column, lanes)

    def do_require(self, one: Operation) -> None:
        e = self.e
        self.device.report(e.select(self.scalar(one.inputs[0]), e.constant(0, "i32", 1), FAULT_INDEX))

    def do_store(self, one: Operation) -> None:
        self.put(one, lambda access, chunk, value: access.store(chunk, value))

    def do_atomic(self, one: Operation) -> None:
        self.put(one, lambda access, chunk, value: access.atomic(chunk, value, one.attributes["op"]))

    def put(self, one: Operation, write: Callable[[Access, Chunk, Value], None]) -> None:
        value, array = one.inputs[0], one.attributes["array"]
        access = Access(self, one, one.inputs[1:], value.shape)
        kept = self.program.arrays[array].read
        if not value.shape:
            self.before_loop([(-array - 1, -array, True, None)] if kept else [])
            zero = self.e.constant(0, "i64", 1)
            with self.device.once():
                write(access, Chunk(zero, zero, 1), self.scalar(value))
            return
        scalar = one.name == "atomic" or not access.is_vector

        def body(chunk: Chunk) -> None:
            write(access, chunk, self.operand(value, value.shape, chunk, chunk.row, chunk.column, chunk.lanes))

        lanes = 1 if scalar else 0
        self.traverse(value.shape, [value, *access.tiles], body, [(-array - 1, -array, True, None)] if kept else [],
                      lanes)


def all_blocks(block: ir.Block) -> Iterator[ir.Block]:
    yield block
    for one in block.operations:
        for inner in one.blocks:
            yield from all_blocks(inner)


def outer_values(block: ir.Block) -> list[ir.Value]:
    """Values that a block reads and does not define, in order."""
    defined = {value.number for value in block.arguments}
    found: dict[int, ir.Value] = {}
    for one in block.operations:
        for value in [*one.inputs, *(inner for each in one.blocks for inner in outer_values(each))]:
            if value.number not in defined:
                found[value.number] = value
        defined |= {value.number for value in one.results}
    for value in block.results:
        if value.number not in defined:
            found[value.number] = value
    return list(found.values())


