"""Quantised weights, int8, tf32, float32 attention, long caches and rows beside others on a GPU: bits, then times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.everything import numbers, part, real
from benchmarks.gpu.everything_kernels import ours
from morpho.backends.registry import backend_of
from morpho.ops.neural.quantised import LAYOUTS
from morpho.tensor.functions.products.rounded import RoundedWeight

RNG = np.random.default_rng(1)


def emulated(device: str) -> bool:
    """Where large sizes would take hours."""
    return device.startswith("cuda_emulated")


def half(*shape: int) -> Any:
    """Random bfloat16."""
    return mo.asarray(numbers(*shape)).astype(mo.bfloat16).realise()


def weight_of(kind: str, n: int, k: int) -> Any:
    """Random blocks of a layout."""
    layout = LAYOUTS[kind]
    data = RNG.integers(0, 256, (n, k // 32, layout.block_bytes)).astype(np.uint8)
    if layout.float8:  # no infinities and no NaN: these have bits of the hardware's own
        data &= 0xbb if kind == "f8_e5m2" else 0xfe
    headers = RNG.uniform(0.001, 0.02, (n, k // 32, layout.headers * layout.groups))
    data[..., :layout.header_bytes] = headers.astype("<f4" if layout.wide else "<f2").view(np.uint8)
    return mo.Quantised.from_bytes(data.tobytes(), (n, k), kind)


def quantised(kind: str, n: int, k: int) -> Any:
    """x times weights of a kind, as a function of x and their bytes."""
    return lambda x, data: x @ mo.Quantised.of_tensor(data, (n, k), kind)


@part
def quantised_weights(device: str) -> str:
    """All layouts, few rows and many: float32 has the CPU's bits, bfloat16 lies near, rows have the same bits alone."""
    k, n = (96, 40) if emulated(device) else (1024, 520)
    for kind in LAYOUTS:
        weight, f = weight_of(kind, n, k), mo.compile(quantised(kind, n, k))
        for rows in (1, 5, 40) if emulated(device) else (1, 3, 16, 17, 300):
            x = mo.asarray(numbers(rows, k))
            got = f(x.to(device), weight.data.to(device)).numpy()
            assert got.tobytes() == f(x, weight.data).numpy().tobytes(), f"{kind}, {rows} rows"
            there = x.astype(mo.bfloat16).to(device)
            near = f(there, weight.data.to(device)).astype(mo.float32).numpy()
            assert np.linalg.norm(near - got) <= 1e-2 * np.linalg.norm(got), f"{kind}, {rows} rows, bfloat16"
            alone = f(there[:1], weight.data.to(device)).astype(mo.float32).numpy()
            assert alone.tobytes() == near[:1].tobytes(), f"{kind}: a row alone"
    return f"{len(LAYOUTS)} layouts"


@part
def products_of_bytes(device: str) -> str:
    """int8 and uint8 exactly; activations in 8 bits with the CPU's bits."""
    k, n = (64, 40) if emulated(device) else (2048, 1000)
    for left, right in ((mo.int8, mo.int8), (mo.uint8, mo.int8), (mo.int8, mo.uint8)):
        a, b = (mo.asarray(RNG.integers(0, 100, shape)).astype(kind)
                for shape, kind in (((33, k), left), ((k, n), right)))
        got = mo.matmul(a.to(device), b.to(device), dtype=mo.int32).numpy()
        assert (got == a.numpy().astype(int) @ b.numpy().astype(int)).all(), f"{left} {right}"
    for kind in ("q8_0", "q4_1"):
        weight = RoundedWeight(mo.quantise(numbers(n, k), kind))
        x = mo.asarray(numbers(21, k))
        want = (x @ weight).numpy()
        assert (x.to(device) @ weight.to(device)).numpy().tobytes() == want.tobytes(), kind
    return "3 pairs of signs, 2 layouts"


@part
def quantised_times(device: str) -> str:
    """A row and 512 rows times 4096 x 4096: bfloat16 plain and packed, float32 packed, int8."""
    real(device)
    said, k = [], 4096
    plain = half(k, k).to(device)
    for rows in (1, 512):
        x = half(rows, k).to(device)
        said.append(f"{rows} rows: bfloat16 {1e6 * ours(device, lambda x, w: x @ w.T, [x, plain]):.1f}")
        for kind in ("q8_0", "q4_1"):
            data = weight_of(kind, k, k).data.to(device)
            both = [1e6 * ours(device, quantised(kind, k, k), [given, data]) for given in (x, x.astype(mo.float32))]
            said.append("{} {:.1f}, float32 {:.1f}".format(kind, *both))
        a, b = (mo.asarray(RNG.integers(-99, 99, shape)).astype(mo.int8).to(device) for shape in ((rows, k), (k, k)))
        said.append(f"int8 {1e6 * ours(device, lambda a, b: mo.matmul(a, b.T, dtype=mo.int32), [a, b]):.1f} us")
    return ", ".join(said)


@part
def float32_attention(device: str) -> str:
    """The CPU's bits, forward and in the gradient."""
    shapes = ((1, 2, 40, 70, 16),)
    if not emulated(device):
        shapes = ((2, 8, 300, 300, 64), (1, 4, 1, 700, 128), (1, 2, 90, 500, 80))
    for batch, heads, queries, keys, depth in shapes:
        q, k, v = (mo.asarray(numbers(batch, heads, rows, depth)) for rows in (queries, keys, keys))
        for options in ({}, {"causal": True}, {"causal": True, "window": 100}):
            f = mo.compile(lambda q, k, v, options=options: mo.attention(q, k, v, **options))
            g = mo.compile(mo.grad(lambda q, k, v, options=options: mo.sum(mo.attention(q, k, v, **options) ** 2),
                                   argnums=(0, 1, 2)))
            pairs = [(f(*(x.to(device) for x in (q, k, v))), f(q, k, v)),
                     *zip(g(*(x.to(device) for x in (q, k, v))), g(q, k, v), strict=True)]
            for number, (got, want) in enumerate(pairs):
                assert got.numpy().tobytes() == want.numpy().tobytes(), f"{queries} x {keys}, {options}, {number}"
    return f"{len(shapes)} shapes"


@part
def long_caches(device: str) -> str:
    """One query over a long cache has the bits that it has among many, and takes so many us."""
    said = []
    for keys, depth in ((1100, 16),) if emulated(device) else ((1024, 64), (4096, 128), (32768, 128)):
        heads = 1 if emulated(device) else 8
        q, k, v = (half(1, heads, rows, depth).to(device) for rows in (2, keys, keys))
        f = mo.compile(lambda q, k, v: mo.attention(q, k, v))
        one = f(q[:, :, :1], k, v).astype(mo.float32).numpy()
        assert "columns a block" in f.explain()
        assert one.tobytes() == f(q, k, v).astype(mo.float32).numpy()[:, :, :1].tobytes(), f"{keys} keys"
        if not emulated(device):
            alone = q[:, :, :1].realise()
            seconds = ours(device, lambda q, k, v: mo.attention(q, k, v), [alone, k, v])
            said.append(f"{keys} keys: {1e6 * seconds:.1f} us")
    return ", ".join(said)


@part
def rows_beside_others(device: str) -> str:
    """Every number of rows from 1 to 260 has the bits of the first rows of 260."""
    k, n = (48, 40) if emulated(device) else (768, 320)
    x, w, b = half(260, k).to(device), half(k, n).to(device), half(n).to(device)
    f = mo.compile(lambda x: mo.layer_norm(mo.gelu(x @ w + b), b, b))
    whole = f(x).astype(mo.float32).numpy()
    for rows in (1, 9, 17, 130) if emulated(device) else range(1, 260):
        assert f(x[:rows]).astype(mo.float32).numpy().tobytes() == whole[:rows].tobytes(), f"{rows} rows"
    length, depth = (140, 16) if emulated(device) else (400, 64)
    q, key, v = (half(1, 2, length, depth).to(device) for _ in range(3))
    prompt = mo.attention(q, key, v, causal=True).astype(mo.float32).numpy()
    pieces = ((3, 131), (129, 130)) if emulated(device) else ((0, 64), (3, 131), (100, 198), (197, 198), (200, 400))
    for first, last in pieces:
        some = mo.attention(q[:, :, first:last], key[:, :, :last], v[:, :, :last], causal=True, offset=first)
        assert some.astype(mo.float32).numpy().tobytes() == prompt[:, :, first:last].tobytes(), f"queries from {first}"
    return "products with gelu and norm, attention in pieces"


@part
def tf32_products(device: str) -> str:
    """Off by less than 2^-10 of the norm, the same bits for any number of rows; times beside float32."""
    size = 64 if emulated(device) else 4096
    a, b = (mo.asarray(numbers(size, size)).to(device) for _ in range(2))
    f = mo.compile(lambda a, b: a @ b)
    exact = f(a, b).numpy()
    with mo.settings(tf32=True):
        got = f(a, b).numpy()
        assert "tf32" in f.explain() and f(a[:3], b).numpy().tobytes() == got[:3].tobytes()
        off = np.linalg.norm(got - exact) / np.linalg.norm(exact)
        assert 0 < off < 2 ** -10, off
        seconds = 0.0 if emulated(device) else ours(device, lambda a, b: a @ b, [a, b])
    if emulated(device):
        return f"off by {off:.1e}"
    plain = ours(device, lambda a, b: a @ b, [a, b])
    return f"off by {off:.1e}; {2e-12 * size ** 3 / seconds:.0f} TFLOP/s, float32 {2e-12 * size ** 3 / plain:.0f}"


@part
def older_chips(device: str) -> str:
    """What follows a product on `mma.sync`, as on Ampere: the bits of `wgmma`'s kernels with the same epilogue."""
    backend: Any = backend_of(device)
    m, k, n = (70, 72, 80) if emulated(device) else (700, 768, 3072)
    shapes = ((m, k), (k, n), (n,), (m, n))
    given = [half(*shape).to(device) for shape in shapes]

    def run(rows: int) -> tuple[np.ndarray, str]:
        f = mo.compile(lambda a, b, c, d: mo.gelu(a @ b + c) + d)
        return f(given[0][:rows], *given[1:3], given[3][:rows]).astype(mo.float32).numpy(), f.explain()

    newer, target = run(m)[0][:-1], backend.target
    plain = replace(target, machine=replace(target.machine, features=frozenset()))
    backend.target_with = lambda tf32: plain
    try:
        older, said = run(m - 1)  # another program than the one that is compiled
    finally:
        del backend.target_with
    assert "tensor cores (mma), with what follows" in said
    assert emulated(device) or older.tobytes() == newer.tobytes()  # an emulated wgmma rounds after more values of k
    np.testing.assert_allclose(older, newer, rtol=2 ** -6, atol=2 ** -6)
    return "the same bits" if older.tobytes() == newer.tobytes() else "the same but for the last bit"
