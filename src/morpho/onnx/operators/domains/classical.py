"""Classical machine learning (ai.onnx.ml): encoders, scalers, linear models, trees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.registry import ML, Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import Array, cast, is_text, scalar, tensor

FAMILY = Family("classical", ML)
MOST_DEPTH = 1 << 16


@FAMILY.op("Binarizer")
def binarizer(call: Call, x: Any) -> Any:
    x = tensor(x)
    return cast(x > scalar(call.get("threshold", 0.0), x), x.dtype)


@FAMILY.op("ArrayFeatureExtractor")
def array_feature_extractor(call: Call, x: Any, places: Any) -> Any:
    index = np.asarray(call.static(places, "its places")).reshape(-1).astype(np.int64)
    if is_text(x):
        return np.take(x, index, axis=-1)
    x = tensor(x)
    found = mo.take(x, mo.asarray(index), axis=len(x.shape) - 1)
    return mo.reshape(found, (1, -1)) if len(x.shape) == 1 else found


@FAMILY.op("LabelEncoder")
def label_encoder(call: Call, x: Any) -> Any:
    """Keys to values, on the host: either may be texts."""
    names = call.attributes
    keys, values = (_listed(call, side) for side in ("keys", "values"))
    kind = "strings" if values.dtype == object else "int64s" if values.dtype.kind == "i" else "floats"
    default = names.get("default_tensor")
    if default is not None:
        missing: Any = np.asarray(default).reshape(-1)[0]
    else:
        missing = names.get({"strings": "default_string", "int64s": "default_int64", "floats": "default_float"}[kind],
                            {"strings": "_Unused", "int64s": -1, "floats": -0.0}[kind])
    array = x if is_text(x) else call.static(x, "its keys")
    table = {_key(key): value for key, value in zip(keys.tolist(), values.tolist())}
    made = np.empty(array.size, values.dtype)
    made[:] = [table.get(_key(item), missing) for item in array.reshape(-1).tolist()]
    return made.reshape(array.shape)


def _key(item: Any) -> Any:
    return "NaN" if isinstance(item, float) and item != item else item


def _listed(call: Call, side: str) -> Array:
    for name, dtype in (("tensor", None), ("strings", object), ("int64s", np.int64), ("floats", np.float32)):
        found = call.get(f"{side}_{name}")
        if found is not None:
            if dtype is None:
                return np.asarray(call.static(found, "its table")).reshape(-1)
            return np.asarray(found, dtype)
    raise call.error(f"it has no {side}")


@FAMILY.op("Scaler")
def scaler(call: Call, x: Any) -> Any:
    x = cast(tensor(x), mo.float32)
    return (x - mo.asarray(np.float32(call.get("offset", [0.0])))) * mo.asarray(np.float32(call.get("scale", [1.0])))


@FAMILY.op("Normalizer")
def normalizer(call: Call, x: Any) -> Any:
    x = cast(tensor(x), mo.float32)
    how = call.choice("norm", "MAX", ("MAX", "L1", "L2"))
    size = {"MAX": lambda: mo.max(mo.abs(x), axis=-1, keepdims=True),
            "L1": lambda: mo.sum(mo.abs(x), axis=-1, keepdims=True),
            "L2": lambda: mo.sqrt(mo.sum(mo.square(x), axis=-1, keepdims=True))}[how]()
    return x / mo.where(size == 0.0, 1.0, size)


@FAMILY.op("Imputer")
def imputer(call: Call, x: Any) -> Any:
    x = tensor(x)
    of_floats = call.get("imputed_value_floats")
    given = np.asarray(of_floats if of_floats else call.need("imputed_value_int64s"))
    hole = call.get("replaced_value_float", 0.0) if of_floats else call.get("replaced_value_int64", 0)
    missing = mo.isnan(x) if isinstance(hole, float) and hole != hole else x == scalar(hole, x)
    return mo.where(missing, cast(mo.asarray(given), x.dtype), x)


@FAMILY.op("FeatureVectorizer")
def feature_vectorizer(call: Call, *parts: Any) -> Any:
    widths = [math.prod(part.shape[1:]) for part in parts]
    if call.get("inputdimensions", widths) != widths:
        raise call.error(f"inputdimensions is {call.get('inputdimensions')}, and the inputs are {widths} wide")
    return mo.concat([cast(mo.reshape(tensor(part), (part.shape[0], -1)), mo.float32) for part in parts], axis=1)


@FAMILY.op("LinearRegressor")
def linear_regressor(call: Call, x: Any) -> Any:
    targets = call.get("targets", 1)
    weights = mo.asarray(np.float32(call.need("coefficients")).reshape(targets, -1).T.copy())
    y = mo.matmul(cast(tensor(x), mo.float32), weights)
    if call.get("intercepts"):
        y = y + mo.asarray(np.float32(call.get("intercepts")))
    return transformed(call, y)


def transformed(call: Call, y: Any) -> Any:
    """The transformation of scores that a node names."""
    how = call.choice("post_transform", "NONE", ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"))
    if how == "SOFTMAX_ZERO":
        zero = y == 0.0
        return mo.where(zero, 0.0, mo.softmax(mo.where(zero, -mo.inf, y), axis=-1))
    if how == "SOFTMAX":
        return mo.softmax(y, axis=-1)
    return mo.sigmoid(y) if how == "LOGISTIC" else y


@FAMILY.op("TreeEnsemble")
def tree_ensemble(call: Call, x: Any) -> Any:
    """All trees at once: every row walks down from each root, as many steps as the deepest tree has."""
    x = tensor(x)
    modes = call.static(call.need("nodes_modes"), "its modes").reshape(-1).astype(np.int64)
    splits = call.static(call.need("nodes_splits"), "its splits").reshape(-1)
    weights = call.static(call.need("leaf_weights"), "its weights").reshape(-1)
    nodes = len(modes)
    ways = []
    for side in ("true", "false"):
        is_leaf = np.asarray(call.need(f"nodes_{side}leafs"), np.int64)
        ways.append(np.asarray(call.need(f"nodes_{side}nodeids"), np.int64) + nodes * is_leaf)
    if any(((way < 0) | (way >= nodes + len(weights))).any() for way in ways):
        raise call.error("a branch leads outside the trees")
    feature = mo.asarray(np.asarray(call.need("nodes_featureids"), np.int64))
    missing = mo.asarray(np.asarray(call.get("nodes_missing_value_tracks_true") or [0] * nodes, np.bool_))
    sets = _members(call, modes)
    roots = np.asarray(call.need("tree_roots"), np.int64)
    place = mo.broadcast_to(mo.reshape(mo.asarray(roots), (1, -1)), (x.shape[0], len(roots)))
    for _ in range(_depth(call, roots, ways, nodes)):
        inner = mo.minimum(place, nodes - 1)
        value = mo.take_along_axis(x, _at(feature, inner), axis=1)
        goes = _tests(value, _at(mo.asarray(modes), inner), _at(mo.asarray(splits), inner), sets, inner)
        goes = goes | (mo.isnan(value) & _at(missing, inner))
        after = mo.where(goes, _at(mo.asarray(ways[0]), inner), _at(mo.asarray(ways[1]), inner))
        place = mo.where(place < nodes, after, place)
    leaf = place - nodes
    targets = mo.asarray(np.asarray(call.need("leaf_targetids"), np.int64))
    return _aggregated(call, _at(mo.asarray(weights), leaf), _at(targets, leaf))


def _at(table: Any, places: Any) -> Any:
    return mo.reshape(mo.take(table, mo.reshape(places, (-1,)), axis=0), places.shape)


def _members(call: Call, modes: Array) -> list[tuple[int, Array]]:
    """(node, members) of the nodes that test membership."""
    if not (modes == 6).any():
        return []
    values = call.static(call.need("membership_values"), "its members").reshape(-1)
    ends = np.flatnonzero(np.isnan(values))
    parts = [part[~np.isnan(part)] for part in np.split(values, ends)]
    return [*zip(np.flatnonzero(modes == 6).tolist(), parts)]


def _tests(value: Any, mode: Any, split: Any, sets: list[tuple[int, Array]], node: Any) -> Any:
    kinds = (value <= split, value < split, value >= split, value > split, value == split, value != split)
    goes = mode < 0
    for code, holds in enumerate(kinds):
        goes = goes | ((mode == code) & holds)
    for place, members in sets:
        among = mode < 0
        for member in members.tolist():
            among = among | (value == scalar(member, value))
        goes = goes | ((node == place) & among)
    return goes


def _depth(call: Call, roots: Array, ways: list[Array], nodes: int) -> int:
    """Steps from the roots to the farthest leaf; a circle is an error."""
    level, depth = set(roots.tolist()), 0
    while level := {place for place in level if place < nodes}:
        level = {int(way[place]) for place in level for way in ways}
        depth += 1
        if depth > min(nodes, MOST_DEPTH):
            raise call.error("its trees have a circle")
    return depth


def _aggregated(call: Call, gains: Any, target: Any) -> Any:
    how, count = call.get("aggregate_function", 1), call.get("n_targets", 1)
    hot = mo.expand_dims(target, axis=2) == mo.reshape(mo.arange(count), (1, 1, count))
    spread = mo.expand_dims(gains, axis=2)
    if how in (0, 1):
        y = mo.sum(mo.where(hot, spread, scalar(0, gains)), axis=1)
        y = y / scalar(gains.shape[1], gains) if how == 0 else y
    elif how == 2:
        y = mo.min(mo.where(hot, spread, scalar(mo.inf, gains)), axis=1)
    else:
        y = mo.max(mo.where(hot, spread, scalar(-mo.inf, gains)), axis=1)
    after = call.get("post_transform", 0)
    if after == 1:
        return mo.softmax(y, axis=-1)
    if after == 2:
        return mo.sigmoid(y)
    if after:
        raise call.error(f"post_transform={after} is not taken")
    return y
