"""View algebra: roots, chains and strides, against NumPy's own views."""

from __future__ import annotations

import numpy as np

import morpho.ops  # noqa: F401  (fills the registry)
from morpho.base.dtypes import float32
from morpho.ir.node import Node, build
from morpho.ir.views import literal, look_through, maker_of, reshaped, root_of, strides_of
from morpho.ops.sources import pick


def parameter(shape: tuple[int, ...]) -> Node:
    return build("parameter", index=0, shape=shape, dtype=float32)


def _another(node: Node, array: np.ndarray, rng: np.random.Generator) -> tuple[Node, np.ndarray]:
    kind = rng.choice(["permute", "slice", "expand", "remat_barrier"])
    if kind == "permute":
        axes = tuple(int(axis) for axis in rng.permutation(array.ndim))
        return build("permute", node, axes=axes), array.transpose(axes)
    if kind == "slice":
        starts = tuple(int(rng.integers(size)) for size in array.shape)
        sizes = tuple((size - start + 1) // 2 for size, start in zip(array.shape, starts, strict=True))
        cut = tuple(slice(start, start + 2 * size, 2) for start, size in zip(starts, sizes, strict=True))
        return build("slice", node, starts=starts, sizes=sizes, steps=(2,) * array.ndim), array[cut]
    if kind == "expand":
        shape = tuple(3 if size == 1 else size for size in array.shape)
        return build("expand", node, shape=shape), np.broadcast_to(array, shape)
    return build("remat_barrier", node), array


def test_strides_are_those_of_numpy(rng: np.random.Generator) -> None:
    for _ in range(50):
        array = np.zeros(tuple(int(n) for n in rng.integers(1, 6, 3)), np.float32)
        node = base = parameter(array.shape)
        for _ in range(int(rng.integers(1, 5))):
            node, array = _another(node, array, rng)
        assert root_of(node) is base and maker_of(node) is base
        found = strides_of(node)
        assert found is not None
        for size, mine, theirs in zip(array.shape, found, array.strides, strict=True):
            assert size == 1 or mine * 4 == theirs


def test_a_reshape_that_needs_a_copy_has_no_strides() -> None:
    turned = build("permute", parameter((2, 3)), axes=(1, 0))
    assert strides_of(turned) == (1, 3)
    assert strides_of(build("reshape", turned, shape=(6,))) is None


def test_one_output_of_several_is_a_value_of_its_own() -> None:
    several = build("checkpoint", parameter((2, 3)), parameter((6,)), results=2)
    one = pick(several, 1)
    view = build("reshape", one, shape=(3, 2))
    assert root_of(view) is one
    assert look_through(view) == (one, [view])
    assert maker_of(view) is not one


def test_numbers_are_seen_through_what_spreads_them() -> None:
    number = build("constant", value=2.5, dtype=float32)
    assert literal(build("expand", build("reshape", number, shape=(1, 1)), shape=(3, 4))) == 2.5
    assert literal(parameter(())) is None


def test_axes_move_with_dimensions_of_one() -> None:
    assert reshaped((0, None, 2), (4, 1, 5), (4, 5, 1)) == (0, 2, None)
    assert reshaped((0, 1), (4, 5), (20,)) is None
