"""Several reductions over few, very long rows: shared among threads, with the bits of the single kernel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from running import Native, equal_bits, parameter, stored

import morpho as mo
from morpho.backends.lowering.lowering import FEW_LONG_ROWS, LONG_ROW
from morpho.base.dtypes import DType, bfloat16, float32, float64, int64
from morpho.base.errors import IndexFault
from morpho.ir.node import Node, build
from morpho.ops.algebra import expand, mean, sub
from morpho.tensor.autodiff.gradient import pull_back

LENGTHS = (LONG_ROW, LONG_ROW + 4465)


def _loss(x: Node, g: Node) -> Node:
    rows = (x.shape[0], 1)
    return build("cross_entropy", x, expand(build("constant", value=7, dtype=int64), rows), axes=(1,), smoothing=0.1,
                 ignore=3)


def _softmax_gradient(x: Node, g: Node) -> Node:
    return pull_back([build("softmax", x, axes=(1,))], [g], [x])[0]


def _norm_gradient(x: Node, g: Node) -> Node:
    return pull_back([build("layer_norm", x, axes=(1,), eps=1e-5)], [g], [x])[0]


FUNCTIONS: dict[str, Callable[[Node, Node], Node]] = {
    "softmax": lambda x, g: build("softmax", x, axes=(1,)),
    "log_softmax": lambda x, g: build("log_softmax", x, axes=(1,)),
    "logsumexp": lambda x, g: build("logsumexp", x, axes=(1,)),
    "layer_norm": lambda x, g: build("layer_norm", x, axes=(1,), eps=1e-5),
    "rms_norm": lambda x, g: build("rms_norm", x, axes=(1,), eps=1e-5),
    "loss": _loss, "softmax gradient": _softmax_gradient, "norm gradient": _norm_gradient,
}


@pytest.mark.sampled
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("dtype", [float32, bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bits_of_a_long_row_are_those_among_many(name: str, dtype: DType, level: int,
                                                     rng: np.random.Generator) -> None:
    for length in LENGTHS if level else LENGTHS[1:]:
        arrays = [stored(rng.normal(0, 3, (1, length)), dtype) for _ in range(2)]
        many = [np.repeat(array, FEW_LONG_ROWS + 1, axis=0) for array in arrays]
        with mo.settings(level=level):
            alone, among = (Native([FUNCTIONS[name](*[parameter(i, (rows, length), dtype) for i in range(2)])])
                            for rows in (1, FEW_LONG_ROWS + 1))
            assert alone.program.kernels > among.program.kernels or level == 0
            got, want = alone(arrays)[0], among(many)[0]
            assert equal_bits(got, want[:1], dtype), (name, length)


def test_every_walk_is_divided(rng: np.random.Generator) -> None:
    """Maximum and sum by blocks, each with a join; the division by columns. Exponentials pass through memory."""
    native = Native([build("softmax", parameter(0, (1, LONG_ROW), float32), axes=(1,))])
    blocks, join, more, last, divide = native.program.steps
    assert [step.kernel.part for step in native.program.steps] == ["blocks", "join", "blocks", "join", ""]
    assert blocks.rows == more.rows == LONG_ROW // 4096 and divide.splits_columns
    names = [[i.name for i in step.kernel.instructions] for step in native.program.steps]
    assert "exp" in names[2] and "exp" not in names[4]


def test_outputs_of_every_walk(rng: np.random.Generator) -> None:
    """Full values and values of rows, before, between and after the reductions."""
    x, rows = parameter(0, (2, LONG_ROW), float64), parameter(1, (2, 1), float64)
    shift = build("square", rows)
    moved = sub(x, expand(shift, x.shape))
    middle = mean(moved, (1,))
    centred = sub(moved, expand(middle, x.shape))
    spread = mean(build("square", centred), (1,))
    scaled = build("divide", centred, expand(build("sqrt", spread), x.shape))
    outputs = [shift, moved, middle, centred, spread, scaled]
    arrays = [rng.normal(0, 1, (2, LONG_ROW)), rng.normal(0, 1, (2, 1))]
    with mo.settings(level=0):
        want = Native(outputs)(arrays)
    native = Native(outputs)
    for got, other in zip(native(arrays), want, strict=True):
        assert equal_bits(got, other, float64)
    assert [step.kernel.part for step in native.program.steps][:2] == ["blocks", "join"]


def test_a_wrong_class_in_a_long_row() -> None:
    x, f = mo.zeros((1, LONG_ROW)), mo.compile(lambda x, t: mo.cross_entropy(x, t))
    assert np.isclose(f(x, mo.asarray([LONG_ROW - 1])).item(), np.log(LONG_ROW))
    with pytest.raises(IndexFault, match=r"\[cross_entropy\]"):
        f(x, mo.asarray([LONG_ROW])).item()
