# mypy: disable-error-code="valid-type"
"""Vocabulary of native functions of a GPU: threads, shared memory, shuffles, votes, atomics that other blocks see. A
kernel is `kernel_main(p, ctx)`: its words and the grid. Functions that it calls name the grid `context`; their pointers
are called `source`, `status` or `room`, so that the emulator checks every access through them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, cast

from morpho.backends.code import scalars
from morpho.backends.code.elementwise import emit
from morpho.backends.code.emit import BITS, Value
from morpho.backends.code.native import declare, module
from morpho.backends.code.typed import (
    Native,
    Operand,
    Operations,
    Type,
    Words,
    as_type,
    f32,
    f64,
    i1,
    i8,
    i16,
    i32,
    i64,
    writes,
)
from morpho.backends.cuda.codegen.grid import GridEmitter, Header
from morpho.backends.cuda.codegen.kernels import OwnKernel
from morpho.base.dtypes import DType

F = TypeVar("F", bound=Callable[..., Any])
DEVICE = 'syncscope("device")'
FIRST = int(Header.SIZE)
thread = declare("gpu.thread", Callable[[Words], i64])
block = declare("gpu.block", Callable[[Words], i64])
blocks = declare("gpu.blocks", Callable[[Words], i64])
barrier = declare("gpu.barrier", Callable[[Words], None])
warp_barrier = declare("gpu.warp_barrier", Callable[[Words], None])
shuffle = declare("gpu.shuffle", Callable[[Words, i32, i32], i32])
shuffle_up = declare("gpu.shuffle_up", Callable[[Words, i32, i32], i32])
ballot = declare("gpu.ballot", Callable[[Words, i32], i32])
same_lanes = declare("gpu.same_lanes", Callable[[Words, i32], i32])
pause = declare("gpu.pause", Callable[[Words], None])
ones = declare("llvm.ctpop.i32", Callable[[i32], i32])
leading_zeros = declare("llvm.ctlz.i32", Callable[[i32, i1], i32])
ELSEWHERE = (thread, block, blocks, barrier, warp_barrier, shuffle, shuffle_up, ballot, same_lanes, pause)
KINDS: dict[str, Any] = {"i1": i1, "i8": i8, "i16": i16, "i32": i32, "i64": i64, "half": Type("half", "float", 16),
                         "float": f32, "double": f64}


def device(function: F) -> F:
    """A function that is called by kernels, written into them."""
    one = Native(function, "", True)
    one.attributes = " alwaysinline convergent"
    return cast(F, one)


def kernel_text(function: Any, words: int, threads: int) -> str:
    """The text of a kernel with so many words, and of all that it calls."""
    one = Native(function, "kernel_main", None)
    one.attributes = f' #{words} convergent nounwind "nvvm.maxntid"="{threads}"'
    return module(one, elsewhere=ELSEWHERE, emitter=GridEmitter)


def in_memory(dtype: DType) -> Any:
    """The type of an element in memory."""
    return KINDS[scalars.memory_type(dtype)]


def in_register(dtype: DType) -> Any:
    return KINDS[scalars.register_type(dtype)]


def typed(code: Operations, value: Value, kind: Any = None) -> Operand:
    """A value of the emitter with its type."""
    return Operand(code.e, value.name, kind or KINDS[value.type])


def operand(p: Any, number: int, kind: Any) -> Any:
    """The address of an operand of the kernel."""


@writes(operand)
def _operand(code: Operations, p: Operand, number: int, kind: Any) -> Operand:
    address = code.e.load_pointer(code.e.offset(p.name, "i64", FIRST + number))
    return Operand(code.e, address, Type("ptr", "pointer", 64, (as_type(kind),)))


def shared(context: Any, kind: Any, first: int) -> Any:
    """Elements of the block's shared memory, from a byte on."""


@writes(shared)
def _shared(code: Operations, context: Operand, kind: Any, first: int) -> Operand:
    base = code.e.assign(f"call ptr @gpu.shared({context})", "ptr", 1)
    return Operand(code.e, code.e.offset(base.name, "i8", first), Type("ptr", "pointer", 64, (as_type(kind),)))


def look(place: Any) -> Any:
    """Read what other blocks write."""


@writes(look)
def _look(code: Operations, place: Operand) -> Operand:
    kind = place.kind.parts[0]
    return code.assign(f"load atomic {kind.name}, {place} {DEVICE} monotonic, align {kind.bytes}", kind)


def show(place: Any, value: Any) -> None:
    """Write what other blocks read."""


@writes(show)
def _show(code: Operations, place: Operand, value: Any) -> None:
    kind = place.kind.parts[0]
    code.e.line(f"store atomic {code.fit(value, kind)}, {place} {DEVICE} monotonic, align {kind.bytes}")


def atomic(operation: str, place: Any, value: Any) -> Any:
    """Change an element that other threads change; returns what it was."""


@writes(atomic)
def _atomic(code: Operations, operation: str, place: Operand, value: Any) -> Operand:
    kind = place.kind.parts[0]
    return code.assign(f"atomicrmw {operation} {place}, {code.fit(value, kind)} {DEVICE} monotonic", kind)


def moved(call: Any, context: Any, value: Any, lane: Any) -> Any:
    """A value of 16 to 64 bits by `shuffle` or `shuffle_up`."""


@writes(moved)
def _moved(code: Operations, call: Any, context: Operand, value: Operand, lane: Any) -> Operand:
    e, kind = code.e, value.kind
    lane = code.convert(lane, KINDS["i32"]) if isinstance(lane, Operand) else code.fit(lane, KINDS["i32"])
    whole: Value = e.bits(value) if value.is_float else value

    def word(part: Value) -> Value:
        return cast(Value, code.call(call, [context, typed(code, part, i32), lane]))

    if BITS[value.element] == 64:
        halves = [word(e.convert("trunc", part, "i32")) for part in (whole, whole.shift_right(32))]
        result = e.convert("zext", halves[0], "i64") | (e.convert("zext", halves[1], "i64") << 32)
    else:
        result = word(whole)
    return typed(code, e.from_bits(result, value.element) if value.is_float else result, kind)


def words_of(value: Any) -> Any:
    """The bits of a value as one or two words of 32 bits, in 64 each."""


@writes(words_of)
def _words_of(code: Operations, value: Operand) -> tuple[Operand, ...]:
    e, mask = code.e, 0xFFFFFFFF
    whole: Value = e.bits(value) if value.is_float else value
    if BITS[value.element] == 64:
        return typed(code, whole & mask, i64), typed(code, whole.shift_right(32) & mask, i64)
    return (typed(code, e.convert("zext", whole, "i64"), i64),)


def value_of(kind: Any, first: Any, second: Any) -> Any:
    """A value from its words."""


@writes(value_of)
def _value_of(code: Operations, kind: Any, first: Operand, second: Operand) -> Operand:
    e = code.e
    low: Value = first & 0xFFFFFFFF
    whole = low | (second << 32) if kind.bits == 64 else e.convert("trunc", low, "i32")
    return typed(code, e.from_bits(whole, kind.name) if kind.family == "float" else whole, kind)


@lru_cache(maxsize=64)
def elements(dtype: DType) -> tuple[Any, Any]:
    """`load(place)` and `store(place, value)` of elements of a dtype as values of registers."""

    def load(place: Any) -> Any: ...
    def store(place: Any, value: Any) -> None: ...

    @writes(load)
    def _load(code: Operations, place: Operand) -> Operand:
        return typed(code, scalars.from_memory(code.e, code.e.load(place.name, scalars.memory_type(dtype), 1), dtype))

    @writes(store)
    def _store(code: Operations, place: Operand, value: Operand) -> None:
        rounded = scalars.round_to(code.e, value, dtype)
        code.e.store(scalars.to_memory(code.e, rounded, dtype), place.name)

    return load, store


@lru_cache(maxsize=64)
def elementwise(name: str, dtype: DType) -> Any:
    """An elementwise operation on values of registers."""

    def call(*values: Any) -> Any: ...

    @writes(call)
    def _call(code: Operations, *values: Operand) -> Operand:
        return typed(code, emit(code.e, name, list(values), dtype, dtype))

    return call


@lru_cache(maxsize=64)
def called(combine: Any, kind: Any) -> Any:
    """An operation of two values as a function that is not written into its callers."""

    def combination(first: kind, second: kind) -> kind:
        return kind(combine(first, second))

    return Native(combination, "", False)


@lru_cache(maxsize=64)
def place_in(rank: int, extents: int, strides: int) -> Any:
    """`place(p, line)`: where a line begins, by the words of its outer axes' extents and strides."""
    axes = tuple(reversed(range(rank)))

    @device
    def place(p: Words, line: i64) -> i64:
        start, rest = i64(0), line
        for axis in axes:
            start += rest % p[extents + axis] * p[strides + axis]
            rest = rest // p[extents + axis]
        return start

    cast(Native, place).symbol = f"place.{extents}.{strides}"
    return place


@device
def lane(context: Words) -> i64:
    return thread(context) & 31  # type: ignore[no-any-return]


@device
def warp(context: Words) -> i64:
    return thread(context) >> 5  # type: ignore[no-any-return]


@dataclass(frozen=True)
class BlockKernel(OwnKernel):
    """Base of kernels that are native functions."""

    role = "scan"
