"""Object code in memory: one engine for all that has names of its own."""

from __future__ import annotations

import ctypes

import pytest

from morpho.backends.code.compiler import llvm
from morpho.base.errors import CompileError
from morpho.base.machine import choose_isa, machine


def made(name: str, number: int) -> bytes:
    isa = choose_isa("native", machine())
    return llvm.compile_text(f"define i64 @{name}() {{ ret i64 {number} }}", isa)


def called(address: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int64)(address)())


def test_code_goes_to_one_engine_and_equal_names_to_another() -> None:
    isa = choose_isa("native", machine())
    first = llvm.load(made("test_load_a", 1), isa, ["test_load_a"])
    engines = len(llvm._engines)
    second = llvm.load([made("test_load_b", 2), made("test_load_c", 3)], isa, ["test_load_b", "test_load_c"])
    assert len(llvm._engines) == engines
    again = llvm.load(made("test_load_a", 4), isa, ["test_load_a"])
    assert len(llvm._engines) == engines + 1
    assert [called(address) for address in (*first, *second, *again)] == [1, 2, 3, 4]


def test_what_lacks_a_function_leaves_the_next_alone() -> None:
    isa = choose_isa("native", machine())
    with pytest.raises(CompileError, match="lacks"):
        llvm.load(made("test_load_d", 5), isa, ["test_load_e"])
    assert called(*llvm.load(made("test_load_e", 6), isa, ["test_load_e"])) == 6
