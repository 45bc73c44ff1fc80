"""Base of the generator of loop kernels: the kernel's numbers, stack memory, addresses of rows."""

from __future__ import annotations

from morpho.backends.code import scalars
from morpho.backends.code.emit import Emitter, Value, vector_type
from morpho.backends.kernels.loops.chunk_width import choose_lanes, is_light, may_be_pipelined
from morpho.backends.kernels.loops.loop_spec import Instruction, LoopKernel, constant_value
from morpho.base.dtypes import DType, int64
from morpho.base.machine import Isa

LONG_BODY = 12  # operations per element


class LoopBase:
    """State of the generator of loop base kernels."""

    # Known from the beginning of the function on.
    bases: list[str]  # addresses of the operands
    outer: list[Value]  # extents of the rows' axes
    inner: list[Value]  # and of the columns'
    strides: list[list[Value]]  # of each operand, along all axes
    begin: Value  # columns to compute
    end: Value
    fault: str  # the address of the status
    splats: dict[int, Value]  # row values that a pass uses, in every lane
    lanes_left: Value | None = None  # the lanes of a short chunk that is loaded by a mask

    def __init__(self, kernel: LoopKernel, isa: Isa) -> None:
        self.kernel = kernel
        self.isa, self.lanes = isa, choose_lanes(kernel, isa)
        self.compact = sum(i.flops for i in kernel.instructions if i.full) >= LONG_BODY
        self.e = Emitter(self.lanes, isa.native_half, destructive_fma=isa.architecture == "aarch64",
                         opaque_indices=self.compact or any(i.reduces for i in kernel.instructions), tabled=True,
                         lookups=isa.lookups, architecture=isa.architecture)
        # Few instructions are in flight on AArch64.
        self.pipelined = (isa.architecture == "aarch64" and self.lanes > 1 and may_be_pipelined(kernel)
                       and not kernel.few_columns)
        self.allocas: list[str] = []
        self.numbers: dict[str, int] = {}
        self.rows: dict[int, Value] = {}  # row values of the row being written
        self.pointers: dict[int, str] = {}  # access -> address of its row
        self.positions: dict[int, Value] = {}  # index access -> its value at column 0
        self.temporaries: dict[str, str] = {}
        self.kept: dict[int, str] = {}  # kept value -> its row of scratch
        # What only moves numbers is faster in half vectors, by 2 to 40 %; not on the younger processors with matrix
        # units: 0.85x to 1.4x there (benchmarks/probes/half_vectors.py).
        self.halved = isa.vector_bits >= 512 and not isa.matrix_units and is_light(kernel)
        self.wide = isa.vector_bits >= 512 and not self.halved

    def value(self, index: int) -> Value:
        """A number of the kernel's arguments."""
        return self.e.load(self.e.offset("%values", "i64", index), "i64", 1)

    def number(self, index: int) -> Value:
        """A number that is known from the beginning of the function on."""
        name = f"%number{index:04}"  # no name is part of another
        self.numbers[name] = index
        return Value(self.e, name, "i64", 1)

    def number_lines(self, text: str) -> list[str]:
        """The instructions that read the numbers which `text` uses; LLVM need not see the others."""
        lines = []
        for name, index in self.numbers.items():
            if name in text:
                lines += [f"  {name}.at = getelementptr i64, ptr %values, i64 {index}",
                          f"  {name} = load i64, ptr {name}.at, align 8"]
        return lines

    def allocate(self, element: str, count: int) -> str:
        """Stack memory that lives as long as the call."""
        name = "%" + self.e.fresh("a")
        self.allocas.append(f"  {name} = alloca [{count} x {element}], align 64")
        return name

    def temporary(self, key: str, element: str, filled: bool = False) -> str:
        """A stack buffer of one chunk, one per use. `filled`: all of it is written before it is read."""
        if key not in self.temporaries:
            name = self.temporaries[key] = self.allocate(element, max(self.lanes, 1))
            # What lies there may be subnormal, which is slow to compute with.
            if self.isa.architecture == "x86_64" and not filled:
                self.allocas.append(f"  store {vector_type(element, self.lanes)} zeroinitializer, ptr {name}, align 64")
        return self.temporaries[key]

    def split(self, index: Value, extents: list[Value]) -> list[Value]:
        """A flat index as coordinates, last axis fastest."""
        coordinates = []
        for extent in reversed(extents[1:]):
            quotient = self.e.instruction("udiv", index, extent)
            coordinates.append(index - quotient * extent)
            index = quotient
        return [index, *reversed(coordinates)]

    def dot(self, coordinates: list[Value], strides: list[Value]) -> Value:
        total = self.e.constant(0, "i64", 1)
        for coordinate, stride in zip(coordinates, strides, strict=True):
            total = coordinate * stride if total.name == "0" else total + coordinate * stride
        return total

    def constant(self, instruction: Instruction, lanes: int) -> Value:
        value = constant_value(str(instruction.extra), instruction.dtype)
        return self.e.constant(value, scalars.register_type(instruction.dtype), lanes)

    def from_index(self, position: Value, dtype: DType) -> Value:
        """A position (i64) as a value of a dtype."""
        return scalars.cast(self.e, position, int64, dtype)

    def row_operand(self, number: int) -> Value:
        instruction = self.kernel.instructions[number]
        if instruction.name == "constant":
            return self.constant(instruction, 1)
        return self.rows[number]

    def inner_offset(self, access: int, column: Value) -> Value:
        """The distance of a column from its row's start, in elements."""
        strides = self.strides[access][self.kernel.outer_rank:]
        pattern = self.kernel.accesses[access].pattern
        if pattern == "unit":
            return column
        if pattern == "zero":
            return self.e.constant(0, "i64", 1)
        if pattern in ("strided", "reversed", "even", "odd"):
            return column * strides[-1]
        return self.dot(self.split(column, self.inner), strides)
