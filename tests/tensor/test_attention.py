"""`mo.attention`: what it takes and refuses, its gradients, and what they need of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, MorphoError, ShapeError
from morpho.runtime.plans import evaluate as evaluation

Array = Any
STEP = 1e-6


def draw(rng: np.random.Generator, queries: int, keys: int, depth: int = 6, width: int = 5, heads: int = 4,
         kv_heads: int = 2, dtype: str = "float64") -> list[mo.Tensor]:
    """q, k, v and a cotangent."""
    shapes = ((heads, queries, depth), (kv_heads, keys, depth), (kv_heads, keys, width), (heads, queries, width))
    return [mo.asarray(rng.normal(0, 1, shape)).astype(dtype).realise() for shape in shapes]


def gradients(given: list[mo.Tensor], **options: Any) -> list[Array]:
    """Of sum(attention * cotangent), with respect to q, k and v, as float64."""
    *inputs, cotangent = given
    found = []
    for at in range(3):
        def loss(x: mo.Tensor, at: int = at) -> mo.Tensor:
            return (mo.attention(*inputs[:at], x, *inputs[at + 1:], **options) * cotangent).sum()

        found.append(mo.grad(loss)(inputs[at]).astype("float64").numpy())
    return found


def by_differences(function: Callable[[Array], Array], x: Array) -> Array:
    """Central differences of a scalar function of an array."""
    found = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * STEP
            ends.append(function(moved))
        found[place] = (ends[0] - ends[1]) / (2 * STEP)
    return found


def options_of(name: str, rng: np.random.Generator, queries: int, keys: int) -> dict[str, Any]:
    if name == "boolean":
        return {"mask": mo.asarray(rng.random((queries, keys)) < 0.6)}
    if name == "added":
        return {"mask": mo.asarray(np.where(rng.random((4, 1, keys)) < 0.3, -np.inf, rng.normal(0, 1, (4, 1, keys))))}
    if name == "moving":
        return {"causal": True, "offset": mo.asarray(rng.integers(-1, keys, 4))}
    return {"plain": {}, "causal": {"causal": True, "offset": 1}, "window": {"window": 3, "offset": 2},
            "scaled": {"scale": -0.7}}[name]


KINDS = ("plain", "causal", "window", "scaled", "boolean", "added", "moving")


# -- gradients ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_by_differences(kind: str, rng: np.random.Generator) -> None:
    given = draw(rng, 5, 7)
    options = options_of(kind, rng, 5, 7)
    arrays = [tensor.numpy() for tensor in given]
    for at, found in enumerate(gradients(given, **options)):
        def loss(x: Array, at: int = at) -> Array:
            inputs = [mo.asarray(a) for a in (*arrays[:at], x, *arrays[at + 1:3])]
            return float((mo.attention(*inputs, **options) * given[3]).sum())

        assert np.allclose(found, by_differences(loss, arrays[at]), rtol=1e-6, atol=1e-7), (kind, at)


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [(1, 1), (1, 70), (33, 65), (129, 64), (70, 200)], ids=str)
def test_gradients_over_several_blocks(kind: str, lengths: tuple[int, int], rng: np.random.Generator) -> None:
    given = draw(rng, *lengths)
    options = options_of(kind, rng, *lengths)
    with mo.settings(device="reference"):
        want = gradients(given, **options)
    for got, true in zip(gradients(given, **options), want):
        assert np.allclose(got, true, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 7), (4, 1, 7), (4, 5, 7), (7,), (5, 1)], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_gradient_of_a_float_mask(shape: tuple[int, ...], causal: bool, rng: np.random.Generator) -> None:
    q, k, v, cotangent = draw(rng, 5, 7)
    mask = rng.normal(0, 1, shape)

    def loss(x: mo.Tensor) -> mo.Tensor:
        return (mo.attention(q, k, v, mask=x, causal=causal, offset=1) * cotangent).sum()

    found = mo.grad(loss)(mo.asarray(mask)).numpy()
    want = by_differences(lambda x: float(loss(mo.asarray(x))), mask)
    assert np.allclose(found, want, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"causal": True, "offset": 2}, {"causal": True, "offset": 1, "window": 3},
                                     {"mask": "bool"}, {"mask": "float"}], ids=str)
def test_second_derivatives(options: dict[str, Any], rng: np.random.Generator) -> None:
    """Gradients of the gradient against differences of it, for q, k, v and a mask; heads share k and v."""
    q, k, v, cotangent = draw(rng, 5, 7)
    given = [q, k, v]
    mask = options.get("mask")
    if mask == "float":
        given.append(mo.asarray(rng.normal(0, 1, (*q.shape[:-1], k.shape[-2]))))
    fixed = {**options, "mask": mo.asarray(rng.random((q.shape[-2], k.shape[-2])) < 0.7)} if mask == "bool" else options
    directions = [mo.asarray(rng.normal(0, 1, x.shape)) for x in given]

    def loss(*x: mo.Tensor) -> mo.Tensor:
        more = {**fixed, "mask": x[3]} if mask == "float" else fixed
        return (mo.tanh(mo.attention(*x[:3], **more)) * cotangent).sum()

    numbers = tuple(range(len(given)))
    slopes = mo.grad(loss, numbers)

    def along(*x: mo.Tensor) -> mo.Tensor:
        total = mo.asarray(0.0, dtype="float64")
        for slope, direction in zip(slopes(*x), directions, strict=True):
            total = total + (slope * direction).sum()
        return total

    step = 1e-6
    ahead, behind = (slopes(*[x + sign * step * d for x, d in zip(given, directions, strict=True)]) for sign in (1, -1))
    products = mo.hvp(loss, given, directions)
    for got, pushed, one, other in zip(mo.grad(along, numbers)(*given), products, ahead, behind, strict=True):
        want = (one.numpy() - other.numpy()) / (2 * step)
        assert np.allclose(got.numpy(), want, rtol=1e-5, atol=1e-7 * (1 + np.abs(want).max()))
        assert np.allclose(pushed.numpy(), got.numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("dtype, limit", [("float32", 2e-6), ("float16", 2e-3), ("bfloat16", 2e-2)])
def test_gradients_of_narrow_numbers(dtype: str, limit: float, rng: np.random.Generator) -> None:
    given = draw(rng, 70, 130, 16, 16, dtype=dtype)
    for got, want in zip(gradients(given, causal=True, offset=60),
                         gradients([x.astype("float64").realise() for x in given], causal=True, offset=60)):
        assert np.max(np.abs(got - want)) <= limit * (1 + np.max(np.abs(want)))


@pytest.mark.parametrize("settings", [[{"isa": "scalar"}], [{"isa": "vector256"}], [{"isa": "vector512"}],
                                      [{"threads": 1}, {"threads": 5}, {"level": 0}]])
def test_gradients_have_the_same_bits_everywhere(settings: list[dict[str, Any]], rng: np.random.Generator,
                                                 sample: Callable[..., Any]) -> None:
    for dtype in sample(("float32", "bfloat16", "float64")):
        given = draw(rng, 70, 130, 10, 21, dtype=dtype)
        for options in ({"causal": True, "offset": 40}, options_of("boolean", rng, 70, 130)):
            want = gradients(given, **options)
            for setting in settings:
                with mo.settings(**setting):
                    for got, known in zip(gradients(given, **options), want):
                        assert got.tobytes() == known.tobytes(), (dtype, setting)


@pytest.mark.sampled
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("kind", KINDS)
def test_head_by_head_or_in_pieces(kind: str, dtype: str, rng: np.random.Generator) -> None:
    """With heads enough for the threads a head is one piece of work; with fewer it is cut, at the price of computing
    probabilities twice. The bits are the same, on narrow and wide vectors: on all of them in float32, in the other
    dtypes on another one for each kind."""
    others = ["scalar", "vector256", "vector512"]
    chosen = others if dtype == "float32" else [others[list(KINDS).index(kind) % len(others)]]
    given = draw(rng, 70, 131, 10, 9, 4, 4, dtype=dtype)
    options = options_of(kind, rng, 70, 131)
    with mo.settings(threads=2):
        assert kernels_of_gradient(given, options) == ["attention_backward"] * 2
        want = gradients(given, **options)
    with mo.settings(threads=1):
        assert kernels_of_gradient(given, options) == ["attention_backward"]
        for isa in ("native", *chosen):
            with mo.settings(isa=isa):
                for got, known in zip(gradients(given, **options), want):
                    assert got.tobytes() == known.tobytes(), isa


def kernels_of_gradient(given: list[mo.Tensor], options: dict[str, Any]) -> list[str]:
    """The steps of a compiled gradient that are attention's."""
    q, k, v, cotangent = given
    f = mo.compile(lambda q, k, v, ct: mo.grad(lambda x: (mo.attention(x, k, v, **options) * ct).sum())(q))
    f(q, k, v, cotangent)
    steps = next(iter(f.specialisations.values())).plan.program.steps
    return [step.label for step in steps if step.label == "attention_backward"]


def test_gradients_of_dynamic_lengths(rng: np.random.Generator) -> None:
    queries, keys = mo.Dim("queries", 0, 200), mo.Dim("keys", 0, 300)

    def slopes(q: mo.Tensor, k: mo.Tensor, v: mo.Tensor) -> list[mo.Tensor]:
        def loss(*inputs: mo.Tensor) -> mo.Tensor:
            found = mo.attention(*inputs, causal=True, offset=3)
            return (found * found).sum()

        return [mo.grad(lambda x, at=at: loss(*[x if i == at else y for i, y in enumerate((q, k, v))]))((q, k, v)[at])
                for at in range(3)]

    for threads in (1, 2):  # head by head, and in pieces
        f = mo.compile(slopes, dynamic={"q": {1: queries}, "k": {1: keys}, "v": {1: keys}})
        for lengths in ((1, 1), (70, 130), (200, 300), (0, 5), (5, 0)):
            inputs = draw(rng, *lengths, 6, 5, 4, 4, dtype="float32")[:3]
            fixed = mo.compile(slopes)(*inputs)
            with mo.settings(threads=threads):
                for got, want in zip(f(*inputs), fixed):
                    assert got.numpy().tobytes() == want.numpy().tobytes(), lengths
        assert f.stats["recompiles"] == 0


def test_a_row_that_sees_nothing_has_no_gradient(rng: np.random.Generator) -> None:
    given = draw(rng, 5, 70)
    for options in ({"causal": True, "offset": -3}, {"mask": mo.asarray(np.arange(5)[:, None] > 2)}):
        slopes = gradients(given, **options)
        assert not slopes[0][:, :3].any() and all(np.isfinite(slope).all() for slope in slopes)


def test_memory_of_the_gradient_is_linear(rng: np.random.Generator) -> None:
    sizes = []
    for length in (512, 1024, 2048):
        given = draw(rng, length, length, 8, 8, dtype="float32")[:3]
        f = mo.compile(lambda q, k, v: mo.grad(lambda x: (mo.attention(x, k, v) * v[:1]).sum())(q))
        f(*given)
        plan = next(iter(f.specialisations.values())).plan
        sizes.append(plan.workspace_bytes)
    assert sizes[2] - sizes[1] <= 2 * (sizes[1] - sizes[0]) + 4096
    assert sizes[2] < 4 * 2048 * 2048


# -- what it takes -----------------------------------------------------------------------------------------------------
def test_without_a_head_axis(rng: np.random.Generator) -> None:
    q, k, v, _ = draw(rng, 5, 7, heads=1, kv_heads=1)
    assert np.array_equal(mo.attention(q[0], k[0], v[0]).numpy(), mo.attention(q, k, v).numpy()[0])


def test_batches_broadcast(rng: np.random.Generator) -> None:
    q = mo.asarray(rng.normal(0, 1, (3, 2, 4, 5, 6)))
    k = mo.asarray(rng.normal(0, 1, (2, 2, 7, 6)))
    v = mo.asarray(rng.normal(0, 1, (1, 1, 2, 7, 8)))
    got = mo.attention(q, k, v)
    assert got.shape == (3, 2, 4, 5, 8)
    assert np.array_equal(got[2, 1].numpy(), mo.attention(q[2, 1], k[1], v[0, 0]).numpy())


def test_dtypes_promote(rng: np.random.Generator) -> None:
    q, k, v, _ = draw(rng, 5, 7)
    assert mo.attention(q.astype("float16"), k.astype("float32"), v.astype("float16")).dtype is mo.float32
    assert mo.attention(mo.ones((1, 2, 3), dtype="int32"), k[:1, :, :3], v[:1]).dtype is mo.float64


def test_an_offset_moves_inside_a_compiled_function(rng: np.random.Generator) -> None:
    q, k, v, _ = draw(rng, 1, 90, dtype="float32")
    f = mo.compile(lambda q, k, v, t: mo.attention(q, k, v, causal=True, offset=t))
    for t in (0, 5, 64, 89):
        want = mo.attention(q, k[:, :t + 1], v[:, :t + 1])
        assert np.array_equal(f(q, k, v, mo.asarray(t)).numpy(), want.numpy())
    assert f.stats["recompiles"] == 0 and f.stats["fallbacks"] == 0


def test_it_joins_a_larger_function(rng: np.random.Generator) -> None:
    """Between elementwise work, over views of one projection: one kernel for it, nothing copied."""
    x = mo.asarray(rng.normal(0, 1, (2, 10, 3 * 4 * 8)).astype("f"))

    def block(x: mo.Tensor) -> mo.Tensor:
        parts = mo.permute_dims(mo.reshape(x * 2, (2, 10, 3, 4, 8)), (2, 0, 3, 1, 4))
        found = mo.attention(parts[0], parts[1], parts[2], causal=True)
        return mo.gelu(mo.reshape(mo.permute_dims(found, (0, 2, 1, 3)), (2, 10, 32)))

    before = evaluation.counts.fallbacks
    f = mo.compile(block, whole=True)
    got = f(x).numpy()
    with mo.settings(device="reference"):
        want = block(x).numpy()
    assert np.allclose(got, want, atol=1e-5) and evaluation.counts.fallbacks == before


BAD: dict[str, tuple[type[MorphoError], Callable[[], Any]]] = {
    "depths": (ShapeError, lambda: mo.attention(mo.ones((1, 2, 3)), mo.ones((1, 2, 4)), mo.ones((1, 2, 4)))),
    "lengths": (ShapeError, lambda: mo.attention(mo.ones((1, 2, 3)), mo.ones((1, 2, 3)), mo.ones((1, 5, 3)))),
    "heads": (ShapeError, lambda: mo.attention(mo.ones((3, 2, 3)), mo.ones((2, 2, 3)), mo.ones((2, 2, 3)))),
    "batches": (ShapeError, lambda: mo.attention(mo.ones((3, 1, 2, 3)), mo.ones((2, 1, 2, 3)), mo.ones((1, 2, 3)))),
    "axes": (ShapeError, lambda: mo.attention(mo.ones((3,)), mo.ones((2, 3)), mo.ones((2, 3)))),
    "mask shape": (ShapeError, lambda: mo.attention(*[mo.ones((1, 2, 3))] * 3, mask=mo.ones((3, 3)))),
    "mask rank": (ShapeError, lambda: mo.attention(*[mo.ones((1, 2, 3))] * 3, mask=mo.ones((1, 1, 2, 2)))),
    "mask dtype": (DTypeError, lambda: mo.attention(*[mo.ones((1, 2, 3))] * 3, mask=mo.ones((2, 2), dtype="int32"))),
    "window": (ArgumentError, lambda: mo.attention(*[mo.ones((1, 2, 3))] * 3, window=0)),
    "scale": (ArgumentError, lambda: mo.attention(*[mo.ones((1, 2, 3))] * 3, scale=float("nan"))),
    "offset": (DTypeError, lambda: mo.attention(*[mo.ones((1, 2, 3))] * 3, causal=True, offset=0.5)),
    "offset shape": (ShapeError, lambda: mo.attention(*[mo.ones((1, 2, 3))] * 3, causal=True,
                                                      offset=mo.ones((2,), dtype="int32"))),
    "complex": (DTypeError, lambda: mo.attention(*[mo.ones((1, 2, 3), dtype="complex64")] * 3)),
}


@pytest.mark.parametrize("name", BAD)
def test_errors(name: str) -> None:
    kind, call = BAD[name]
    with pytest.raises(kind, match=r"\[attention\]"):
        call()
