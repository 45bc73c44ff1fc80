"""Packing of attention's operands: lines copied or transposed, scaled, padded with zeros."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import Value
from morpho.backends.kernels.attention.attention_code import Routine, Shape, any_lane, prefetch, transposed
from morpho.base.dtypes import DType

TOGETHER = 4  # vectors of a line
AHEAD = 4  # lines: the prefetch distance of packing


def pack_lines(shape: Shape, dtype: DType) -> Routine:
    """Lines of memory times a factor, side by side as registers hold them, each padded with zeros to `width`."""
    f = Routine(shape, "pack_lines", source="ptr", stride="i64", step="i64", lines="i64", size="i64", width="i64",
                factor="element", target="ptr")
    e, lanes, memory = f.e, shape.lanes, scalars.memory_type(dtype)
    whole = e.select(e.icmp("eq", f["step"], 1), f["size"] & -lanes, e.constant(0, "i64", 1))
    with e.loop(0, f["lines"]) as lines:
        source = e.offset("%source", memory, lines.index * f["stride"])
        target = f.at("%target", lines.index * f["width"])
        prefetch(e, e.offset(source, memory, f["stride"] * AHEAD), memory, whole)
        done = e.constant(0, "i64", 1)
        for vectors in (TOGETHER, 1):
            until = whole & -(vectors * lanes)
            with e.loop(done, until, vectors * lanes) as loop:
                for n in range(vectors):
                    loaded = e.load(e.offset(source, memory, loop.index + n * lanes), memory, lanes)
                    value = scalars.from_memory(e, loaded, dtype) * e.splat(f["factor"])
                    f.store(value, target, loop.index + n * lanes)
            done = until
        with e.loop(whole, f["size"]) as loop:
            one = e.load(e.offset(source, memory, loop.index * f["step"]), memory, 1)
            f.store(scalars.from_memory(e, one, dtype) * f["factor"], target, loop.index)
        with e.loop(f["size"], f["width"]) as loop:
            f.store(f.constant(0.0, 1), target, loop.index)
    return f


def pack_lanes(shape: Shape, dtype: DType) -> Routine:
    """Lines of memory times a factor, transposed for a tile of `rows` rows: target[c][line]; lines past `lines` and c
    past `size` are zero."""
    f = Routine(shape, "pack_lanes", source="ptr", offsets="ptr", step="i64", lines="i64", size="i64", width="i64",
                factor="element", rows="i64", target="ptr")
    e, rows, lanes, memory = f.e, f["rows"], shape.lanes, scalars.memory_type(dtype)
    with (e.when(e.icmp("slt", f["lines"], rows) | e.icmp("slt", f["size"], f["width"])),
          e.loop(0, f["width"] * rows, lanes) as loop):
        f.store(f.constant(0.0, lanes), "%target", loop.index)
    none = e.constant(0, "i64", 1)
    plain = e.icmp("eq", f["step"], 1)
    together = e.select(plain, f["lines"] & -lanes, none)  # lines that are transposed as vectors, and how far
    whole = e.select(plain, f["size"] & -shape.strip, none)

    def source(line: Value) -> str:
        return e.offset("%source", memory, e.load(e.offset("%offsets", "i64", line), "i64", 1))

    with e.loop(0, together, lanes) as lines:
        sources = [source(lines.index + i) for i in range(lanes)]
        target = f.at("%target", lines.index)
        with e.loop(0, whole, shape.strip) as loop:
            loaded = [e.load(e.offset(line, memory, loop.index), memory, shape.strip) for line in sources]
            for c, column in enumerate(transposed(f, [scalars.from_memory(e, strip, dtype) for strip in loaded])):
                f.store(column * e.splat(f["factor"]), target, (loop.index + c) * rows)
    with e.loop(0, f["lines"]) as lines:
        line, target = source(lines.index), f.at("%target", lines.index)
        with e.loop(e.select(e.icmp("slt", lines.index, together), whole, none), f["size"]) as loop:
            one = e.load(e.offset(line, memory, loop.index * f["step"]), memory, 1)
            f.store(scalars.from_memory(e, one, dtype) * f["factor"], target, loop.index * rows)
    return f


def finite(shape: Shape) -> Routine:
    """Stores at `found` whether all of `lines` lines of `width` elements are finite."""
    f = Routine(shape, "finite", v="ptr", stride="i64", lines="i64", width="i64", found="ptr")
    e, lanes, zero = f.e, shape.lanes, f.constant(0.0, shape.lanes)
    with e.loop(0, f["lines"], carried=[zero] * shape.value_vectors) as lines:
        line = f.at("%v", lines.index * f["stride"])
        with e.loop(0, f["width"], shape.columns, carried=lines.values) as loop:
            loop.next(*[e.fma(f.load(f.at(line, loop.index), n * lanes, lanes), zero, total)  # NaN from what is not
                        for n, total in enumerate(loop.values)])
        lines.next(*loop.values)
    total = lines.values[0]
    for other in lines.values[1:]:
        total = total + other
    strange = any_lane(e, e.is_nan(total))
    e.store(e.convert("zext", strange ^ 1, "i64"), "%found")
    return f
