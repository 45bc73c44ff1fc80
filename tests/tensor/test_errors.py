"""Errors: raised on the user's line, derived from the built-in class one would catch, naming the function and both
values."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError, ShapeError
from morpho.ir.node import build

L = mo.linalg
X = mo.asarray(np.arange(12.0).reshape(3, 4))
N, B, C = mo.asarray([1, 2, 3]), mo.asarray([True, False]), mo.asarray([1j])

SHAPES: list[tuple[str, Any]] = [
    ("add", lambda: X + mo.zeros(3)), ("where", lambda: mo.where(B, X, X)), ("matmul", lambda: X @ X),
    ("matmul", lambda: X @ mo.asarray(1.0)), ("reshape", lambda: X.reshape(5, 5)),
    ("reshape", lambda: X.reshape(-1, -1)), ("reshape", lambda: X.reshape(-1, 7)),
    ("broadcast_to", lambda: mo.broadcast_to(X, (3, 5))), ("broadcast_to", lambda: mo.broadcast_to(X, (4,))),
    ("squeeze", lambda: mo.squeeze(X, 0)), ("concat", lambda: mo.concat([X, mo.zeros((3, 5))])),
    ("stack", lambda: mo.stack([X, X[:1]])), ("matrix_transpose", lambda: mo.asarray([1.0]).mT),
    ("tril", lambda: mo.tril(N)), ("meshgrid", lambda: mo.meshgrid(X, X)),
    ("vecdot", lambda: mo.vecdot(X, X[:, :2])), ("tensordot", lambda: mo.tensordot(X, X, axes=1)),
    ("take_along_axis", lambda: mo.take_along_axis(X, N)),
    ("scatter", lambda: mo.scatter(X, mo.zeros((3, 2), dtype="int64"), mo.zeros((3, 5), dtype=X.dtype))),
    ("searchsorted", lambda: mo.searchsorted(X, X)), ("nonzero", lambda: mo.nonzero(mo.asarray(1))),
    ("max", lambda: mo.max(mo.zeros((0, 3)), axis=0)), ("inv", lambda: L.inv(X)), ("det", lambda: L.det(N * 1.0)),
    ("solve", lambda: L.solve(X[:, :3], mo.zeros((4, 4)))), ("outer", lambda: L.outer(X, X)),
    ("cross", lambda: L.cross(X, X)), ("matrix_norm", lambda: L.matrix_norm(N * 1.0)),
    ("trace|diagonal", lambda: L.trace(N)), ("matrix_power", lambda: L.matrix_power(X, 2)),
    ("permute_dims", lambda: mo.permute_dims(X, (0, 0))), ("sum", lambda: X.sum(axis=2)),
    ("flip", lambda: mo.flip(X, axis=5)), ("sort", lambda: mo.sort(X, axis=2)),
    ("roll", lambda: mo.roll(X, 1, axis=3)), ("take", lambda: mo.take(X, N, axis=2)),
    ("sum", lambda: X.sum(axis=(0, 0))), ("moveaxis", lambda: mo.moveaxis(X, (0, 0), (0, 1))),
    ("cumulative_sum", lambda: mo.cumulative_sum(X, axis=2)), ("diff", lambda: mo.diff(X, axis=2)),
    ("vecdot", lambda: mo.vecdot(X, N, axis=0)), ("fft", lambda: mo.fft.fft(X, axis=4)),
    ("rfft", lambda: mo.fft.rfft(X, n=0)), ("cholesky", lambda: L.cholesky(mo.asarray([[-1.0]])).numpy()),
    ("inv", lambda: L.inv(mo.zeros((2, 2))).numpy()), ("argmax", lambda: mo.argmax(mo.zeros((4, 0)))),
    ("argmin", lambda: mo.argmin(mo.zeros((4, 0)), axis=1)),
    ("broadcast_to", lambda: mo.broadcast_to(mo.ones((1, 1)), (2, -1))), ("eye", lambda: mo.eye(-1)),
    ("eye", lambda: mo.eye(2, -1)), ("zeros", lambda: mo.zeros(-1)), ("empty", lambda: mo.empty((2, -1))),
    ("full", lambda: mo.full((2, -1), 0)), ("zeros", lambda: mo.zeros((2**32, 2**32))),
    ("zeros", lambda: mo.zeros(10**30)), ("empty", lambda: mo.empty((0, 10**30))), ("ones", lambda: mo.ones((1,) * 65)),
    ("expand_dims", lambda: mo.expand_dims(mo.ones((1,) * 64))), ("repeat", lambda: mo.repeat(N, 10**20)),
    ("tile", lambda: mo.tile(N, 10**20)), ("pad", lambda: mo.pad(N, 2**62)), ("one_hot", lambda: mo.one_hot(N, 2**62)),
    ("broadcast_to", lambda: mo.broadcast_to(N, (2**62, 3))), ("arange", lambda: mo.arange(10**30)),
    ("arange", lambda: mo.arange(float("inf"))), ("arange", lambda: mo.arange(0, float("nan"))),
    ("arange", lambda: mo.arange(2**63, 2**63 + 2)), ("linspace", lambda: mo.linspace(0, 1, 10**30)),
    ("fft", lambda: mo.fft.fft(X, n=10**30)), ("fftfreq", lambda: mo.fft.fftfreq(3, d=0)),
]


DTYPES: list[tuple[str, Any]] = [
    ("subtract", lambda: B - B), ("bitwise_and", lambda: X & X),
    ("bitwise_left_shift", lambda: X << X),
    ("round", lambda: mo.round(B)), ("take", lambda: mo.take(X, X, axis=0)),
    ("negative", lambda: -B), ("sort", lambda: mo.sort(C)), ("argmax", lambda: mo.argmax(C)),
    ("clip", lambda: mo.clip(C, 0)),
    ("astype", lambda: mo.astype(C, "float32")),
    ("dtype", lambda: mo.zeros(3, dtype="float128x")), ("rfft", lambda: mo.fft.rfft(C)),
    ("fftfreq", lambda: mo.fft.fftfreq(4, dtype="int8")),
    ("finfo", lambda: mo.finfo(mo.int8)), ("iinfo", lambda: mo.iinfo(mo.float32)),
    ("one_hot", lambda: mo.one_hot(X, 3)), ("scatter_add", lambda: mo.scatter_add(X, N[None] * 0, N)),
    ("add", lambda: mo.asarray([1], dtype="uint8") + 300), ("full", lambda: mo.full((2,), 300, dtype="uint8")),
    ("add", lambda: X + "text"), ("meshgrid", lambda: mo.meshgrid(N, X[0])), ("erf|astype|real", lambda: mo.erf(C)),
    ("cumulative_sum", lambda: mo.cumulative_sum(X)),
    ("concat", lambda: mo.concat([])), ("arange", lambda: mo.arange(0, 5, 0)),
    ("linspace", lambda: mo.linspace(0, 1, -1)), ("tile", lambda: mo.tile(X, (-1,))),
    ("repeat", lambda: mo.repeat(X, -1)), ("roll", lambda: mo.roll(X, (1, 2), axis=(0, 1, 1))),
    ("repeat", lambda: mo.repeat(X, mo.asarray([1, 2]), axis=0)), ("qr", lambda: L.qr(X, mode="odd")),
    ("matrix_norm", lambda: L.matrix_norm(X, ord=3)), ("searchsorted", lambda: mo.searchsorted(N, N, side="up")),
    ("meshgrid", lambda: mo.meshgrid(N, indexing="no")), ("fftn", lambda: mo.fft.fftn(X, s=(1,), axes=(0, 1))),
    ("fft", lambda: mo.fft.fft(X, norm="odd")), ("isdtype", lambda: mo.isdtype(mo.int8, "whole")),
    ("result_type", lambda: mo.result_type(1, 2)),
    ("asarray", lambda: mo.asarray([300], dtype="uint8")),
    ("asarray", lambda: mo.asarray([2**63])),
    ("gelu", lambda: mo.gelu(X, approximate="odd")),
    ("pad", lambda: mo.pad(X, [(1, 1)] * 3)), ("Tensor", lambda: mo.Tensor()), ("len", lambda: len(mo.asarray(1))),
    ("dtype", lambda: mo.asarray([1], dtype="object")), ("full", lambda: mo.full((2,), "x")),
    ("eye", lambda: mo.eye(3.0)), ("eye", lambda: mo.eye(3, k=1.5)), ("one_hot", lambda: mo.one_hot(N, 2.0)),
    ("one_hot", lambda: mo.one_hot(N, -1)), ("linspace", lambda: mo.linspace(0, 1, 3.0)),
    ("linspace", lambda: mo.linspace("a", 1, 3)), ("tril", lambda: mo.tril(X, k=1.0)),
    ("fft", lambda: mo.fft.fft(X, n=3.0)), ("pad", lambda: mo.pad(X, 1.5)), ("pad", lambda: mo.pad(X, (-1, 2))),
    ("moveaxis", lambda: mo.moveaxis(X, 0.5, 1)), ("tensordot", lambda: mo.tensordot(X, X, axes=1.5)),
    ("tensordot", lambda: mo.tensordot(X, X, axes=(0, 1, 1))), ("ones_like", lambda: mo.ones_like("text")),
    ("roll", lambda: mo.roll(X, 1.5)), ("roll", lambda: mo.roll(X, 1.5, axis=0)),
    ("matrix_power", lambda: L.matrix_power(mo.ones((2, 2)), 1.5)), ("fftfreq", lambda: mo.fft.fftfreq(2.5)),
    ("vector_norm", lambda: L.vector_norm(X, ord="x")), ("arange", lambda: mo.arange("a")),
    ("stack", lambda: mo.stack(3)), ("concat", lambda: mo.concat(mo.asarray(1.0))), ("diff", lambda: mo.diff(X, n=1.5)),
    ("diagonal", lambda: L.diagonal(X, offset=1.5)), ("cross", lambda: L.cross(X, X, axis=-1.0)),
    ("vecdot", lambda: mo.vecdot(X, X, axis=-1.0)), ("var", lambda: mo.var(X, correction="a")),
    ("permute_dims", lambda: mo.permute_dims(X, 1.5)),
    ("conv1d", lambda: mo.conv1d(mo.ones((2, 4, 6)), None)), ("conv2d", lambda: mo.conv2d(mo.ones((2, 4, 6, 6)), None)),
    ("conv_transpose1d", lambda: mo.conv_transpose1d(mo.ones((2, 4, 6)), None)),
    ("conv_transpose2d", lambda: mo.conv_transpose2d(mo.ones((2, 4, 6, 6)), None)),
    ("batch_norm", lambda: mo.batch_norm(X, None, None)), ("softmax", lambda: mo.softmax(X, axis=())),
    ("cross_entropy", lambda: mo.cross_entropy(X, N, label_smoothing="a")),
    ("cross_entropy", lambda: mo.cross_entropy(X, N, ignore_index=1.5)),
    ("cross_entropy", lambda: mo.cross_entropy(X, N, ignore_index="x")),
    ("grad", lambda: mo.grad(3)), ("grad", lambda: mo.grad(mo.sum, argnums="a")(X)),
    ("grad", lambda: mo.grad(mo.sum, argnums=0.0)(X)), ("grad", lambda: mo.grad(mo.sum, argnums=None)(X)),
    ("grad", lambda: mo.grad(mo.matmul, argnums=(0, 0))(X, X)),
    ("grad", lambda: mo.grad(mo.matmul, argnums=(0, -2))(X, X)),
    ("tasks", lambda: mo.tasks.graph([("a", (int,))])), ("tasks", lambda: mo.tasks.submit(int, scheduler=3)),
]


@pytest.mark.parametrize(("name", "use"), SHAPES)
def test_shapes_axes_and_values(name: str, use: Any) -> None:
    """ValueError (an axis is an IndexError too)."""
    _check(ValueError, name, use)


@pytest.mark.parametrize(("name", "use"), DTYPES)
def test_dtypes_and_arguments(name: str, use: Any) -> None:
    """TypeError."""
    _check(TypeError, name, use)


def _check(kind: type[Exception], name: str, use: Any) -> None:
    with pytest.raises(kind, match=rf"^\[({name})\]") as caught:
        use()
    text = str(caught.value)
    assert isinstance(caught.value, Exception) and "test_errors.py" in text and text.endswith("."), text


def test_both_values_are_named() -> None:
    """The message of the design."""
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(5, 6\) do not align: 4 != 5"):
        mo.matmul(mo.zeros((3, 4)), mo.zeros((5, 6)))
    with pytest.raises(ValueError, match=r"\(3, 4\) and \(3,\) do not broadcast: 4 != 3"):
        X + mo.zeros(3)
    batches = r"the batch axes of shapes \(2, 3, 4\) and \(3, 4, 5\) do not broadcast: 2 != 3 at axis -3"
    with pytest.raises(ValueError, match=rf"^\[matmul\] {batches}"):
        mo.matmul(mo.ones((2, 3, 4)), mo.ones((3, 4, 5)))
    with pytest.raises(ValueError, match=r"\(5, 2, 3, 4\) and \(6, 2, 3, 4\) and .*: 5 != 6 at axis -4"):
        mo.attention(mo.ones((5, 2, 3, 4)), mo.ones((6, 2, 3, 4)), mo.ones((6, 2, 3, 4)))
    with pytest.raises(IndexError, match="axis 2 is out of range for 2 dimensions"):
        X.sum(axis=2)
    with pytest.raises(ValueError, match=r"^\[einsum\] memory_limit='lots' is not a size.*as in 64MB"):
        mo.einsum("ij,kj->ik", X, X, memory_limit="lots")
    with pytest.raises(ValueError, match=r"^\[compile\] memory_budget='2 hours' has the unknown unit 'hours'"):
        mo.compile(mo.sum, memory_budget="2 hours")
    with pytest.raises(ValueError, match=r"^\[conv_transpose2d\] 4 channels of x are not divisible into 3 groups"):
        mo.conv_transpose2d(mo.ones((2, 4, 6, 6)), mo.ones((4, 8, 3, 3)), groups=3)
    with pytest.raises(ValueError, match=r"^\[attention\] k and v have no heads"):
        mo.attention(*[mo.ones((1, 0, 2, 4))] * 3)
    with pytest.raises(TypeError, match="uint64 and int64 have no common dtype"):
        mo.asarray([1], dtype="uint64") + N


def test_no_node_has_a_size_that_is_none() -> None:
    """The last door: whatever builds a node, a size that kernels would take for a huge or negative count is refused."""
    for shape, kind in (((2, -1), ShapeError), ((1 << 62, 4), ShapeError), ((2.5,), ArgumentError)):
        with pytest.raises(kind, match=r"^\[iota\] .*shape"):
            build("iota", shape=shape, axis=0, dtype=mo.int64)
    with pytest.raises(ArgumentError, match=r"^\[pad\] .*negative"):
        build("pad", X.node, before=(-1, 0), after=(3, 0), value=0.0)
    shrunk = mo.compile(lambda x: mo.zeros(x.shape[0] - 5) + 1, dynamic={"x": {0: mo.Dim("n", 1, 10)}})
    with pytest.raises(ShapeError, match="may be negative"):
        shrunk(mo.ones(3))


def test_an_operand_that_is_no_tensor_is_told_once() -> None:
    for call in (lambda: X + None, lambda: mo.matmul(X, object())):
        with pytest.raises(TypeError, match=r"^\[(add|matmul)\] \w+ is not a tensor, a number or [\w ]+\. At \S+$"):
            call()


FAULTS: list[tuple[str, Any]] = [
    (r"\[embedding\] id 12 is out of range for a table of 10 rows.*ids are counted from 0",
     lambda: mo.nn.Embedding(10, 2)(mo.asarray([3, 12]))),
    (r"\[embedding\] id -1 is", lambda: mo.embedding(mo.ones((3, 2)), mo.asarray([-1]))),
    (r"\[embedding\] id 5 is", lambda: mo.nn.Embedding(5, 2)(mo.take(mo.asarray([0, 5]), mo.asarray([1])))),
    (r"\[take\] index 8 is", lambda: mo.nn.Embedding(5, 2)(mo.take(mo.asarray([0, 5]), mo.asarray([8])))),
    (r"\[cross_entropy\] class -100 is out of range for 4 classes", lambda: mo.cross_entropy(X, N * 0 - 100)),
    (r"\[cross_entropy\] class 7 is", lambda: mo.cross_entropy(X, mo.asarray([0, -100, 7]), ignore_index=-100)),
    (r"\[cross_entropy\] class 9 is", lambda: mo.nn.cross_entropy(X, N * 0 + 9, weight=mo.ones(4))),
    (r"\[nll_loss\] class -1 is out of range for 4 classes", lambda: mo.nn.nll_loss(X, N * 0 - 1)),
    (r"\[index\] index 7 is out of range for an axis of size 3", lambda: X[N * 0 + 7]),
    (r"\[index\] index -7 is out of range", lambda: X[N * 0 - 7]),
    (r"\[index\] an index is out of range for its axis", lambda: X[N - 1, N + 4]),
    (r"\[take_along_axis\] index 6 is", lambda: mo.take_along_axis(X, (N * 0 + 6)[:, None])),
    (r"\[index\] index 18446744073709551615 is out", lambda: X[mo.asarray([2**64 - 1], dtype=mo.uint64)]),
    (r"\[take\] index 18446744073709551615 is out",
     lambda: mo.take(X, mo.asarray([2**64 - 1], dtype=mo.uint64), axis=1)),
    (r"\[scatter_add\] index 3 is", lambda: mo.scatter_add(N, N, N)),
    (r"\[positions\] position 4 is out of range for a table of 4", lambda: mo.nn.LearnedPositions(4, 2)(
        mo.ones((1, 2, 2)), mo.asarray(3))),
]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize(("text", "call"), FAULTS)
def test_an_index_outside_its_axis_is_told_as_the_user_called_it(text: str, call: Any, backend: str) -> None:
    with mo.settings(device=backend), pytest.raises(IndexError, match=text) as caught:
        call().numpy()
    assert "gather" not in str(caught.value)


def test_a_compiled_function_names_the_operation_that_faults() -> None:
    """Native code tells no index: the operation and its range are those of the step, or of all it may be."""
    table, right, wrong = mo.ones((5, 4)), mo.asarray([0, 1]), mo.asarray([0, 5])
    look = mo.compile(lambda ids: mo.embedding(table, ids))
    both = mo.compile(lambda ids, classes: mo.cross_entropy(mo.embedding(table, ids), classes))
    look(right), both(right, right)
    for _ in range(2):
        with pytest.raises(IndexError, match=r"\[embedding\] an id is out of range for a table of 5 rows.*test_errors"):
            look(wrong)
        with pytest.raises(IndexError, match=r"cross_entropy\] .* is out of range"):
            both(right, wrong)
        with pytest.raises(IndexError, match=r"\[embedding.* is out of range"):
            both(wrong, right)


@pytest.mark.parametrize(("call", "text"), [
    (lambda x: x.sum(0, 1), "1 is not a dtype"), (lambda x: x.mean(1, 2), "2 is not a dtype"),  # NumPy's second place
    (lambda x: x.max(0, "yes"), "out='yes' is neither"),
    (lambda x: mo.sum(x, axis=0, keepdims=1), "keepdims is .*several axes are a tuple"),
    (lambda x: mo.logsumexp(x, 0, 1), "keepdims is .*several axes are a tuple")])
def test_axes_by_place_are_not_taken_for_keepdims(call: Any, text: str) -> None:
    with pytest.raises((ArgumentError, DTypeError), match=text):
        call(mo.ones((2, 3, 4)))
    assert mo.ones((2, 3)).sum(0, True).shape == (1, 3)


def test_faults_of_operations_on_the_host_name_the_line_where_they_were_written() -> None:
    written = inspect.currentframe().f_lineno + 1  # type: ignore[union-attr]
    inverse = mo.linalg.inv(mo.zeros((7, 7)))  # no other test has this node
    later = inverse + 1
    with pytest.raises(ValueError, match=rf"\[inv\] singular matrix\. At .*test_errors\.py:{written}\."):
        later.numpy()
    factor = mo.compile(lambda x: mo.linalg.cholesky(x) + 1)
    with pytest.raises(ValueError, match=rf"\[cholesky\] .* At .*test_errors\.py:{written + 4}\."):
        factor(mo.zeros((7, 7)) - 1)


def test_weights_of_norms_may_be_named() -> None:
    x, w, b = mo.asarray([[1.0, 2.0, 4.0]]), mo.asarray([1.0, 2.0, 3.0]), mo.asarray([0.5, 0.0, 0.0])
    assert mo.layer_norm(x, weight=w, bias=b).tolist() == mo.layer_norm(x, w, b).tolist()
    assert mo.rms_norm(x, weight=w).tolist() == mo.rms_norm(x, w).tolist()


@pytest.mark.parametrize("call", [lambda x, eps: mo.layer_norm(x, eps=eps), lambda x, eps: mo.rms_norm(x, eps=eps),
                                  lambda x, eps: mo.batch_norm(x, mo.zeros(4), mo.ones(4), eps=eps),
                                  lambda x, eps: mo.batch_norm_training(x, eps=eps)])
@pytest.mark.parametrize("eps", [-1.0, float("nan"), "a"], ids=str)
def test_norms_take_no_odd_eps(call: Any, eps: Any) -> None:
    with pytest.raises(ArgumentError, match=r"norm.*\] eps=.* is not a number of at least 0"):
        call(mo.ones((2, 4)), eps)


def test_nothing_is_cut_off_in_silence() -> None:
    with pytest.raises(DTypeError, match="fractions would be cut off"):
        mo.matmul(mo.asarray([[0.9, 1.9]]), mo.ones((2, 1)), dtype=mo.int32)
    assert mo.matmul(mo.asarray([[7]], dtype=mo.int8), mo.asarray([[100]], dtype=mo.int8), dtype=mo.int32).item() == 700
    with pytest.raises(ArgumentError, match="causal='no' is neither True nor False"):
        mo.attention(mo.ones((1, 2, 4)), mo.ones((1, 2, 4)), mo.ones((1, 2, 4)), causal="no")


def test_realise_of_several_results_at_once() -> None:
    with pytest.raises(ArgumentError, match=r"a SVDResult is not a tensor.*mo\.realise\(\*results\)"):
        mo.realise(mo.linalg.svd(mo.eye(3)))


def test_sentences_of_arguments_that_are_no_lists() -> None:
    with pytest.raises(mo.errors.MorphoError, match=r"axis 0\.5 is not an integer"):
        L.norm(mo.ones((2, 2)), axis=0.5)
    with pytest.raises(mo.errors.MorphoError, match="conditions and the choices are not lists"):
        mo.select(mo.ones((3, 3)), 1, 2)


def test_a_vector_is_its_own_transpose() -> None:
    assert hasattr(N, "T") and N.T.tolist() == [1, 2, 3] and mo.asarray(2.0).T.item() == 2


@pytest.mark.parametrize(("shape", "mask"), [((1,), (0,)), ((3,), (0,)), ((1, 2), (0,)), ((1, 2), (0, 2)),
                                             ((3, 2), (0, 0)), ((2, 3), (2, 0)), ((0,), (1,)), ((0, 3), (2,))])
def test_masks_without_elements(shape: tuple[int, ...], mask: tuple[int, ...]) -> None:
    """As NumPy has them: they select nothing, whatever the lengths of the axes."""
    array, chosen = np.zeros(shape, np.float32), np.zeros(mask, bool)
    try:
        want = array[chosen]
    except IndexError:
        with pytest.raises(IndexError):
            mo.asarray(array)[mo.asarray(chosen)]
        return
    assert mo.asarray(array)[mo.asarray(chosen)].shape == want.shape


def test_devices_that_hold_no_tensors() -> None:
    info = mo.__array_namespace_info__()
    assert "reference" in mo.devices() and "reference" not in info.devices() and "cpu" in info.devices()
    assert not {"float16", "bfloat16"} & set(info.dtypes()) and "float32" in info.dtypes(kind="real floating")
    for call in (lambda: mo.ones(2).to_device("reference"), lambda: mo.asarray([1.0], device="reference"),
                 lambda: mo.from_dlpack(np.ones(2), device="reference"), lambda: mo.zeros(2, device="reference"),
                 lambda: mo.ones(2).to("reference"), lambda: mo.nn.Linear(2, 3).to("reference")):
        with pytest.raises(mo.errors.MorphoError, match=r"no tensors lie there.*mo\.settings"):
            call()
    with mo.settings(device="reference"):
        assert (mo.ones(2) + 1).tolist() == [2, 2]
