"""The IR of a kernel over tiles: typed values, operations with blocks, and a canonical text.

A value is a scalar (shape `()`), a line or a matrix of known size. Operations are listed in notes/kernel-language.md.
The text leaves out source lines, so that a kernel that only moves in its file keeps its code.

>>> from morpho.base.dtypes import int64
>>> program = TileProgram("nothing", (), Block())
>>> program.body.operations.append(Operation("constant", (), {"value": 3}, (Value(0, (), int64),)))
>>> decode(program.text).text == program.text
True
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from morpho.base.dtypes import BY_NAME, DType

Tile = tuple[int, ...]  # shape


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A scalar or a tile."""

    number: int
    shape: Tile
    dtype: DType


@dataclass(eq=False, slots=True)
class Operation:
    """One operation; `line` is the user's, 0 where it is not known."""

    name: str
    inputs: tuple[Value, ...]
    attributes: dict[str, Any]
    results: tuple[Value, ...] = ()
    blocks: tuple[Block, ...] = ()
    line: int = 0

    @property
    def result(self) -> Value:
        return self.results[0]


@dataclass(eq=False, slots=True)
class Block:
    """Operations in order. Its arguments are values of an iteration, its results go to the next one or out."""

    arguments: tuple[Value, ...] = ()
    operations: list[Operation] = field(default_factory=list)
    results: tuple[Value, ...] = ()


@dataclass(frozen=True, slots=True)
class Array:
    """An array argument: `read` before it may be written, and `written`."""

    name: str
    dtype: DType
    rank: int
    read: bool
    written: bool


@dataclass(eq=False)
class TileProgram:
    """A kernel for known dtypes, ranks and constants. `file` is where its lines are counted."""

    name: str
    arrays: tuple[Array, ...]
    body: Block
    file: str = ""

    @cached_property
    def text(self) -> str:
        """The program as JSON, without lines."""
        arrays = [[a.name, a.dtype.name, a.rank, int(a.read), int(a.written)] for a in self.arrays]
        return json.dumps([self.name, arrays, _block(self.body)], separators=(",", ":"))

    @property
    def operations(self) -> Iterator[Operation]:
        """All operations, those inside of blocks after the one they belong to."""
        return _all(self.body)


def _all(block: Block) -> Iterator[Operation]:
    for operation in block.operations:
        yield operation
        for inner in operation.blocks:
            yield from _all(inner)


def _value(value: Value) -> list[Any]:
    return [value.number, list(value.shape), value.dtype.name]


def _attribute(value: Any) -> Any:
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, DType):
        return {"dtype": value.name}
    return list(value) if isinstance(value, tuple) else value


def _block(block: Block) -> list[Any]:
    rows = [[one.name, [v.number for v in one.inputs], {k: _attribute(v) for k, v in sorted(one.attributes.items())},
             [_value(v) for v in one.results], [_block(inner) for inner in one.blocks]] for one in block.operations]
    return [[_value(v) for v in block.arguments], rows, [v.number for v in block.results]]


@lru_cache(maxsize=256)
def decode(text: str) -> TileProgram:
    """The program of a text; lines are not known."""
    name, arrays, body = json.loads(text)
    values: dict[int, Value] = {}

    def value(row: list[Any]) -> Value:
        values[row[0]] = Value(row[0], tuple(row[1]), BY_NAME[row[2]])
        return values[row[0]]

    def attribute(row: Any) -> Any:
        if isinstance(row, dict):
            return float.fromhex(row["float"]) if "float" in row else BY_NAME[row["dtype"]]
        return tuple(row) if isinstance(row, list) else row

    def block(row: list[Any]) -> Block:
        arguments, operations, results = row
        made = Block(tuple(map(value, arguments)))
        for op, inputs, attributes, outputs, blocks in operations:
            read = tuple(values[number] for number in inputs)
            inner = tuple(map(block, blocks))
            made.operations.append(Operation(op, read, {k: attribute(v) for k, v in attributes.items()},
                                             tuple(map(value, outputs)), inner))
        made.results = tuple(values[number] for number in results)
        return made

    parts = tuple(Array(n, BY_NAME[dtype], rank, bool(read), bool(written)) for n, dtype, rank, read, written in arrays)
    return TileProgram(name, parts, block(body))


def partials(shape: Tile) -> int:
    """How many partial sums a reduction along the last axis of a tile has.

    >>> partials((1000,)), partials((5,)), partials((8, 64))
    (512, 8, 32)
    """
    most = 512 if len(shape) == 1 else 32
    return min(most, 1 << max(0, shape[-1] - 1).bit_length()) if len(shape) == 1 else most


SEGMENTS = 128  # of a running sum


def segment(length: int) -> int:
    """Elements of a segment of a running sum."""
    return -(-length // SEGMENTS)
