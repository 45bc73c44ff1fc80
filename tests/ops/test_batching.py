"""Every op on a batch has the bits of the op on each row: all inputs with rows, and each input alone."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from case_values import operands, random_values
from cases import SHAPED
from elementwise_cases import ELEMENTWISE
from running import Native, difference, equal_bits, parameter, stored
from shaped_case import Shaped

from morpho.base.dtypes import DType, bfloat16, bool_, complex64, float32, int32, uint8, uint32
from morpho.ir.node import Node, build
from morpho.ir.op import REGISTRY
from morpho.ops import batching

Array = Any
ROWS = 3
MADE_BY_PASSES = {"group", "gemm", "all_reduce_memory"}  # of nodes: batches are made before
LEAVES = {"constant", "iota", "dimension", "parameter", "data"}


def generator(session_seed: int, *key: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(key).encode(), session_seed & 0xFFFFFFFF))


def test_every_record_has_a_rule() -> None:
    """But for leaves, which have no inputs, and elementwise ops, for which being one is the rule."""
    without = {op.name for op in REGISTRY.values() if op.batch is None and op.kind != "elementwise"}
    assert without == MADE_BY_PASSES | LEAVES


def compare(nodes: list[Node], leaves: list[Node], arrays: list[Array], choices: list[tuple[bool, ...]]) -> None:
    """The program on rows, one after the other, and as batches with these inputs having rows."""
    alone = Native(nodes)
    whole: list[Node] = []
    for chosen in choices:
        rows = {leaf.serial: parameter(len(leaves) + i, (ROWS, *leaf.shape), leaf.dtype)
                for i, leaf in enumerate(leaves) if chosen[i]}
        whole += [batching.in_front(*one, ROWS) for one in batching.batch_of(nodes, rows, ROWS)]
    first = [np.ascontiguousarray(array[0]) for array in arrays]
    found = iter(Native(whole)([*first, *arrays]))
    for chosen in choices:
        results = [next(found) for _ in nodes]
        for number in range(ROWS):
            row = [np.ascontiguousarray(array[number]) if has else one
                   for array, one, has in zip(arrays, first, chosen, strict=True)]
            for node, want, got in zip(nodes, alone(row), results, strict=True):
                assert equal_bits(got[number], want, node.dtype), (
                    node, chosen, number, difference(np.ascontiguousarray(got[number]), want, node.dtype))


def choices_of(count: int) -> list[tuple[bool, ...]]:
    """All inputs, and each alone."""
    every = [(True,) * count]
    return every + [tuple(i == one for i in range(count)) for one in range(count)] if count > 1 else every


@pytest.mark.parametrize("dtype", [float32, bfloat16, int32, bool_, uint32, complex64], ids=str)
def test_elementwise(dtype: DType, session_seed: int, sample: Callable[..., Any]) -> None:
    rng = generator(session_seed, dtype)
    for count in (1, 2, 3):
        cases = [case for case in ELEMENTWISE if dtype in case.dtypes and len(case.inputs(dtype)) == count
                 and not (case.op == "cast" and dtype.is_complex and not case.attributes["dtype"].is_complex)]
        if not cases:
            continue
        by_kinds = {tuple(case.inputs(dtype)): [] for case in cases}
        for case in cases:
            by_kinds[tuple(case.inputs(dtype))].append(case)
        for kinds, same in by_kinds.items():
            leaves = [parameter(i, (13,), kind) for i, kind in enumerate(kinds)]
            arrays = [rng.permutation(array)[:ROWS * 13].reshape(ROWS, 13) for array in operands(rng, kinds, 40)]
            compare([case.build(*leaves) for case in same], leaves, arrays, sample(choices_of(count)))


def drawn(case: Shaped, rng: np.random.Generator, position: int, shape: tuple[int, ...], dtype: DType) -> Array:
    if case.draw is not None:
        return case.draw(rng, position, shape, dtype)
    return stored(random_values(rng, dtype, int(np.prod(shape))), dtype).reshape(shape)


WITH_ROWS = [case for case in SHAPED if case.op not in MADE_BY_PASSES | LEAVES | {"pick"}]


@pytest.mark.sampled
@pytest.mark.parametrize("case", WITH_ROWS, ids=str)
def test_shaped(case: Shaped, session_seed: int, sample: Callable[..., Any]) -> None:
    rng = generator(session_seed, str(case))
    rounded = (float32, bfloat16) if REGISTRY[case.op].kind == "fused" or case.op == "matmul" else (float32,)
    for dtype in [d for d in (*rounded, complex64) if d in case.dtypes] or case.dtypes[:1]:
        length = min((n for n in case.lengths if n >= 5), default=case.lengths[-1])
        specs = case.specs(dtype, length)
        leaves = [parameter(i, shape, kind) for i, (shape, kind) in enumerate(specs)]
        arrays = [np.stack([drawn(case, rng, i, shape, kind) for _ in range(ROWS)])
                  for i, (shape, kind) in enumerate(specs)]
        choices = sample(choices_of(len(specs))) if dtype is not bfloat16 else choices_of(len(specs))[:1]
        compare([case.make(*leaves)], leaves, arrays, choices)


def test_an_op_without_a_rule_is_a_loop_that_is_counted() -> None:
    before = batching.unrolled.get("matmul_quantised", 0)
    x, weight = parameter(0, (2, 32), float32), parameter(1, (3, 34), uint8)
    node = build("matmul_quantised", x, weight, kind="q8_0")
    rows = {weight.serial: parameter(2, (4, 3, 34), weight.dtype)}
    ((found, has),) = batching.batch_of([node], rows, 4)
    assert has and found.op.name == "concatenate" and len(found.inputs) == 4
    assert batching.unrolled["matmul_quantised"] == before + 1

