"""The meaning of a kernel in NumPy, program by program, and its checks.

Without `check` it is the op's reference. With it every element of every array remembers who read and wrote it: an index
outside, a read of an element that nobody wrote, and programs that meet at an element without order are errors, with the
kernel's lines. Atomics of one kind may meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, bfloat16, bool_, float32, float64
from morpho.base.errors import IndexFault, MorphoError, ValueFault, fail
from morpho.ir.op import REGISTRY
from morpho.ops.special import round_bfloat16
from morpho.ops.tiles.ir import SEGMENTS, Block, Operation, TileProgram, Value, partials, segment

COMBINE: dict[str, Any] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "add": np.add}


def rounded(array: Any, dtype: DType) -> np.ndarray:
    """A tile at the precision of its dtype, in the form arithmetic takes."""
    with np.errstate(all="ignore"):
        if dtype is bfloat16:
            return np.asarray(round_bfloat16(np.asarray(array, np.float32)))
        if dtype.is_float and dtype.compute is not dtype:
            return np.asarray(array, dtype.numpy).astype(np.float32)
        return np.asarray(array, dtype.numpy)


def tree(tile: np.ndarray, op: str) -> Any:
    """The reduction of a tile along its last axis, in the kernel's order of additions."""
    combine, count = COMBINE[op], partials(tile.shape)
    length = tile.shape[-1]
    sums = tile[..., :count]
    if length < count:  # a missing element changes nothing
        neutral = first_value(op, tile.dtype)
        sums = np.concatenate([sums, np.full((*tile.shape[:-1], count - length), neutral, tile.dtype)], -1)
    sums = sums.copy()
    with np.errstate(all="ignore"):
        for start in range(count, length, count):
            part = tile[..., start:start + count]
            sums[..., :part.shape[-1]] = combine(sums[..., :part.shape[-1]], part)
        while sums.shape[-1] > 1:
            half = sums.shape[-1] // 2
            sums = combine(sums[..., :half], sums[..., half:])
    return sums[..., 0]


def first_value(op: str, dtype: Any) -> Any:
    """The value that changes nothing: -0.0 for sums, since 0.0 + -0.0 is not -0.0."""
    kind = np.dtype(dtype)
    if op in ("sum", "add"):
        return kind.type(-0.0) if kind.kind == "f" else kind.type(0)
    if op == "prod":
        return kind.type(1)
    if kind.kind == "f":
        return kind.type(-np.inf if op == "max" else np.inf)
    limits = np.iinfo(kind)
    return kind.type(limits.min if op == "max" else limits.max)


def running(tile: np.ndarray, op: str) -> np.ndarray:
    """Running sums (or products, extremes) of a line: a chain in each segment; segments' sums by doubling distances."""
    length, size = len(tile), segment(len(tile))
    nothing, combine = first_value(op, tile.dtype), COMBINE[op]
    padded = np.concatenate([tile, np.full(SEGMENTS * size - length, nothing)]).reshape(SEGMENTS, size)
    with np.errstate(all="ignore"):
        within = combine.accumulate(padded, axis=1, dtype=tile.dtype)
        sums = within[:, -1].copy()
        for distance in (1, 2, 4, 8, 16, 32, 64):
            sums[distance:] = combine(sums[:-distance], sums[distance:])
        before = np.concatenate([[nothing], sums[:-1]]).astype(tile.dtype)
        return np.asarray(combine(before[:, None], within)).reshape(-1)[:length]


def sort_keys(tile: np.ndarray) -> np.ndarray:
    """Integers in the order of numbers, with -0.0 before 0.0 and NaN last."""
    if tile.dtype.kind != "f":
        return tile
    kind: Any = np.int32 if tile.dtype.itemsize == 4 else np.int64
    bits: Any = tile.view(kind)
    low = int(np.iinfo(kind).max)
    return np.where(np.isnan(tile), low, np.where(bits < 0, bits ^ low, bits))


@dataclass
class Trace:
    """Readers and writers of the elements of one array: programs (-1: nobody) and lines."""

    written: np.ndarray  # whether there is a value
    writer: np.ndarray
    write_line: np.ndarray
    reader: np.ndarray
    read_line: np.ndarray
    kind: np.ndarray  # of the write: 0 store, else the number of an atomic


ATOMICS = {"": 0, "add": 1, "max": 2, "min": 3}


class Interpreter:
    """A grid of programs over arrays, which are changed in place."""

    def __init__(self, program: TileProgram, arrays: Sequence[np.ndarray], grid: Sequence[int],
                 check: bool = False, undefined: Sequence[int] = ()) -> None:
        # An array without axes is looked at as one of a single element.
        arrays = [array if array.ndim else array.reshape(1) for array in arrays]
        self.program, self.arrays, self.grid = program, arrays, (*grid, 1, 1, 1)[:3]
        self.check, self.operation = check, Operation("", (), {})
        self.number, self.id = 0, tuple[int, ...]((0, 0, 0))
        self.traces: list[Trace] = []
        for index, array in enumerate(arrays if check else ()):
            nobody, zero = np.full(array.shape, -1, np.int64), np.zeros(array.shape, np.int32)
            self.traces.append(Trace(np.full(array.shape, index not in undefined), nobody, zero, nobody.copy(),
                                     zero.copy(), np.zeros(array.shape, np.int8)))

    def run(self) -> None:
        """Run all programs in order."""
        for number, place in enumerate(product(*map(range, self.grid[::-1]))):
            self.number, self.id = number, place[::-1]
            with np.errstate(all="ignore"):
                self.block(self.program.body, {})

    def fail(self, kind: type[MorphoError], message: str, hint: str = "") -> MorphoError:
        line = f"{self.program.file}:{self.operation.line}" if self.operation.line else ""
        return fail(kind, "kernel", f"{self.program.name}, program {self.place()}: {message}", hint, line=line)

    def place(self, number: int | None = None) -> tuple[int, ...]:
        """The ids of a program."""
        if number is None:
            found = self.id
        else:
            x, y, _ = self.grid
            found = (number % x, number // x % y, number // (x * y))
        rank = max([n + 1 for n, size in enumerate(self.grid) if size > 1], default=1)
        return tuple(found[:rank])

    # -- operations --
    def block(self, block: Block, values: dict[int, Any]) -> list[Any]:
        for operation in block.operations:
            self.operation = operation
            result = getattr(self, f"do_{operation.name}")(operation, [values[v.number] for v in operation.inputs],
                                                          values)
            for value, one in zip(operation.results, result, strict=True):
                values[value.number] = rounded(one, value.dtype)
        return [values[value.number] for value in block.results]

    def do_program_id(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return [self.id[one.attributes["axis"]]]

    def do_num_programs(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return [self.grid[one.attributes["axis"]]]

    def do_size(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return [self.arrays[one.attributes["array"]].shape[one.attributes["axis"]]]

    def do_constant(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return [one.attributes["value"]]

    def do_iota(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return [np.arange(one.result.shape[0])]

    def do_full(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return [np.full(one.result.shape, inputs[0])]

    def do_map(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        shape, op = one.result.shape, REGISTRY[one.attributes["op"]]
        if op.name == "cast":
            return [convert(inputs[0], one.inputs[0].dtype, one.result.dtype)]
        return [op.reference({}, *[np.broadcast_to(tile, shape) for tile in inputs])]

    def do_view(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return [inputs[0].T if one.attributes["kind"] == "transpose" else inputs[0].reshape(one.result.shape)]

    def do_reduce(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        (tile,), op = inputs, one.attributes["op"]
        if tile.ndim == 2 and one.attributes["axis"] == 0:
            total = tile[0]
            for row in tile[1:]:
                total = COMBINE[op](total, row)
            return [total]
        return [tree(tile, op)]

    def do_scan(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return [running(inputs[0], one.attributes["op"])]

    def do_sort(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return [inputs[0][np.argsort(sort_keys(inputs[0]), kind="stable")]]

    def do_dot(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        a, b = (tile.astype(np.float64) for tile in inputs[:2])
        total = np.zeros(one.result.shape, one.result.dtype.numpy) if len(inputs) < 3 else inputs[2]
        for k in range(a.shape[1]):
            total = (a[:, k, None] * b[k] + total.astype(np.float64)).astype(total.dtype)
        return [total]

    # -- control --
    def do_for(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        (start, stop, step), carried = map(int, inputs[:3]), inputs[3:]
        (block,) = one.blocks
        for index in range(start, stop, step):
            for argument, value in zip(block.arguments, [np.asarray(index), *carried], strict=True):
                values[argument.number] = value
            carried = self.block(block, values)
        return list(carried)

    def do_while(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        carried, (test, body) = inputs, one.blocks
        while True:
            for argument, value in zip(test.arguments, carried, strict=True):
                values[argument.number] = value
            if not self.block(test, values)[0]:
                return carried
            for argument, value in zip(body.arguments, carried, strict=True):
                values[argument.number] = value
            carried = self.block(body, values)

    def do_if(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        return self.block(one.blocks[0 if inputs[0] else 1], values)

    # -- memory --
    def indices(self, one: Operation, inputs: list[Any], value: Value) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """Index tiles for each axis, and which elements lie inside; indices outside are 0."""
        array, shape, form = self.arrays[one.attributes["array"]], value.shape, one.attributes["form"]
        inside, found, given = np.ones(shape, bool), list[np.ndarray](), list(inputs)
        along = 0
        for axis, letter in enumerate(form):
            size = array.shape[axis]
            place = np.asarray(given.pop(0), np.int64)
            if letter == "s":
                stop = int(given.pop(0))
                steps = np.arange(shape[along]).reshape([-1 if n == along else 1 for n in range(len(shape))])
                place, along = place + steps, along + 1
                there = (place >= 0) & (place < min(stop, size))
            else:
                there = (place >= 0) & (place < size)
            found.append(np.broadcast_to(place, shape))
            if letter != "s" and self.check:
                self.check_inside(one, axis, np.broadcast_to(place, shape), np.broadcast_to(there, shape), given)
            inside = inside & there
        if one.attributes["masked"]:
            inside = inside & given[-1]
        found = found or [np.zeros(shape, np.int64)]
        return tuple(np.where(inside, place, 0) for place in found), inside

    def array_name(self, one: Operation) -> str:
        index: int = one.attributes["array"]
        return self.program.arrays[index].name

    def check_inside(self, one: Operation, axis: int, place: np.ndarray, there: np.ndarray, rest: list[Any]) -> None:
        """An index outside that no mask leaves out; -1 in an index tile stands for a slice's end."""
        bad = ~there & (rest[-1] if one.attributes["masked"] else True)
        if one.attributes["form"][axis] == "t":
            bad = bad & (place != -1)
        if bad.any():
            size = self.arrays[one.attributes["array"]].shape[axis]
            raise self.fail(IndexFault, f"index {int(place[bad].flat[0])} is out of range for axis {axis} of "
                            f"{self.array_name(one)}, whose size is {size}", "mask it, or bound it by x.shape")

    def do_load(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        array, masked = self.arrays[one.attributes["array"]], one.attributes["masked"]
        other = inputs[-2] if masked else inputs[-1]
        places, inside = self.indices(one, inputs, one.result)
        if array.size == 0:
            return [np.full(one.result.shape, other)]
        if self.check:
            self.note_read(one, places, inside)
        return [np.where(inside, array[places], other)]

    def do_require(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        if not inputs[0]:
            raise self.fail(IndexFault, "an index lies outside its axis")
        return []

    def do_store(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        places, inside = self.indices(one, inputs[1:], one.inputs[0])
        if self.check:
            self.note_write(one, places, inside, "")
        array = self.arrays[one.attributes["array"]]
        array[tuple(place[inside] for place in places)] = np.broadcast_to(inputs[0], one.inputs[0].shape)[inside]
        return []

    def do_atomic(self, one: Operation, inputs: list[Any], values: dict[int, Any]) -> list[Any]:
        places, inside = self.indices(one, inputs[1:], one.inputs[0])
        if self.check:
            self.note_write(one, places, inside, one.attributes["op"])
        array, chosen = self.arrays[one.attributes["array"]], tuple(place[inside] for place in places)
        COMBINE[one.attributes["op"]].at(array, chosen, np.broadcast_to(inputs[0], one.inputs[0].shape)[inside])
        return []

    # -- checks --
    def note_read(self, one: Operation, places: tuple[np.ndarray, ...], inside: np.ndarray) -> None:
        trace, chosen = self.traces[one.attributes["array"]], tuple(place[inside] for place in places)
        name = self.array_name(one)
        if not trace.written[chosen].all():
            at = self.first(places, inside, ~trace.written[chosen])
            raise self.fail(ValueFault, f"reads {name}{at}, which nothing has written")
        met = (trace.writer[chosen] >= 0) & (trace.writer[chosen] != self.number)
        if met.any():
            at = self.first(places, inside, met)
            raise self.race(f"reads {name}{at}", int(trace.writer[at]), "writes it", int(trace.write_line[at]))
        trace.reader[chosen], trace.read_line[chosen] = self.number, one.line

    def note_write(self, one: Operation, places: tuple[np.ndarray, ...], inside: np.ndarray, atomic: str) -> None:
        trace, chosen, kind = self.traces[one.attributes["array"]], tuple(place[inside] for place in places), \
            ATOMICS[atomic]
        name = self.array_name(one)
        met = (trace.writer[chosen] >= 0) & (trace.writer[chosen] != self.number)
        met &= ~((trace.kind[chosen] == kind) & (kind > 0))
        if met.any():
            at = self.first(places, inside, met)
            raise self.race(f"writes {name}{at}", int(trace.writer[at]), "writes it too", int(trace.write_line[at]))
        met = (trace.reader[chosen] >= 0) & (trace.reader[chosen] != self.number)
        if met.any():
            at = self.first(places, inside, met)
            raise self.race(f"writes {name}{at}", int(trace.reader[at]), "reads it", int(trace.read_line[at]))
        if atomic and not trace.written[chosen].all():
            at = self.first(places, inside, ~trace.written[chosen])
            raise self.fail(ValueFault, f"atomic_{atomic} of {name}{at}, which nothing has written",
                            "begin with mo.zeros(...), or mo.kernel.new(..., fill=0)")
        if not atomic and len(chosen) and self.doubled(one, chosen):
            raise self.fail(ValueFault, f"writes an element of {name} twice in one store",
                            "which value stays is not defined: use an atomic")
        trace.writer[chosen], trace.write_line[chosen], trace.kind[chosen] = self.number, one.line, kind
        trace.written[chosen] = True

    def doubled(self, one: Operation, chosen: tuple[np.ndarray, ...]) -> bool:
        """Whether an index tile names an element twice."""
        if "t" not in one.attributes["form"]:
            return False
        flat = np.ravel_multi_index(chosen, self.arrays[one.attributes["array"]].shape)
        return len(np.unique(flat)) < len(flat)

    def first(self, places: tuple[np.ndarray, ...], inside: np.ndarray, which: np.ndarray) -> tuple[int, ...]:
        return tuple(int(place[inside][which][0]) for place in places)

    def race(self, action: str, other: int, theirs: str, line: int) -> MorphoError:
        place = f"{self.program.file}:{line}"
        return self.fail(ValueFault, f"{action}, and program {self.place(other)} {theirs} at {place}: "
                         "their order is not defined", "give each element to one program, or use integer atomics")


def convert(tile: Any, source: DType, target: DType) -> Any:
    """A cast: floats to integers truncate and saturate, NaN is 0."""
    tile = np.asarray(tile)
    if target is bool_:
        return tile != 0
    if source.is_float and target.is_integer:
        limits = np.iinfo(target.numpy)
        whole = np.trunc(np.nan_to_num(tile.astype(np.float64), nan=0.0))
        high = whole >= float(limits.max)
        return np.where(high, limits.max, np.clip(whole, limits.min, None).astype(target.numpy, casting="unsafe")
                        if not high.any() else np.where(high, 0, np.clip(whole, limits.min, None)).astype(target.numpy))
    return tile.astype(target.compute.numpy if target in (float32, float64) or target.is_float else target.numpy)
