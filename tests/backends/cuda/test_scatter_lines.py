"""Values at indices, a thread a line and column: the CPU's bits, the last of equal indices, faults."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.registry import backend_of
from morpho.base.errors import IndexFault
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.runtime.plans import on_device


def parameter(index: int, shape: Any, dtype: Any) -> Any:
    return mo.Tensor.of_node(build("parameter", index=index, shape=shape, dtype=dtype))


def kinds(gpu: str, result: Any) -> list[str]:
    """The kernels of a program."""
    executable: Any = on_device.executable(Graph((result.node,)), gpu)
    return [type(kernel[0]).__name__ for kernel in executable.kernels if kernel is not None]


@pytest.mark.parametrize(("dtype", "reduce", "axis"), [("float32", "", 0), ("bfloat16", "", 2), ("float32", "sum", 2),
                                                       ("bfloat16", "sum", 0), ("float32", "amax", 0)])
def test_bits_are_the_cpus(gpu: str, rng: np.random.Generator, dtype: str, reduce: str, axis: int) -> None:
    x = mo.asarray(rng.integers(-9, 9, (5, 12, 6)).astype("f")).astype(dtype)
    shape = list(x.shape)
    shape[axis] = 21  # several of them meet
    index = rng.integers(0, x.shape[axis], shape)
    values = mo.asarray(rng.standard_normal(shape).astype("f") * 4).astype(dtype)

    def f(x: Any, index: Any, values: Any) -> Any:
        if not reduce:
            return mo.scatter(x, index, values, axis=axis)
        return mo.scatter_reduce(x, index, values, reduce=reduce, axis=axis)

    want = f(x, mo.asarray(index), values)
    got = f(x.to(gpu), mo.asarray(index, device=gpu), values.to(gpu))
    assert got.numpy().tobytes() == want.numpy().tobytes()


def test_lines_have_threads_of_their_own(gpu: str) -> None:
    x, index, values = (parameter(0, (2, 12, 64, 8), mo.float32), parameter(1, (2, 12, 5, 8), mo.int64),
                        parameter(2, (2, 12, 5, 8), mo.float32))
    assert "ScatterLines" in kinds(gpu, mo.scatter(x, index, values, axis=2))


def test_an_index_outside_is_a_fault(gpu: str) -> None:
    x = mo.zeros((3, 4), device=gpu)
    with pytest.raises(IndexFault, match="outside its axis"):
        mo.scatter(x, mo.asarray(np.full((2, 4), 3), device=gpu), mo.ones((2, 4), device=gpu), axis=0).numpy()
        backend_of(gpu).synchronize()


def test_norms_of_any_number_of_rows_have_teams(gpu: str, rng: np.random.Generator) -> None:
    n = mo.Dim("n", 1, 600)
    rows = parameter(0, (n, 256), mo.float32)
    assert kinds(gpu, mo.softmax(rows, axis=-1)) == ["RowsKernel"]
    f = mo.compile(lambda x: mo.softmax(x, axis=-1), dynamic={"x": {0: n}})
    for count in (1, 37, 300):
        a = rng.standard_normal((count, 256)).astype("f")
        assert f(mo.asarray(a, device=gpu)).numpy().tobytes() == mo.softmax(mo.asarray(a), axis=-1).numpy().tobytes()


@pytest.mark.parametrize("mode", ["add", "set", "gradient"])
def test_an_index_looked_up_in_a_range(gpu: str, mode: str, rng: np.random.Generator) -> None:
    p, value = rng.permutation(5), rng.integers(1, 9, 5).astype("f")

    def f(p: Any, value: Any, zeros: Any) -> Any:
        index = mo.arange(6, device=p.device)[p]
        if mode == "gradient":
            return mo.grad(lambda w: (mo.take(w, index) * value).sum())(zeros)
        return getattr(zeros.at[index], mode)(value)

    got = f(mo.asarray(p, device=gpu), mo.asarray(value, device=gpu), mo.zeros(6, device=gpu))
    want = np.zeros(6, "f")
    want[p] = value
    assert got.numpy().tolist() == want.tolist()
