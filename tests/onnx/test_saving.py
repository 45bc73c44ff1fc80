"""`mo.onnx.save`: files that ONNX's checker takes, that ONNX Runtime computes as Morpho does, and that load again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_building import close, onnx, runtime

import morpho as mo
from morpho.base.errors import MorphoError

RNG = np.random.default_rng(0)


def array(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


W, KERNEL, ROWS = mo.asarray(array(4, 5)), mo.asarray(array(4, 2, 3, 3)), mo.asarray([0, 2])
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "layer": (lambda x: mo.softmax(mo.gelu(x @ W + 1)), (array(3, 4),)),
    "moves": (lambda x: (mo.pad(x, ((1, 0), (0, 2)), value=3.0), x[::-1, 1:3], mo.take(x, ROWS, axis=0), mo.sort(x),
                         mo.cumulative_sum(x, axis=1), mo.argmax(x, axis=1), mo.concat([x, x]), mo.roll(x, 1, axis=0)),
              (array(3, 4),)),
    "image": (lambda x: mo.max_pool2d(mo.relu(mo.conv2d(x, KERNEL, padding=1)), 2), (array(1, 2, 6, 6),)),
    "lookups": (lambda x: (mo.topk(x, 2)[0], mo.where(x > 1, x, 0.0), mo.clip(x, 0, 1), x.astype(mo.int32), mo.std(x),
                           mo.all(x > 0, axis=1), mo.remainder(x, 0.7), mo.floor_divide(mo.astype(x * 9, mo.int32), 4)),
                (array(3, 4),)),
    "loops": (lambda x: (mo.cond(x.sum() > 1, lambda: x + 1, lambda: x * 2),
                         mo.while_loop(lambda v: mo.abs(v).sum() < 100, lambda v: v * 2, x),
                         mo.scan(lambda c, y: (c + y, c * y), mo.zeros(4), x)[1],
                         mo.fori_loop(0, 3, lambda i, v: v + i, x)), (array(3, 4),)),
    "rows": (lambda x: (mo.layer_norm(x), mo.rms_norm(x), mo.log_softmax(x), mo.logsumexp(x, axis=1), mo.silu(x),
                        mo.mish(x), mo.softplus(x), mo.elu(x), mo.cbrt(x), mo.special.logit(mo.sigmoid(x))),
             (array(3, 4),)),
    "numbers": (lambda a, b: (a // b, a % b, a & 5, a | 3, a ^ 6, ~a, mo.astype(a, mo.float64) / b, mo.sum(a)),
                (RNG.integers(-20, 20, 12), np.where(RNG.random(12) > 0.5, 3, -4))),
    "means": (lambda x: (mo.var(x, axis=0), mo.mean(x, axis=(0, 1), keepdims=True), mo.prod(x, axis=1),
                         mo.median(x, axis=1), mo.quantile(x, 0.3), mo.any(x > 1, axis=0),
                         mo.linalg.vector_norm(x, axis=1)), (array(3, 5),)),
    "places": (lambda x, k: (x[k], x[k, k], x[..., ::2], x[:, None, -1], x[:0], mo.tril(x), mo.flip(x, axis=0),
                             mo.repeat(x, 2, axis=1), mo.take_along_axis(x, mo.argsort(x, axis=1), axis=1)),
               (array(4, 4), np.asarray([3, 0, 0]))),
    "products": (lambda a, b, v: (a @ b, a[0, 0] @ v, v @ a[0, 0].T, mo.einsum("bij,ck->bcjik", a[:, 0], b[0])),
                 (array(2, 1, 3, 4), array(5, 4, 2), array(4))),
    "gradient": (lambda x: mo.grad(lambda z: mo.sum(mo.tanh(z) ** 2))(x), (array(4),)),
    "mapped": (lambda x: mo.vmap(lambda row: mo.cumulative_sum(row, axis=0) * 2)(x), (array(3, 4),)),
    "attention": (lambda q, k: mo.attention(q, k, k, causal=True), (array(1, 2, 8, 16), array(1, 2, 8, 16))),
}


def saved(function: Callable[..., Any], path: Path, *examples: Any, **options: Any) -> bytes:
    """The bytes of a file that ONNX's checker takes, shapes and types included."""
    mo.onnx.save(function, path, *examples, **options)
    onnx.checker.check_model(onnx.load(path), full_check=True)
    return path.read_bytes()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_saved_function_is_the_same_everywhere(name: str, tmp_path: Path) -> None:
    function, examples = FUNCTIONS[name]
    data = saved(function, tmp_path / "f.onnx", *examples)
    expected = function(*map(mo.asarray, examples))
    expected = [value.numpy() for value in (expected if isinstance(expected, tuple) else (expected,))]
    network = mo.onnx.loads(data)
    feed = dict(zip(network.input_names, examples))
    close(runtime(data, feed), expected)
    close(network(*examples), expected)
    assert network.stats["host_calls"] == 0


def test_a_module_is_saved_with_its_weights(tmp_path: Path) -> None:
    mo.nn.seed(0)
    module = mo.nn.Sequential(mo.nn.Linear(4, 8), mo.nn.ReLU(), mo.nn.BatchNorm1d(8), mo.nn.Linear(8, 2)).eval()
    x = array(5, 4)
    data = saved(module, tmp_path / "m.onnx", x, input_names=["in"], output_names=["out"])
    close(runtime(data, {"in": x}), [module(mo.asarray(x)).numpy()])


@pytest.mark.parametrize("name", ["x", "rows"])
def test_a_size_of_a_module_stays_open_by_either_name(name: str, tmp_path: Path) -> None:
    """That of forward's parameter, and the one that the file gives to it."""
    module = mo.nn.Sequential(mo.nn.Linear(4, 2), mo.nn.ReLU()).eval()
    path = mo.onnx.save(module, tmp_path / "m.onnx", mo.ones((3, 4)), input_names=["rows"],
                        dynamic={name: {0: mo.Dim("n", 1, 64)}})
    network = mo.onnx.load(path, dynamic=True)
    assert [network(array(count, 4)).shape for count in (1, 6)] == [(1, 2), (6, 2)]


def test_a_dynamic_size_stays_one(tmp_path: Path) -> None:
    def function(x: Any) -> Any:
        return mo.softmax(mo.reshape(x, (-1, 2, 2)).sum(axis=1) * mo.ones((x.shape[0], 2)), axis=0)

    data = saved(function, tmp_path / "d.onnx", array(3, 4), dynamic={"x": {0: mo.Dim("n", 1, 64)}})
    for count in (1, 6):
        x = array(count, 4)
        close(runtime(data, {"x": x}), [function(mo.asarray(x)).numpy()])


BAD: list[tuple[Callable[[Path], Any], str]] = [
    (lambda path: mo.onnx.save(lambda x: mo.linalg.svd(x)[0], path, mo.ones((2, 2))), r"no form in ONNX: svd \(1\)"),
    (lambda path: mo.onnx.save(lambda x: {"a": x}, path, mo.ones(2)), "return a tensor, or a tuple"),
    (lambda path: mo.onnx.save(lambda x: x, path, [1.0]), "an example is a list"),
    (lambda path: mo.onnx.save(3, path), "int is not a function"),
    (lambda path: mo.onnx.save(lambda x: x, path, mo.ones(2), input_names=["a", "b"]), "1 different names of inputs"),
    (lambda path: mo.onnx.save(lambda x: x, path / "no" / "f.onnx", mo.ones(2)), "no"),
]


@pytest.mark.parametrize(("call", "told"), BAD)
def test_what_cannot_be_saved_is_one_sentence(call: Callable[[Path], Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(MorphoError, match=told):
        call(tmp_path / "f.onnx")
    assert not (tmp_path / "f.onnx").exists()


def test_a_function_that_changes_a_state_is_refused(tmp_path: Path) -> None:
    state = mo.State(mo.zeros(2))

    def function(x: Any) -> Any:
        state.value = state.value + x
        return x

    with pytest.raises(MorphoError, match="changes a state"):
        mo.onnx.save(function, tmp_path / "s.onnx", mo.ones(2))
