"""Sparse matrices on a GPU: every product, reduction and solver against the CPU's bits, and times beside cuSPARSE's
(PyTorch's) on matrices beyond the cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.everything import RNG, Absent, numbers, part
from morpho.backends.registry import backend_of

FORMS: dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]] = {}


def form(function: Callable[[int], tuple[np.ndarray, np.ndarray]]) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    """A pattern by its number of rows: starts of rows, and columns."""
    FORMS[function.__name__] = function
    return function


def _starts(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


@form
def random(n: int) -> tuple[np.ndarray, np.ndarray]:
    """32 a row, anywhere."""
    return _starts(np.full(n, 32)), RNG.integers(0, n, 32 * n, dtype=np.int32)


@form
def banded(n: int) -> tuple[np.ndarray, np.ndarray]:
    """32 a row beside the diagonal."""
    columns = (np.arange(n, dtype=np.int64)[:, None] + np.arange(-16, 16)) % n
    return _starts(np.full(n, 32)), np.sort(columns, axis=1).astype(np.int32).ravel()


@form
def laplacian(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Five a row: a square grid."""
    side = int(n**0.5)
    columns = (np.arange(n, dtype=np.int64)[:, None] + np.array([-side, -1, 0, 1, side])) % n
    return _starts(np.full(n, 5)), np.sort(columns, axis=1).astype(np.int32).ravel()


@form
def power_law(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Few rows have many elements, up to some ten thousand."""
    lengths = np.minimum(RNG.zipf(1.6, n), 20000)
    return _starts(lengths), RNG.integers(0, n, int(lengths.sum()), dtype=np.int32)


def matrix(name: str, n: int, device: str) -> tuple[Any, Any]:
    """The same matrix on a device and on the host."""
    starts, columns = FORMS[name](n)
    data = numbers(len(columns))
    return tuple(mo.sparse.CSR(*(mo.asarray(x, device=where) for x in (data, columns, starts)), (n, n))
                 for where in (device, "cpu"))  # type: ignore[return-value]


def equal(there: Any, here: Any, what: str) -> None:
    """The CPU's bits."""
    a, b = there.numpy(), here.numpy()
    assert a.shape == b.shape and a.tobytes() == b.tobytes(), f"{what} differs by {np.abs(a - b).max()}"


@part
def sparse_bits(device: str) -> str:
    """Products, transposed ones, sampled ones, reductions, softmax, semirings, what follows: the CPU's bits."""
    n = 20000 if not device.startswith("cuda_emulated") else 200
    for name in FORMS:
        there, here = matrix(name, n, device)
        for columns in (1, 5, 20, 64, 200):
            x = numbers(n, columns) if columns > 1 else numbers(n)
            bias = numbers(columns)
            f = mo.compile(lambda a, x, bias: mo.relu((a @ x) * 0.5 + bias))
            equal(there @ mo.asarray(x, device=device), here @ mo.asarray(x), f"{name} x {columns}")
            equal(f(there, mo.asarray(x, device=device), mo.asarray(bias, device=device)),
                  f(here, mo.asarray(x), mo.asarray(bias)), f"{name} x {columns} with what follows")
        x, y = numbers(n, 40), numbers(40, n)
        equal(mo.sparse.sddmm(there, mo.asarray(x, device=device), mo.asarray(y, device=device)).data,
              mo.sparse.sddmm(here, mo.asarray(x), mo.asarray(y)).data, f"{name} sampled")
        for how in ("sum", "max", "min", "mean"):
            equal(getattr(there, how)(axis=1), getattr(here, how)(axis=1), f"{name} {how}")
        equal(mo.sparse.softmax(there).data, mo.sparse.softmax(here).data, f"{name} softmax")
        for semiring in ("min_plus", "max_times", "max_min"):
            v = mo.asarray(x[:, 0])
            equal(mo.sparse.matmul(there, v.to(device), semiring=semiring),
                  mo.sparse.matmul(here, v, semiring=semiring), f"{name} {semiring}")
    return f"{len(FORMS)} patterns of {n} rows"


@part
def sparse_transposed(device: str) -> str:
    """a.T @ x, and gradients through a product."""
    n = 20000 if not device.startswith("cuda_emulated") else 200
    for name in FORMS:
        there, here = matrix(name, n, device)
        for columns in (1, 24):
            x = mo.asarray(numbers(n, columns))
            equal(there.T @ x.to(device), here.T @ x, f"{name} turned x {columns}")

            def loss(data: Any, x: Any, a: Any) -> Any:
                return mo.sum((a.with_data(data) @ x) ** 2)

            of = mo.grad(loss, argnums=(0, 1))
            for got, want in zip(of(there.data, x.to(device), there), of(here.data, x, here), strict=True):
                equal(got, want, f"{name} gradient x {columns}")
    return "4 patterns, 1 and 24 columns"


@part
def sparse_solver(device: str) -> str:
    """Conjugate gradients, and sparse times sparse, on the device."""
    side = 60 if not device.startswith("cuda_emulated") else 12
    grid = mo.sparse.diags([4.0, -1.0, -1.0, -1.0, -1.0], [0, 1, -1, side, -side], shape=(side * side,) * 2)
    grid = grid.astype("float64")
    there = grid.to(device)
    b = mo.asarray(RNG.standard_normal(side * side))
    found = [mo.sparse.cg(a, x, tol=1e-8) for a, x in ((there, b.to(device)), (grid, b))]
    assert found[0][0].device == device
    equal(found[0][0], found[1][0], "cg")
    equal((there @ there).data, (grid @ grid).data, "a product of two")
    return f"{found[0][1].item()} turns"


def reached_from(a: Any, start: Any) -> Any:
    """What is reached, by turns that go on from what is new."""
    def turn(state: Any) -> Any:
        known, _ = state
        found = mo.sparse.matmul(a, known, semiring="or_and")
        return known | found, found & ~known

    return mo.while_loop(lambda state: mo.any(state[1]), turn, (start, start))[0]


@part
def logic(device: str) -> str:
    """Reachability by a semiring, a fixpoint on the device."""
    n = 2000 if not device.startswith("cuda_emulated") else 100
    edges = RNG.integers(0, n, (3 * n, 2))
    found = []
    for where in (device, "cpu"):
        with mo.device(where):
            a = mo.sparse.coo(np.ones(len(edges), np.float32), tuple(edges.T.astype(np.int32)), (n, n)).tocsr()
            found.append(reached_from(a.with_data(mo.ones(a.data.shape, dtype=mo.bool)), mo.arange(n) == 0))
    assert found[0].device == device
    equal(found[0], found[1], "reached nodes")
    return f"{int(found[1].sum())} of {n} reach the first node"


@part
def sparse_times(device: str) -> str:
    """Times between events, PyTorch's (cuSPARSE's) beside them."""
    try:
        import torch
    except ImportError as error:
        raise Absent("no PyTorch") from error
    if device.startswith("cuda_emulated"):
        raise Absent("an emulated device")
    from benchmarks.gpu.timing import morpho_seconds, torch_seconds
    from morpho.ir.node import build
    from morpho.tensor.core import Tensor

    rows = []
    for name in FORMS:
        n = 1 << 20
        there, _ = matrix(name, n, device)
        parts = (there.data, there.indices, there.indptr)
        theirs = torch.sparse_csr_tensor(*(torch.from_dlpack(x) for x in (there.indptr, there.indices, there.data)),
                                         size=(n, n))
        for columns in (1, 32, 128):
            if columns > 1 and name != "random" and columns != 32:
                continue
            x = mo.asarray(numbers(n, columns), device=device).realise()
            given = [x, *parts]
            leaves = [build("parameter", index=i, shape=t.shape, dtype=t.dtype) for i, t in enumerate(given)]
            node = Tensor.of_node(build("spmm", leaves[0], leaves[2], leaves[3], leaves[1], axis=0))
            ours = morpho_seconds(device, [node], [t.elements() for t in given], 5)
            dense = torch.from_dlpack(x)
            other = torch_seconds(lambda a=theirs, b=dense: a @ b, 5)
            moved = 8 * there.data.shape[0] + 4 * n + 8 * n * columns
            rows.append(f"{name} x {columns}: {1e6 * ours:.0f} us, PyTorch {1e6 * other:.0f} us, "
                        f"{moved / ours / 1e12:.2f} TB/s of what must move")
        backend_of(device).synchronize()
    print("\n".join(rows), flush=True)
    return f"{len(rows)} products"
