"""Parts of the kernels of attention: numbers, addresses of operands, scratch, and the module around the routines."""

from __future__ import annotations

from abc import ABC, abstractmethod

from morpho.backends.code import scalars
from morpho.backends.code.emit import Emitter, Value, defined
from morpho.backends.code.kernel_abi import SIGNATURE, Record
from morpho.backends.kernels.attention.attention import FAR, record_of
from morpho.backends.kernels.attention.attention_code import Routine, Shape, call, declared, smax, smin
from morpho.base.dtypes import DType
from morpho.base.machine import Isa


class TileCode(ABC):
    """A kernel being written; its numbers are those of `record_of`."""

    operands: tuple[str, ...]
    moving: bool  # whether the offset is read from memory
    record: Record | None = None  # its numbers, where they are more than `record_of` says

    def __init__(self, dtype: DType, rank: int, isa: Isa) -> None:
        self.dtype, self.rank, self.isa = dtype, rank, isa
        self.shape = Shape.of(dtype, isa)
        self.e: Emitter = self.shape.emitter()
        self.e.opaque_indices = True  # the long loops are those of the routines
        self.memory = scalars.memory_type(dtype)
        self.routines: dict[str, Routine] = {}
        self.used = "%scratch"

    def add(self, routine: Routine) -> None:
        self.routines[routine.name] = routine

    def call(self, name: str, *arguments: Value | str | int) -> None:
        call(self.e, self.routines[name], *arguments)

    def module(self, name: str) -> str:
        self.read_numbers()
        self.body()
        self.e.line("ret i32 0")
        wide = '"prefer-vector-width"="512"' if self.isa.vector_bits >= 512 else ""
        routines = list(self.routines.values())
        texts = [routine.text().replace(" nounwind {", f" nounwind {wide} {{") for routine in routines]
        declarations = declared(routines) | self.e.declarations
        main = defined(f"i32 @{name}({SIGNATURE}) nounwind {wide}", self.e.text())
        return main + "\n".join(texts) + "\n".join(sorted(declarations)) + "\n"

    @abstractmethod
    def body(self) -> None:
        """The kernel's own work, between its numbers and its end."""

    # -- numbers and memory ----------------------------------------------------------------------------------------
    def read_numbers(self) -> None:
        e, record = self.e, self.record or record_of(self.rank, self.operands)
        self.n = record.load(e)
        self.extents = record.loaded("batch", self.n)
        self.strides = {key: record.loaded(f"{key}_strides", self.n) for key in self.operands}
        self.buffers = {key: e.load_pointer("%buffers", i) for i, key in enumerate(self.operands)}
        scale = e.load(e.offset("%values", "i64", record.at("scale")), "double", 1)
        self.scale = e.convert("fptrunc", scale, "float") if self.shape.element == "float" else scale
        self.one = e.constant(1.0, self.shape.element, 1)

    def scratch(self, nbytes: Value | int) -> str:
        """The next bytes of scratch, at a multiple of 64."""
        start = self.used
        size = (nbytes + 63) & -64 if isinstance(nbytes, Value) else (nbytes + 63) // 64 * 64
        self.used = self.e.offset(start, "i8", size)
        return start

    def elements(self, count: Value | int) -> str:
        return self.scratch(count * self.shape.size)

    def at(self, pointer: str, index: Value | int) -> str:
        return self.e.offset(pointer, self.shape.element, index)

    def word(self, table: str, index: Value | int) -> Value:
        return self.e.load(self.e.offset(table, "i64", index), "i64", 1)

    def store_word(self, value: Value, table: str, index: Value | int) -> None:
        self.e.store(value, self.e.offset(table, "i64", index))

    def pointer(self, key: str, offset: Value) -> str:
        return self.e.offset(self.buffers[key], self.memory, offset)

    def padded(self, size: Value, to: int) -> Value:
        return (size + (to - 1)) & -to

    # -- walking ---------------------------------------------------------------------------------------------------
    def pieces(self, total: Value) -> tuple[Value, Value]:
        """This call's share of `total` pieces of work; `rows`, what the driver divides, is at least as many."""
        e = self.e
        rows = smax(e, self.n["rows"], 1)
        ends = [e.argument(name, "i64", 1) * total for name in ("%row0", "%row1")]
        return e.instruction("udiv", ends[0], rows), e.instruction("udiv", ends[1], rows)

    def heads(self) -> Value:
        total = self.n["kv_heads"]
        for extent in self.extents:
            total = total * extent
        return total

    def starts(self, head: Value, keys: tuple[str, ...]) -> dict[str, Value]:
        """Where each operand begins for one key-value head of one batch."""
        e = self.e
        extents, coordinates = [*self.extents, self.n["kv_heads"]], []
        for extent in reversed(extents):
            quotient = e.instruction("udiv", head, extent)
            coordinates.append(head - quotient * extent)
            head = quotient
        coordinates.reverse()
        found = {}
        for key in keys:
            total = e.constant(0, "i64", 1)
            for coordinate, stride in zip(coordinates, self.strides[key], strict=False):
                total = total + coordinate * stride
            found[key] = total
        return found

    def line(self, key: str, start: Value, head: Value, row: Value) -> Value:
        """Where a row of a head of the group begins."""
        group, along = self.strides[key][self.rank + 1:self.rank + 3]
        return start + head * group + row * along

    def limits_of(self, starts: dict[str, Value], head: Value, row: Value) -> tuple[Value, Value]:
        """The first key that a row sees by its position, and the one after the last."""
        e, n = self.e, self.n
        offset = n["offset"]
        if self.moving:
            offset = self.word(self.buffers["offset"], self.line("offset", starts["offset"], head, row))
        end = smin(e, smax(e, offset, -FAR), FAR) + row + 1
        upper = smin(e, smax(e, end, 0), n["keys"])
        return smin(e, smax(e, end - n["window"], 0), upper), upper

    def packed(self, key: str, source: str, lines: Value, size: Value, width: Value, room: str,
               often: Value | None = None, stored: Value | None = None) -> tuple[str, Value]:
        """Lines of an operand as the routines read them: where they lie if they lie so, else packed into `room`; also
        if they are read `often` and lie apart: each would be on a page of its own, more than a processor remembers.
        Half floats are always packed, unless they are read as they are `stored`."""
        e = self.e
        stride, step = self.strides[key][self.rank + 2], self.strides[key][self.rank + 3]
        if self.dtype.itemsize < 4:
            plain = e.constant(False, "i1", 1) if stored is None else stored
        else:
            plain = e.icmp("eq", step, 1) & e.icmp("eq", size, width)
        if often is not None and stored is None:
            plain = plain & (e.icmp("eq", stride, width) | (often ^ 1))
        with e.when(plain ^ 1):
            self.call("pack_lines", source, stride, step, lines, size, width, self.one, room)
        pointer = e.fresh("%p")
        e.line(f"{pointer} = select i1 {plain.name}, ptr {source}, ptr {room}")
        return pointer, e.select(plain, stride, width)
