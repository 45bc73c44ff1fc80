"""Writes LLVM text: typed values, straight-line arithmetic for any lane count, and structured loops.

One description serves every instruction set: a `Value` has an element type and a lane count, and the same Python
function that builds `exp` for 16 lanes builds it for one. Nothing here may reassociate or contract: an instruction
is emitted exactly as asked, which is what makes results equal bit for bit on every machine (docs/numerics.md).

>>> e = Emitter(lanes=4)
>>> x = e.argument("%x", "float")
>>> (x * 2.0 + 1.0).name
'%v1'
>>> print(e.text())
  %v0 = fmul <4 x float> %x, splat (float 0x4000000000000000)
  %v1 = fadd <4 x float> %v0, splat (float 0x3ff0000000000000)
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

# Where a run is interrupted (`driver/interrupts.py`); the other statuses are in `kernel_abi.py`.
FAULT_INTERRUPT = 128  # a signal handler raised: `driver/interrupts.py` has the exception
POLL_LATER = 256  # what a poll returns that comes too soon after the one before, and one that comes too late
POLL_SOONER = 512
INTERRUPTS = "morpho_interrupts"  # the symbol of its table, whose first word is the address of the poll
FLOATS = frozenset({"half", "bfloat", "float", "double"})
CACHE_LINE = 64  # bytes
BITS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "bfloat": 16, "float": 32, "double": 64}
_SHORT = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}


def vector_type(element: str, lanes: int) -> str:
    """The LLVM type of `lanes` elements; one lane is the plain scalar type."""
    return element if lanes == 1 else f"<{lanes} x {element}>"


def mangled(element: str, lanes: int) -> str:
    """The suffix LLVM gives an intrinsic for this type: `v4f32`, `f64`, `v8i32`."""
    short = _SHORT.get(element, element)
    return short if lanes == 1 else f"v{lanes}{short}"


@cache
def repeating(register: int, lanes: int) -> str:
    """The mask of a shuffle that repeats a register over many lanes."""
    return f"<{lanes} x i32> <" + ", ".join(f"i32 {i % register}" for i in range(lanes)) + ">"


def literal(value: float | int | bool, element: str) -> str:
    """One constant as LLVM writes it; floats by their bits, so NaN, -0.0 and every last digit survive."""
    if element == "i1":
        return "true" if value else "false"
    if element not in FLOATS:
        return str(int(value))
    if element == "half":
        return "0xH%04X" % struct.unpack("<H", struct.pack("<e", float(value)))[0]
    if element == "float":  # LLVM writes a float constant as the double it widens to
        value = struct.unpack("<f", struct.pack("<f", float(value)))[0]
    if element == "bfloat":
        return "0xR%04X" % (struct.unpack("<I", struct.pack("<f", float(value)))[0] >> 16)
    return "0x%016x" % struct.unpack("<Q", struct.pack("<d", float(value)))[0]


def defined(head: str, *body: str) -> str:
    """The text of a function, from its head and the lines of its body.

    >>> print(defined("i32 @zero() nounwind", "  ret i32 0"), end="")
    define i32 @zero() nounwind {
    entry:
      ret i32 0
    }
    """
    return f"define {head} {{\nentry:\n{''.join(body)}\n}}\n"


@dataclass(slots=True, unsafe_hash=True)  # never changed; `frozen` would make each four times as long in the making
class Value:
    """An SSA value or constant of `lanes` elements of one type. Python operators emit the plain instruction."""

    emitter: Emitter
    name: str
    element: str
    lanes: int

    @property
    def type(self) -> str:
        return vector_type(self.element, self.lanes)

    @property
    def is_float(self) -> bool:
        return self.element in FLOATS

    def _binary(self, float_name: str, int_name: str, other: Value | float | int, swap: bool = False) -> Value:
        right = self.emitter.like(other, self)
        left, right = (right, self) if swap else (self, right)
        return self.emitter.instruction(float_name if self.is_float else int_name, left, right)

    def __add__(self, other: Value | float | int) -> Value:
        return self._binary("fadd", "add", other)

    def __radd__(self, other: float | int) -> Value:
        return self._binary("fadd", "add", other, swap=True)

    def __sub__(self, other: Value | float | int) -> Value:
        return self._binary("fsub", "sub", other)

    def __rsub__(self, other: float | int) -> Value:
        return self._binary("fsub", "sub", other, swap=True)

    def __mul__(self, other: Value | float | int) -> Value:
        return self._binary("fmul", "mul", other)

    def __rmul__(self, other: float | int) -> Value:
        return self._binary("fmul", "mul", other, swap=True)

    def __truediv__(self, other: Value | float | int) -> Value:
        return self._binary("fdiv", "invalid", other)

    def __rtruediv__(self, other: float | int) -> Value:
        return self._binary("fdiv", "invalid", other, swap=True)

    def __neg__(self) -> Value:
        if self.is_float:
            return self.emitter.assign(f"fneg {self.type} {self.name}", self.element, self.lanes)
        return 0 - self

    def __and__(self, other: Value | int) -> Value:
        return self._binary("invalid", "and", other)

    def __or__(self, other: Value | int) -> Value:
        return self._binary("invalid", "or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self._binary("invalid", "xor", other)

    def __lshift__(self, other: Value | int) -> Value:
        return self._binary("invalid", "shl", other)

    def shift_right(self, other: Value | int, arithmetic: bool = False) -> Value:
        return self._binary("invalid", "ashr" if arithmetic else "lshr", other)


class Emitter:
    """Collects the instructions of one function body; `declarations` are the intrinsics it used."""

    def __init__(self, lanes: int = 1, native_half: bool = True, destructive_fma: bool = False,
                 opaque_indices: bool = False, tabled: bool = False, lookups: str = "",
                 architecture: str = "") -> None:
        self.lanes, self.architecture = lanes, architecture
        self.lookups = lookups  # how numbers are picked from a register: see `lookup.py`
        self.near_table: Callable[[str, tuple[float, ...]], str] | None = None  # where a lane reads many at once
        self.tabled = tabled  # see `reloaded`
        self.opaque_indices = opaque_indices  # see `loop`
        self.destructive_fma = destructive_fma  # whether an fma overwrites its addend (AArch64)
        self.native_half = native_half  # whether the machine converts float16 by an instruction
        self.lines: list[str] = []
        self.declarations: set[str] = set()
        self.types: dict[str, tuple[str, int]] = {}  # element and lanes of every value
        self._counter = 0
        self._block = "entry"
        self._uses: dict[str, int] = {}  # of constants in memory
        self.table: list[tuple[int, str]] = []  # constants of the table, each with the number of bytes up to its end

    # -- values ---------------------------------------------------------------------------------------------------
    def fresh(self, stem: str = "v") -> str:
        name = f"{stem}{self._counter}"
        self._counter += 1
        return name

    def argument(self, name: str, element: str, lanes: int | None = None) -> Value:
        """A value that exists already under `name`."""
        return Value(self, name, element, self.lanes if lanes is None else lanes)

    def constant(self, value: float | int | bool, element: str, lanes: int | None = None) -> Value:
        """A constant, the same in every lane."""
        lanes = self.lanes if lanes is None else lanes
        text = literal(value, element)
        return Value(self, text if lanes == 1 else f"splat ({element} {text})", element, lanes)

    def like(self, value: Value | float | int | bool, other: Value) -> Value:
        """`value` itself, or the constant of that value with the type of `other`."""
        return value if isinstance(value, Value) else self.constant(value, other.element, other.lanes)

    def lane_numbers(self, element: str = "i64", lanes: int | None = None) -> Value:
        """The constant 0, 1, 2, ... of one vector."""
        lanes = self.lanes if lanes is None else lanes
        if lanes == 1:
            return self.constant(0, element, 1)
        return Value(self, "<" + ", ".join(f"{element} {i}" for i in range(lanes)) + ">", element, lanes)

    # -- instructions ---------------------------------------------------------------------------------------------
    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def assign(self, text: str, element: str, lanes: int) -> Value:
        name = "%" + self.fresh()
        self.line(f"{name} = {text}")
        self.types[name] = (element, lanes)
        return Value(self, name, element, lanes)

    def instruction(self, opcode: str, left: Value, right: Value) -> Value:
        if opcode == "invalid" or left.type != right.type:
            raise TypeError(f"cannot emit {opcode} of {left.type} and {right.type}")
        return self.assign(f"{opcode} {left.type} {left.name}, {right.name}", left.element, left.lanes)

    def intrinsic(self, name: str, *arguments: Value, element: str | None = None, suffix: str | None = None) -> Value:
        """A call of `llvm.<name>`, overloaded on the first argument's type; the result has the same type."""
        first = arguments[0]
        element = element or first.element
        suffix = mangled(first.element, first.lanes) if suffix is None else suffix
        result = vector_type(element, first.lanes)
        types = ", ".join(a.type for a in arguments)
        self.declarations.add(f"declare {result} @llvm.{name}.{suffix}({types})")
        given = ", ".join(f"{a.type} {a.name}" for a in arguments)
        return self.assign(f"call {result} @llvm.{name}.{suffix}({given})", element, first.lanes)

    def fma(self, a: Value, b: Value | float, c: Value | float) -> Value:
        """a * b + c, rounded once."""
        c = self.like(c, a)
        if self.destructive_fma and a.lanes > 1 and c.name.startswith("splat"):
            c = self.reloaded(c)
        return self.intrinsic("fma", a, self.like(b, a), c)

    def round_half(self, x: Value, brain: bool) -> Value | None:
        """A float32 rounded to a bfloat16 or float16 by an instruction of this target's; None where it has none."""
        return None

    def reloaded(self, constant: Value) -> Value:
        """A constant read from memory at each use.

        Where an fma overwrites its addend, a constant addend held in a register costs a copy in the arithmetic units;
        a load goes through others, which long polynomials leave idle. It is no `constant` to LLVM, which would keep
        that in a register: a store of the loop might change it. Every use has a place of its own, or LLVM would read
        it once and copy it. Where the function is the only one of its module, they lie in one table (`tabled`): one
        address to find and to keep instead of one for each, so less to compile.
        """
        if self.tabled:
            return self._from_table(constant)
        digits = re.sub(r"\W", "", constant.name.removeprefix("splat").replace("-", "minus"))
        name = f"@of.{digits}x{constant.lanes}"
        self._uses[name] = self._uses.get(name, 0) + 1
        name += f".{self._uses[name]}"
        self.declarations.add(f"{name} = internal global {constant.type} {constant.name}, align 16")
        return self.assign(f"load {constant.type}, ptr {name}, align 16", constant.element, constant.lanes)

    def _from_table(self, constant: Value) -> Value:
        lanes = max(constant.lanes, 128 // BITS[constant.element])  # a whole register at least
        one = constant.name if constant.lanes > 1 else f"splat ({constant.element} {constant.name})"
        offset = self.table[-1][0] if self.table else 0
        end = offset + lanes * BITS[constant.element] // 8
        self.table.append((end + 16, f"<{lanes} x {constant.element}> {one}"))  # with a gap, see `outside`
        return self.assign(f"load {constant.type}, ptr getelementptr (i8, ptr @of, i64 {offset}), align 16",
                           constant.element, constant.lanes)

    def reread(self, constant: Value) -> Value:
        """A constant that is not kept in a register where registers are short: one load for all lanes.

        With many values in flight LLVM would make it anew at each use, in the arithmetic units, or copy it.
        """
        register = 128 // BITS[constant.element]
        if not self.destructive_fma or constant.lanes <= register:
            return constant
        one = self.reloaded(Value(self, constant.name, constant.element, register))
        kind, mask = one.type, repeating(register, constant.lanes)
        return self.assign(f"shufflevector {kind} {one.name}, {kind} poison, {mask}", constant.element, constant.lanes)

    def polynomial(self, x: Value, coefficients: Sequence[Value | float]) -> Value:
        """Horner by fma; `coefficients` from the highest power down to the constant term."""
        result = self.like(coefficients[0], x)
        for coefficient in coefficients[1:]:
            result = self.fma(result, x, coefficient)
        return result

    def absolute(self, x: Value) -> Value:
        return self.intrinsic("fabs", x)

    def square_root(self, x: Value) -> Value:
        return self.intrinsic("sqrt", x)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        """By bits for one lane: LLVM takes the sign from before its roundings, and x86 rounds no double to a half."""
        if magnitude.lanes != 1:
            return self.intrinsic("copysign", magnitude, sign)
        top = 1 << (BITS[magnitude.element] - 1)
        return self.from_bits((self.bits(magnitude) & (top - 1)) | (self.bits(sign) & -top), magnitude.element)

    def maximum(self, a: Value, b: Value | float) -> Value:
        """IEEE 754-2019 maximum: NaN in either operand wins, +0.0 > -0.0."""
        return self.intrinsic("maximum", a, self.like(b, a))

    def minimum(self, a: Value, b: Value | float) -> Value:
        return self.intrinsic("minimum", a, self.like(b, a))

    def round_even(self, x: Value) -> Value:
        return self.intrinsic("roundeven", x)

    def fcmp(self, predicate: str, a: Value, b: Value | float) -> Value:
        """`predicate` as LLVM names it: olt, ole, oeq, une, uno (either is NaN), ..."""
        b = self.like(b, a)
        return self.assign(f"fcmp {predicate} {a.type} {a.name}, {b.name}", "i1", a.lanes)

    def icmp(self, predicate: str, a: Value, b: Value | int) -> Value:
        """`predicate` as LLVM names it: eq, ne, slt, ult, ..."""
        b = self.like(b, a)
        return self.assign(f"icmp {predicate} {a.type} {a.name}, {b.name}", "i1", a.lanes)

    def is_nan(self, x: Value) -> Value:
        return self.fcmp("uno", x, x)

    def select(self, mask: Value, a: Value | float | int, b: Value | float | int) -> Value:
        """a where mask else b; at least one of the two is a Value."""
        model = a if isinstance(a, Value) else b
        assert isinstance(model, Value)
        a, b = self.like(a, model), self.like(b, model)
        return self.assign(f"select {mask.type} {mask.name}, {a.type} {a.name}, {b.type} {b.name}", a.element, a.lanes)

    def convert(self, opcode: str, x: Value, element: str) -> Value:
        """A conversion instruction by name: bitcast, sitofp, fptosi, fpext, fptrunc, zext, sext, trunc."""
        if x.element == element:
            return x
        return self.assign(f"{opcode} {x.type} {x.name} to {vector_type(element, x.lanes)}", element, x.lanes)

    def bits(self, x: Value) -> Value:
        """The bits of a float as an integer of the same width."""
        return self.convert("bitcast", x, f"i{BITS[x.element]}")

    def negated(self, x: Value) -> Value:
        """A float with its sign changed. LLVM makes one AArch64 instruction of the negation of a scalar fma, whose zero
        has another sign; a mask that it does not see through keeps the two apart. On x86 it may lie too far away."""
        if x.lanes != 1 or self.architecture != "aarch64":
            return -x
        bits = self.bits(x)
        mask = self.reloaded(self.constant(-1 << (BITS[x.element] - 1), bits.element, 1))
        return self.from_bits(bits ^ mask, x.element)

    def from_bits(self, x: Value, element: str) -> Value:
        return self.convert("bitcast", x, element)

    def splat(self, scalar: Value, lanes: int | None = None) -> Value:
        """A scalar repeated in every lane."""
        lanes = self.lanes if lanes is None else lanes
        if lanes == 1 or scalar.lanes != 1:
            return scalar
        vector = vector_type(scalar.element, lanes)
        one = self.assign(f"insertelement {vector} poison, {scalar.type} {scalar.name}, i64 0", scalar.element, lanes)
        mask = f"<{lanes} x i32> zeroinitializer"
        return self.assign(f"shufflevector {vector} {one.name}, {vector} poison, {mask}", scalar.element, lanes)

    def vector_of(self, scalars: Sequence[Value]) -> Value:
        """One vector of scalars."""
        element, lanes = scalars[0].element, len(scalars)
        vector, found = vector_type(element, lanes), "poison"
        for lane, scalar in enumerate(scalars):
            one = self.assign(f"insertelement {vector} {found}, {scalar.type} {scalar.name}, i64 {lane}",
                              element, lanes)
            found = one.name
        return one

    def poll(self, stretch: str = "", first: int = 0) -> None:
        """Leave the function if the program that it belongs to is interrupted (`driver/interrupts.py`). At `stretch`
        may lie how many turns pass until the next poll, `first` to begin with: twice as many where polls come too
        soon one after the other. Reading the clock takes a microsecond on some virtual machines."""
        self.declarations.add(f"@{INTERRUPTS} = external global [1 x i64]")
        function, interrupted, on = "%" + self.fresh("poll"), self.fresh("interrupted"), self.fresh("on")
        self.line(f"{function} = load ptr, ptr @{INTERRUPTS}, align 8")
        status = self.assign(f"call i32 {function}(i64 0)", "i32", 1)
        self.branch_if(self.icmp("ne", status & FAULT_INTERRUPT, 0), interrupted, on)
        self.label(interrupted)
        self.line(f"ret i32 {FAULT_INTERRUPT}")
        self.label(on)
        if stretch:
            self.adapt(stretch, first, status)

    def adapt(self, stretch: str, first: int, status: Value) -> None:
        """The distance of polls, by what one has returned."""
        turns = self.load(stretch, "i64", 1)
        twice = self.select(self.icmp("slt", turns, MOST_TURNS), turns + turns, turns)
        turns = self.select(self.icmp("ne", status & POLL_LATER, 0), twice, turns)
        turns = self.select(self.icmp("ne", status & POLL_SOONER, 0), self.constant(first, "i64", 1), turns)
        self.store(turns, stretch)

    def poll_if_long(self, elements: Value) -> None:
        """Poll before a pass over many elements."""
        with self.when(self.icmp("sgt", elements, LONG_PASS)):
            self.poll()

    # -- memory and control ---------------------------------------------------------------------------------------
    def offset(self, pointer: str, element: str, index: Value | int) -> str:
        """The address of element `index` from `pointer`."""
        name = "%" + self.fresh("p")
        text = index.name if isinstance(index, Value) else str(index)
        self.line(f"{name} = getelementptr {element}, ptr {pointer}, i64 {text}")
        return name

    def load(self, pointer: str, element: str, lanes: int | None = None, align: int | None = None) -> Value:
        lanes = self.lanes if lanes is None else lanes
        align = align or max(1, BITS[element] // 8)
        return self.assign(f"load {vector_type(element, lanes)}, ptr {pointer}, align {align}", element, lanes)

    def store(self, value: Value, pointer: str, align: int | None = None) -> None:
        align = align or max(1, BITS[value.element] // 8)
        self.line(f"store {value.type} {value.name}, ptr {pointer}, align {align}")

    def prefetch(self, pointer: str, level: int) -> None:
        """Ask for a line of memory into the cache of this level; any address will do."""
        self.declarations.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.line(f"call void @llvm.prefetch.p0(ptr {pointer}, i32 0, i32 {4 - level}, i32 1)")

    def first_lanes(self, count: Value) -> Value:
        """A mask of the lanes whose number is less than `count`."""
        if self.lanes == 1:
            return self.icmp("sgt", count, 0)
        numbers = ", ".join(f"i32 {lane}" for lane in range(self.lanes))
        most = self.splat(self.convert("trunc", count, "i32"))
        return self.assign(f"icmp ult {most.type} <{numbers}>, {most.name}", "i1", self.lanes)

    def load_some(self, pointer: str, element: str, mask: Value) -> Value:
        """The lanes of a mask from memory, zero in the others, whose memory is not touched."""
        if mask.lanes == 1:
            return self._load_if(pointer, element, mask)
        kind, name = vector_type(element, mask.lanes), f"llvm.masked.load.{mangled(element, mask.lanes)}.p0"
        self.declarations.add(f"declare {kind} @{name}(ptr, i32, {mask.type}, {kind})")
        return self.assign(f"call {kind} @{name}(ptr {pointer}, i32 {BITS[element] // 8}, {mask.type} {mask.name}, "
                           f"{kind} zeroinitializer)", element, mask.lanes)

    def gather_some(self, pointer: str, element: str, index: Value, mask: Value) -> Value:
        """Elements at places counted from `pointer`, the lanes of a mask; zero in the others, which are not read."""
        if mask.lanes == 1:
            return self._load_if(self.offset(pointer, element, index), element, mask)
        places = "%" + self.fresh("p")
        self.line(f"{places} = getelementptr {element}, ptr {pointer}, {index.type} {index.name}")
        kind, several = vector_type(element, mask.lanes), f"<{mask.lanes} x ptr>"
        name = f"llvm.masked.gather.{mangled(element, mask.lanes)}.v{mask.lanes}p0"
        self.declarations.add(f"declare {kind} @{name}({several}, i32, {mask.type}, {kind})")
        return self.assign(f"call {kind} @{name}({several} {places}, i32 {BITS[element] // 8}, "
                           f"{mask.type} {mask.name}, {kind} zeroinitializer)", element, mask.lanes)

    def _load_if(self, pointer: str, element: str, condition: Value) -> Value:
        """One element, or zero where the condition does not hold."""
        here, then, after = self._block, self.fresh("then"), self.fresh("after")
        self.branch_if(condition, then, after)
        self.label(then)
        found, zero = self.load(pointer, element, 1), self.constant(0, element, 1)
        self.branch(after)
        self.label(after)
        return self.assign(f"phi {found.type} [ {zero.name}, %{here} ], [ {found.name}, %{then} ]", element, 1)

    def all_lanes(self, mask: Value) -> Value:
        """Whether a mask has all lanes."""
        if mask.lanes == 1:
            return mask
        bits = self.assign(f"bitcast {mask.type} {mask.name} to i{mask.lanes}", f"i{mask.lanes}", 1)
        return self.assign(f"icmp eq i{mask.lanes} {bits.name}, -1", "i1", 1)

    def store_some(self, value: Value, pointer: str, mask: Value) -> None:
        """The lanes of a mask to memory."""
        if mask.lanes == 1:
            with self.when(mask):
                self.store(value, pointer)
            return
        name = f"llvm.masked.store.{mangled(value.element, value.lanes)}.p0"
        self.declarations.add(f"declare void @{name}({value.type}, ptr, i32, {mask.type})")
        self.line(f"call void @{name}({value.type} {value.name}, ptr {pointer}, i32 {BITS[value.element] // 8}, "
                  f"{mask.type} {mask.name})")

    def load_pointer(self, pointer: str, index: int = 0) -> str:
        """The `index`-th pointer of a table of pointers."""
        address = pointer if index == 0 else self.offset(pointer, "ptr", index)
        name = "%" + self.fresh("p")
        self.line(f"{name} = load ptr, ptr {address}, align 8")
        return name

    @property
    def block(self) -> str:
        """The label of the block being written."""
        return self._block

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self._block = name

    def take_back(self, start: int) -> list[str]:
        """The lines from `start` on, no longer part of the body."""
        taken = self.lines[start:]
        del self.lines[start:]
        return taken

    def branch(self, target: str) -> None:
        self.line(f"br label %{target}")

    def branch_if(self, condition: Value, then: str, otherwise: str) -> None:
        self.line(f"br i1 {condition.name}, label %{then}, label %{otherwise}")

    @contextmanager
    def loop(self, start: Value | int, stop: Value | int, step: Value | int = 1,
             carried: Sequence[Value] = ()) -> Iterator[Loop]:
        """`for index in range(start, stop, step)` with loop-carried values.

        Inside, read `loop.index` and `loop.values`, and call `loop.next(...)` once with the new carried values;
        after the block `loop.values` are the final ones.

        LLVM looks long for the cheapest way to count addresses: a third of all it does for a long body, where it
        gains nothing. An index that an empty piece of assembly may have changed (`opaque_indices`) is left alone.
        """
        begin = self.like(start, self.constant(0, "i64", 1))
        end = self.like(stop, begin)
        head, body, done = self.fresh("head"), self.fresh("body"), self.fresh("done")
        before = self._block
        self.branch(head)
        self.label(head)
        index = Value(self, "%" + self.fresh("i"), "i64", 1)
        phis = [Value(self, "%" + self.fresh("c"), v.element, v.lanes) for v in carried]
        place = len(self.lines)  # the phis go here once the values of the back edge are known
        self.branch_if(self.icmp("slt", index, end), body, done)
        self.label(body)
        loop = Loop(index, list(phis), step)
        yield loop
        following = index + loop.step
        latch = self._block
        self.branch(head)
        opaque = self.opaque_indices and self.architecture != "nvptx64"  # LLVM's search for addresses is short there
        count = "%" + self.fresh("i") if opaque else index.name
        news = [f"  {count} = phi i64 [ {begin.name}, %{before} ], [ {following.name}, %{latch} ]"]
        for phi, old, new in zip(phis, carried, loop.values, strict=True):
            news.append(f"  {phi.name} = phi {phi.type} [ {old.name}, %{before} ], [ {new.name}, %{latch} ]")
        if opaque:
            news.append(f'  {index.name} = call i64 asm "", "=r,0"(i64 {count})')
        self.lines[place:place] = news
        self.label(done)
        loop.values = phis

    def first_without(self, start: Value, stop: Value, holds: Callable[[Value], Value], step: int = 1) -> Value:
        """The first of `start`, `start + step`, ... for which `holds` is false or which is not below `stop`."""
        head, look, on, done = (self.fresh(name) for name in ("head", "look", "on", "done"))
        before, index, following = self._block, "%" + self.fresh("i"), "%" + self.fresh("i")
        self.branch(head)
        self.label(head)
        self.line(f"{index} = phi i64 [ {start.name}, %{before} ], [ {following}, %{on} ]")
        found = Value(self, index, "i64", 1)
        self.branch_if(self.icmp("slt", found, stop), look, done)
        self.label(look)
        self.branch_if(holds(found), on, done)
        self.label(on)
        self.line(f"{following} = add i64 {index}, {step}")
        self.branch(head)
        self.label(done)
        return found

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Instructions that run only if `condition` holds; they may store but define nothing used later."""
        then, after = self.fresh("then"), self.fresh("after")
        self.branch_if(condition, then, after)
        self.label(then)
        yield
        self.branch(after)
        self.label(after)

    @contextmanager
    def leave_if(self, condition: Value, holds: bool = True) -> Iterator[None]:
        """Instructions that run only if `condition` is `holds`, and end the function."""
        labels = [self.fresh(stem) for stem in (("failed", "fine") if holds else ("fine", "failed"))]
        self.branch_if(condition, *labels)
        self.label(labels[0 if holds else 1])
        yield
        self.label(labels[1 if holds else 0])

    def changed_if(self, condition: Value, values: Sequence[Value], change: Callable[[], Sequence[Value]],
                   stems: tuple[str, str] = ("then", "after")) -> list[Value]:
        """The values of `change` where `condition` holds, else `values`; nothing is computed for those."""
        before, then, after = self._block, *map(self.fresh, stems)
        self.branch_if(condition, then, after)
        self.label(then)
        changed, last = change(), self._block
        self.branch(after)
        self.label(after)
        return [self.assign(f"phi {old.type} [ {old.name}, %{before} ], [ {new.name}, %{last} ]", old.element,
                            old.lanes) for old, new in zip(values, changed, strict=True)]

    def both(self, condition: Value, stems: tuple[str, str, str] = ("then", "otherwise", "after")) -> Iterator[bool]:
        """`for holds in both(condition)`: what is written in the first turn runs if it holds, in the second if not."""
        then, otherwise, after = map(self.fresh, stems)
        self.branch_if(condition, then, otherwise)
        for label, holds in ((then, True), (otherwise, False)):
            self.label(label)
            yield holds
            self.branch(after)
        self.label(after)

    def text(self) -> str:
        return "\n".join(self.lines)

    def outside(self) -> str:
        """Text beside the function: its intrinsics and its table of constants, with a gap after each. LLVM would
        read neighbours together, and then hold one of them in a register until its use."""
        table = ""
        if self.table:
            types = ", ".join([row[:row.index(">") + 1] + ", i128" for _, row in self.table])
            rows = ", ".join([row + ", i128 0" for _, row in self.table])
            table = f"@of = internal global <{{ {types} }}> <{{ {rows} }}>, align 16\n"
        return table + "\n".join(sorted(self.declarations)) + "\n"

MOST_TURNS = 1 << 40
LONG_PASS = 1 << 18  # elements


@dataclass(slots=True)
class Loop:
    """The index and the carried values of a loop being written."""

    index: Value
    values: list[Value]
    step: Value | int  # may be replaced inside the loop by one computed there

    def next(self, *values: Value) -> None:
        self.values = list(values)
