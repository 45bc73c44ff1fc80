"""Native functions: compiled, they give what the same source gives in Python; code outside the subset is refused."""

from __future__ import annotations

import ctypes
import itertools
import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest

from morpho.backends.code.compiler import code, llvm
from morpho.backends.code.native import declare, module, native
from morpho.backends.code.typed import (
    Bytes,
    Global,
    Native,
    Pointer,
    Type,
    Volatile,
    Words,
    atomic_load,
    atomic_store,
    atomic_update,
    compare_exchange,
    f32,
    f64,
    fence,
    i1,
    i8,
    i16,
    i32,
    i64,
    local,
    u8,
    u32,
    u64,
    writes,
)
from morpho.base.errors import CompileError
from morpho.base.target import isa_named

NUMBERS = (0, 1, -1, 2, 7, -7, 12, 100, -100)
serial = itertools.count()  # an engine knows a symbol once
WIDE = {("int", 8): ctypes.c_int8, ("int", 16): ctypes.c_int16, ("int", 32): ctypes.c_int32,
        ("int", 64): ctypes.c_int64, ("unsigned", 1): ctypes.c_bool, ("unsigned", 8): ctypes.c_uint8,
        ("unsigned", 32): ctypes.c_uint32, ("unsigned", 64): ctypes.c_uint64, ("float", 32): ctypes.c_float,
        ("float", 64): ctypes.c_double, ("void", 0): None}


def compiled(function: Any) -> Any:
    """A native function as one of C's."""
    symbol = f"native_test_{next(serial)}"
    text = re.sub(rf"@{re.escape(function.symbol)}\b", f"@{symbol}", module(function))
    isa = isa_named("native")
    (address,) = llvm.load(llvm.compile_text(text, isa), isa, [symbol])
    *kinds, result = (WIDE.get((part.family, part.bits), ctypes.c_void_p) for part in function.type.parts)
    return ctypes.CFUNCTYPE(result, *kinds)(address)


def same(function: Any, *cases: tuple[Any, ...]) -> None:
    run = compiled(function)
    for case in cases:
        assert run(*case) == function(*case), case


def same_on_words(function: Any, words: list[int], *others: int) -> list[int]:
    """Run both over a table of words; they must leave the same in it, and return the same."""
    array, table = (ctypes.c_int64 * len(words))(*words), list(words)
    assert compiled(function)(array, *others) == function(Pointer(table), *others)
    assert list(array) == table
    return table


PAIRS = [(a, b) for a in NUMBERS for b in NUMBERS]


@native()
def arithmetic(a: i64, b: i64) -> i64:
    return (a + 3 * b - 2) ^ (a & b | 5) + (-a << 2) + (~b >> 1) - +a


@native()
def divided(a: i64, b: i64) -> i64:
    return 1000 * (a // b) + a % b


@native()
def divided_unsigned(a: u64, b: u64) -> u64:
    return 1000 * (a // b) + a % b + (a >> 1)


@native()
def compared(a: i64, b: i64) -> i64:
    return (i64(a < b) + 2 * i64(a <= b) + 4 * i64(a == b) + 8 * i64(a != b) + 16 * i64(a > b) + 32 * i64(a >= b)
            + 64 * i64(-2 < a <= b + 1) + min(a, b) * 1000 + max(a, b, ) * 5)


@native()
def logic(a: i64, b: i64) -> i1:
    return (a > 0 and not b > 0) or (b and a + b == 0)


@native()
def chosen(a: i64, b: i64) -> i64:
    return (a if a > b else b) + (a // 3 if a > 0 or b > 0 else b // 3)


def test_integers() -> None:
    same(arithmetic, *PAIRS)
    same(divided, *((a, b) for a, b in PAIRS if b))
    same(divided_unsigned, *((abs(a), abs(b)) for a, b in PAIRS if b))
    same(compared, *PAIRS)
    same(chosen, *PAIRS)
    run = compiled(logic)
    assert all(run(*pair) == bool(logic(*pair)) for pair in PAIRS)


@native()
def narrowed(a: i64) -> i64:
    return i64(i8(a)) * 3 + i64(i16(a * 500)) + i64(i32(a << 29)) + i64(u8(a)) + i64(u32(a))


@native()
def floats(a: f64, b: i64) -> f64:
    x = f32(a) / f32(4.0)
    return f64(x * f32(b)) - a + 0.5 if a < 3.0 and b else -a * f64(i64(a))


def test_conversions() -> None:
    same(narrowed, *((a,) for a in (*NUMBERS, 200, 40000, 1 << 33)))
    same(floats, *((a / 4, b) for a, b in PAIRS))


@native()
def collatz(n: i64) -> i64:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
        if steps > 50:
            break
    return steps


@native()
def ranges(a: i64, b: i64) -> i64:
    total = 0
    for i in range(a):
        for j in range(1, b, 3):
            if j == 4:
                continue
            total += i * j
        i += 100
        total += i
    for k in range(b, -3, -2):
        if k < -1:
            break
        total = total * 3 - k
    return total


SIZES = (3, 5, 8)


@native()
def unrolled(a: i64) -> i64:
    total, parts = 0, (a, a * a)
    for number, (size, part) in enumerate(zip(SIZES[:2] if False else SIZES, (*parts, a + 1))):
        if number == 2 and a > 5:
            break
        if part == 4:
            continue
        total = total * size + part
    for size in SIZES:
        size = size + a
        for _ in range(2):
            size = size + 1
        total += size
    return total


@native()
def matched(a: i64) -> i64:
    match a:
        case 1 | 2:
            result = 10
        case 7:
            return -1
        case _:
            result = a
    return result


@native()
def endless(a: i64) -> i64:
    while True:
        if a > 1000:
            return a
        a = a * 2 + 1


def test_control_flow() -> None:
    same(collatz, *((n,) for n in range(1, 40)))
    same(ranges, *((a, b) for a in (0, 1, 4) for b in (-5, 0, 2, 9)))
    same(matched, *((a,) for a in NUMBERS))
    same(endless, *((a,) for a in range(5)))


class Row(IntEnum):
    COUNT = 0
    TOTAL = 1
    NEXT = 2  # address of a row
    FIRST = 3


@native()
def row_sum(row: Words) -> i64:
    for i in range(row[Row.COUNT]):
        row[Row.TOTAL] += row[Row.FIRST + i]
        (row + Row.FIRST)[i] = i
    return row[Row.TOTAL]


@native()
def volatile_sum(row: Volatile[i64], n: i64) -> i64:
    for i in range(n):
        row[0] += row[i]
    return row[0]


@native()
def chained(row: Words) -> i64:
    count = 0
    while row is not None:
        count += row[Row.TOTAL]
        following: Words = row[Row.NEXT]
        row = following
    return count


@native()
def byte_sum(data: Bytes, n: i64) -> i64:
    total = 0
    for i in range(n):
        total += i64(data[i])
    return total


def test_memory() -> None:
    same_on_words(row_sum, [3, 5, 0, 7, 8, 9])
    same_on_words(volatile_sum, [3, 5, 1, 7], 4)
    assert ".volatile" not in module(volatile_sum) and "load volatile i64" in module(volatile_sum)
    second = (ctypes.c_int64 * 4)(0, 30, 0, 0)
    first = (ctypes.c_int64 * 4)(0, 12, ctypes.addressof(second), 0)
    assert compiled(chained)(first) == 42
    data = bytes([1, 200, 3])
    assert compiled(byte_sum)(ctypes.create_string_buffer(data), 3) == byte_sum(data, 3) == 204


@native(inline=True)
def half(a: i64) -> i64:
    return a // 2


@native(inline=False)
def is_even(n: i64) -> i1:
    return True if n == 0 else is_odd(n - 1)


@native()
def is_odd(n: i64) -> i1:
    return False if n == 0 else is_even(n - 1)


labs = declare("labs", Callable[[i64], i64], meaning=abs)
snprintf = declare("snprintf", Callable[[Bytes, i64, Bytes], i32], variadic=True)
FORM = b"%ld and %s"


@native()
def printed(target: Bytes, a: i64) -> i32:
    return snprintf(target, 32, FORM, labs(a), b"more")


@native()
def with_calls(a: i64) -> i64:
    return half(labs(a)) * 2 + i64(is_even(a))


Step = Callable[[i64, i64], i64]


@native()
def add(a: i64, b: i64) -> i64:
    return a + b


@native()
def applied(step: Step, a: i64) -> i64:
    return step(a, 3) + step(1, a)


@native()
def with_address(a: i64, b: i64) -> i64:
    chosen_step = add if a > b else arithmetic
    return chosen_step(a, b) + applied(add, b)


def test_calls() -> None:
    same(with_calls, *((a,) for a in range(9)))
    text = module(with_calls)
    assert re.search(r"define internal i64 @half\(i64 %a\) alwaysinline", text)
    assert re.search(r"define internal i1 @is_even\(i64 %n\) noinline", text)
    same(with_address, *PAIRS)
    room = ctypes.create_string_buffer(32)
    assert compiled(printed)(room, -12) == 11 and room.value == b"12 and more"


@native()
def kept_step(table: Words, a: i64) -> i64:
    table[0] = add
    step: Step = table[0]
    return step(a, 2)


def test_an_address_lies_in_a_word() -> None:
    assert compiled(kept_step)((ctypes.c_int64 * 1)(), 5) == 7 == kept_step(Pointer([0]), 5)


counter = Global("native_test.counter", i64, count=2)
LETTERS = b"abc"


@native()
def counted(a: i64) -> i64:
    counter[1] += a
    counter[0] = counter[0] + 1
    return counter[0] * 100 + counter[1]


@native()
def letter(a: i64) -> u8:
    return LETTERS[a] if a < 3 else LETTERS[0]


def test_globals_and_bytes() -> None:
    run = compiled(counted)
    assert [run(n) for n in (1, 5, -2)] == [counted(n) for n in (1, 5, -2)]
    same(letter, *((a,) for a in range(4)))


@native()
def atomics(word: Words, a: i64) -> i64:
    old = atomic_update("add", word, a) + atomic_update("max", word, 50) * 10
    fence()
    swapped = compare_exchange(word, 50, 7)
    atomic_store(word + 1, atomic_load(word) + 1)
    return old * 10 + (1 if swapped else 0)


def test_atomics() -> None:
    for a in (1, 60):
        same_on_words(atomics, [5, 0], a)


@native()
def reversed_pair(a: i64, b: i64) -> i64:
    pair = local(i64, 2)
    pair[0], pair[1] = a, b
    a, b = b, a
    return pair[0] * 3 + pair[1] * 5 + a * 7


@native()
def named_like_the_emitters(entry: i64, v0: i64) -> i64:
    v1 = entry * v0
    return v1 - entry + v0


def test_names_that_the_emitter_uses() -> None:
    same(named_like_the_emitters, *PAIRS)


def test_arrays_of_the_frame() -> None:
    same(reversed_pair, *PAIRS)


def adder(amount: int, both: bool) -> Any:
    @native()
    def plus(a: i64) -> i64:
        if both:
            return a + amount
        return undefined_name  # noqa: F821 (never translated)

    return plus


def test_what_is_known_leaves_no_branch() -> None:
    assert "br i1" not in module(adder(3, True))
    same(adder(3, True), (4,))


def population(a: int) -> int:
    return a.bit_count()


@writes(population)
def _population(translation: Any, a: Any) -> Any:
    return translation.e.intrinsic("ctpop", a)


@native()
def with_intrinsic(a: i64) -> i64:
    return population(a) * 2


def test_what_has_no_syntax_is_written_through_the_emitter() -> None:
    same(with_intrinsic, *((abs(a),) for a in NUMBERS))


def test_unrolled_loops() -> None:
    same(unrolled, *((a,) for a in range(9)))


@native()
def shared(a: i64) -> i64:
    return half(a)


def test_parts_of_one_module() -> None:
    text = module(shared, internal=[add], elsewhere=[half])
    assert "define i64 @shared" in text and "define internal i64 @add" in text
    assert "call i64 @half(" in text and "define internal i64 @half(" not in text


def refused(function: Any) -> str:
    with pytest.raises(CompileError) as error:
        module(function)
    return str(error.value)


def test_refusals_name_the_line() -> None:
    def widens(a: i64, b: i32) -> i64:
        return a + b

    def raises(a: i64) -> i64:
        raise ValueError(a)

    def perhaps(a: i64) -> i64:
        if a > 0:
            b = 1
        return b

    def ends(a: i64) -> i64:
        if a > 0:
            return 1

    def other_type(a: i64) -> i64:
        for _ in range(a):
            a = 1.5
        return a

    def calls(a: i64) -> i64:
        return hex(a)

    def word(a: i64) -> i64:
        return a[0]

    def several(a: i64) -> i64:
        return add(a)

    def floating(a: i64) -> i64:
        return a + 1.5

    def untyped(a: i64) -> i64:
        return a + "b"

    for function, line, reason in (
            (widens, 1, "i64 is needed, not i32"), (raises, 1, "'raise ValueError(a)' is not supported"),
            (perhaps, 3, "b has no value here, or values of two types"), (ends, 1, "i64 is to be returned"),
            (other_type, 2, "1.5 is no constant of i64"), (calls, 1, "hex is no native function"),
            (word, 1, "i64 has no elements"), (several, 1, "2 arguments are needed, not 1"),
            (floating, 1, "1.5 is no constant of i64"), (untyped, 1, "'b' is no constant of i64")):
        message = refused(native()(function))
        first = function.__code__.co_firstlineno
        assert re.search(rf"test_native\.py:{first + line}: {function.__name__}: {re.escape(reason)}", message) or (
            function is ends and reason in message), message


def test_two_functions_of_one_name_are_refused() -> None:
    @native(symbol="add")
    def other(a: i64) -> i64:
        return a

    @native()
    def both(a: i64) -> i64:
        return other(a) + add(a, a)

    assert "two parts of the module are named add" in refused(both)


def test_types_convert_as_the_machine_does() -> None:
    assert isinstance(i8, Type) and isinstance(add, Native)
    assert [i8(200), u8(-1), i32(1 << 31), u64(-1)] == [-56, 255, -(1 << 31), (1 << 64) - 1]


def test_translated_text_is_kept_for_one_version_of_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, bytes] = {}

    class Store:
        get = staticmethod(kept.get)

        def put(self, key: str, data: bytes) -> bool:
            kept[key] = data
            return True

    texts_written: list[str] = []

    def write() -> str:
        texts_written.append(module(with_calls))
        return texts_written[-1]

    monkeypatch.setattr(code, "open_store", Store)
    texts = []
    for version in ("one", "one", "two"):
        monkeypatch.setattr(code, "_version", lambda version=version: version)
        texts.append(code.stored_text("test", write))
    assert len(texts_written) == len(kept) == 2 and len(set(texts)) == 1
    monkeypatch.setattr(code, "open_store", lambda: None)
    assert code.stored_text("test", write) == texts[0] and len(texts_written) == 3


def test_functions_are_translated_and_compiled_once_for_one_version_of_the_source(
        monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, bytes] = {}
    compiled: list[str] = []

    class Store:
        get = staticmethod(kept.get)

        def put(self, key: str, data: bytes) -> bool:
            kept[key] = data
            return True

    def compile_text(text: str, *rest: Any, plain: Callable[..., bytes] = llvm.compile_text) -> bytes:
        compiled.append(text)
        return plain(text, *rest)

    monkeypatch.setattr(code, "open_store", Store)
    monkeypatch.setattr(llvm, "compile_text", compile_text)
    for version, times in (("one", 1), ("one", 1), ("two", 2)):
        monkeypatch.setattr(code, "_version", lambda version=version: version)
        (address,) = code.addresses_of("test of addresses", add, isa=isa_named("scalar"))
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)
        assert function(40, 2) == 42 and len(compiled) == len(kept) == times
