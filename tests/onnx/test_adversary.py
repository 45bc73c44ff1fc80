"""Silent faults that random models found: sizes that are symbols and may be 1, and sums of bytes past 2**53."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_building import close, helper, model, runtime, value

import morpho as mo
from morpho.base.errors import MorphoError

node = helper.make_node


def test_equal_of_a_named_size_is_not_decided_before_the_call() -> None:
    data = model([node("Shape", ["x"], ["n"]), node("Equal", ["n", "one"], ["e"]), node("Neg", ["x"], ["w"]),
                  node("Where", ["e", "w", "x"], ["y"])], [value("x", ["n"])], [value("y", None)],
                 {"one": np.int64([1])})
    network = mo.onnx.loads(data, dynamic=True)
    for x in ([1, 2, 3], [5], [7, 8]):
        close(network(np.float32(x)), runtime(data, {"x": np.float32(x)}))


def test_equal_of_a_named_size_is_decided_by_its_bounds() -> None:
    data = model([node("Shape", ["x"], ["n"]), node("Equal", ["n", "one"], ["e"]), node("Neg", ["x"], ["w"]),
                  node("Where", ["e", "w", "x"], ["y"])], [value("x", ["n"])], [value("y", None)],
                 {"one": np.int64([1])})
    network = mo.onnx.loads(data, dynamic={"n": (2, 9)})
    assert network(np.float32([1, 2])).numpy().tolist() == [1, 2] and not network.stats["specialised"]


def test_squeeze_of_a_named_size_that_is_one() -> None:
    data = model([node("Squeeze", ["x"], ["y"])], [value("x", ["n", "m"])], [value("y", None)])
    network = mo.onnx.loads(data, dynamic=True)
    assert [network(np.ones(shape, np.float32)).shape for shape in ((2, 3), (1, 3), (2, 1), (1, 1))] == [
        (2, 3), (3,), (2,), ()]


def test_expand_of_a_named_size_that_is_one_or_does_not_fit() -> None:
    data = model([node("Expand", ["x", "s"], ["y"])], [value("x", ["n"])], [value("y", None)], {"s": np.int64([3])})
    network = mo.onnx.loads(data, dynamic=True)
    assert [network(np.ones(n, np.float32)).shape for n in (3, 1)] == [(3,), (3,)]
    with pytest.raises(MorphoError, match="broadcast"):
        network(np.ones(2, np.float32))


def test_expand_to_another_named_size() -> None:
    data = model([node("Shape", ["y"], ["s"]), node("Expand", ["x", "s"], ["z"])],
                 [value("x", ["n"]), value("y", ["m"])], [value("z", None)])
    network = mo.onnx.loads(data, dynamic=True)
    assert [network(np.ones(n, np.float32), np.ones(m, np.float32)).shape for n, m in ((4, 4), (1, 5), (3, 1))] == [
        (4,), (5,), (3,)]


def test_reshape_by_a_named_size_that_may_be_none() -> None:
    """A size of 0 copies that of the input, also where it is computed."""
    data = model([node("Shape", ["x"], ["n"]), node("Sub", ["n", "one"], ["k"]), node("Concat", ["k", "minus"],
                      ["s"], axis=0),
                  node("Reshape", ["y", "s"], ["z"])], [value("x", ["n"]), value("y", [4])], [value("z", None)],
                 {"one": np.int64([1]), "minus": np.int64([-1])})
    network = mo.onnx.loads(data, dynamic={"n": (1, 5)})
    y = np.ones(4, np.float32)
    assert [network(np.ones(n, np.float32), y).shape for n in (3, 1, 5)] == [(2, 2), (4, 1), (4, 1)]


def test_pad_at_bounds_of_many_named_sizes() -> None:
    """The bytes at the upper bounds are more than a float holds exactly: orders of steps were compared by floats."""
    data = model([node("Pad", ["x"], ["y"], pads=[0, 2, 2, 0, 2, -1, -1, 1])], [value("x", ["a", "b", "c", "d"])],
                 [value("y", None)], opset=7)
    x = np.arange(72, dtype=np.float32).reshape(3, 3, 2, 4)
    close(mo.onnx.loads(data, dynamic=True)(x), runtime(data, {"x": x}))


def test_names_of_sizes_that_differ_in_signs_only() -> None:
    data = model([node("ReduceSum", ["x"], ["p"], keepdims=0), node("ReduceSum", ["y"], ["q"], keepdims=0),
                  node("Add", ["p", "q"], ["z"])], [value("x", ["a-b"]), value("y", ["a_b"])], [value("z", [])])
    network = mo.onnx.loads(data, dynamic=True)
    assert float(network(np.ones(2, np.float32), np.ones(5, np.float32))) == 7.0


@pytest.mark.parametrize(("start", "end", "step"), [(-1, 2**62, -1), (2**62, -2**63, -1), (2**62, 2**63 - 1, 1), (1,
                                                  2**62, 1),
                                                    (-2**63, 2**63 - 1, 1), (2**31 - 1, -2**31, -1), (-2, -2**62, -1)])
def test_slices_far_outside_a_named_size(start: int, end: int, step: int) -> None:
    data = model([node("Slice", ["x", "start", "end", "axis", "step"], ["y"])], [value("x", ["n", 2])], [value("y",
                      None)],
                 {"start": np.int64([start]), "end": np.int64([end]), "axis": np.int64([0]), "step": np.int64([step])})
    network = mo.onnx.loads(data, dynamic=True)
    for rows in (4, 1, 3):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        close(network(x), runtime(data, {"x": x}))


@pytest.mark.parametrize("size", [3, 0])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_backward_slice_from_before_the_first_begins_at_the_first(size: int, dynamic: bool) -> None:
    """The specification clamps the start of a negative step to the first position; Python's slices are empty there."""
    for start, end, step in ((-9, -(1 << 62), -1), (-4, -9, -2), (-3, -9, -1), (9, -9, -2)):
        weights = {"s": np.int64([start]), "e": np.int64([end]), "a": np.int64([0]), "p": np.int64([step])}
        data = model([node("Slice", ["x", *weights], ["y"])], [value("x", ["n"])], [value("y", None)], weights)
        x = np.arange(size, dtype=np.float32)
        close(mo.onnx.loads(data, dynamic=dynamic)(x), runtime(data, {"x": x}))


@pytest.mark.parametrize("how", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("kernel", "stride", "more"), [(1, 3, 0), (2, 3, 0), (3, 2, 0), (2, 3, 2), (4, 1, 0)])
def test_a_transposed_convolution_adds_nothing_for_same(how: str, kernel: int, stride: int, more: int) -> None:
    data = model([node("ConvTranspose", ["x", "w"], ["y"], auto_pad=how, strides=[stride], output_padding=[more])],
                 [value("x", [1, 2, "n"])], [value("y", None)], {"w": np.ones((2, 1, kernel), np.float32)})
    x = np.arange(10, dtype=np.float32).reshape(1, 2, 5)
    close(mo.onnx.loads(data, dynamic=True)(x), runtime(data, {"x": x}))
