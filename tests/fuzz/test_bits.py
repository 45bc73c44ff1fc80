"""The same bits: levels, ISAs, threads, lazily and compiled, static and dynamic, a row alone or in a batch."""

from __future__ import annotations

import pytest
from checks import PASSES_OFF, check_batch, check_bits, check_dynamic, check_rows, check_threads, guarded, large_n
from programs import N, Program, random_program
from running import parameter

from morpho.base.dtypes import DType, bfloat16, float32, float64, int32
from morpho.base.machine import available_isas, machine
from morpho.ir.node import Node, build
from morpho.ops.algebra import expand

ISAS = available_isas(machine())


@pytest.mark.parametrize("part", range(4))
def test_levels_isas_lazily_compiled(part: int, session_seed: int) -> None:
    for number in range(12):
        seed = session_seed + 7_919 * part + number
        program = random_program(seed, rowwise=seed % 3 == 0)
        n = 1 + seed % 8
        isas = [ISAS[(part + number) % len(ISAS)], ISAS[(part + number + 2) % len(ISAS)]]
        off = PASSES_OFF[number % len(PASSES_OFF)]
        guarded(program, program.static(n), program.inputs(n),
                lambda nodes, values, isas=isas, off=off: check_bits(nodes, values, isas, off))


def test_static_and_dynamic(session_seed: int) -> None:
    for number in range(40):
        seed = session_seed + 31 * number
        check_dynamic(random_program(seed), 1 + seed % 40)


def test_a_row_alone_and_in_a_batch(session_seed: int) -> None:
    for number in range(40):
        check_rows(random_program(session_seed + 17 * number, rowwise=True), 5, [0, 3, 4])


def test_a_batch_has_the_bits_of_its_rows(session_seed: int) -> None:
    """`vmap` of any program."""
    for number in range(15):
        seed = session_seed + 29 * number
        check_batch(random_program(seed, rowwise=seed % 3 == 0), 1 + seed % 8, 3)


def test_random_programs_on_two_threads(session_seed: int) -> None:
    """Large enough to be divided; the counter shows that they were."""
    divided = 0
    for number in range(12):
        program = random_program(session_seed + 13 * number, rowwise=number % 2 == 0, native=True)
        divided += check_threads(program, large_n(program))
    assert divided > 0


def _chain(x: Node) -> Node:
    return build("gelu", build("add", build("multiply", x, x), x))


def _total(x: Node) -> Node:
    return build("sum", x, axes=(0, 1))


def _columns(x: Node) -> Node:
    return build("sum", x, axes=(0,))


def _softmax(x: Node) -> Node:
    return build("softmax", x, axes=(1,))


def _centred(x: Node) -> Node:
    return build("subtract", x, expand(build("max", x, axes=(1,)), x.shape))


def _running(x: Node) -> Node:
    return build("cumulative_sum", x, axis=1)


def _gram(x: Node) -> Node:
    return build("matmul", x, build("permute", build("slice", x, starts=(0, 0), sizes=(64, 1000), steps=(1, 1)),
                                    axes=(1, 0)))


@pytest.mark.sampled
@pytest.mark.parametrize("function", [_chain, _total, _columns, _softmax, _centred, _running, _gram],
                         ids=lambda f: f.__name__.strip("_"))
@pytest.mark.parametrize("dtype", [float32, bfloat16, float64], ids=str)
def test_two_threads_divide_the_work(function: object, dtype: DType) -> None:
    """More than a million operations are divided, and the result has the bits of one thread."""
    node = function(parameter(0, (2500, 1000), dtype))  # type: ignore[operator]
    assert check_threads(Program((node,), 11, False), 1) >= 1, "the kernel ran on one thread"


@pytest.mark.parametrize("rows, columns", [(1, 3_000_001), (3, 1_000_003), (1_000_003, 3), (70_000, 65)])
def test_long_and_short_rows_on_two_threads(rows: int, columns: int) -> None:
    for dtype in (float32, int32):
        for axes in ((0,), (1,), (0, 1)):
            x = parameter(0, (rows, columns), dtype)
            program = Program((build("sum", x, axes=axes), build("max", x, axes=axes)), rows, False)
            check_threads(program, 1)


def test_small_work_stays_on_the_caller() -> None:
    program = Program((_chain(parameter(0, (N, 10), float32)),), 1, True)
    assert check_threads(program, 10) == 0
