"""The table of intrinsics: the functions `@gpu.*` that the text of kernels calls, each with its types and its PTX.

A row is a function with `@intrinsic`; its docstring is the meaning, which the emulator has as code for the same row
(`emulator/meanings.py`). A name may have parameters, `wgmma_{kind}_{columns}_{left}{right}`: kernels ask for the sizes
they need. Every function takes the context first, which a GPU has no use for. What older chips do not assemble is in
the text of a kernel only where it is called.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from morpho.backends.code.emit import Emitter, Value, defined

Types = Sequence[str]
STEP = 16  # values of k of an instruction
STEPS = 4  # instructions of a slice
TURNED_STEP, STRAIGHT_STEP = 2048 >> 4, 32 >> 4  # 16 bytes from one step of k to the next
LINES, PART = 1024 >> 4, 8192 >> 4  # 16 bytes from eight lines to the next ones; to the next 64 columns
SWIZZLED = 1 << 62  # lines of 128 bytes
WORDS, FLOATS = ["i32"] * 4, ["float"] * 4
LETTERS = {"i32": "r", "i64": "l", "float": "f", "ptr addrspace(1)": "l"}  # of registers in constraints
PARAMETERS = {"kind": "bf16|f16", "left": "[01]", "right": "[01]", "way": "up|down", "a": "[su]", "b": "[su]"}
CALLED = re.compile(r"@gpu\.(\w+)\(")
SHARED = "@gpu_shared_memory = external addrspace(3) global [0 x i8], align 1024"
INTRINSICS: dict[str, Intrinsic] = {}  # by name


def struct(kinds: Types) -> str:
    """The type of what a function gives: nothing, a value, or several."""
    return {0: "void", 1: "".join(kinds)}.get(len(kinds), "{ " + ", ".join(kinds) + " }")


@dataclass(frozen=True)
class Intrinsic:
    """A row of the table. `arguments` (behind the context) and `results` are types, or functions of the parameters."""

    name: str
    arguments: Types | Callable[..., Types]
    results: Types | Callable[..., Types]
    ptx: Callable[..., Any]  # (code, *arguments, **parameters): writes the body; gives its result
    is_convergent: bool

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(re.sub(r"\\{(\w+)\\}", lambda m: f"(?P<{m[1]}>{PARAMETERS.get(m[1], '[0-9]+')})",
                                 re.escape(self.name)))

    def signature(self, parameters: dict[str, Any]) -> tuple[Types, Types]:
        """Types of the arguments and of the results."""
        first, second = (part(**parameters) if callable(part) else part for part in (self.arguments, self.results))
        return first, second


def intrinsic(name: str, arguments: Types | Callable[..., Types] = (), results: Types | Callable[..., Types] = (),
              convergent: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add a row: a function that writes the PTX."""
    def add(ptx: Callable[..., Any]) -> Callable[..., Any]:
        INTRINSICS[name] = Intrinsic(name, arguments, results, ptx, convergent)
        return ptx

    return add


@cache
def row_of(name: str) -> tuple[Intrinsic, dict[str, Any]]:
    """The row of a function and its parameters; numbers are numbers."""
    for row in INTRINSICS.values():
        if (match := row.pattern.fullmatch(name)) is not None:
            return row, {key: int(text) if text.isdigit() else text for key, text in match.groupdict().items()}
    raise KeyError(f"no intrinsic is named {name}")


class Code:
    """The body of a function being written."""

    def __init__(self, chip_comes_early: bool = True) -> None:
        self.e, self.comes_early, self.declarations = Emitter(1), chip_comes_early, set[str]()

    def shared_at(self, offset: Value) -> Value:
        """The address of a byte in the window of shared memory."""
        return self.e.assign(f"call i32 @gpu.shared_at(ptr null, i32 {offset.name})", "i32", 1)

    def call(self, name: str, result: str, *arguments: Value) -> Value | None:
        """Call one of LLVM's intrinsics for NVIDIA's chips."""
        self.declarations.add(f"declare {result} @llvm.nvvm.{name}({', '.join(each.element for each in arguments)})")
        text = f"call {result} @llvm.nvvm.{name}({listed(arguments)})"
        if result != "void":
            return self.e.assign(text, result, 1)
        self.e.line(text)
        return None

    def asm(self, text: str, *arguments: Value, results: Types = (), tied: Sequence[int] = (), early: bool = False,
            effects: bool = True, memory: bool = True) -> Value | None:
        """Inline assembly. The first arguments are `tied` to results, by their numbers; `early`: results may be written
        before arguments are read; `memory`: it may read and write memory."""
        constraints = [*(f"={'&' * early}{LETTERS[kind]}" for kind in results), *map(str, tied),
                       *(LETTERS[each.element] for each in arguments[len(tied):]), *["~{memory}"] * memory]
        line = (f'call {struct(results)} asm {"sideeffect " * effects}"{text}", "{",".join(constraints)}"'
                f"({listed(arguments)})")
        if results:
            return self.e.assign(line, struct(results), 1)
        self.e.line(line)
        return None

    def to_global(self, pointer: Value) -> Value:
        return self.e.assign(f"addrspacecast ptr {pointer.name} to ptr addrspace(1)", "ptr addrspace(1)", 1)


def listed(values: Sequence[Value]) -> str:
    return ", ".join(f"{value.element} {value.name}" for value in values)


def definition(name: str, e: Emitter, write: Callable[[list[Value]], Value | None], attributes: str) -> str:
    """The text of a function of the table, whose body `write` writes for its arguments."""
    row, parameters = row_of(name)
    arguments, results = row.signature(parameters)
    values = [e.argument(f"%x{number}.", kind) for number, kind in enumerate(arguments)]
    result = write(values)
    e.line("ret void" if result is None else f"ret {struct(results)} {result.name}")
    heads = ", ".join(["ptr %c", *(f"{value.element} {value.name}" for value in values)])
    return defined(f"internal {struct(results)} @gpu.{name}({heads}) {attributes}", e.text())


def called(text: str) -> list[str]:
    """Names of the functions that a text calls, sorted."""
    return sorted(set(CALLED.findall(text)))


def functions(text: str, comes_early: bool) -> str:
    """Those that a kernel's text calls, for NVPTX. `comes_early`: the chip lets a grid begin before the one before it
    is over."""
    parts, declarations = [SHARED + "\n"], set[str]()
    waiting, known = called(text), set[str]()
    while waiting:
        name = waiting.pop(0)
        if name in known:
            continue
        known.add(name)
        row, parameters = row_of(name)
        code = Code(comes_early)
        part = definition(name, code.e, lambda values, row=row, code=code, parameters=parameters: row.ptx(  # type: ignore[misc]
            code, *values, **parameters), "alwaysinline" + " convergent" * row.is_convergent)
        declarations |= code.declarations
        parts.append(part)
        waiting += [each for each in called(part) if each != name]
    return "".join([*parts, *(f"{line}\n" for line in sorted(declarations))])


# -- where a thread is, and meeting others ---------------------------------------------------------------------------
def _number(code: Code, register: str) -> Value:
    number = code.call(f"read.ptx.sreg.{register}.x", "i32")
    assert number is not None
    return code.e.convert("zext", number, "i64")


@intrinsic("thread", [], ["i64"])
def thread(code: Code) -> Value:
    """The number of this thread in its block."""
    return _number(code, "tid")


@intrinsic("block", [], ["i64"])
def block(code: Code) -> Value:
    return _number(code, "ctaid")


@intrinsic("threads", [], ["i64"])
def threads(code: Code) -> Value:
    """How many threads a block has."""
    return _number(code, "ntid")


@intrinsic("blocks", [], ["i64"])
def blocks(code: Code) -> Value:
    return _number(code, "nctaid")


@intrinsic("shared", [], ["ptr"])
def shared(code: Code) -> Value:
    """The first byte of the block's shared memory."""
    return Value(code.e, "addrspacecast (ptr addrspace(3) @gpu_shared_memory to ptr)", "ptr", 1)


@intrinsic("shared_at", ["i32"], ["i32"])
def shared_at(code: Code, offset: Value) -> Value:
    """The address of a byte in the window of shared memory: what assembly is given."""
    return code.e.assign("ptrtoint ptr addrspace(3) @gpu_shared_memory to i32", "i32", 1) + offset


@intrinsic("barrier", convergent=True)
def barrier(code: Code) -> None:
    """Wait for all threads of the block."""
    code.call("barrier.cta.sync.aligned.all", "void", code.e.constant(0, "i32"))


@intrinsic("warp_barrier", convergent=True)
def warp_barrier(code: Code) -> None:
    code.call("bar.warp.sync", "void", code.e.constant(-1, "i32"))


@intrinsic("shuffle_xor", ["i32", "i32"], ["i32"], convergent=True)
def shuffle_xor(code: Code, value: Value, mask: Value) -> Value | None:
    """The value of the lane whose number differs in these bits."""
    return code.call("shfl.sync.bfly.i32", "i32", code.e.constant(-1, "i32"), value, mask, code.e.constant(31, "i32"))


@intrinsic("shuffle", ["i32", "i32"], ["i32"], convergent=True)
def shuffle(code: Code, value: Value, lane: Value) -> Value | None:
    """The value of a lane."""
    return code.call("shfl.sync.idx.i32", "i32", code.e.constant(-1, "i32"), value, lane, code.e.constant(31, "i32"))


@intrinsic("shuffle_up", ["i32", "i32"], ["i32"], convergent=True)
def shuffle_up(code: Code, value: Value, distance: Value) -> Value | None:
    """The value of the lane so far below, or one's own where there is none."""
    return code.call("shfl.sync.up.i32", "i32", code.e.constant(-1, "i32"), value, distance, code.e.constant(0, "i32"))


@intrinsic("ballot", ["i32"], ["i32"], convergent=True)
def ballot(code: Code, test: Value) -> Value:
    """The lanes whose value is not 0, a bit each."""
    code.declarations.add("declare i32 @llvm.nvvm.vote.ballot.sync(i32, i1)")
    bit = code.e.icmp("ne", test, 0)
    return code.e.assign(f"call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 {bit.name})", "i32", 1)


@intrinsic("same_lanes", ["i32"], ["i32"], convergent=True)
def same_lanes(code: Code, value: Value) -> Value | None:
    """The lanes that have the same value, a bit each."""
    return code.call("match.any.sync.i32", "i32", code.e.constant(-1, "i32"), value)


@intrinsic("pause")
def pause(code: Code) -> None:
    """Give way for a moment: what another block is to write is not there yet."""
    code.asm("nanosleep.u32 20;")


@intrinsic("grid_early")
def grid_early(code: Code) -> None:
    """Programmatic dependent launch: the next grid may come to the multiprocessors now."""
    if code.comes_early:
        code.asm("griddepcontrol.launch_dependents;")


@intrinsic("grid_wait")
def grid_wait(code: Code) -> None:
    """As `grid_early`; go on when the grids before are over."""
    if code.comes_early:
        code.asm("griddepcontrol.launch_dependents; griddepcontrol.wait;")


@intrinsic("registers_{way}_{count}", convergent=True)
def registers(code: Code, way: str, count: int) -> None:
    """A warpgroup has so many registers a thread from here on."""
    code.asm(f"setmaxnreg.{'inc' if way == 'up' else 'dec'}.sync.aligned.u32 {count};")


# -- copies into shared memory ---------------------------------------------------------------------------------------
@intrinsic("cp_async", ["i32", "ptr", "i32"])
def cp_async(code: Code, offset: Value, source: Value, nbytes: Value) -> None:
    """Begin to copy 16 bytes to an offset of shared memory; behind so many of them are zeros."""
    code.asm("cp.async.cg.shared.global [$0], [$1], 16, $2;", code.shared_at(offset), code.to_global(source), nbytes)


@intrinsic("cp_commit")
def cp_commit(code: Code) -> None:
    """The copies begun so far are a group."""
    code.call("cp.async.commit.group", "void")


@intrinsic("cp_wait_{count}")
def cp_wait(code: Code, count: int) -> None:
    """Wait until only so many groups are still being copied."""
    code.call("cp.async.wait.group", "void", code.e.constant(count, "i32"))


@intrinsic("prefetch", ["ptr"])
def prefetch(code: Code, source: Value) -> None:
    code.asm("prefetch.global.L2 [$0];", code.to_global(source), memory=False)


@intrinsic("mbarrier_init", ["i32", "i32"])
def mbarrier_init(code: Code, offset: Value, count: Value) -> None:
    """Make a barrier at an offset of shared memory that so many arrivals end."""
    code.asm("mbarrier.init.shared::cta.b64 [$0], $1;", code.shared_at(offset), count)


@intrinsic("mbarrier_ready")
def mbarrier_ready(code: Code) -> None:
    """Barriers made before are there for the copy engine."""
    code.asm("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;")


@intrinsic("mbarrier_arrive", ["i32"])
def mbarrier_arrive(code: Code, offset: Value) -> None:
    code.asm("mbarrier.arrive.shared::cta.b64 _, [$0];", code.shared_at(offset))


@intrinsic("mbarrier_expect", ["i32", "i32"])
def mbarrier_expect(code: Code, offset: Value, nbytes: Value) -> None:
    """Arrive, and let the barrier wait for so many bytes of the copy engine."""
    code.asm("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", code.shared_at(offset), nbytes)


@intrinsic("mbarrier_wait", ["i32", "i32"])
def mbarrier_wait(code: Code, offset: Value, phase: Value) -> None:
    """Wait until a barrier's phase of this parity is over."""
    code.asm("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra DONE; bra WAIT; "
             "DONE: }", code.shared_at(offset), phase)


@intrinsic("tma_load_{rank}", lambda rank: ["i32"] * (3 + rank))
def tma_load(code: Code, table: Value, offset: Value, barrier: Value, *axes: Value, rank: int) -> None:
    """Begin to copy a box of an operand of so many axes, whose map lies among the words of the launch."""
    at, arrival = code.shared_at(offset), code.shared_at(barrier)
    first = code.asm("{ .reg .b64 t; mov.b64 t, kernel_main_param_0; cvta.param.u64 $0, t; }", results=["i64"],
                     effects=False, memory=False)
    assert first is not None
    places = ", ".join(f"${number + 2}" for number in range(rank))
    code.asm(f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], "
             f"[$1, {{{places}}}], [${rank + 2}];", at, first + code.e.convert("zext", table, "i64"), *axes, arrival)


# -- products by warps -----------------------------------------------------------------------------------------------
def _ldmatrix(code: Code, offset: Value, turned: str) -> Value | None:
    return code.asm(f"ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{$0,$1,$2,$3}}, [$4];", code.shared_at(offset),
                    results=WORDS)


@intrinsic("ldmatrix", ["i32"], WORDS, convergent=True)
def ldmatrix(code: Code, offset: Value) -> Value | None:
    """Four tiles of 8 x 8 halves, whose lines the lanes name by their offsets, as `mma` wants them."""
    return _ldmatrix(code, offset, "")


@intrinsic("ldmatrix_trans", ["i32"], WORDS, convergent=True)
def ldmatrix_trans(code: Code, offset: Value) -> Value | None:
    """The same, each tile transposed."""
    return _ldmatrix(code, offset, ".trans")


def _mma(code: Code, shape: str, kinds: str, arguments: Sequence[Value], results: Types) -> Value | None:
    return code.asm(f"mma.sync.aligned.{shape}.row.col.{kinds} {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, "
                    "{$10,$11,$12,$13};", *arguments, results=results, effects=False, memory=False)


@intrinsic("mma_{kind}", ["i32"] * 6 + FLOATS, FLOATS, convergent=True)
def mma(code: Code, *arguments: Value, kind: str) -> Value | None:
    """c + a b of 16 x 16 and 16 x 8 halves, over the registers of a warp."""
    return _mma(code, "m16n8k16", f"f32.{kind}.{kind}.f32", arguments, FLOATS)


@intrinsic("mma_{a}8_{b}8", ["i32"] * 10, WORDS, convergent=True)
def mma_bytes(code: Code, *arguments: Value, a: str, b: str) -> Value | None:
    """c + a b of 16 x 32 and 32 x 8 bytes, exact."""
    return _mma(code, "m16n8k32", f"s32.{a}8.{b}8.s32", arguments, WORDS)


@intrinsic("mma_tf32", ["i32"] * 6 + FLOATS, FLOATS, convergent=True)
def mma_tf32(code: Code, *arguments: Value) -> Value | None:
    """c + a b of 16 x 8 and 8 x 8 numbers of 19 bits."""
    return _mma(code, "m16n8k8", "f32.tf32.tf32.f32", arguments, FLOATS)


# -- numbers ---------------------------------------------------------------------------------------------------------
def _plain(code: Code, text: str, result: str, *arguments: Value) -> Value | None:
    return code.asm(text, *arguments, results=[result], effects=False, memory=False)


@intrinsic("to_tf32", ["float"], ["i32"])
def to_tf32(code: Code, x: Value) -> Value | None:
    """A number of 19 bits, halves away from zero."""
    return _plain(code, "cvt.rna.tf32.f32 $0, $1;", "i32", x)


@intrinsic("exp2", ["float"], ["float"])
def exp2(code: Code, x: Value) -> Value | None:
    """2 ** x, to two units in the last place."""
    return _plain(code, "ex2.approx.ftz.f32 $0, $1;", "float", x)


@intrinsic("reciprocal", ["float"], ["float"])
def reciprocal(code: Code, x: Value) -> Value | None:
    return _plain(code, "rcp.approx.ftz.f32 $0, $1;", "float", x)


@intrinsic("log2", ["float"], ["float"])
def log2(code: Code, x: Value) -> Value | None:
    return _plain(code, "lg2.approx.f32 $0, $1;", "float", x)


@intrinsic("pack_{kind}", ["float", "float"], ["i32"])
def pack(code: Code, low: Value, high: Value, kind: str) -> Value | None:
    """Two numbers, rounded, in a word."""
    return _plain(code, f"cvt.rn.{kind}x2.f32 $0, $1, $2;", "i32", high, low)


@intrinsic("add_bf16", ["i32", "i32"], ["i32"])
def add_bf16(code: Code, a: Value, b: Value) -> Value | None:
    """Two sums, each rounded once."""
    return _plain(code, "add.rn.bf16x2 $0, $1, $2;", "i32", a, b)


# -- products by warpgroups ------------------------------------------------------------------------------------------
# Fence, instructions and their end are one piece of assembly, so that nobody touches the registers in between.
BEGIN, END = "wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }"


def descriptor(turned: bool, part: int = PART) -> int:
    """What `wgmma` must know of an operand besides its address: its strides in units of 16 bytes, and its swizzle.

    >>> hex(descriptor(False)), hex(descriptor(True))
    ('0x4000004000010000', '0x4000004002000000')
    """
    return SWIZZLED | LINES << 32 | (part if turned else 1) << 16


def _place(code: Code, offset: Value, bits: int) -> Value:
    """The descriptor of an operand at an offset of shared memory."""
    return code.e.convert("zext", code.shared_at(offset).shift_right(4), "i64") | bits


def _registers(first: int, count: int) -> str:
    return "{" + ", ".join(f"${number}" for number in range(first, first + count)) + "}"


def _instruction(columns: int, kind: str, sums: str, a: str, flag: str, end: str) -> str:
    return f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {sums}, {a}, b, {flag}, 1, 1, {end};"


def _score_steps(keys: int, kind: str, parts: int, sizes: tuple[int, int], sums: str, place: int,
                 flags: tuple[str, str]) -> Iterator[str]:
    """Instructions of scores: lines of both operands run along k. The first of them begins from nothing."""
    for step in range(parts * STEPS):
        part, within = divmod(step, STEPS)
        left, right = (part * (size >> 4) + within * STRAIGHT_STEP for size in sizes)
        yield f"add.s64 a, ${place}, {left}; add.s64 b, ${place + 1}, {right};"
        yield _instruction(keys, kind, sums, "a", flags[bool(step)], "0, 0")


def _weighted_steps(columns: int, kind: str, keys: int, sums: str, weights: int, place: int,
                    flag: str) -> Iterator[str]:
    """Instructions of weighted sums: A from registers, lines of B are keys."""
    for step in range(keys // STEP):
        yield f"add.s64 b, ${place}, {step * TURNED_STEP};"
        yield _instruction(columns, kind, sums, _registers(weights + 4 * step, 4), flag, "1")


def _halves(*sizes: int) -> list[str]:
    """So many results of 64 rows, of which a thread has half a column each."""
    return ["float"] * (sum(sizes) // 2)


@intrinsic("wgmma_{kind}_{columns}_{left}{right}", lambda kind, columns, left, right: ["i32"] * 2 + _halves(columns),
           lambda kind, columns, left, right: _halves(columns), convergent=True)
def wgmma(code: Code, first: Value, second: Value, *sums: Value, kind: str, columns: int, left: int,
          right: int) -> Value | None:
    """A slice of k for 64 rows and so many columns; `left`, `right`: whether an operand's lines are k."""
    count = columns // 2
    a, b = f"${2 * count}", f"${2 * count + 1}"
    lines = ["{ .reg .pred p; .reg .b64 a, b; setp.ne.b32 p, 1, 0;", BEGIN]
    for step in range(STEPS):
        one, other = (step * (TURNED_STEP if turned else STRAIGHT_STEP) for turned in (left, right))
        lines.append(f"add.s64 a, {a}, {one}; add.s64 b, {b}, {other};")
        lines.append(_instruction(columns, kind, _registers(0, count), "a", "p", f"{left}, {right}"))
    places = [_place(code, offset, descriptor(bool(turned))) for offset, turned in ((first, left), (second, right))]
    return code.asm(" ".join([*lines, END]), *sums, *places, results=_halves(columns), tied=range(count))


@intrinsic("wgmma_rs_{kind}_{columns}_{keys}",
           lambda kind, columns, keys: ["i32", *_halves(columns), *["i32"] * (keys // 4)],
           lambda kind, columns, keys: _halves(columns), convergent=True)
def weighted(code: Code, right: Value, *given: Value, kind: str, columns: int, keys: int) -> Value | None:
    """Results with so many keys' values, weighted: A from registers, lines of B are keys."""
    count = columns // 2
    lines = ["{ .reg .pred p; .reg .b64 b; setp.ne.b32 p, 1, 0;", BEGIN,
             *_weighted_steps(columns, kind, keys, _registers(0, count), 2 * count, 2 * count + keys // 4, "p"), END]
    return code.asm(" ".join(lines), *given, _place(code, right, descriptor(True, 8 * keys)), results=_halves(columns),
                    tied=range(count))


@intrinsic("wgmma_rs_two_{kind}_{first}_{second}_{keys}",
           lambda kind, first, second, keys: ["i32"] * 2 + _halves(first, second) + ["i32"] * (keys // 2),
           lambda kind, first, second, keys: _halves(first, second), convergent=True)
def weighted_two(code: Code, one: Value, other: Value, *given: Value, kind: str, first: int, second: int,
                 keys: int) -> Value | None:
    """Two sums like those of `weighted`, of other operands, in flight at the same time: their lines lie one part after
    another."""
    total, weights = (first + second) // 2, keys // 4
    lines = ["{ .reg .pred p; .reg .b64 b; setp.ne.b32 p, 1, 0;", BEGIN]
    for which, (columns, start) in enumerate(((first, 0), (second, first // 2))):
        lines += _weighted_steps(columns, kind, keys, _registers(start, columns // 2), 2 * total + which * weights,
                                 2 * total + 2 * weights + which, "p")
    places = [_place(code, offset, descriptor(True, 8 * keys)) for offset in (one, other)]
    return code.asm(" ".join([*lines, END]), *given, *places, results=_halves(first, second), tied=range(total))


@intrinsic("scores_{kind}_{keys}_{parts}_{left_part}_{right_part}", ["i32"] * 2,
           lambda kind, keys, **sizes: _halves(keys), convergent=True)
def scores(code: Code, left: Value, right: Value, kind: str, keys: int, parts: int, left_part: int,
           right_part: int) -> Value | None:
    """Scores of 64 queries and so many keys over all parts of their depth, from nothing on: lines of both run along
    it."""
    count = keys // 2
    sizes = left_part, right_part
    steps = [*_score_steps(keys, kind, parts, sizes, _registers(0, count), count, ("p", "p"))]
    lines = ["{ .reg .pred p; .reg .b64 a, b; setp.ne.b32 p, 0, 0;", BEGIN, *steps[:2], "setp.eq.b32 p, 0, 0;",
             *steps[2:], END]
    places = [_place(code, offset, descriptor(False)) for offset in (left, right)]
    return code.asm(" ".join(lines), *places, results=_halves(keys), early=True)


TWO_FLAGS = "{ .reg .pred p, q; .reg .b64 a, b; setp.ne.b32 p, 0, 0; setp.eq.b32 q, 0, 0;"


@intrinsic("scores_two_{kind}_{keys}_{first}_{second}_{left_part}_{right_part}", ["i32"] * 4,
           lambda kind, keys, **sizes: _halves(keys, keys), convergent=True)
def scores_two(code: Code, *offsets: Value, kind: str, keys: int, first: int, second: int, left_part: int,
               right_part: int) -> Value | None:
    """Two products like those of `scores`, of other operands, in flight at the same time."""
    count, lines = keys // 2, [TWO_FLAGS, BEGIN]
    for which, parts in enumerate((first, second)):
        lines += _score_steps(keys, kind, parts, (left_part, right_part), _registers(which * count, count),
                              2 * count + 2 * which, ("p", "q"))
    places = [_place(code, offset, descriptor(False)) for offset in offsets]
    return code.asm(" ".join([*lines, END]), *places, results=_halves(keys, keys), early=True)


@intrinsic("attend_{kind}_{keys}_{parts}_{left_part}_{right_part}_{columns}",
           lambda keys, columns, **sizes: ["i32"] * 3 + _halves(columns) + ["i32"] * (keys // 4),
           lambda keys, columns, **sizes: _halves(keys, columns), convergent=True)
def attend(code: Code, queries: Value, key: Value, value: Value, *given: Value, kind: str, keys: int, parts: int,
           left_part: int, right_part: int, columns: int) -> Value | None:
    """Scores of the next keys (`scores`) and results with the values of these (`weighted`), in flight together."""
    count, sums, weights = keys // 2, columns // 2, keys // 4
    first = count + 2 * sums + weights  # of the places
    lines = [TWO_FLAGS, BEGIN,
             *_score_steps(keys, kind, parts, (left_part, right_part), _registers(0, count), first, ("p", "q")),
             *_weighted_steps(columns, kind, keys, _registers(count, sums), count + 2 * sums, first + 2, "q"), END]
    places = [_place(code, queries, descriptor(False)), _place(code, key, descriptor(False)),
              _place(code, value, descriptor(True, 8 * keys))]
    return code.asm(" ".join(lines), *given, *places, results=_halves(keys, columns), early=True,
                    tied=range(count, count + sums))
