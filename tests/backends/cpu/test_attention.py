"""Attention's kernel: right against float64, and the same bits however the work is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from running import Native, equal_bits, parameter, readable, stored, strides_of

import morpho as mo
from morpho.backends.code.compiler import code
from morpho.base.dtypes import DType, bfloat16, bool_, float16, float32, float64, int64
from morpho.ir.node import Node, build
from morpho.ops.sources import pick
from morpho.program.co_schedule import TILES_PER_THREAD, alternates, pieces_per_thread
from morpho.runtime.plans import evaluate as evaluation

Array = Any
EPSILON = {float16: 2.0**-10, bfloat16: 2.0**-7, float32: 2.0**-23, float64: 2.0**-52}
ISAS = ("scalar", "vector128", "vector256", "vector512")


def draw(rng: np.random.Generator, queries: int, keys: int, depth: int, width: int, heads: int = 1, kv_heads: int = 1,
         batch: tuple[int, ...] = (), dtype: DType = float32) -> list[Array]:
    """q, k and v in stored form."""
    shapes = ((*batch, heads, queries, depth), (*batch, kv_heads, keys, depth), (*batch, kv_heads, keys, width))
    return [stored(rng.normal(0, 1.5, shape), dtype) for shape in shapes]


def attend(arrays: list[Array], dtype: DType = float32, **options: Any) -> Array:
    """The result of `mo.attention` in stored form."""
    tensors = [tensor_of(a, dtype) for a in arrays]
    return stored(mo.attention(*tensors, **options).numpy(), dtype)


def tensor_of(array: Array, dtype: DType) -> mo.Tensor:
    """A tensor of stored numbers."""
    return mo.asarray(readable(array, dtype)).astype(dtype)


def exact(arrays: list[Array], dtype: DType = float32, mask: Array = None, causal: bool = False, window: int = 0,
          scale: float | None = None, offset: Array = 0) -> Array:
    """The meaning, written out in float64, row by row."""
    q, k, v = (readable(a, dtype).astype(np.float64) for a in arrays)
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    group = q.shape[-3] // k.shape[-3]
    out = np.zeros((*q.shape[:-1], v.shape[-1]))
    shape = (*q.shape[:-1], k.shape[-2])
    masks = None if mask is None else np.broadcast_to(mask, shape)
    offsets = np.broadcast_to(offset, q.shape[:-2])
    for place in np.ndindex(*q.shape[:-1]):
        *lead, head, row = place
        keys, values = k[(*lead, head // group)], v[(*lead, head // group)]
        position = offsets[(*lead, head)] + row
        number = np.arange(k.shape[-2])
        seen = (number <= position) | (not causal and not window)
        if window:
            seen &= number > position - window
        scores = keys @ q[place] * scale
        if masks is not None and masks.dtype == bool:
            seen &= masks[place]
        elif masks is not None:
            scores = scores + masks[place]
            seen &= masks[place] > -np.inf
        if seen.any():
            powers = np.exp(scores[seen] - scores[seen].max())
            out[place] = powers @ values[seen] / powers.sum()
    return out


def close(got: Array, want: Array, dtype: DType = float32) -> None:
    scale = 1 + np.max(np.abs(want), initial=0)
    limit = EPSILON[dtype] * 40 if dtype in (float32, float64) else EPSILON[dtype]
    error = np.max(np.abs(readable(got, dtype).astype(np.float64) - want), initial=0) / scale
    assert error <= limit, f"{error / EPSILON[dtype]:.1f} eps"


LENGTHS = (1, 2, 5, 31, 63, 64, 65, 129)


# -- values ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("keys", [0, *LENGTHS, 300])
@pytest.mark.parametrize("causal", [False, True])
def test_lengths(keys: int, causal: bool, rng: np.random.Generator) -> None:
    for queries in (0, *LENGTHS):
        arrays = draw(rng, queries, keys, 8, 8)
        close(attend(arrays, causal=causal), exact(arrays, causal=causal))


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("depth", [1, 3, 8, 12, 64, 80])
def test_depths_and_widths(depth: int, dtype: DType, rng: np.random.Generator) -> None:
    for width in (1, 3, 8, 17, 64, 80):
        for queries in (1, 3, 4, 33):
            arrays = draw(rng, queries, 70, depth, width, dtype=dtype)
            close(attend(arrays, dtype), exact(arrays, dtype), dtype)


@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (4, 2), (6, 2), (8, 1), (3, 1), (12, 4)])
@pytest.mark.parametrize("queries", [1, 7, 40])
def test_grouped_and_shared_heads(heads: int, kv_heads: int, queries: int, rng: np.random.Generator) -> None:
    arrays = draw(rng, queries, 90, 16, 12, heads, kv_heads, batch=(2,))
    close(attend(arrays), exact(arrays))
    close(attend(arrays, causal=True, offset=50), exact(arrays, causal=True, offset=50))
    group = heads // kv_heads  # the same bits as with heads of its own for everyone
    repeated = [arrays[0], *(np.repeat(a, group, axis=1) for a in arrays[1:])]
    assert equal_bits(attend(arrays), attend(repeated), float32)


@pytest.mark.sampled
@pytest.mark.parametrize("window", [1, 2, 16, 64, 65, 200])
@pytest.mark.parametrize("offset", [0, 5, 64, 150, 400, -3])
def test_windows_and_offsets(window: int, offset: int, rng: np.random.Generator) -> None:
    arrays = draw(rng, 70, 180, 8, 8)
    close(attend(arrays, window=window, offset=offset), exact(arrays, window=window, offset=offset))
    close(attend(arrays, causal=True, offset=offset), exact(arrays, causal=True, offset=offset))


def test_offsets_far_away(rng: np.random.Generator) -> None:
    arrays = draw(rng, 3, 70, 8, 8)
    everything = attend(arrays)
    for offset in (2**40, 2**62, np.int64(2**63 - 1)):
        assert equal_bits(attend(arrays, causal=True, offset=offset), everything, float32)
    assert not attend(arrays, causal=True, offset=-(2**62)).any()
    assert not attend(arrays, window=5, offset=2**62).any()


MASK_SHAPES = [(70, 130), (1, 130), (70, 1), (4, 70, 130), (4, 1, 130), (2, 1, 70, 130), (2, 4, 70, 130), (130,), ()]


@pytest.mark.sampled
@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
@pytest.mark.parametrize("kind", [bool_, float32, float16, bfloat16, float64], ids=str)
def test_masks(shape: tuple[int, ...], kind: DType, rng: np.random.Generator) -> None:
    arrays = draw(rng, 70, 130, 8, 8, 4, 2, batch=(2,))
    if kind is bool_:
        mask = rng.random(shape) < 0.7
    else:
        mask = np.where(rng.random(shape) < 0.2, -np.inf, np.round(rng.normal(0, 2, shape), 1))
        mask = readable(stored(mask, kind), kind)
    tensor = mo.asarray(np.asarray(mask)).astype(kind)
    for options in ({}, {"causal": True, "offset": 20}):
        close(attend(arrays, mask=tensor, **options), exact(arrays, mask=mask, **options))
    one = [a[:, :, :1] if i == 0 else a for i, a in enumerate(arrays)]  # a single row
    first = mask[..., :1, :] if len(shape) > 1 else mask
    close(attend(one, mask=tensor[..., :1, :] if len(shape) > 1 else tensor), exact(one, mask=first))


def test_a_boolean_and_an_additive_mask_agree(rng: np.random.Generator) -> None:
    arrays = draw(rng, 70, 130, 8, 8)
    mask = rng.random((70, 130)) < 0.5
    added = np.where(mask, 0.0, -np.inf).astype("f")
    assert equal_bits(attend(arrays, mask=mo.asarray(mask)), attend(arrays, mask=mo.asarray(added)), float32)
    lower = np.tril(np.ones((70, 130), bool))
    assert equal_bits(attend(arrays, mask=mo.asarray(lower)), attend(arrays, causal=True), float32)


def test_an_offset_for_each_batch_and_head(rng: np.random.Generator) -> None:
    arrays = draw(rng, 3, 150, 8, 8, 4, 2, batch=(3,))
    offsets = rng.integers(0, 150, (3, 4))
    got = attend(arrays, causal=True, offset=mo.asarray(offsets))
    close(got, exact(arrays, causal=True, offset=offsets))
    for batch in range(3):
        one = attend([a[batch] for a in arrays], causal=True, offset=mo.asarray(offsets[batch].astype("i4")))
        assert equal_bits(one, got[batch], float32)


# -- the same bits -----------------------------------------------------------------------------------------------------
OPTIONS: dict[str, dict[str, Any]] = {"plain": {}, "causal": {"causal": True}, "window": {"window": 40}}


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [float32, bfloat16, float64], ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_any_number_of_rows_together(name: str, dtype: DType, rng: np.random.Generator) -> None:
    """Row by row and in chunks of every size, a row has the bits it has among all others."""
    arrays = draw(rng, 67, 150, 16, 24, dtype=dtype)
    whole = attend(arrays, dtype, **OPTIONS[name])
    for chunk in (1, 2, 3, 4, 5, 8, 33):
        parts = [attend([arrays[0][:, first:first + chunk], *arrays[1:]], dtype, offset=first, **OPTIONS[name])
                 for first in range(0, 67, chunk)]
        assert equal_bits(np.concatenate(parts, axis=1), whole, dtype), chunk


@pytest.mark.parametrize("name", ["causal", "window"])
def test_decoding_step_by_step_is_prefill(name: str, rng: np.random.Generator) -> None:
    """One query at a time, against a cache that holds the keys up to it, and rubbish behind them."""
    arrays = draw(rng, 140, 140, 16, 16, 4, 2)
    whole = attend(arrays, **OPTIONS[name])
    step = mo.compile(lambda q, k, v, t: mo.attention(q, k, v, offset=t, **OPTIONS[name]))
    cache = [np.full((2, 192, 16), np.nan, "f") for _ in range(2)]
    for t in range(140):
        for stored_keys, new in zip(cache, arrays[1:]):
            stored_keys[:, t] = new[:, t]
        got = step(mo.asarray(arrays[0][:, t:t + 1]), *[mo.asarray(c, copy=True) for c in cache], mo.asarray(t))
        assert equal_bits(got.numpy(), whole[:, t:t + 1], float32), t
    assert step.stats["recompiles"] == 0


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", EPSILON, ids=str)
@pytest.mark.parametrize("isa", ISAS)
def test_instruction_sets(isa: str, dtype: DType, rng: np.random.Generator, sample: Callable[..., Any]) -> None:
    mask = mo.asarray(rng.random((1, 130)) < 0.8)
    for queries, depth, width in ((1, 10, 21), (1, 64, 96), (3, 10, 21), (45, 10, 21)):
        arrays = draw(rng, queries, 130, depth, width, 2, 2 if queries == 1 else 1, dtype=dtype)
        for options in sample((*OPTIONS.values(), {"mask": mask})):
            want = attend(arrays, dtype, **options)
            with mo.settings(isa=isa):
                assert equal_bits(attend(arrays, dtype, **options), want, dtype), (queries, depth, options)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_levels_and_threads(level: int, rng: np.random.Generator) -> None:
    arrays = draw(rng, 200, 300, 64, 64, 6, 3)
    want = attend(arrays, causal=True, offset=100)
    for threads in (1, 2, 5):
        with mo.settings(level=level, threads=threads):
            assert equal_bits(attend(arrays, causal=True, offset=100), want, float32), threads


def test_several_threads_take_part(rng: np.random.Generator) -> None:
    arrays = [mo.asarray(a) for a in draw(rng, 200, 300, 64, 64, 6, 3)]
    with mo.settings(threads=2):
        f = mo.compile(lambda q, k, v: mo.attention(q, k, v))
        f(*arrays)
        pool = next(iter(f.specialisations.values())).plan.native_code.workers
        before = pool.runs
        f(*arrays)
        assert pool.runs == before + 1


@pytest.mark.parametrize(("threads", "tiles"), [(2, 7), (5, 13)])
def test_tiles_are_taken_one_by_one(threads: int, tiles: int, rng: np.random.Generator) -> None:
    """Of 400 rows of each key-value head: 64 at a time, or 32 where that would leave threads idle."""
    arrays = [mo.asarray(a) for a in draw(rng, 200, 300, 64, 64, 6, 3)]
    with mo.settings(threads=threads):
        f = mo.compile(lambda q, k, v: mo.attention(q, k, v))
        f(*arrays)
        pool = next(iter(f.specialisations.values())).plan.native_code.workers
        before = sum(pool.pieces)
        f(*arrays)
        assert sum(pool.pieces) == before + 3 * tiles


def test_batches(rng: np.random.Generator) -> None:
    arrays = draw(rng, 20, 70, 8, 8, 2, 2, batch=(3, 2))
    whole = attend(arrays)
    for place in np.ndindex(3, 2):
        assert equal_bits(attend([a[place] for a in arrays]), whole[place], float32)
        assert equal_bits(attend([a[place][1] for a in arrays]), whole[place][1], float32)


def test_dynamic_lengths(rng: np.random.Generator) -> None:
    queries, keys = mo.Dim("queries", 0, 300), mo.Dim("keys", 0, 400)
    for options in OPTIONS.values():
        f = mo.compile(lambda q, k, v, options=options: mo.attention(q, k, v, **options),
                       dynamic={"q": {1: queries}, "k": {1: keys}, "v": {1: keys}})
        for lengths in ((1, 1), (3, 200), (64, 64), (65, 130), (300, 400), (0, 5), (5, 0)):
            arrays = draw(rng, *lengths, 16, 16, 4, 2)
            got = f(*[mo.asarray(a) for a in arrays]).numpy()
            assert equal_bits(got, attend(arrays, **options), float32), lengths
        assert f.stats["recompiles"] == 0


def test_a_dynamic_size_as_offset(rng: np.random.Generator) -> None:
    keys = mo.Dim("keys", 2, 400)
    f = mo.compile(lambda q, k, v: mo.attention(q, k, v, causal=True, offset=k.shape[-2] - 2),
                   dynamic={"k": {1: keys}, "v": {1: keys}})
    for length in (2, 64, 200):
        arrays = draw(rng, 2, length, 16, 16)
        got = f(*[mo.asarray(a) for a in arrays]).numpy()
        assert equal_bits(got, attend(arrays, causal=True, offset=length - 2), float32)


@pytest.mark.parametrize("dtype", [float32, float16], ids=str)
def test_strides_without_copies(dtype: DType, rng: np.random.Generator) -> None:
    """(batch, length, heads, d) turned, every second column, backwards: read where they lie."""
    arrays = draw(rng, 40, 70, 16, 16, 2, 2, batch=(2,), dtype=dtype)
    want = attend(arrays, dtype)
    turned = [np.ascontiguousarray(a.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for a in arrays]
    spaced = [np.repeat(a, 2, axis=-1)[..., ::2] for a in arrays]
    backwards = [np.ascontiguousarray(a[..., ::-1, ::-1])[..., ::-1, ::-1] for a in arrays]
    for views in (turned, spaced, backwards, [turned[0], spaced[1], backwards[2]]):
        nodes = [parameter(i, v.shape, dtype, strides_of(v)) for i, v in enumerate(views)]
        native = Native([pick(attention_node(*nodes), 0)])
        assert native.program.copies == 0 and native.program.kernels == 1
        (got,) = native(views)
        assert equal_bits(got, want, dtype)


def attention_node(*inputs: Node, **options: Any) -> Node:
    given = {"scale": float(inputs[0].shape[-1]) ** -0.5, "causal": False, "window": 0, "offset": 0, "masked": False,
             "moving": False}
    return build("attention", *inputs, **{**given, **options})


# -- extreme values ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("queries", [1, 4, 40])
def test_rows_that_see_nothing_are_zero(queries: int, rng: np.random.Generator) -> None:
    arrays = draw(rng, queries, 100, 8, 8)
    hidden = mo.asarray(np.zeros((queries, 100), bool))
    for options in ({"mask": hidden}, {"causal": True, "offset": -queries},
                    {"mask": mo.asarray(np.full((queries, 100), -np.inf, "f"))}):
        got = attend(arrays, **options)
        assert not got.any() and not np.signbit(got).any()


@pytest.mark.parametrize("queries", [1, 4, 40])
def test_masked_values_take_no_part(queries: int, rng: np.random.Generator) -> None:
    """NaN and infinities behind a mask leave every bit as it is, in the same block as visible keys too."""
    arrays = draw(rng, queries, 150, 8, 8)
    mask = rng.random((queries, 150)) < 0.5
    mask[:, 70] = np.arange(queries) % 2 == 0
    want = attend(arrays, mask=mo.asarray(mask))
    for rubbish in (np.nan, np.inf, -np.inf):
        column = [a.copy() for a in arrays]
        column[1][:, 70] = column[2][:, 70] = rubbish
        got = attend(column, mask=mo.asarray(mask))
        hidden = ~mask[:, 70]
        assert equal_bits(got[:, hidden], want[:, hidden], float32)
        assert not np.isfinite(got[:, mask[:, 70]]).any()
    ahead = [a.copy() for a in arrays]
    for a in ahead[1:]:
        a[:, 101:] = np.nan
    got = attend(ahead, causal=True, offset=101 - queries)
    assert equal_bits(got, attend(arrays, causal=True, offset=101 - queries), float32)


@pytest.mark.parametrize("queries", [1, 4, 40])
def test_large_scores(queries: int, rng: np.random.Generator) -> None:
    """No NaN from finite numbers: scores of 1e30, and ones that overflow, on either side."""
    arrays = draw(rng, queries, 130, 8, 8)
    for size in (1e5, 1e15):
        big = [arrays[0] * np.float32(size), arrays[1] * np.float32(size), arrays[2]]
        close(attend(big), exact(big))
    one = [np.full_like(arrays[0], 3e38), np.full_like(arrays[1], 3e38), arrays[2]]
    close(attend(one), np.broadcast_to(arrays[2].mean(axis=1, keepdims=True), one[0].shape))
    one[1][:, ::2] *= -1
    close(attend(one), np.broadcast_to(arrays[2][:, 1::2].mean(axis=1, keepdims=True), one[0].shape))
    one[1] = -np.abs(one[1])
    close(attend(one), np.broadcast_to(arrays[2].mean(axis=1, keepdims=True), one[0].shape))


def test_a_nan_stays_in_its_row(rng: np.random.Generator) -> None:
    arrays = draw(rng, 40, 130, 8, 8)
    want = attend(arrays)
    arrays[0][:, 7, 3] = np.nan
    got = attend(arrays)
    assert np.isnan(got[:, 7]).all()
    assert equal_bits(np.delete(got, 7, axis=1), np.delete(want, 7, axis=1), float32)


# -- structure ---------------------------------------------------------------------------------------------------------
def test_memory_is_linear_in_the_lengths(rng: np.random.Generator) -> None:
    """Scratch does not know the lengths at all; the arena holds one number per row beside the result."""
    sizes = []
    for length in (64, 1024, 16384):
        nodes = [parameter(i, (2, length, 64), float32) for i in range(3)]
        plan = Native([pick(attention_node(*nodes), 0)]).plan
        arena = plan.program.arena_bytes
        scratch = plan.native_code.scratch_bytes // plan.native_code.threads
        assert arena <= 2 * length * 4 + 64
        sizes.append(scratch)
    assert len(set(sizes)) == 1 and sizes[0] < 1 << 19


def test_one_kernel_for_every_shape(rng: np.random.Generator) -> None:
    attend(draw(rng, 5, 9, 4, 4, 2, 1))
    before = code.counters.snapshot()["compiled"]
    for queries, keys, depth, width in ((1, 1, 1, 1), (100, 3, 7, 9), (3, 500, 64, 80)):
        attend(draw(rng, queries, keys, depth, width, 4, 2), causal=True, window=7, offset=3, scale=0.3)
    assert code.counters.snapshot()["compiled"] == before


def test_nothing_falls_back(rng: np.random.Generator) -> None:
    before = evaluation.counts.fallbacks
    for dtype in EPSILON:
        attend(draw(rng, 5, 9, 4, 4, dtype=dtype), dtype)
    assert evaluation.counts.fallbacks == before


def test_offsets_are_read_as_int64() -> None:
    nodes = [parameter(i, (1, 4, 8), float32) for i in range(3)]
    with pytest.raises(mo.errors.ShapeError):
        attention_node(*nodes, parameter(3, (1,), bool_), causal=True, moving=True)
    attention_node(*nodes, parameter(3, (1,), int64), causal=True, moving=True)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", [float32, bfloat16, float64], ids=str)
@pytest.mark.parametrize("batch", [1, 2])
def test_heads_are_joined_without_a_copy(dtype: DType, batch: int, rng: np.random.Generator) -> None:
    """Results lie as the reshape after them wants them, those of the gradient too, whose own bits stay."""
    heads, length, depth = 3, 21, 8
    kind = getattr(mo, dtype.name)
    x = mo.asarray(rng.standard_normal((batch, length, heads * depth))).astype(kind).realise()

    def split(x: mo.Tensor) -> mo.Tensor:
        return mo.permute_dims(mo.reshape(x, (batch, length, heads, depth)), (0, 2, 1, 3))

    def joined(x: mo.Tensor) -> mo.Tensor:
        seen = mo.attention(split(x), split(x * 2), split(x + 1), causal=True)
        return mo.reshape(mo.permute_dims(seen, (0, 2, 1, 3)), x.shape)

    def slope(x: mo.Tensor) -> mo.Tensor:
        return mo.grad(lambda x: mo.sum(mo.square(joined(x)).astype(mo.float32)))(x)

    for function, kernels in ((joined, 3), (slope, None)):
        compiled = mo.compile(function)
        found = compiled(x)
        assert compiled.stats["copies"] == 0 and kernels in (None, compiled.stats["kernels"])
        with mo.settings(level=0):
            assert found.numpy().tobytes() == mo.compile(function)(x).numpy().tobytes()
    apart = mo.attention(split(x), split(x * 2), split(x + 1), causal=True).numpy()  # (batch, heads, length, depth)
    assert joined(x).numpy().tobytes() == np.ascontiguousarray(apart.transpose(0, 2, 1, 3)).tobytes()


@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
@pytest.mark.parametrize("queries", [1, 3, 20])
def test_minus_infinity_hides_a_nan(queries: int, dtype: DType, rng: np.random.Generator) -> None:
    """As False does: a masked key takes no part, whatever it is."""
    q, k, v = (tensor_of(a, dtype) for a in draw(rng, queries, 70, 16, 16, dtype=dtype))
    hidden = np.arange(70) == 7
    k = mo.where(mo.asarray(hidden[:, None]), mo.full((), float("nan"), dtype=getattr(mo, dtype.name)), k)
    found = [mo.attention(q, k, v, mask=mask).astype(mo.float32).numpy()
             for mask in (mo.asarray(~hidden), mo.asarray(np.where(hidden, -np.inf, 0).astype("f")))]
    assert np.array_equal(*found) and np.isfinite(found[0]).all()


def test_threads_take_heads_side_by_side() -> None:
    """The next head's keys are asked for ahead, so it must be the same thread's. Tiles of one head differ in size."""
    step = mo.compile(lambda q, k, v: mo.attention(q, k, v, causal=True, offset=128))
    whole = mo.compile(lambda q: mo.attention(q, q, q, causal=True))
    with mo.settings(threads=2):
        step(mo.ones((1, 12, 1, 64)), mo.ones((1, 12, 129, 64)), mo.ones((1, 12, 129, 64)))
        whole(mo.ones((1, 2, 700, 64)))
    for f, alternating in ((step, False), (whole, True)):
        (found,) = [part for part in f.current.plan.program.steps if part.label.startswith("attention")]
        assert alternates(found) == alternating and pieces_per_thread(found) == TILES_PER_THREAD
