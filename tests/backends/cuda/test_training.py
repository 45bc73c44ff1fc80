"""What training needs on a GPU: gradients of attention, sums of columns, rows added at indices, odd vocabularies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho import nn, optim
from morpho.backends.cuda.backend import CudaBackend
from morpho.backends.cuda.codegen import select
from morpho.backends.cuda.codegen.select import device_kernel
from morpho.backends.cuda.lowering import lowered
from morpho.backends.registry import backend_of
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.program.program import Step
from morpho.runtime.plans import on_device


def gradients(given: tuple[Any, ...], **options: Any) -> list[Any]:
    q, k, v, ct, *mask = given
    extra = {"mask": mask[0]} if mask else {}

    def loss(a: Any, b: Any, c: Any) -> Any:
        return mo.sum(mo.attention(a, b, c, **options, **extra).astype(mo.float32) * ct.astype(mo.float32))

    return list(mo.grad(loss, argnums=(0, 1, 2))(q, k, v))


def kinds(gpu: str, *outputs: Any) -> list[str]:
    """The kernels of a graph of tensors over parameters."""
    backend: Any = backend_of(gpu)
    assert isinstance(backend, CudaBackend)
    program = lowered(Graph(tuple(x.node for x in outputs)), 2, backend.target)
    return [type(device_kernel(step)).__name__ for step in program.steps if isinstance(step, Step)]


def parameter(index: int, shape: tuple[int, ...], dtype: Any) -> Any:
    return mo.Tensor.of_node(build("parameter", index=index, shape=shape, dtype=dtype))


@pytest.mark.parametrize(("heads", "kept", "queries", "keys", "depth", "given"), [
    (2, 1, 40, 70, 16, {"causal": True, "window": 20}),
    pytest.param(2, 2, 70, 70, 64, {"causal": True}, marks=pytest.mark.sampled),
    pytest.param(1, 1, 33, 70, 72, {}, marks=pytest.mark.sampled)])
def test_attention_has_its_gradients_on_tensor_cores(gpu: str, rng: np.random.Generator, heads: int, kept: int,
                                                     queries: int, keys: int, depth: int,
                                                     given: dict[str, Any]) -> None:
    shapes = (heads, queries), (kept, keys), (kept, keys), (heads, queries)
    here = tuple(mo.asarray(rng.standard_normal((1, h, n, depth)).astype("f")).astype(mo.float16) for h, n in shapes)
    got = [x.astype(mo.float32).numpy() for x in gradients(tuple(x.to(gpu) for x in here), **given)]
    want = [x.numpy() for x in gradients(tuple(x.astype(mo.float32) for x in here), **given)]
    for one, other in zip(got, want, strict=True):
        assert np.linalg.norm(one - other) < 1e-3 * np.linalg.norm(other)


@pytest.mark.parametrize("number", ["0", "1"])  # a Hopper, by warpgroups, and an Ampere, by warps
def test_gradients_of_masked_attention(gpu: str, rng: np.random.Generator, number: str) -> None:
    gpu = gpu[:-1] + number
    here = [mo.asarray(rng.standard_normal((1, 1, 20, 16)).astype("f")).astype(mo.float16) for _ in range(4)]
    mask = mo.asarray(rng.random((1, 1, 20, 20)) < 0.7)
    got = [x.astype(mo.float32).numpy() for x in gradients(tuple(x.to(gpu) for x in (*here, mask)))]
    want = [x.numpy() for x in gradients((*(x.astype(mo.float32) for x in here), mask))]
    for one, other in zip(got, want, strict=True):
        assert np.linalg.norm(one - other) < 1e-3 * np.linalg.norm(other)


def test_attention_backward_takes_two_kernels_of_its_own(gpu: str) -> None:
    given = tuple(parameter(n, (1, 2, 64, 64), mo.bfloat16) for n in range(4))
    found = kinds(gpu, *gradients(given, causal=True))
    assert found.count("HopperBackward") == 2 and "GenericKernel" not in found


def test_an_update_behind_a_product_is_written_over_its_state(gpu: str) -> None:
    """But not where the state is a side of the product, which other blocks still read."""
    w, x, y = (parameter(n, (64, 64), mo.bfloat16) for n in range(3))
    for product, found in ((x @ y, {0: 0}), (w @ y, {})):
        executable: Any = on_device.executable(Graph(((w * 0.5 - product).node,)), gpu)
        assert [type(step).__name__ for step in executable.program.steps] == ["FollowedStep"]
        assert executable.in_place([(0, 0)]) == found


@pytest.mark.parametrize("columns", [12288, 8200])
def test_teams_of_a_warp_all_have_a_block(gpu: str, rng: np.random.Generator, columns: int) -> None:
    """Three blocks of a row's tree, two teams a warp: the fourth has nothing to sum and shuffles all the same."""
    x = rng.standard_normal((2, columns)).astype("f")
    got = mo.softmax(mo.asarray(x, device=gpu) * 2, axis=-1).numpy()
    assert got.tobytes() == mo.softmax(mo.asarray(x) * 2, axis=-1).numpy().tobytes()


@pytest.mark.parametrize("shape", [(300, 40), (4500, 9)])
def test_sums_of_columns_have_the_cpus_bits(gpu: str, rng: np.random.Generator, shape: tuple[int, int]) -> None:
    x = rng.standard_normal(shape).astype("f")
    f = mo.compile(lambda a: (mo.sum(a * 2, axis=0), mo.max(a, axis=0), mo.softmax(a, axis=0)))
    for got, want in zip(f(mo.asarray(x, device=gpu)), f(mo.asarray(x)), strict=True):
        assert got.numpy().tobytes() == want.numpy().tobytes()
    assert kinds(gpu, mo.sum(parameter(0, shape, mo.float32), axis=0)) == ["ColumnsKernel"]


def test_rows_too_long_to_wait_are_read_again(gpu: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 40001)).astype("f")
    got = mo.softmax(mo.asarray(x, device=gpu) * 2, axis=-1).numpy()
    assert got.tobytes() == mo.softmax(mo.asarray(x) * 2, axis=-1).numpy().tobytes()
    assert kinds(gpu, mo.softmax(parameter(0, (3, 40001), mo.float32), axis=-1)) == ["RowsKernel"]


def test_rows_are_added_at_their_indices_in_order(gpu: str, rng: np.random.Generator) -> None:
    table, which = rng.standard_normal((50, 33)).astype("f"), rng.integers(0, 20, 600)
    weights = rng.standard_normal((600, 33)).astype("f")

    def f(w: Any, at: Any, c: Any) -> Any:
        return mo.grad(lambda t: mo.sum(mo.take(t, at, axis=0) * c))(w)

    got = mo.compile(f)(*(mo.asarray(x, device=gpu) for x in (table, which, weights))).numpy()
    assert got.tobytes() == mo.compile(f)(*map(mo.asarray, (table, which, weights))).numpy().tobytes()
    assert "CombineSegments" in kinds(gpu, f(parameter(0, (50, 33), mo.float32), parameter(1, (600,), mo.int64),
                                         parameter(2, (600, 33), mo.float32)))


def test_products_over_an_odd_vocabulary_are_on_tensor_cores(gpu: str, rng: np.random.Generator) -> None:
    words, depth, rows = 259, 16, 24

    def step(x: Any, w: Any, y: Any) -> Any:
        def loss(a: Any, b: Any) -> Any:
            with mo.amp.autocast("bfloat16"):
                return nn.cross_entropy(a @ b.T, y)
        return mo.grad(loss, argnums=(0, 1))(x, w)

    shapes = ((rows, depth), (words, depth))
    given = [rng.standard_normal(shape).astype("f") for shape in shapes] + [rng.integers(0, words, rows)]
    got = [x.numpy() for x in mo.compile(step)(*(mo.asarray(x, device=gpu) for x in given))]
    want = [x.numpy() for x in mo.compile(step)(*map(mo.asarray, given))]
    for one, other in zip(got, want, strict=True):
        assert np.linalg.norm(one - other) < 1e-2 * np.linalg.norm(other)
    x, w = (parameter(n, shape, mo.float32) for n, shape in enumerate(shapes))
    found = kinds(gpu, *step(x, w, parameter(2, (rows,), mo.int64)))
    assert found.count("WgmmaGemm") == 3 and "SimtGemm" not in found


@pytest.mark.sampled
def test_a_step_of_a_small_transformer(gpu: str, rng: np.random.Generator) -> None:
    model = mo.models.create("gpt2", vocab_size=67, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    start = {name: x.numpy() for name, x in model.state_dict().items()}
    tokens = rng.integers(0, 67, (2, 17))
    losses = {}
    for device in ("cpu", gpu):
        own = mo.models.create("gpt2", vocab_size=67, n_positions=16, n_embd=32, n_layer=1, n_head=2)
        own.load_state_dict({name: mo.asarray(x) for name, x in start.items()})
        own.to(device)
        optimiser = optim.AdamW(own.parameters(), lr=1e-2)

        def step(x: Any, y: Any, own: Any = own, optimiser: Any = optimiser) -> Any:
            with mo.amp.autocast("bfloat16"):
                loss = nn.cross_entropy(own(x), y, dim=-1)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return loss

        run = mo.compile(step)
        x, y = (mo.asarray(part.copy(), device=device) for part in (tokens[:, :-1], tokens[:, 1:]))
        losses[device] = [float(run(x, y)) for _ in range(3)]
    np.testing.assert_allclose(losses[gpu], losses["cpu"], rtol=5e-3)
    assert losses[gpu][2] < losses[gpu][0]


def test_long_odd_rows_are_read_by_wide_accesses(gpu: str, rng: np.random.Generator,
                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of half floats that begin on 16 bytes and end anywhere; the last access is cut off."""
    monkeypatch.setattr(select, "FEW_ROWS", 4)
    rows, words, depth = 17, 20001, 16

    def step(x: Any, w: Any, y: Any) -> Any:
        def loss(a: Any) -> Any:
            with mo.amp.autocast("bfloat16"):
                return nn.cross_entropy(a @ w.T, y)
        return mo.grad(loss)(x)

    shapes = (rows, depth), (words, depth)
    given = [rng.standard_normal(shape).astype("f") for shape in shapes] + [rng.integers(0, words, rows)]
    got = mo.compile(step)(*(mo.asarray(x, device=gpu) for x in given)).numpy()
    want = mo.compile(step)(*map(mo.asarray, given)).numpy()
    assert np.linalg.norm(got - want) < 1e-4 * np.linalg.norm(want)
    x, w = (parameter(n, shape, mo.float32) for n, shape in enumerate(shapes))
    backend: Any = backend_of(gpu)
    program = lowered(Graph((step(x, w, parameter(2, (rows,), mo.int64)).node,)), 2, backend.target)
    found: list[Any] = [device_kernel(one) for one in program.steps if isinstance(one, Step)]
    assert any(getattr(kernel, "ragged", False) and kernel.lanes == 8 for kernel in found)
