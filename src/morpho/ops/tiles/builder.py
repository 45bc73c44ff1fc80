"""Operations of the tile IR from Python values: dtype promotion, broadcasting, windows, and constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any

import numpy as np

from morpho.base.dtypes import DType, as_dtype, bool_, float32, float64, int32, int64, promote
from morpho.base.errors import MorphoError
from morpho.ir.op import REGISTRY, Spec
from morpho.ops.tiles.ir import Array, Block, Operation, Tile, TileProgram, Value

MOST_ELEMENTS = 1 << 20  # of a tile
FLOATING = frozenset({"divide", "sqrt", "reciprocal", "exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sin",
                      "cos", "tan", "tanh", "sigmoid", "erf", "gelu", "silu", "softplus"})
LOGICAL = {"bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "logical_xor",
           "bitwise_invert": "logical_not"}


Reading = tuple[Callable[[], Any], Any]  # how a value was read, and the value


class Refusal(Exception):
    """Something a kernel may not do; becomes an error with the kernel's line."""


@dataclass(eq=False)
class Parameter:
    """An array argument of a kernel while it is read."""

    index: int
    name: str
    dtype: DType
    rank: int
    shape: tuple[Value, ...] = ()
    read: bool = False
    written: bool = False

    @property
    def ndim(self) -> int:
        return self.rank


@dataclass(eq=False)
class Window:
    """An indexed array: for each axis a letter of the form, and its integers or index tile."""

    array: Parameter
    form: str
    inputs: tuple[Value, ...]
    shape: Tile | None  # of the tile, where index tiles say it


class Builder:
    """Writes operations into the current block."""

    def __init__(self) -> None:
        self.count = 0
        self.block = Block()
        self.line = 0
        self.readings: list[Reading] = []

    def reading(self, read: Callable[[], Any]) -> Any:
        """A value from outside of the kernel, noted because it may have changed at the next call."""
        value = read()
        self.readings.append((read, value))
        return value

    def new(self, shape: Tile, dtype: DType) -> Value:
        if len(shape) > 2:
            raise Refusal(f"a tile of shape {shape}: tiles have at most two axes")
        if any(type(size) is not int or size < 1 for size in shape) or math.prod(shape) > MOST_ELEMENTS:
            raise Refusal(f"a tile of shape {shape}: sizes are known whole numbers, at most {MOST_ELEMENTS} elements")
        if dtype.is_complex:
            raise Refusal(f"tiles of {dtype} are not supported")
        self.count += 1
        return Value(self.count, shape, dtype)

    def add(self, name: str, inputs: Sequence[Value], shape: Tile | None, dtype: DType | None = None,
            **attributes: Any) -> Value:
        """Write an operation with one result, or none where `shape` is None."""
        results = () if shape is None or dtype is None else (self.new(shape, dtype),)
        self.block.operations.append(Operation(name, tuple(inputs), attributes, results, (), self.line))
        return results[0] if results else None  # type: ignore[return-value]

    # -- values --
    def constant(self, value: Any, dtype: DType | None = None) -> Value:
        if isinstance(value, Value):
            return value if dtype is None else self.cast(value, dtype)
        if type(value) not in (bool, int, float):
            raise Refusal(f"{value!r} is no number")
        kind = dtype or {bool: bool_, int: int64, float: float32}[type(value)]
        return self.add("constant", (), (), kind, value=constant_of(value, kind))

    def cast(self, value: Value, dtype: DType) -> Value:
        return value if value.dtype is dtype else self.add("map", (value,), value.shape, dtype, op="cast")

    def promoted(self, values: Sequence[Any], floating: bool = False) -> list[Value]:
        """Values of one dtype; Python numbers follow the others."""
        dtype: DType | None = None
        for value in values:
            if isinstance(value, Value):
                dtype = value.dtype if dtype is None else promote(dtype, value.dtype)
        if dtype is None:
            return [self.constant(value) for value in values]
        for value in values:
            if type(value) is float and not dtype.is_float:
                dtype = float32
            if type(value) is int and dtype is bool_:
                dtype = int64
        if floating and not dtype.is_float:
            dtype = float32
        return [self.constant(value, dtype) for value in values]

    def view(self, value: Value, kind: str) -> Value:
        """A line as a column or a row, or a matrix transposed."""
        shape = {"column": (*value.shape, 1), "row": (1, *value.shape), "transpose": value.shape[::-1]}[kind]
        return self.add("view", (value,), shape, value.dtype, kind=kind)

    def map(self, op: str, *values: Any) -> Value:
        """An elementwise op record on values that broadcast."""
        if op == "where":
            condition, *others = values
            operands = [self.cast(self.constant(condition), bool_), *self.promoted(others)]
        else:
            operands = self.promoted(values, floating=op in FLOATING or REGISTRY[op].floating)
            if operands[0].dtype is bool_ and op in LOGICAL:
                op = LOGICAL[op]
        shape = self.broadcast([value.shape for value in operands])
        rank = len(shape)
        operands = [self.view(value, "row") if rank == 2 and len(value.shape) == 1 else value for value in operands]
        try:
            spec = REGISTRY[op].infer([Spec(shape, value.dtype) for value in operands], {})
        except MorphoError as error:
            raise Refusal(f"{op}: {error.message}") from None
        assert isinstance(spec, Spec)
        return self.add("map", operands, shape, spec.dtype, op=op)

    def broadcast(self, shapes: Sequence[Tile]) -> Tile:
        rank = max(map(len, shapes))
        padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
        sizes: list[int] = []
        for axis in range(rank):
            several = {shape[axis] for shape in padded} - {1}
            if len(several) > 1:
                named = " and ".join(str(shape) for shape in dict.fromkeys(shapes))
                raise Refusal(f"tiles of shapes {named} do not broadcast")
            sizes.append(several.pop() if several else 1)
        return tuple(sizes)

    def expanded(self, value: Value, shape: Tile) -> Value:
        """A value as a tile of a shape."""
        if value.shape == shape:
            return value
        if self.broadcast([value.shape, shape]) != shape:
            raise Refusal(f"a tile of shape {value.shape} is no {shape}")
        return self.map("where", self.add("full", (self.constant(True),), shape, bool_), value, value)

    def full(self, shape: Any, value: Any, dtype: Any = None) -> Value:
        size, one = self.tile_shape(shape), self.constant(value, None if dtype is None else as_dtype(dtype))
        return self.add("full", (one,), size, one.dtype) if size else one

    def tile_shape(self, shape: Any) -> Tile:
        sizes = (shape,) if type(shape) is int else shape
        if not isinstance(sizes, tuple | list) or not all(type(size) is int for size in sizes):
            raise Refusal("the shape of a tile must be known when the kernel is compiled: give constants")
        return tuple(sizes)

    # -- memory --
    def window(self, array: Parameter, index: Any) -> Window:
        """An indexed array."""
        parts = list(index) if isinstance(index, tuple) else [index]
        if Ellipsis in parts:
            at = parts.index(Ellipsis)
            parts[at:at + 1] = [slice(None)] * (array.rank - len(parts) + 1)
        parts += [slice(None)] * (array.rank - len(parts))
        if len(parts) > array.rank:
            raise Refusal(f"{array.name} has {array.rank} axes, not {len(parts)}")
        form, inputs = "", list[Value]()
        tiles = [part.shape for part in parts if isinstance(part, Value) and part.shape]
        for axis, part in enumerate(parts):
            if isinstance(part, slice):
                if part.step is not None:
                    raise Refusal("a slice of an array has no step: use an index tile")
                start, stop = 0 if part.start is None else part.start, part.stop
                stop = array.shape[axis] if stop is None else stop
                if type(stop) is int and stop < 0:
                    raise from_the_end(array, axis, stop)
                form += "s"
                inputs += [self.integer(start), self.integer(stop)]
            elif isinstance(part, Value) and part.shape:
                if not part.dtype.is_integer:
                    raise Refusal(f"an index tile of {part.dtype}")
                form += "t"
                inputs.append(self.cast(part, int64))
            else:
                if type(part) is int and part < 0:
                    raise from_the_end(array, axis, part)
                form += "i"
                inputs.append(self.integer(part))
        if tiles and "s" in form and "".join(sorted(form.replace("i", ""))) != "st":
            raise Refusal("an index tile and a slice: give one of each, or index tiles alone")
        return Window(array, form, tuple(inputs), self.broadcast(tiles) if tiles and "s" not in form else None)

    def integer(self, value: Any) -> Value:
        if isinstance(value, Value) and value.dtype.is_integer and not value.shape:
            return self.cast(value, int64)
        if type(value) is int:
            return self.constant(value, int64)
        raise Refusal(f"{value!r} is no index: use integers, slices, or tiles of integers")

    def placed(self, window: Any, shape: Any) -> tuple[Window, Tile]:
        """A window and the shape of its tile; slices beside an index tile become index tiles."""
        if isinstance(window, Parameter):
            window = self.window(window, ())
        if not isinstance(window, Window):
            raise Refusal("the first argument is an array argument or a part of one, such as x[i, :]")
        if window.shape is not None:
            return window, window.shape
        axes = window.form.replace("i", "")
        if not axes:
            return window, ()
        if shape is None:
            raise Refusal("the shape of the tile is missing: a slice does not say how long it is")
        size = self.tile_shape(shape)
        if "t" in axes:
            return self.with_tiles(window, size)
        if len(size) != len(axes):
            raise Refusal(f"a tile of shape {size} for a window of {len(axes)} axes")
        return window, size

    def with_tiles(self, window: Window, size: Tile) -> tuple[Window, Tile]:
        """`table[rows, a:b]` with an index tile for the slice."""
        given = list(window.inputs)
        made: list[Value] = []
        order = window.form.replace("i", "")
        length = size[-1] if order == "ts" else size[0]
        for letter in window.form:
            if letter == "s":
                start, stop = given.pop(0), given.pop(0)
                place = self.map("add", self.add("iota", (), (length,), int64), start)
                # Behind the stop there is nothing: an index that no array has.
                place = self.map("where", self.map("less", place, stop), place, -1)
                made.append(self.view(place, "row" if order == "ts" else "column"))
            elif letter == "t":
                tile = given.pop(0)
                made.append(self.view(tile, "column" if order == "ts" else "row") if len(tile.shape) == 1 else tile)
            else:
                made.append(given.pop(0))
        shape = self.broadcast([tile.shape for tile in made if tile.shape])
        return Window(window.array, window.form.replace("s", "t"), tuple(made), shape), shape

    def load(self, window: Any, shape: Any = None, other: Any = 0, mask: Any = None) -> Value:
        place, size = self.placed(window, shape)
        place.array.read = True
        inputs = [*place.inputs, self.constant(other, place.array.dtype)]
        if mask is not None:
            inputs.append(self.expanded(self.cast(self.constant(mask), bool_), size))
        return self.add("load", inputs, size, place.array.dtype, array=place.array.index, form=place.form,
                        masked=mask is not None)

    def store(self, window: Any, value: Any, mask: Any = None, atomic: str = "", unordered: bool = False) -> None:
        tile = value if isinstance(value, Value) else None
        place, size = self.placed(window, None if tile is None else tile.shape)
        dtype = place.array.dtype
        if atomic and dtype.is_float and not unordered:
            raise Refusal(f"atomic_{atomic} of {dtype}: sums of floats depend on the order in which programs arrive; "
                          "use integers, or say unordered=True")
        if atomic and ((dtype.is_float and (atomic != "add" or dtype.itemsize < 4)) or dtype.itemsize < 4):
            raise Refusal(f"atomic_{atomic} of {dtype} is not supported")
        place.array.written = True
        place.array.read |= bool(atomic)
        stored = self.expanded(self.constant(value, dtype), size)
        inputs = [stored, *place.inputs]
        if mask is not None:
            inputs.append(self.expanded(self.cast(self.constant(mask), bool_), size))
        where: dict[str, Any] = {"array": place.array.index, "form": place.form, "masked": mask is not None}
        self.add("atomic" if atomic else "store", inputs, None, None, **where, **({"op": atomic} if atomic else {}))

    # -- tiles --
    def reduce(self, op: str, value: Any, axis: Any = None) -> Value:
        tile = self.constant(value)
        if not tile.shape:
            return tile
        rank = len(tile.shape)
        if axis is None:
            if rank == 2:
                tile = self.reduce(op, tile, 1)
            return self.add("reduce", (self.summed(op, tile),), (), self.summed(op, tile).dtype, op=op, axis=0)
        if type(axis) is not int or not -rank <= axis < rank:
            raise Refusal(f"axis {axis!r} of a tile of shape {tile.shape}")
        axis %= rank
        tile = self.summed(op, tile)
        shape = tuple(size for number, size in enumerate(tile.shape) if number != axis)
        return self.add("reduce", (tile,), shape, tile.dtype, op=op, axis=axis)

    def summed(self, op: str, tile: Value) -> Value:
        """A tile in the dtype in which it is reduced."""
        if tile.dtype is bool_:
            return self.cast(tile, int64) if op in ("sum", "prod") else self.cast(tile, int32)
        return self.cast(tile, tile.dtype.compute)

    def scan(self, op: str, value: Any, axis: Any = -1) -> Value:
        """Running sums, products or extremes of a line."""
        tile = self.constant(value)
        if len(tile.shape) != 1 or axis not in (0, -1):
            raise Refusal(f"a running {op} of a tile of shape {tile.shape}: it takes a line")
        tile = self.summed(op, tile)
        return self.add("scan", (tile,), tile.shape, tile.dtype, op=op)

    def sort(self, value: Any) -> Value:
        tile = self.constant(value)
        if len(tile.shape) != 1:
            raise Refusal(f"sort of a tile of shape {tile.shape}: it takes a line")
        if tile.dtype is bool_:
            return self.cast(self.sort(self.cast(tile, int32)), bool_)
        return self.add("sort", (tile,), tile.shape, tile.dtype)

    def dot(self, left: Any, right: Any, acc: Any = None) -> Value:
        a, b = self.promoted([left, right])
        if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
            raise Refusal(f"dot of tiles of shapes {a.shape} and {b.shape}: it takes (M, K) and (K, N)")
        if not a.dtype.is_float:
            raise Refusal(f"dot of {a.dtype}: it takes floats")
        dtype = float64 if a.dtype is float64 else float32
        shape = (a.shape[0], b.shape[1])
        inputs = [self.cast(a, dtype), self.cast(b, dtype)]
        if acc is not None:
            inputs.append(self.expanded(self.constant(acc, dtype), shape))
        return self.add("dot", inputs, shape, dtype)


def from_the_end(array: Parameter, axis: int, index: int) -> Refusal:
    return Refusal(f"{index} is outside of {array.name}: indices do not count from the end, "
                   f"so write {array.name}.shape[{axis}] - {-index}")


def exact(value: Any) -> Any:
    """A key that differs where a kernel's code may: 1, 1.0 and True, and both zeros, are four values."""
    if isinstance(value, tuple | list):
        return type(value), *map(exact, value)
    return type(value), repr(value) if isinstance(value, float) else value


def is_current(readings: Sequence[Reading]) -> bool:
    """Whether values from outside of a kernel are what they were when it was translated."""
    for read, value in readings:
        try:
            new = read()
        except (AttributeError, LookupError, TypeError, ValueError, Refusal):
            return False
        if new is not value and not (isinstance(value, bool | int | float | str | tuple | list | MethodType)
                                     and exact(new) == exact(value)):
            return False
    return True


def constant_of(value: bool | int | float, dtype: DType) -> bool | int | float:
    """A Python number as an element of a dtype: floats beyond its range are infinite, integers are refused."""
    if dtype is bool_:
        return bool(value)
    if dtype.is_float:
        most = float(np.finfo(dtype.compute.numpy if dtype.name == "bfloat16" else dtype.numpy).max)
        return math.copysign(math.inf, value) if abs(value) > most else float(value)
    whole, limits = int(value), np.iinfo(dtype.numpy)
    if not limits.min <= whole <= limits.max:
        raise Refusal(f"{value} is out of range for {dtype}")
    return whole


def finished(builder: Builder, name: str, parameters: Sequence[Parameter], file: str) -> TileProgram:
    """The program that a builder has written."""
    arrays = tuple(Array(p.name, p.dtype, p.rank, p.read, p.written) for p in parameters)
    return TileProgram(name, arrays, builder.block, file)
