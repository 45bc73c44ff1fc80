"""The function of a `SearchKernel`."""

from __future__ import annotations

from collections.abc import Callable

from morpho.backends.code import scalars
from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE
from morpho.backends.kernels.loops.sequential.search import SearchKernel
from morpho.base.machine import Isa


def generate(kernel: SearchKernel, isa: Isa, name: str) -> str:
    """The LLVM module of a `SearchKernel`."""
    if kernel.lanes > 1:
        return _many(kernel, isa, name)
    e = Emitter(1, isa.native_half)
    memory = scalars.memory_type(kernel.dtype)
    rank = kernel.outer_rank
    line, values, target = (e.load_pointer("%buffers", n) for n in range(3))
    v = kernel.record.load(e)
    extents, *strides = (kernel.record.loaded(field, v) for field in ("extents", "line", "value", "target"))
    with e.loop(e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)) as rows:
        index, places = rows.index, [e.constant(0, "i64", 1)] * 3
        for axis in reversed(range(rank)):
            quotient = e.instruction("udiv", index, extents[axis])
            coordinate = index - quotient * extents[axis]
            places = [p + coordinate * s[axis] for p, s in zip(places, strides, strict=True)]
            index = quotient
        with e.loop(0, v["count"]) as loop:
            at = [p + loop.index * s[rank] for p, s in zip(places[1:], strides[1:], strict=True)]
            x = scalars.from_memory(e, e.load(e.offset(values, memory, at[0]), memory, 1), kernel.dtype)

            def goes_before(place: Value, x: Value = x, start: Value = places[0]) -> Value:
                there = e.load(e.offset(line, memory, start + place * strides[0][rank]), memory, 1)
                return _before(e, kernel, scalars.from_memory(e, there, kernel.dtype), x)

            e.store(_halved(e, v["length"], goes_before), e.offset(target, "i64", at[1]))
    e.line("ret i32 0")
    return (defined(f"i32 @{name}({SIGNATURE}) nounwind", e.text()) + "\n".join(sorted(e.declarations)) + "\n")


def _many(kernel: SearchKernel, isa: Isa, name: str) -> str:
    """The module of a kernel with lanes: the last values of a stretch go one by one."""
    e = Emitter(1, isa.native_half)
    memory = scalars.memory_type(kernel.dtype)
    line, values, target = (e.load_pointer("%buffers", n) for n in range(3))
    v = kernel.record.load(e)

    def search(lanes: int, place: Value) -> None:
        x = scalars.from_memory(e, e.load(e.offset(values, memory, place), memory, lanes), kernel.dtype)

        def goes_before(at: Value) -> Value:
            if lanes == 1:
                element = e.load(e.offset(line, memory, at * v["line"]), memory, 1)
            else:
                element = e.gather_some(line, memory, at * e.splat(v["line"], lanes), e.constant(True, "i1", lanes))
            return _before(e, kernel, scalars.from_memory(e, element, kernel.dtype), x)

        e.store(_halved(e, v["length"], goes_before, lanes), e.offset(target, "i64", place))

    first, end = e.argument("%row0", "i64", 1), e.argument("%row1", "i64", 1)
    whole = end - ((end - first) & (kernel.lanes - 1))
    with e.loop(first, whole, kernel.lanes) as several:
        search(kernel.lanes, several.index)
    with e.loop(whole, end) as rest:
        search(1, rest.index)
    e.line("ret i32 0")
    wide = '"prefer-vector-width"="512"' if isa.vector_bits >= 512 else ""
    return (defined(f"i32 @{name}({SIGNATURE}) nounwind {wide}", e.text()) + "\n".join(sorted(e.declarations)) + "\n")


def _halved(e: Emitter, length: Value, goes_before: Callable[[Value], Value], lanes: int = 1) -> Value:
    """How many elements go before: of what is left a half is decided in each turn, without a branch on elements."""
    with e.loop(0, 64, carried=[e.constant(0, "i64", lanes), length]) as loop:
        first, left = loop.values
        more, look, done = e.icmp("sgt", left, 1), e.fresh("look"), e.fresh("done")
        before = e.block
        e.branch_if(more, look, done)
        e.label(look)
        half = left.shift_right(1)
        place = first + (half if lanes == 1 else e.splat(half, lanes))
        found = e.select(goes_before(place - 1), place, first)
        rest, last = left - half, e.block
        e.branch(done)
        e.label(done)
        news = [e.assign(f"phi {old.type} [ {old.name}, %{before} ], [ {new.name}, %{last} ]", "i64", old.lanes)
                for old, new in ((first, found), (left, rest))]
        loop.next(*news)
        loop.step = e.select(more, e.constant(1, "i64", 1), 64)
    first, left = loop.values
    return _last(e, first, left, goes_before)


def _last(e: Emitter, first: Value, left: Value, goes_before: Callable[[Value], Value]) -> Value:
    """The one element that is left to look at."""
    there, look, done = e.block, e.fresh("look"), e.fresh("done")
    e.branch_if(e.icmp("sgt", left, 0), look, done)
    e.label(look)
    found = first + e.convert("zext", goes_before(first), "i64")
    last = e.block
    e.branch(done)
    e.label(done)
    return e.assign(f"phi {first.type} [ {first.name}, %{there} ], [ {found.name}, %{last} ]", "i64", first.lanes)


def _before(e: Emitter, kernel: SearchKernel, there: Value, x: Value) -> Value:
    """Whether an element of the line goes before a value: less, or with `right` not above; NaN is the largest."""
    if not there.is_float:
        signed = "s" if kernel.dtype.kind == "i" else "u"
        return e.icmp(f"{signed}l{'e' if kernel.right else 't'}", there, x)
    if kernel.right:  # not x < there, with NaN above all: there <= x, or x is NaN
        return e.fcmp("ole", there, x) | e.is_nan(x)
    return e.fcmp("olt", there, x) | (e.is_nan(x) & e.fcmp("ord", there, there))
