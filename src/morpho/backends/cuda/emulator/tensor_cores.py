# ruff: noqa: E501 (lines of LLVM's language)
"""Tensor cores on the CPU: fragments as the PTX manual lays them out over a warp, summed in float64 and rounded once.

A lane puts its registers into its line of the exchange, the warp meets, and every lane computes its own results from
the others' registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from morpho.backends.code import scalars
from morpho.backends.code.emit import Emitter, Value
from morpho.base.dtypes import DType, bfloat16, float16


def _exchange(e: Emitter, thread: Value) -> str:
    name = "%" + e.fresh("x")
    e.line(f"{name} = call ptr @emu.exchange(ptr %c, i64 {thread.name})")
    return name


def _meet(e: Emitter) -> None:
    e.line("call void @gpu.warp_barrier(ptr %c)")


def _thread(e: Emitter) -> Value:
    return e.assign("call i64 @gpu.thread(ptr %c)", "i64", 1)


def _cp_async() -> str:
    e = Emitter(1)
    memory = "%" + e.fresh("m")
    e.line(f"{memory} = call ptr @gpu.shared(ptr %c)")
    at = e.convert("zext", e.argument("%offset", "i32"), "i64")
    copies = e.convert("zext", e.icmp("ne", e.argument("%bytes", "i32"), 0), "i64")
    target = e.offset(memory, "i8", at)
    for half in range(2):
        e.store(e.constant(0, "i64", 1), e.offset(target, "i64", half))
    with e.loop(0, copies * 2) as loop:
        e.store(e.load(e.offset("%source", "i64", loop.index), "i64", 1, align=1),
                e.offset(target, "i64", loop.index))
    return f"define internal void @gpu.cp_async(ptr %c, i32 %offset, ptr %source, i32 %bytes) {{\nentry:\n{e.text()}\n  ret void\n}}\n"


def _ldmatrix(turned: bool) -> str:
    e = Emitter(1)
    thread = _thread(e)
    mine = _exchange(e, thread)
    e.line(f"store volatile i32 %offset, ptr {mine}")
    _meet(e)
    memory = "%" + e.fresh("m")
    e.line(f"{memory} = call ptr @gpu.shared(ptr %c)")
    warp, lane = thread & -32, thread & 31
    group, pair = lane.shift_right(2), lane & 3

    def line(number: Value) -> str:
        found = "%" + e.fresh("o")
        e.line(f"{found} = load volatile i32, ptr {_exchange(e, warp + number)}")
        return e.offset(memory, "i8", e.convert("zext", Value(e, found, "i32", 1), "i64"))

    text = "poison"
    kind = "{ i32, i32, i32, i32 }"
    for matrix in range(4):
        if turned:
            halves = [e.convert("zext", e.load(e.offset(line(pair * 2 + (8 * matrix + n)), "i16", group), "i16", 1), "i32")
                      for n in range(2)]
            value = halves[0] | (halves[1] << 16)
        else:
            value = e.load(e.offset(line(group + 8 * matrix), "i32", pair), "i32", 1)
        name = "%" + e.fresh("r")
        e.line(f"{name} = insertvalue {kind} {text}, i32 {value.name}, {matrix}")
        text = name
    _meet(e)
    name = "ldmatrix_trans" if turned else "ldmatrix"
    return (f"define internal {kind} @gpu.{name}(ptr %c, i32 %offset) noinline {{\nentry:\n{e.text()}\n"
            f"  ret {kind} {text}\n}}\n")


def _mma(kind: str, dtype: DType) -> str:
    e = Emitter(1)
    thread = _thread(e)
    mine = _exchange(e, thread)
    for number, name in enumerate(("a0", "a1", "a2", "a3", "b0", "b1")):
        e.line(f"store volatile i32 %{name}, ptr {e.offset(mine, 'i32', number)}")
    _meet(e)
    warp, lane = thread & -32, thread & 31
    group, pair = lane.shift_right(2), lane & 3

    def half(owner: Value, register: int, which: int) -> Value:
        place = e.offset(_exchange(e, warp + owner), "i16", 2 * register + which)
        bits = e.load(place, "i16", 1)
        stored = bits if dtype is bfloat16 else e.convert("bitcast", bits, "half")
        return e.convert("fpext", scalars.from_memory(e, stored, dtype), "double")

    text, results = "poison", "{ float, float, float, float }"
    for number in range(4):
        lower, column = number // 2, pair * 2 + number % 2
        total = e.convert("fpext", e.argument(f"%c{number}", "float"), "double")
        for k in range(16):
            a = half(group * 4 + (k % 8) // 2, lower + 2 * (k // 8), k % 2)
            b = half(column * 4 + (k % 8) // 2, 4 + k // 8, k % 2)
            total = total + a * b
        name = "%" + e.fresh("r")
        value = e.convert("fptrunc", total, "float")
        e.line(f"{name} = insertvalue {results} {text}, float {value.name}, {number}")
        text = name
    _meet(e)
    given = ", ".join([f"i32 %{n}" for n in ("a0", "a1", "a2", "a3", "b0", "b1")] + [f"float %c{n}" for n in range(4)])
    return (f"define internal {results} @gpu.mma_{kind}(ptr %c, {given}) noinline {{\nentry:\n{e.text()}\n"
            f"  ret {results} {text}\n}}\n" + "".join(f"{line}\n" for line in sorted(e.declarations)))


def _exchanged(e: Emitter) -> tuple[Value, Value, Value]:
    """The registers of A and B where all lanes see them; the first lane of the warp, this lane's group and pair."""
    thread = _thread(e)
    mine = _exchange(e, thread)
    for number, name in enumerate(("a0", "a1", "a2", "a3", "b0", "b1")):
        e.line(f"store volatile i32 %{name}, ptr {e.offset(mine, 'i32', number)}")
    _meet(e)
    return thread & -32, (thread & 31).shift_right(2), thread & 3


def _results(name: str, e: Emitter, totals: list[Value]) -> str:
    """The function, whose results are these."""
    kind, text = totals[0].element, "poison"
    results = "{ " + ", ".join([kind] * 4) + " }"
    for number, value in enumerate(totals):
        made = "%" + e.fresh("r")
        e.line(f"{made} = insertvalue {results} {text}, {kind} {value.name}, {number}")
        text = made
    _meet(e)
    given = ", ".join([f"i32 %{n}" for n in ("a0", "a1", "a2", "a3", "b0", "b1")] + [f"{kind} %c{n}" for n in range(4)])
    return (f"define internal {results} @gpu.{name}(ptr %c, {given}) noinline {{\nentry:\n{e.text()}\n"
            f"  ret {results} {text}\n}}\n")


def _mma_bytes(left: str, right: str) -> str:
    """16 x 8 results of 32 bytes each, exact: four bytes of a register are neighbours in k."""
    e = Emitter(1)
    warp, group, pair = _exchanged(e)

    def byte(owner: Value, register: int, which: int, sign: str) -> Value:
        stored = e.load(e.offset(_exchange(e, warp + owner), "i8", 4 * register + which), "i8", 1)
        return e.convert("sext" if sign == "s" else "zext", stored, "i32")

    totals = []
    for number in range(4):
        lower, column = number // 2, pair * 2 + number % 2
        total = e.argument(f"%c{number}", "i32")
        for k in range(32):
            a = byte(group * 4 + (k % 16) // 4, lower + 2 * (k // 16), k % 4, left)
            total = total + a * byte(column * 4 + (k % 16) // 4, 4 + k // 16, k % 4, right)
        totals.append(total)
    return _results(f"mma_{left}8_{right}8", e, totals)


def _mma_tf32() -> str:
    """16 x 8 results of eight numbers each."""
    e = Emitter(1)
    warp, group, pair = _exchanged(e)

    def number_of(owner: Value, register: int) -> Value:
        bits = e.load(e.offset(_exchange(e, warp + owner), "i32", register), "i32", 1) & -8192  # what the unit reads
        return e.convert("fpext", e.from_bits(bits, "float"), "double")

    totals = []
    for number in range(4):
        lower, column = number // 2, pair * 2 + number % 2
        total = e.convert("fpext", e.argument(f"%c{number}", "float"), "double")
        for k in range(8):
            total = total + (number_of(group * 4 + k % 4, lower + 2 * (k // 4))
                             * number_of(column * 4 + k % 4, 4 + k // 4))
        totals.append(e.convert("fptrunc", total, "float"))
    return _results("mma_tf32", e, totals)


_TO_TF32 = """
define internal i32 @gpu.to_tf32(ptr %c, float %x) {
  %bits = bitcast float %x to i32
  %exponent = and i32 %bits, 2139095040
  %special = icmp eq i32 %exponent, 2139095040
  %sum = add i32 %bits, 4096
  %cut = and i32 %sum, -8192
  %r = select i1 %special, i32 %bits, i32 %cut
  ret i32 %r
}
"""


def _pack(kind: str, dtype: DType) -> str:
    e = Emitter(1)
    halves = []
    for name in ("%low", "%high"):
        stored = scalars.to_memory(e, scalars.round_to(e, e.argument(name, "float"), dtype), dtype)
        halves.append(e.convert("zext", stored if dtype is bfloat16 else e.convert("bitcast", stored, "i16"), "i32"))
    both = halves[0] | (halves[1] << 16)
    return (f"define internal i32 @gpu.pack_{kind}(ptr %c, float %low, float %high) {{\nentry:\n{e.text()}\n"
            f"  ret i32 {both.name}\n}}\n")


def _add_bf16() -> str:
    """Two sums of bfloat16, each rounded once."""
    e, halves = Emitter(1), []
    a, b = (e.argument(name, "i32") for name in ("%a", "%b"))
    for parts in ((a << 16, b << 16), (a & -65536, b & -65536)):
        total = e.from_bits(parts[0], "float") + e.from_bits(parts[1], "float")
        stored = scalars.to_memory(e, scalars.round_to(e, total, bfloat16), bfloat16)
        halves.append(e.convert("zext", stored, "i32"))
    both = halves[0] | (halves[1] << 16)
    return (f"define internal i32 @gpu.add_bf16(ptr %c, i32 %a, i32 %b) {{\nentry:\n{e.text()}\n"
            f"  ret i32 {both.name}\n}}\n")


_POWERS = """
declare float @exp2f(float)
declare float @log2f(float)
define internal float @gpu.exp2(ptr %c, float %x) {
  %r = call float @exp2f(float %x)
  ret float %r
}
define internal float @gpu.reciprocal(ptr %c, float %x) {
  %r = fdiv float 1.0, %x
  ret float %r
}
define internal float @gpu.log2(ptr %c, float %x) {
  %r = call float @log2f(float %x)
  ret float %r
}
"""

_ALWAYS = "define internal void @gpu.cp_commit(ptr %c) {\n  ret void\n}\n" + "".join(
    f"define internal void @gpu.cp_wait_{n}(ptr %c) {{\n  ret void\n}}\n" for n in range(16))
_WRITTEN: dict[str, Callable[[], str]] = {
    "add_bf16": _add_bf16,
    "pack_bf16": lambda: _pack("bf16", bfloat16), "pack_f16": lambda: _pack("f16", float16), "cp_async": _cp_async,
    "ldmatrix": lambda: _ldmatrix(False), "ldmatrix_trans": lambda: _ldmatrix(True),
    "mma_bf16": lambda: _mma("bf16", bfloat16), "mma_f16": lambda: _mma("f16", float16), "mma_tf32": _mma_tf32,
    **{f"mma_{a}8_{b}8": partial(_mma_bytes, a, b) for a in "su" for b in "su"}}


@cache
def _written(name: str) -> str:
    return _WRITTEN[name]()


def tensor_cores(text: str) -> str:
    """Those functions of tensor cores, and of what goes with them, that a kernel's text calls."""
    return _POWERS + _TO_TF32 + _ALWAYS + "".join(_written(name) for name in _WRITTEN if f"@gpu.{name}(" in text)
