"""What is true of an op stands in its record: arity, class under autocast, its function, its row of the page."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import morpho as mo
from morpho.backends.code import elementwise
from morpho.base.dtypes import bfloat16, float32
from morpho.base.errors import ArgumentError
from morpho.ir.graph import Graph
from morpho.ir.node import Node, build
from morpho.ir.op import ONE, REGISTRY, Op, changed, foreign, register
from morpho.ir.verify import IllegalGraph, verify
from morpho.ops.algebra import add, constant_like, mul
from morpho.ops.elementwise import same
from morpho.passes.fusion import candidates
from morpho.tensor.autodiff.precision import FAMILIES, FULL
from morpho.tensor.functions.elementwise import public_names
from morpho.tensor.tools.record_table import page, row

DOCS = Path(__file__).resolve().parents[2] / "docs"


def x_of(shape: tuple[int, ...] = (3,)) -> Node:
    return build("parameter", index=0, shape=shape, dtype=float32)


def test_every_record_says_how_many_inputs_it_takes() -> None:
    assert not [name for name, op in REGISTRY.items() if op.arity is None and name not in foreign]


@pytest.mark.parametrize(("name", "count", "said"), [
    ("add", 1, "takes 2 inputs, not 1"), ("exp", 3, "takes 1 input, not 3"), ("where", 2, "takes 3 inputs, not 2"),
    ("layer_norm", 4, "takes 1 to 3 inputs, not 4"), ("concatenate", 0, "takes 1 or more inputs, not 0"),
])
def test_another_number_of_inputs_is_refused(name: str, count: int, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        build(name, *[x_of()] * count)


def test_the_verifier_counts_inputs() -> None:
    node = build("exp", x_of())
    broken = object.__new__(Node)
    for field in ("op", "attributes", "device", "payload", "outputs", "origin", "serial"):
        setattr(broken, field, getattr(node, field))
    broken.inputs = (*node.inputs, *node.inputs)
    with pytest.raises(IllegalGraph, match=r"after fuse: .* takes 1 input, not 2"):
        verify(Graph((broken,)), "fuse")


def test_the_class_under_autocast_is_the_record_s() -> None:
    assert {op.autocast for op in REGISTRY.values()} == {"", FULL, *FAMILIES}
    x = mo.full((3,), 0.5, dtype="bfloat16")
    with mo.settings(autocast="bfloat16"):
        for name in public_names():
            op = REGISTRY[name]
            if getattr(op, "kinds", "f") == "f" and op.floating:
                found = getattr(mo, name)(*[x] * int(op.arity[1]))
                if found.dtype is not mo.bool:
                    assert found.dtype is (float32 if op.autocast == FULL else bfloat16), name


def test_the_page_of_operations_is_that_of_the_records() -> None:
    shown = (DOCS / "operations.md").read_text(encoding="utf-8")
    assert shown == page(), "run python -m morpho.tensor.tools.record_table > docs/operations.md"


@pytest.fixture
def bump() -> Iterator[None]:
    """A new op, `bump(x) = x * x + 1`: its record, and its emitter."""
    register(Op("bump", "elementwise", same("bump", "f"),
                lambda node, ct: [mul(ct, mul(constant_like(ct, 2), node.inputs[0]))],
                lambda attributes, x: x * x + 1, 2, "one rounding", arity=ONE, autocast="full",
                summary="x * x + 1, rounded once.", floating=True))
    elementwise.add_emitter("bump", lambda e, dtype, x: e.fma(x, x, 1.0))
    candidates.NATIVE.add("bump")
    yield
    candidates.NATIVE.discard("bump")
    elementwise.remove_emitter("bump")
    del REGISTRY["bump"]
    changed()


def test_an_op_is_its_record_and_its_emitter(bump: None) -> None:
    """Function, namespace, gradient, compiled code, page: nothing else is written by hand."""
    assert "bump" in dir(mo) and mo.bump.__doc__.startswith("x * x + 1, rounded once.")
    values = np.linspace(-3, 3, 37, dtype=np.float32)
    wanted = values.astype(np.float64) ** 2 + 1
    assert np.allclose(mo.bump(values).numpy(), wanted, rtol=1e-6)
    assert np.allclose(mo.compile(lambda x: mo.bump(x) * 2)(mo.asarray(values)).numpy(), 2 * wanted, rtol=1e-6)
    assert mo.bump(3).item() == 10.0 and mo.bump(3).dtype is float32
    assert mo.grad(lambda x: mo.bump(x).sum())(mo.asarray(3.0)).item() == 6.0
    with mo.settings(autocast="bfloat16"):
        assert mo.bump(mo.ones(2, dtype="bfloat16")).dtype is float32
    assert row(REGISTRY["bump"]) in page() and "rounded once" in row(REGISTRY["bump"])
    with pytest.raises(ArgumentError, match="takes 1 input"):
        build("bump", x_of(), x_of())
    with mo.settings(device="reference"):
        assert math.isclose(mo.bump(mo.asarray(2.0)).item(), 5.0)


def test_a_removed_op_leaves_nothing() -> None:
    assert "bump" not in dir(mo) and "bump" not in page()
    with pytest.raises(AttributeError):
        mo.bump  # noqa: B018
    assert add(x_of(), x_of()).op.name == "add"
