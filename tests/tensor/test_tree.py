"""`mo.tree`: trees taken apart and put together."""

from __future__ import annotations

from collections import namedtuple

import pytest

import morpho as mo
from morpho.base.errors import ArgumentError

Pair = namedtuple("Pair", "first second")


def test_there_and_back() -> None:
    tree = {"b": [1, (2, None)], "a": Pair(3, "four")}
    leaves, form = mo.tree.flatten(tree)
    assert leaves == [1, 2, 3, "four"] == mo.tree.leaves(tree)
    assert mo.tree.unflatten(form, leaves) == tree and form == mo.tree.structure(tree)
    assert hash(form) == hash(mo.tree.structure(tree)) and form != mo.tree.structure({"b": 1})
    assert repr(form) == "Structure({'b': [*, (*, None)], 'a': Pair(first=*, second=*)})"
    assert mo.tree.leaves([1, [2, 3]], is_leaf=lambda x: x == [2, 3]) == [1, [2, 3]]
    assert mo.tree.leaves(None) == [] and mo.tree.structure(()) != mo.tree.structure([])


def test_maps_and_sums() -> None:
    weights = {"w": mo.ones(2), "b": (mo.zeros(()),)}
    stepped = mo.tree.map(lambda w, g: w - g, weights, mo.tree.map(lambda w: w * 0 + 2, weights))
    assert stepped["w"].tolist() == [-1.0, -1.0] and stepped["b"][0].item() == -2.0
    assert mo.tree.reduce(lambda total, w: total + w.size, weights, 0) == 3
    assert mo.tree.map(lambda x, y: y, [1, 2], [(1, 2), "rest"]) == [(1, 2), "rest"]  # the first tree says how deep
    rows = [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
    turned = mo.tree.transpose(mo.tree.structure([0, 0]), mo.tree.structure({"x": 0, "y": 0}), rows)
    assert turned == {"x": [1, 3], "y": [2, 4]}


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ArgumentError, match=r"list with 1 items is not arranged like Structure\(\[\*, \*\]\)"):
        mo.tree.map(lambda a, b: a, [1, 2], [1])
    with pytest.raises(ArgumentError, match="1 leaves for a structure of 2"):
        mo.tree.unflatten(mo.tree.structure((1, 2)), [1])
    with pytest.raises(ArgumentError, match="the order is"):
        mo.tree.unflatten([1], mo.tree.structure([1]))
    with pytest.raises(ArgumentError, match="without leaves"):
        mo.tree.reduce(max, {})
    with pytest.raises(AttributeError, match=r"mo\.tree\.map"):
        mo.tree.tree_map  # noqa: B018
