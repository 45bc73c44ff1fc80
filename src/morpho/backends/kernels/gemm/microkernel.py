"""The micro-kernel: a register tile of C += a panel of rows x a panel of columns, over a block of k."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from morpho.backends.code import scalars
from morpho.backends.code.emit import BITS, Emitter, Value, defined
from morpho.backends.kernels.gemm.gemm import OUTER, UNROLL, GemmKernel
from morpho.backends.kernels.gemm.neon import f32_microkernel
from morpho.backends.kernels.gemm.neon.bf16_gemv import add_block, fits
from morpho.backends.kernels.gemm.tiling import K_BLOCK, Register
from morpho.base.dtypes import DType, bfloat16
from morpho.base.machine import Isa


def sum_type(dtype: DType) -> str:
    """The LLVM type sums and packed rows have."""
    return scalars.register_type(dtype)


def places_of_batch(e: Emitter, batch: Value, v: Mapping[str, Value]) -> Callable[[str], Value]:
    """How far an operand of a batch lies from that of the first batch, by its name; batches have four axes, of which
    `batches` are the sizes."""
    coordinates, rest = [], batch
    for axis in range(OUTER):
        size = v[f"batches{axis}"]
        above = e.instruction("udiv", rest, size)
        coordinates.append(rest - above * size)
        rest = above
    inner, *outer = *coordinates, rest

    def place(operand: str) -> Value:
        total = inner * v[f"{operand}_batch"]
        for axis, coordinate in zip(reversed(range(OUTER)), outer, strict=True):
            total = total + coordinate * v[f"{operand}_outer{axis}"]
        return total

    return place


class Function:
    """One internal function being written."""

    def __init__(self, name: str, arguments: str, lanes: int, isa: Isa) -> None:
        self.e = Emitter(lanes, isa.native_half)
        self.head = f"internal void @{name}({arguments}) nounwind"

    def number(self, name: str) -> Value:
        return self.e.argument(name, "i64", 1)

    def text(self, prefix: str = "") -> str:
        self.e.line("ret void")
        return defined(self.head, prefix, self.e.text())


PREFETCH_ARGUMENTS = ", ptr %ahead, i64 %hop"  # prefetch pointer, and bytes it advances per value of k
SKIP_ARGUMENT = ", i64 %skip"  # bytes that it advances instead within a turn of the loop
WALK_ARGUMENTS = ", i64 %panels, i64 %panel_step"  # number of panels, and elements from one to the next


class MicroKernel:
    """Sums of `height` rows x the vectors of one panel over a block of k: tile += rows * panel."""

    ARGUMENTS = "ptr %a, ptr %b, i64 %count, ptr %tile, i64 %stride, i1 %first"
    goal = "%tile", "%stride"  # where the sums go
    rows_are_packed = True  # as [k][height]

    def __init__(self, kernel: GemmKernel, height: int, register: Register, isa: Isa, name: str = "",
                 walks: bool = False, skips: bool = False) -> None:
        self.dtype, self.height, self.register, self.walks = kernel.dtype, height, register, walks
        self.skips = skips and register.prefetches
        arguments = self.ARGUMENTS + (PREFETCH_ARGUMENTS if register.prefetches else "")
        arguments += SKIP_ARGUMENT if self.skips else ""
        arguments += WALK_ARGUMENTS if walks else ""
        self.panel, self.tile = "%b", "%tile"
        self.function = Function(name or f"micro{height}", arguments, register.lanes, isa)
        self.e = self.function.e
        self.element = sum_type(kernel.dtype)
        self.packed = scalars.memory_type(kernel.dtype)
        self.by_lane = isa.architecture == "aarch64" and register.lanes > 1  # an fma takes one lane of a vector there
        self.group, self.registers, self.isa = 128 // BITS[self.element], isa.registers, isa

    def write(self) -> str:
        if self.dtype is bfloat16:
            return self.write_pairs()
        count, done = self.function.number("%count"), self.e.constant(0, "i64", 1)
        sums = self.start()
        if self.has_written_order:
            done = count & -f32_microkernel.STEPS
            sums = self.short_chain(f32_microkernel.add_steps(self.e, sums, "%a", "%b", done), done, count, 1)
        else:
            sums = self.chain(sums, done, count, 1)
        self.store(sums, self.goal[0], self.function.number(self.goal[1]))
        return self.function.text()

    def write_pairs(self) -> str:
        """bfloat16: per block of 32 an even and an odd chain from zero, added, then added to the sums."""
        e, count = self.e, self.function.number("%count")
        zeros = [e.constant(0, self.element)] * (self.height * self.register.vectors)
        if self.walks:
            step = self.function.number("%panel_step")
            with e.loop(0, self.function.number("%panels")) as panels:
                self.panel = e.offset("%b", self.packed, panels.index * step)
                self.tile = e.offset("%tile", self.element, panels.index * self.register.width)
                self.store(self.pairs_in_registers(zeros), self.tile)
            return self.function.text()
        if self.holds_pairs:
            self.store(self.pairs_in_registers(zeros), self.tile)
            return self.function.text()
        prefix = f"  %even = alloca [{self.height * self.register.width} x {self.element}], align 64\n"
        self.store(self.start(), "%tile")
        with e.loop(0, count, K_BLOCK) as blocks:
            last = e.intrinsic("smin", blocks.index + K_BLOCK, count)
            even = self.chain(zeros, blocks.index, last, 2)
            self.store(even, "%even", self.register.width)
            odd = self.chain(zeros, blocks.index + 1, last, 2)
            both = [a + b for a, b in zip(self.load("%even", self.register.width), odd, strict=True)]
            self.store([a + b for a, b in zip(self.load("%tile"), both, strict=True)], "%tile")
        return self.function.text(prefix)

    def pairs_in_registers(self, zeros: list[Value]) -> list[Value]:
        """The sums, while both chains and the sums are in registers; one row alone by code in a written order."""
        e, count = self.e, self.function.number("%count")
        done, totals = e.constant(0, "i64", 1), self.start()
        if self.height == 1 and self.by_lane and fits(self.register.vectors, self.register.lanes, self.isa):
            done = count & -K_BLOCK
            with e.loop(0, done, K_BLOCK, carried=totals) as written:
                panel = e.offset(self.panel, self.packed, written.index * self.register.width)
                written.next(*add_block(e, written.values, panel, e.offset("%a", self.element, written.index)))
            totals = written.values
        with e.loop(done, count, K_BLOCK, carried=totals) as blocks:
            last = e.intrinsic("smin", blocks.index + K_BLOCK, count)
            even, odd = self.two_chains(zeros, blocks.index, last)
            blocks.next(*[total + (a + b) for total, a, b in zip(blocks.values, even, odd, strict=True)])
        return blocks.values

    @property
    def holds_pairs(self) -> bool:
        """Whether the sums of both chains fit the registers, beside a line of the panel and values of the rows."""
        return (2 * self.height + 1) * self.register.vectors + 2 <= self.registers

    @property
    def has_written_order(self) -> bool:
        """Whether the instructions of this tile are written, not LLVM's choice."""
        return (self.by_lane and self.packed == self.element == "float" and self.rows_are_packed
                and f32_microkernel.fits(self.height, self.register.vectors, self.register.lanes, self.isa))

    # -- the tile ------------------------------------------------------------------------------------------------------
    def places(self, base: str, stride: Value | int | None = None) -> list[str]:
        e = self.e
        step = self.function.number("%stride") if stride is None else stride
        found = []
        for row in range(self.height):
            line = e.offset(base, self.element, step * row)
            found += [e.offset(line, self.element, v * self.register.lanes) for v in range(self.register.vectors)]
        return found

    def load(self, base: str, stride: int | None = None) -> list[Value]:
        return [self.e.load(place, self.element) for place in self.places(base, stride)]

    def store(self, sums: list[Value], base: str, stride: Value | int | None = None) -> None:
        for value, place in zip(sums, self.places(base, stride), strict=True):
            self.e.store(value, place)

    def start(self) -> list[Value]:
        """The sums so far: zero in the first block of k, else what the tile holds."""
        e = self.e
        again, go, before = e.fresh("again"), e.fresh("go"), e.block
        e.branch_if(e.argument("%first", "i1", 1), go, again)
        e.label(again)
        loaded = self.load(self.tile)
        e.branch(go)
        e.label(go)
        result = []
        for value in loaded:
            name = "%" + e.fresh("s")
            zero = e.constant(0, self.element)
            e.line(f"{name} = phi {value.type} [ {zero.name}, %{before} ], [ {value.name}, %{again} ]")
            result.append(Value(e, name, value.element, value.lanes))
        return result

    # -- the chain -----------------------------------------------------------------------------------------------------
    def chain(self, sums: list[Value], first: Value, last: Value, step: int) -> list[Value]:
        """sums + a[k] * b[k] for k = first, first + step, ... below last, in that order; unrolled, then the rest."""
        e, stride = self.e, UNROLL * step
        whole = first + ((last - first) & -stride)
        with e.loop(first, whole, stride, carried=sums) as loop:
            values, left = list(loop.values), self.left_values(loop.index, UNROLL * step)
            for u in range(0, stride, step):
                self.prefetch_next(loop.index, u)
                values = self.multiply_add(values, lambda row, u=u: left(u, row), loop.index + u)  # type: ignore[misc]
            loop.next(*values)
        return self.short_chain(loop.values, whole, last, step)

    def two_chains(self, zeros: list[Value], first: Value, last: Value) -> tuple[list[Value], list[Value]]:
        """The sums over k = first, first + 2, ... and those over first + 1, first + 3, ...: `chain` twice, at once."""
        e, stride = self.e, 2 * UNROLL
        whole = first + ((last - first) & -stride)
        with e.loop(first, whole, stride, carried=zeros + zeros) as loop:
            left = self.left_values(loop.index, stride)
            chains = [loop.values[:len(zeros)], loop.values[len(zeros):]]
            for u in range(stride):
                self.prefetch_next(loop.index, u)
                chains[u % 2] = self.multiply_add(chains[u % 2], lambda row, u=u: left(u, row),  # type: ignore[misc]
                                                  loop.index + u)
            loop.next(*chains[0], *chains[1])
        even = self.short_chain(loop.values[:len(zeros)], whole, last, 2)
        return even, self.short_chain(loop.values[len(zeros):], whole + 1, last, 2)

    def short_chain(self, sums: list[Value], first: Value, last: Value, step: int) -> list[Value]:
        """As `chain`, one value of k at a time."""
        with self.e.loop(first, last, step, carried=sums) as loop:
            left = self.left_values(loop.index, 1)
            loop.next(*self.multiply_add(list(loop.values), lambda row: left(0, row), loop.index))
        return loop.values

    def prefetch_next(self, k: Value, step: int) -> None:
        """Prefetch at every value of k. It also keeps LLVM from hoisting loads so far that sums are spilled."""
        if self.register.prefetches:
            hop = self.function.number("%hop")
            place = k * hop + self.function.number("%skip") * step if self.skips else (k + step) * hop
            self.e.prefetch(self.e.offset("%ahead", "i8", place), 2)

    def multiply_add(self, sums: list[Value], left: Callable[[int], Value], k: Value) -> list[Value]:
        """One value of k: row by row, so that few of the left values are alive at a time."""
        e, register = self.e, self.register
        panel = e.offset(self.panel, self.packed, k * register.width)
        places = [e.offset(panel, self.packed, v * register.lanes) for v in range(register.vectors)]
        right = [scalars.from_memory(e, e.load(place, self.packed), self.dtype) for place in places]
        result = []
        for row in range(self.height):
            spread = left(row)
            totals = sums[row * register.vectors:(row + 1) * register.vectors]
            result += [chained(e, spread, b, total) for b, total in zip(right, totals, strict=True)]
        return result

    def left_values(self, k: Value, count: int) -> Callable[[int, int], Value]:
        """A function of (step below `count`, row) that writes the packed value at k + step spread over the lanes."""
        e, height = self.e, self.height
        base = e.offset("%a", self.element, k * height)
        vectors: dict[int, Value] = {}

        def one(step: int, row: int) -> Value:
            return e.splat(e.load(e.offset(base, self.element, step * height + row), self.element, 1))

        def lane(step: int, row: int) -> Value:
            number, lane = divmod(step * height + row, self.group)
            if number not in vectors:
                place = e.offset(base, self.element, number * self.group)
                vectors[number] = e.load(place, self.element, self.group)
            return self.lane(vectors[number], lane)

        return lane if self.by_lane and count * height >= self.group else one

    def lane(self, vector: Value, lane: int) -> Value:
        """One lane of a vector in all lanes."""
        return pick(self.e, vector, vector, [lane] * self.register.lanes)


class StoringMicroKernel(MicroKernel):
    """A `MicroKernel` whose sums go elsewhere than they come from: into the result, after the last block of k."""

    ARGUMENTS = MicroKernel.ARGUMENTS + ", ptr %goal, i64 %goal_stride"
    goal = "%goal", "%goal_stride"


def chained(e: Emitter, a: Value, b: Value, total: Value) -> Value:
    """The next link of a chain: one fma, or for integers a product and a sum, which wrap."""
    return e.fma(a, b, total) if total.is_float else total + a * b


def transpose(e: Emitter, lines: list[Value]) -> list[Value]:
    """Four vectors of four as their transpose, or of several fours side by side, each as its own; fewer lines give
    vectors of that many elements."""
    if len(lines) == 1:
        return [e.assign(f"extractelement {lines[0].type} {lines[0].name}, i64 {i}", lines[0].element, 1)
                for i in range(lines[0].lanes)]
    if len(lines) == 2:
        return [pick(e, lines[0], lines[1], [i, i + 4]) for i in range(4)]
    lanes = lines[0].lanes

    def mixed(a: Value, b: Value, chosen: tuple[int, ...]) -> Value:
        places = [first + i % 4 + (lanes if i >= 4 else 0) for first in range(0, lanes, 4) for i in chosen]
        return pick(e, a, b, places)

    low = [mixed(lines[i], lines[i + 1], (0, 4, 1, 5)) for i in (0, 2)]
    high = [mixed(lines[i], lines[i + 1], (2, 6, 3, 7)) for i in (0, 2)]
    return [mixed(first, second, chosen) for first, second in (low, high)
            for chosen in ((0, 1, 4, 5), (2, 3, 6, 7))]


def pick(e: Emitter, a: Value, b: Value, chosen: Sequence[int]) -> Value:
    """Lanes of two vectors, by number."""
    mask = ", ".join(f"i32 {i}" for i in chosen)
    return e.assign(f"shufflevector {a.type} {a.name}, {b.type} {b.name}, <{len(chosen)} x i32> <{mask}>",
                    a.element, len(chosen))
