"""Attention of one query over a cache: its bits, the line it puts in, and what kernels read before others are over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native_device import Native

import morpho as mo
from morpho.backends.cuda.assembly.early import before_wait, check_early
from morpho.backends.cuda.attention.decode.kernel import DecodeAttention, DecodeSpec
from morpho.backends.cuda.codegen.grid import entry
from morpho.base.dtypes import bfloat16
from morpho.base.errors import CompileError
from morpho.program.program import Program, Slot, Step
from morpho.program.view import whole


def _attend(q: Any, held: Any, others: Any, key: Any, value: Any, position: Any, window: int | None) -> Any:
    length = held.shape[2]
    here = mo.reshape(mo.arange(length), (1, 1, length, 1)) == mo.reshape(position, (-1, 1, 1, 1))
    k, v = mo.where(here, key, held), mo.where(here, value, others)
    return mo.attention(q, k, v, causal=True, offset=mo.reshape(position, (-1, 1)), window=window), k, v


@pytest.mark.parametrize(("heads", "group", "length", "depth", "positions", "window"), [
    (2, 1, 40, 64, (17,), None),
    (2, 2, 130, 16, (100, 3), None),
    (1, 1, 600, 32, (555,), None),  # several rounds
    (1, 1, 300, 24, (299,), 100),
    (1, 1, 1030, 16, (1000,), 600),  # spans of keys, then columns, by blocks of their own
])
def test_one_query_has_the_bits_it_has_among_many(gpu: str, rng: np.random.Generator, heads: int, group: int,
                                                  length: int, depth: int, positions: tuple[int, ...],
                                                  window: int | None) -> None:
    batch = len(positions)
    shapes = [(batch, heads, 2, depth), *[(batch, heads // group, length, depth)] * 2,
              *[(batch, heads // group, 1, depth)] * 2]
    given = [mo.asarray(rng.standard_normal(shape).astype("f")).astype(mo.bfloat16).to(gpu).realise()
             for shape in shapes]
    position = mo.asarray(np.array(positions), device=gpu)
    one, many = (mo.compile(lambda *given: _attend(*given, window)) for _ in range(2))
    found = [x.astype(mo.float32).numpy() for x in one(given[0][:, :, :1], *given[1:], position)]
    wanted = [x.astype(mo.float32).numpy() for x in many(*given, position)]
    assert ("16 columns a block" in one.explain()) == (length > 1000)
    assert "puts the new line in" in one.explain() and "puts the new line in" not in many.explain()
    assert found[0].tobytes() == wanted[0][:, :, :1].tobytes()
    assert [x.tobytes() for x in found[1:]] == [x.tobytes() for x in wanted[1:]]


def test_caches_stay_where_they_are(native: Native) -> None:
    mo.nn.seed(5)
    model = mo.models.create("gpt2", vocab_size=61, n_embd=32, n_layer=1, n_head=2, n_positions=32)
    model = model.astype(mo.bfloat16).to("cuda")
    [*mo.models.generate(model, [1, 2, 3], max_new_tokens=4)]
    generator = model.__dict__["_generators"].free[0]
    run, places = generator.loop.greedy, []
    for _ in range(4):
        run()
        places.append(generator.caches[0].keys.value.elements().address)
    assert len(set(places[1:])) == 1 and run.native_calls >= 3


def test_kernels_read_nothing_early_that_another_writes() -> None:
    spec = DecodeSpec(bfloat16, 64, 64, 0.125, 0, True, 0, None, True, 1, "decode", appends=True, still=True)
    found = before_wait(DecodeAttention(spec).text())
    assert found.reads == {1, 2, 5} and not found.writes  # keys, values, the position; not the query nor the new line
    late = before_wait(DecodeAttention(DecodeSpec(bfloat16, 64, 64, 0.125, 0, True, 0, None, True, 1, "decode")).text())
    assert not late.reads and not late.writes


def test_a_kernel_that_reads_too_early_is_refused() -> None:
    wait = "  call void @gpu.grid_wait(ptr %ctx)"
    words = ["  %a = getelementptr i64, ptr %p, i64 9", "  %b = load ptr, ptr %a, align 8"]
    program = Program()
    program.slots += [Slot("input", bfloat16, 8), Slot("temporary", bfloat16, 8)]
    views = tuple(whole(slot, (8,), bfloat16) for slot in range(2))
    step = Step(DecodeSpec(bfloat16, 64, 64, 0.125, 0, True, 0, None, True, 1), views, (), (), 1, 1, "some", "")
    for touch in ("  %c = load i16, ptr %b, align 2", "  store i16 0, ptr %b, align 2"):
        text = entry("kernel_main", 10, "\n".join([*words, touch, wait]))
        with pytest.raises(CompileError, match="touches operand 1 before"):
            check_early(step, program, text)
        check_early(step, program, entry("kernel_main", 10, "\n".join([*words, wait, touch])))


def test_the_largest_of_a_long_row_and_where_it_is(gpu: str, rng: np.random.Generator) -> None:
    """By as many threads as a block has: any order has the same bits."""
    a = rng.standard_normal((2, 9001)).astype("f")
    a[1, 7000:7003] = 9.0
    f = mo.compile(lambda x: (mo.argmax(x, axis=-1), mo.max(x, axis=-1)))
    where, largest = f(mo.asarray(a, device=gpu))
    assert where.numpy().tolist() == a.argmax(-1).tolist() and largest.numpy().tobytes() == a.max(-1).tobytes()
