"""What Python, notebooks and other processes ask of a tensor."""

from __future__ import annotations

import copy
import json
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.tensor.protocols import restored

DTYPES = ["bool", "int8", "uint64", "float16", "bfloat16", "float32", "float64", "complex64"]


def doubled(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("protocol", [0, 2, pickle.HIGHEST_PROTOCOL])
def test_a_tensor_is_pickled_by_value(dtype: str, protocol: int) -> None:
    x = mo.asarray([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    for tensor in (x, x.T, x[:, ::2], x[:0], x[0, 0], x + x if dtype != "bool" else x):
        found = pickle.loads(pickle.dumps(tensor, protocol))
        assert found.dtype is tensor.dtype and found.shape == tensor.shape and found.tolist() == tensor.tolist()
        assert (found == tensor).numpy().all()
    trees = {"a": [x, x], "b": (x.T,)}
    found = pickle.loads(pickle.dumps(trees))
    assert found["a"][0] is found["a"][1] and found["b"][0].tolist() == x.T.tolist()


def test_a_pickled_tensor_is_a_value() -> None:
    x = mo.arange(3)
    text = pickle.dumps(x)
    x[0] = 9
    found = pickle.loads(text)
    found[1] = 7
    assert found.tolist() == [0, 7, 2] and pickle.loads(text).tolist() == [0, 1, 2]
    assert copy.deepcopy(x).tolist() == [9, 1, 2]


def test_tensors_go_to_other_processes() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert [part.tolist() for part in pool.map(doubled, [mo.arange(2), mo.ones(1)])] == [[0, 2], [2.0]]


def test_models_and_weights_are_not_pickled() -> None:
    for thing in (mo.nn.Parameter([1.0]), mo.nn.Linear(2, 2), mo.State(1.0), mo.compile(lambda x: x)):
        with pytest.raises(ArgumentError, match="is not pickled"):
            pickle.dumps(thing)
    with pytest.raises(ArgumentError, match="not the elements of a tensor"):
        restored([1, 2], mo.float32)
    with pytest.raises(ArgumentError, match="not the elements of a tensor"):
        restored(np.ones(2), mo.float32)


def test_rounding() -> None:
    assert round(mo.asarray(2.567, dtype=mo.float64), 1) == 2.6 and type(round(mo.asarray(2.5))) is int
    assert round(mo.asarray([1.25, -0.375]), 2).tolist() == pytest.approx([1.25, -0.38], abs=1e-6)
    assert round(mo.asarray([1.5, 2.5])).tolist() == [2, 2] and round(mo.asarray([5, 7]), 1).tolist() == [5, 7]


def test_quotient_and_rest() -> None:
    for pair in (divmod(mo.asarray([7, -7]), 2), divmod(mo.asarray([7, -7]), mo.asarray([2, 2]))):
        assert [part.tolist() for part in pair] == [[3, -4], [1, 1]]
    assert [part.tolist() for part in divmod(7, mo.asarray([2, 4]))] == [[3, 1], [1, 3]]


def test_membership() -> None:
    x, y = mo.asarray([1, 2]), mo.asarray([1, 3])
    assert 2 in x and 5 not in x and x in [x, y]
    with pytest.raises(ArgumentError, match=r"x in list. compares: use any\(x is item for item in list\)"):
        assert y in [x]


def test_formats() -> None:
    x = mo.asarray([[1.234, 2.0], [3.0, 4.5]])
    assert f"{x:.2f}" == "[[1.23, 2.00],\n [3.00, 4.50]]" and f"{x[0, 0]:.1f}" == "1.2" and f"{x[0]}" == str(x[0])
    assert f"{mo.asarray([7]):03d}" == "[007]"
    with pytest.raises(ArgumentError, match="does not format float32 elements"):
        format(x, "d")


def test_notebooks() -> None:
    table = "<table><tr><td>1</td><td>2</td></tr></table><small>int64 (1, 2)</small>"
    assert mo.asarray([[1, 2]])._repr_html_() == table
    assert mo.ones((30, 30))._repr_html_().startswith("<pre>Tensor(") and "<pre>" in mo.asarray(1.0)._repr_html_()


def test_json_goes_by_lists() -> None:
    assert json.dumps(mo.asarray([[1.5], [2.0]]).tolist()) == "[[1.5], [2.0]]" and json.dumps(mo.ones(3).size) == "3"


def test_methods_of_other_libraries() -> None:
    x = mo.ones((2, 3))
    assert x.size == 6 and isinstance(x.size, int)
    assert x.size() == (2, 3) and x.size(0) == 2 and x.size(-1) == 3
    assert x.to(mo.float64).dtype is mo.float64
    for name in ("tree_map", "jacobian", "pmap"):
        with pytest.raises(AttributeError, match="Hint: use"):
            getattr(mo, name)
