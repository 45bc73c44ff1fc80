"""A hint gives what the original gives: each is run, and compared with a stored answer of NumPy or PyTorch."""

from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.tensor.tools.foreign_names import OTHERWISE, advice

INF, NAN = math.inf, math.nan
A, B = [1.0, NAN, 3.0, NAN, -INF], [2.0, 2.0, NAN, NAN, INF]
X, EDGES = [0.2, 1.0, 2.5, 4.0, -1.0, 1.0], [0.0, 1.0, 2.0, 4.0]
MOST = 3.4028234663852886e38
SQUARE = [[1, 2], [3, 4]]
# Name -> arguments by the names that the hint has, and the original's answer.
ANSWERS: dict[str, tuple[dict[str, Any], Any]] = {
    "view": ({"x": SQUARE, "shape": (4,)}, [1, 2, 3, 4]),
}
# Hints with names of the reader's own, or that are words.
WORDS = {"jacobian", "interpolate", "numpy", "device_put", "block_until_ready", "pmap", "shard_map"}
# Names that are ours under another one: (arguments, the original's answer), for those that work alike on numbers.
ALIKE: dict[str, tuple[list[Any], Any]] = {
    "amax": ([[1.0, 3.0]], 3.0), "arctan2": ([[1.0], [2.0]], [math.atan2(1, 2)]), "cumsum": ([[1.0, 2.0]], [1.0, 3.0]),
    "mod": ([[-7.0, 7.0], [3.0, -3.0]], [2.0, -2.0]), "power": ([[2.0], [3.0]], [8.0]), "fabs": ([[-1.5]], [1.5]),
    "invert": ([[0, 5]], [-1, -6]), "left_shift": ([[1], [3]], [8]),
    "true_divide": ([[1], [2]], [0.5]), "mm": ([SQUARE, SQUARE], [[7, 10], [15, 22]]), "swish": ([[0.0]], [0.0]),
    "trace": ([SQUARE], 5), "norm": ([[3.0, 4.0]], 5.0), "clamp": ([[-1.0, 9.0], 0, 5], [0.0, 5.0]),
    "absolute": ([[-2]], [2]), "cat": ([[[1], [2]]], [1, 2]), "concatenate": ([[[1], [2]]], [1, 2]),
}


def expression(name: str) -> str:
    """The first part of a hint that is Python."""
    text = advice(name).removeprefix("use ").replace("x = ", "")
    ends = (", axis=0 for", "; ", " for ", " where ", ": ", ", or ", "), mo.")
    for part in (text, *[text.split(end)[0] + ")" * end.startswith(")") for end in ends]):
        try:
            tree = ast.parse(part, mode="eval")
        except SyntaxError:
            continue
        if not isinstance(tree.body, ast.Tuple):
            return part
    return ""


def values(found: Any) -> Any:
    if isinstance(found, mo.Tensor):
        return found.tolist()
    return [values(item) for item in found] if isinstance(found, list) else found


def given(value: Any, name: str) -> Any:
    if name in ("shape", "data", "dtype", "np") or not isinstance(value, list):
        return value
    return [mo.asarray(item) for item in value] if name == "arrays" else mo.asarray(value)


@pytest.mark.parametrize("name", ANSWERS)
def test_a_hint_gives_what_the_original_gives(name: str) -> None:
    arguments, wanted = ANSWERS[name]
    names = {key: given(value, key) for key, value in arguments.items()}
    found = values(eval(expression(name), {"mo": mo, **names}))
    np.testing.assert_allclose(np.array(found, float), np.array(wanted, float), rtol=1e-6, err_msg=expression(name))


@pytest.mark.parametrize("name", ALIKE)
def test_another_name_of_the_same_function(name: str) -> None:
    arguments, wanted = ALIKE[name]
    function = getattr(mo, name)
    as_given = [[mo.asarray(i) for i in a] if name.startswith(("cat", "conc")) else mo.asarray(a) if isinstance(a, list)
                else a for a in arguments]
    np.testing.assert_allclose(np.array(values(function(*as_given)), float), np.array(wanted, float), rtol=1e-6)


def test_every_hint_is_run_or_is_words() -> None:
    assert {*OTHERWISE} == {*ANSWERS} | WORDS and not {*ANSWERS} & WORDS


# -- boolean masks: PyTorch's modules mean the opposite of its function and of everything here ------------------------
KEEP = np.array([[True, False, True], [True, True, False], [False, True, True]])


def test_a_mask_of_pytorch_modules_is_turned_around() -> None:
    x, layer = mo.ones((1, 3, 8)), mo.nn.MultiHeadAttention(8, 2)
    for keyword, wanted in (("attn_mask", r"write mask=~attn_mask: True is where a query may look, the opposite"),
                            ("key_padding_mask", r"write mask=~key_padding_mask\[:, None, None, :\]")):
        with pytest.raises(mo.errors.ArgumentError, match=wanted):
            layer(x, **{keyword: mo.asarray(~KEEP)})
    with pytest.raises(mo.errors.ArgumentError, match=r"write mask=~src_mask"):
        mo.nn.TransformerBlock(8, 2, 16)(x, src_mask=mo.asarray(~KEEP))
    q = mo.ones((1, 2, 3, 4))  # that of the function is the same
    assert (mo.attention(q, q, q, attn_mask=mo.asarray(KEEP)) == mo.attention(q, q, q, mask=mo.asarray(KEEP))).all()
    with pytest.raises(mo.errors.ArgumentError, match=r"write \(query, memory\)"):
        layer(x, x, x)


def test_masks_turned_around_give_what_the_module_gives() -> None:
    """Scores of 0: each query takes the mean of what it may look at, by hand."""
    values = np.arange(6.0, dtype=np.float32).reshape(1, 1, 3, 2)
    zero, attn_mask = mo.zeros((1, 1, 3, 2)), mo.asarray(~KEEP)  # as a module of PyTorch takes it
    found = mo.attention(zero, zero, mo.asarray(values), mask=~attn_mask).numpy()[0, 0]
    np.testing.assert_allclose(found, [values[0, 0][row].mean(axis=0) for row in KEEP])
