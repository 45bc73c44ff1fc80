"""einsum against NumPy's, by table and at random; that products run as matrix products, and what is copied for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import morpho as mo
from morpho.ir.graph import Graph
from morpho.ir.node import Node
from morpho.passes.canonical import strides_of

Array = np.ndarray

TABLE: list[tuple[str, list[tuple[int, ...]]]] = [
    # one operand
    ("ab->ba", [(2, 3)]), ("ba", [(2, 3)]), ("ab->", [(2, 3)]), ("ab->b", [(2, 3)]), ("ii", [(3, 3)]),
    ("ii->i", [(3, 3)]), ("iij->ji", [(3, 3, 2)]), ("iji->j", [(3, 2, 3)]), ("iii->i", [(3, 3, 3)]),
    ("ijij->ji", [(2, 3, 2, 3)]), ("...", [(2, 3)]), ("...a->a...", [(2, 3, 4)]), ("a...a", [(2, 3, 2)]),
    ("...ii->...", [(4, 3, 3)]), ("", [()]), ("->", [()]), ("ab->ba...", [(2, 3)]), ("bA", [(2, 3)]), ("ii", [(1, 1)]),
    # two
    ("ab,bc->ac", [(2, 3), (3, 4)]), ("ab,bc", [(2, 3), (3, 4)]), ("ab,bc->ca", [(2, 3), (3, 4)]),
    ("ab,cb->ac", [(2, 3), (4, 3)]), ("ba,bc->ac", [(3, 2), (3, 4)]), ("ab,b->a", [(2, 3), (3,)]),
    ("a,ab->b", [(2,), (2, 3)]), ("a,a->", [(3,), (3,)]), ("a,a->a", [(3,), (3,)]), ("a,b->ab", [(3,), (4,)]),
    ("a,b->ba", [(3,), (4,)]), ("ab,ab->", [(3, 4), (3, 4)]), ("ab,ba->", [(3, 4), (4, 3)]),
    ("ab,ab->a", [(3, 4), (3, 4)]), ("ab,cd->", [(2, 3), (4, 5)]), ("ab,cd->ac", [(2, 3), (4, 5)]),
    ("abc,cbd->ad", [(2, 3, 4), (4, 3, 5)]), ("abc,bcd->ad", [(2, 3, 4), (3, 4, 5)]),
    ("kalb,lkc->abc", [(2, 3, 4, 5), (4, 2, 6)]), ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]),
    ("bij,bjk->ibk", [(5, 2, 3), (5, 3, 4)]), ("ibj,jkb->kbi", [(2, 5, 3), (3, 4, 5)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]), ("bqhd,bkhd->bhqk", [(2, 4, 3, 5), (2, 6, 3, 5)]),
    ("iij,jk->ik", [(3, 3, 2), (2, 4)]), ("ii,ii->i", [(3, 3), (3, 3)]), ("ab,->ab", [(2, 3), ()]), (",", [(), ()]),
    (" a b , b c -> a c ", [(2, 3), (3, 4)]), ("aB,Ba", [(2, 3), (3, 2)]),
    # broadcasting
    ("...ij,...jk->...ik", [(5, 1, 2, 3), (6, 3, 4)]), ("...ij,...jk", [(5, 1, 2, 3), (1, 6, 3, 4)]),
    ("...i,...i", [(3, 4), (4,)]), ("ab...,b...->...", [(2, 3, 4), (3, 1)]), ("...a,ab->b...", [(5, 6, 3), (3, 4)]),
    ("ab,bc->ac", [(2, 1), (3, 4)]), ("ab,bc->ac", [(1, 3), (3, 1)]), ("ab,bc->ac", [(2, 1), (1, 4)]),
    ("ab,ab->a", [(1, 4), (3, 4)]), ("ab,ab->ab", [(1, 4), (3, 1)]), ("ab,ab,ab->", [(3, 4), (1, 4), (3, 1)]),
    ("a,a,b->b", [(3,), (1,), (1,)]),
    # nothing in them
    ("ab,bc->ac", [(2, 0), (0, 4)]), ("ab,bc->ac", [(0, 3), (3, 4)]), ("aa->a", [(0, 0)]), ("ab->a", [(2, 0)]),
    # many
    ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]), ("ab,bc,cd,de->ea", [(2, 3), (3, 4), (4, 5), (5, 2)]),
    ("ab,cb,dc,ad->", [(2, 3), (4, 3), (5, 4), (2, 5)]), ("a,a,a->a", [(3,), (3,), (3,)]),
    ("ab,bc,bd->acd", [(2, 3), (3, 4), (3, 5)]), ("ab,bc,bd->b", [(2, 3), (3, 4), (3, 5)]),
    ("ea,fb,abcd,gc,hd->efgh", [(2, 3), (2, 3), (3, 3, 3, 3), (4, 3), (4, 3)]), ("a,b,c->cab", [(2,), (3,), (4,)]),
    ("xab,xbc,xcd->xad", [(6, 2, 3), (6, 3, 4), (6, 4, 5)]), ("...a,...a,a->...", [(2, 3), (4, 1, 3), (3,)]),
    (",a,,a->", [(), (3,), (), (3,)]), ("ab,bc,ca,ab,bc,ca->", [(2, 3), (3, 4), (4, 2)] * 2),
    ("ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm->am", [(2, 2)] * 12),
]


def draw(rng: np.random.Generator, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Whole numbers in float64, so that every order of summing gives the same value."""
    return [rng.integers(-4, 5, shape).astype(np.float64) for shape in shapes]


def check(found: mo.Tensor, want: Any) -> None:
    values = found.numpy()
    assert values.shape == np.shape(want) and values.dtype == np.asarray(want).dtype
    assert np.array_equal(values, want)


@pytest.mark.parametrize(("expression", "shapes"), TABLE, ids=[f"{text} {shapes}" for text, shapes in TABLE])
def test_table(expression: str, shapes: list[tuple[int, ...]], rng: np.random.Generator) -> None:
    """Exactly NumPy's value, by every way to choose the order."""
    arrays = draw(rng, shapes)
    want = np.einsum(expression, *arrays)
    check(mo.einsum(expression, *arrays), want)
    if len(arrays) > 2:
        check(mo.einsum(expression, *arrays, optimize=False), want)
        check(mo.einsum(expression, *arrays, optimize="greedy"), want)
        check(mo.einsum(expression, *arrays, optimize=np.einsum_path(expression, *arrays)[0]), want)


def test_lists_of_numbers(rng: np.random.Generator) -> None:
    """Operands interleaved with labels, with and without an output, with an Ellipsis."""
    a, b = draw(rng, [(2, 3), (3, 4)])
    check(mo.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b)
    check(mo.einsum(a, [0, 1], b, [1, 2]), a @ b)
    check(mo.einsum(a, [12, 5]), a.T)  # as numbers: 5 comes before 12
    check(mo.einsum(a, [..., 1], [...]), a.sum(1))
    check(mo.einsum(a, (300, 1), b, (1, 299), (299, 300)), (a @ b).T)


def test_strided_operands(rng: np.random.Generator) -> None:
    """Transposed, reversed, sliced and broadcast memory, and operands that are not computed yet."""
    a, b = draw(rng, [(4, 6, 8), (8, 6, 5)])
    for x, y in ((a.transpose(2, 0, 1), b.T), (a[::-1, :, ::2], b[1::2, ::-1]),
                 (np.broadcast_to(a[:1], a.shape), b), (a[:, :1], b[:, :1])):
        letters = "abc,cbd->ad" if x.shape[-1] == y.shape[0] else "cab,dbc->da"
        want = np.einsum(letters, x, y)
        check(mo.einsum(letters, x, y), want)
        check(mo.einsum(letters, mo.asarray(x) + 0, mo.asarray(y) * 1), want)


# -- at random -------------------------------------------------------------------------------------------------------
@st.composite
def expressions(draw_from: st.DrawFn) -> tuple[str, list[tuple[int, ...]]]:
    """An expression NumPy takes: labels, some repeated, an ellipsis here and there, sizes 1 that broadcast."""
    pool = draw_from(st.lists(st.sampled_from("abcdefG"), min_size=1, max_size=5, unique=True))
    sizes = {label: draw_from(st.integers(1, 4)) for label in pool}
    batch = draw_from(st.lists(st.integers(1, 3), max_size=2))
    terms, shapes = [], []
    for _ in range(draw_from(st.integers(1, 4))):
        labels = draw_from(st.lists(st.sampled_from(pool), max_size=4))
        single = {label for label in set(labels) if draw_from(st.integers(0, 9)) == 0}
        shape = [1 if label in single else sizes[label] for label in labels]
        if batch and draw_from(st.booleans()):
            at, depth = draw_from(st.integers(0, len(labels))), draw_from(st.integers(0, len(batch)))
            extra = [1 if draw_from(st.integers(0, 4)) == 0 else size for size in batch[len(batch) - depth:]]
            shape[at:at] = extra
            labels.insert(at, "...")
        terms.append("".join(labels))
        shapes.append(tuple(shape))
    text = ",".join(terms)
    if draw_from(st.booleans()):
        used = sorted({*text} & {*pool})
        output = draw_from(st.lists(st.sampled_from(used), unique=True)) if used else []
        if "..." in text:
            output.insert(draw_from(st.integers(0, len(output))), "...")
        text += "->" + "".join(output)
    return text, shapes


@given(expressions(), st.integers(0, 2**31))
def test_random_expressions(found: tuple[str, list[tuple[int, ...]]], number: int) -> None:
    """Whatever NumPy makes of it, on the plain backend (no compiler in the loop) and by two orders."""
    expression, shapes = found
    arrays = draw(np.random.default_rng(number), shapes)
    want = np.einsum(expression, *arrays)
    with mo.settings(device="reference"):
        check(mo.einsum(expression, *arrays), want)
        check(mo.einsum(expression, *arrays, optimize=False), want)


# -- dtypes ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64"])
def test_integers_are_exact(dtype: str, rng: np.random.Generator) -> None:
    """They wrap, as NumPy's do."""
    info = np.iinfo(dtype)
    a, b, c = (rng.integers(info.min, info.max, shape, dtype, endpoint=True) for shape in ((3, 4), (4, 5), (5, 3)))
    check(mo.einsum("ab,bc->ac", a, b), np.einsum("ab,bc->ac", a, b))
    check(mo.einsum("ab,bc,ca->", a, b, c), np.einsum("ab,bc,ca->", a, b, c))
    check(mo.einsum("ab->a", a), np.einsum("ab->a", a))


def test_truth_values(rng: np.random.Generator) -> None:
    """Products are `and`, sums are `or`: the joins of relations."""
    a, b, c = (rng.random(shape) < 0.4 for shape in ((5, 6), (6, 7), (7, 5)))
    for text, operands in (("ab,bc->ac", (a, b)), ("ab,bc,ca->a", (a, b, c)), ("ab->b", (a,)), ("ab,ab->a", (a, a)),
                           ("ab,bc->abc", (a, b))):
        check(mo.einsum(text, *operands), np.einsum(text, *operands))
    ones = np.ones((1, 300), bool)
    assert mo.einsum("ab,cb->ac", ones, ones).item() is True


def test_promotion(rng: np.random.Generator) -> None:
    """As everywhere in Morpho: tensors among themselves, Python numbers follow."""
    a = mo.asarray(rng.integers(0, 9, (2, 3)), dtype=mo.int8)
    assert mo.einsum("ab,ab->a", a, mo.astype(a, mo.int16)).dtype == mo.int16
    assert mo.einsum("ab,->a", a, 2).dtype == mo.int8
    assert mo.einsum("ab,->a", a, 0.5).dtype == mo.float32
    assert mo.einsum(",", 2.0, 3).item() == 6.0
    z = rng.integers(-4, 5, (2, 3)) + 1j * rng.integers(-4, 5, (2, 3))
    check(mo.einsum("ab,cb->ac", z, z), np.einsum("ab,cb->ac", z, z))
    half = mo.einsum("ab,cb->ac", mo.ones((2, 5), dtype=mo.bfloat16), mo.ones((3, 5), dtype=mo.bfloat16))
    assert half.dtype == mo.bfloat16 and half.numpy().tolist() == [[5.0] * 3] * 2


# -- what runs -------------------------------------------------------------------------------------------------------
def graph_of(tensor: mo.Tensor) -> Graph:
    return Graph((tensor.node,))


def count(tensor: mo.Tensor, *names: str) -> int:
    return sum(node.op.name in names for node in graph_of(tensor).nodes)


def copies(tensor: mo.Tensor) -> int:
    """Operands of matrix products whose reshapes no strides can show, and an output that lies in another order."""
    products = [node for node in graph_of(tensor).nodes if node.op.name == "matmul"]
    operands: set[Node] = {operand for node in products for operand in node.inputs}
    moved = sum(strides_of(operand) is None for operand in operands)
    return moved + (strides_of(tensor.node) != strides_of(mo.zeros(tensor.shape).realise().node))


VIEWS: list[tuple[str, list[tuple[int, ...]]]] = [
    ("ab,bc->ac", [(4, 5), (5, 6)]), ("ab,bc->ca", [(4, 5), (5, 6)]), ("ba,bc->ca", [(5, 4), (5, 6)]),
    ("abc,cd->abd", [(2, 3, 4), (4, 5)]), ("abc,cde->abde", [(2, 3, 4), (4, 5, 6)]),
    ("cd,abc->dab", [(4, 5), (2, 3, 4)]), ("abcd,cdef->abef", [(2, 3, 4, 5), (4, 5, 6, 7)]),
    ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]), ("bqhd,bkhd->bhqk", [(2, 4, 3, 5), (2, 6, 3, 5)]),
    ("bhqk,bkhd->bhqd", [(2, 3, 4, 6), (2, 6, 3, 5)]), ("...ab,bc->...ac", [(7, 2, 4, 5), (5, 6)]),
    ("ab,bc,cd->ad", [(4, 5), (5, 6), (6, 7)]), ("ab,bc,cd->da", [(4, 5), (5, 6), (6, 7)]),
    ("ab,bcd,de->ace", [(4, 5), (5, 6, 7), (7, 8)]), ("ab,bc,cd,de,ef->af", [(9, 8), (8, 7), (7, 6), (6, 5), (5, 4)]),
    ("xab,xbc,xcd->xad", [(3, 4, 5), (3, 5, 6), (3, 6, 7)]),
]


@pytest.mark.parametrize(("expression", "shapes"), VIEWS, ids=[text for text, _ in VIEWS])
def test_matrix_products_of_views(expression: str, shapes: list[tuple[int, ...]], rng: np.random.Generator) -> None:
    """One matrix product a pair, no elementwise product, no sum, and nothing copied for it."""
    found = mo.einsum(expression, *draw(rng, shapes))
    assert count(found, "matmul") == len(shapes) - 1
    assert count(found, "multiply", "sum", "expand") == 0
    assert copies(found) == 0


def test_one_operand_is_copied_at_most(rng: np.random.Generator) -> None:
    """Summed labels side by side in the second operand only: it is the first that moves."""
    found = mo.einsum("kalb,lkc->abc", *draw(rng, [(2, 3, 4, 5), (4, 2, 6)]))
    assert count(found, "matmul") == 1 and copies(found) == 1


def test_transposed_memory_is_no_copy(rng: np.random.Generator) -> None:
    """Rows are grouped as they lie in memory, not as they are written."""
    a, b = draw(rng, [(5, 4, 3), (3, 6)])
    found = mo.einsum("abk,kc->cba", mo.asarray(a.transpose(1, 0, 2), copy=False), b)
    assert count(found, "matmul") == 1 and copies(found) == 0
    check(found, np.einsum("abk,kc->cba", a.transpose(1, 0, 2), b))


def test_joins_stay_small() -> None:
    """No intermediate of a chain of n x n matrices has more than n^2 elements."""
    n = 50
    matrices = [mo.zeros((n, n)) for _ in range(3)]
    for text in ("ab,bc,cd->ad", "ab,bc,cd->", "ab,bc,ca->", "ab,bc,cd->bd", "ab,ac,ad->a"):
        found = mo.einsum(text, *matrices)
        assert max(int(np.prod(node.shape)) for node in graph_of(found).nodes) == n * n
        assert mo.einsum_path(text, *matrices).largest_bytes <= 4 * n * n


def test_lone_labels_are_summed_first() -> None:
    """The product is over what is left: 4 x 5 times 5, not 4 x 5 x 6 x 7."""
    found = mo.einsum("abx,by->a", mo.zeros((4, 5, 6)), mo.zeros((5, 7)))
    assert count(found, "sum") == 2
    (product,) = (node for node in graph_of(found).nodes if node.op.name == "matmul")
    assert [node.shape for node in product.inputs] == [(4, 5), (5, 1)]


def test_elementwise_without_a_sum() -> None:
    """No label to sum: a product; only batches beside it: a product and a sum, in one kernel."""
    a, b = mo.zeros((4, 5)), mo.zeros((5, 6))
    assert count(mo.einsum("ab,bc->abc", a, b), "matmul", "sum") == 0
    compiled = mo.compile(lambda x, y: mo.einsum("ab,ab->a", x, y))
    assert compiled(a, a).shape == (4,) and compiled.stats["kernels"] == 1


def test_inside_compile(rng: np.random.Generator) -> None:
    """One native function; a matrix product a pair."""
    arrays = [mo.asarray(array) for array in draw(rng, [(3, 4), (4, 5), (5, 6)])]
    compiled = mo.compile(lambda a, b, c: mo.einsum("ab,bc,cd->da", a, b, c) * 2)
    check(compiled(*arrays), 2 * np.einsum("ab,bc,cd->da", *arrays))
    labels = [step.label for step in compiled.current.plan.program.steps]
    assert sum(label.startswith("matmul") for label in labels) == 2
    assert compiled.stats["host_steps"] == 0


# -- bits, sizes, gradients ------------------------------------------------------------------------------------------
def test_a_batch_of_one_has_the_same_bits(rng: np.random.Generator) -> None:
    """Of two operands the bits depend on the expression alone, not on how many rows or columns there are."""
    for text, shapes in (("bkl,lkc->bc", [(4, 7, 9), (9, 7, 3)]), ("kbl,lkc->bc", [(7, 4, 9), (9, 7, 3)]),
                         ("bk,bk->b", [(4, 33), (4, 33)]), ("bk,ck->bc", [(4, 33), (3, 33)])):
        first, second = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
        whole = mo.einsum(text, first, second).numpy()
        axes = [operand.find("b") for operand in text.split("->")[0].split(",")]
        for i in range(4):
            one, other = (x if axis < 0 else np.take(x, [i], axis) for x, axis in zip((first, second), axes))
            alone = mo.einsum(text, one, other).numpy()
            assert alone.tobytes() == whole[i:i + 1].tobytes(), (text, i)
            if "c" in text:
                narrow = mo.einsum(text, one, np.take(other, [1], text.split("->")[0].split(",")[1].find("c"))).numpy()
                assert narrow.tobytes() == whole[i:i + 1, 1:2].tobytes(), (text, i)


DYNAMIC: list[tuple[str, Callable[[int], list[tuple[int, ...]]], list[dict[int, str]]]] = [
    ("ab,bc->ac", lambda n: [(n, 3), (3, 4)], [{0: "n"}, {}]),
    ("ab,bc->ac", lambda n: [(2, n), (n, 4)], [{1: "n"}, {0: "n"}]),
    ("abc,bcd->da", lambda n: [(2, n, 3), (n, 3, 4)], [{1: "n"}, {0: "n"}]),
    ("bij,bjk->bik", lambda n: [(n, 2, 3), (n, 3, 4)], [{0: "n"}, {0: "n"}]),
    ("...ij,jk->...ik", lambda n: [(n, 2, 3), (3, 4)], [{0: "n"}, {}]),
    ("ab,ab->a", lambda n: [(n, 3), (n, 3)], [{0: "n"}, {0: "n"}]),
    ("ab,ab->a", lambda n: [(1, 3), (n, 3)], [{}, {0: "n"}]),
    ("aa,ab->b", lambda n: [(n, n), (n, 2)], [{0: "n", 1: "n"}, {0: "n"}]),
    ("ab,bc,cd->ad", lambda n: [(n, 2), (2, n), (n, 3)], [{0: "n"}, {1: "n"}, {0: "n"}]),
    ("ab->", lambda n: [(n, 4)], [{0: "n"}]),
]


@pytest.mark.parametrize(("expression", "shapes", "dynamic"), DYNAMIC,
                         ids=[f"{row[0]} {number}" for number, row in enumerate(DYNAMIC)])
def test_dynamic_sizes(expression: str, shapes: Any, dynamic: list[dict[int, str]], rng: np.random.Generator) -> None:
    """One program for every size."""
    n = mo.Dim("n", 1, 64)
    names = "xyz"[:len(dynamic)]
    function = {1: lambda x: mo.einsum(expression, x), 2: lambda x, y: mo.einsum(expression, x, y),
                3: lambda x, y, z: mo.einsum(expression, x, y, z)}[len(dynamic)]
    declared = {name: dict.fromkeys(axes, n) for name, axes in zip(names, dynamic) if axes}
    compiled = mo.compile(function, dynamic=declared)
    for size in (5, 1, 64, 2):
        arrays = draw(rng, shapes(size))
        check(compiled(*(mo.asarray(array) for array in arrays)), np.einsum(expression, *arrays))
    assert compiled.stats["specialisations"] == 1
    if len(dynamic) < 3:  # with more, the order of contraction follows the sizes
        arrays = [rng.standard_normal(shape) for shape in shapes(37)]
        found = compiled(*(mo.asarray(array) for array in arrays)).numpy()
        assert found.tobytes() == mo.einsum(expression, *arrays).numpy().tobytes()


def test_unbounded_sizes_meet_only_a_given_limit(rng: np.random.Generator) -> None:
    """A size that may be huge is no reason to refuse, unless the user gave a limit."""
    n = mo.Dim("n", 1, 1 << 20)
    a, b, c = (mo.asarray(array) for array in draw(rng, [(3, 2), (2, 4), (4, 3)]))
    dynamic = {"x": {0: n}}
    free = mo.compile(lambda x, y, z: mo.einsum("ab,bc,cd->ad", x, y, z), dynamic=dynamic)
    check(free(a, b, c), a.numpy() @ b.numpy() @ c.numpy())
    capped = mo.compile(lambda x, y, z: mo.einsum("ab,bc,cd->ad", x, y, z, optimize=False, memory_limit="1 MB"),
                        dynamic=dynamic)
    with pytest.raises(MemoryError, match=r"\[einsum\]"):
        capped(a, b, c)


GRADIENTS = [
    ("ab,bc->ac", [(2, 3), (3, 4)]), ("ab,ab->a", [(2, 3), (2, 3)]), ("ab,bc,cd->da", [(2, 3), (3, 2), (2, 2)]),
    ("ii,ij->j", [(3, 3), (3, 2)]), ("a,b->ab", [(2,), (3,)]), ("...ij,...jk->...ik", [(2, 1, 2, 3), (2, 3, 2)]),
    ("ab,bc->ac", [(2, 1), (3, 4)]), ("abx,b->a", [(2, 3, 2), (3,)]), ("ab,bc,ca->", [(2, 3), (3, 2), (2, 2)]),
]


@pytest.mark.parametrize(("expression", "shapes"), GRADIENTS, ids=[text for text, _ in GRADIENTS])
def test_gradients(expression: str, shapes: list[tuple[int, ...]], rng: np.random.Generator) -> None:
    """Against central differences in float64, for every operand."""
    arrays = [rng.standard_normal(shape) for shape in shapes]
    weight = rng.standard_normal(np.einsum(expression, *arrays).shape)
    for which, array in enumerate(arrays):
        def loss(x: Any, which: int = which) -> Any:
            operands = [x if i == which else other for i, other in enumerate(arrays)]
            return mo.sum(mo.einsum(expression, *operands) * mo.asarray(weight))

        found = mo.grad(loss)(mo.asarray(array)).numpy()
        want = np.zeros_like(array)
        for place in np.ndindex(*array.shape):
            for sign in (1, -1):
                moved = array.copy()
                moved[place] += sign * 1e-5
                operands = [moved if i == which else other for i, other in enumerate(arrays)]
                want[place] += sign * np.sum(np.einsum(expression, *operands) * weight) / 2e-5
        assert np.allclose(found, want, rtol=1e-6, atol=1e-7)


# -- paths and errors ------------------------------------------------------------------------------------------------
def test_paths() -> None:
    """A thin first matrix goes first; the path can be given back, and a limit moves it."""
    a, b, c = mo.zeros((2, 30)), mo.zeros((30, 40)), mo.zeros((40, 50))
    order = mo.einsum_path("ab,bc,cd->ad", a, b, c)
    assert order.path == ((0, 1), (1, 0)) and order.largest_bytes == 4 * 2 * 40
    assert order.flops == 2 * 2 * 30 * 40 + 2 * 2 * 40 * 50
    other = mo.einsum_path("ab,bc,cd->ad", a, b, c, optimize=[(1, 2), (0, 1)])
    assert other.flops > order.flops and other.largest_bytes == 4 * 30 * 50
    for path in (order, order.path, ["einsum_path", (0, 1, 2)], "optimal"):
        assert mo.einsum_path("ab,bc,cd->ad", a, b, c, optimize=path).flops == order.flops
    alone = mo.einsum_path("ab->ba", a)
    assert alone.path == () and mo.einsum("ab->ba", a, optimize=alone).shape == (30, 2)
    shapes = [mo.zeros((2, 90)), mo.zeros((90, 2)), mo.zeros((2, 90))]
    free = mo.einsum_path("ab,bc,cd->", *shapes)
    assert mo.einsum_path("ab,bc,cd->", *shapes, memory_limit=free.largest_bytes).path == free.path
    with pytest.raises(MemoryError, match=r"\[einsum\] every order .* the smallest limit that works is 320 bytes"):
        mo.einsum("ab,bc,cd->ad", a, b, c, memory_limit=319)
    assert mo.einsum("ab,bc,cd->ad", a, b, c, memory_limit="320 B").shape == (2, 50)


@pytest.mark.parametrize("name", ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
                                  "float64"])
def test_intermediates_count_in_the_type_they_are_held_in(name: str) -> None:
    """The first product of this path is 9 x 9, and the widest node of that size has the bytes that count."""
    a, b, c = (mo.ones(shape, dtype=getattr(mo, name)) for shape in ((9, 3), (3, 9), (9, 2)))
    path = [(0, 1), (0, 1)]
    counted = mo.einsum_path("ab,bc,cd->ad", a, b, c, optimize=path).largest_bytes
    found = mo.einsum("ab,bc,cd->ad", a, b, c, optimize=path, memory_limit=counted)
    held = {81 * node.dtype.itemsize for node in graph_of(found).nodes if node.shape == (9, 9)}
    assert max(held) == counted == 81 * (4 if name == "bool" else getattr(mo, name).itemsize)
    with pytest.raises(MemoryError, match=f"takes {counted} bytes, the limit is {counted - 1}"):
        mo.einsum("ab,bc,cd->ad", a, b, c, optimize=path, memory_limit=counted - 1)


def test_the_search_counts_truth_values_as_they_are_held() -> None:
    """A cap that their bytes would keep to, and the numbers they become do not, moves the order or is refused."""
    a, b, c = (mo.ones(shape, dtype=mo.bool) for shape in ((2, 30), (30, 40), (40, 50)))
    with pytest.raises(MemoryError, match=r"the smallest limit that works is 320 bytes"):
        mo.einsum_path("ab,bc,cd->ad", a, b, c, memory_limit=319)
    assert mo.einsum_path("ab,bc,cd->ad", a, b, c, memory_limit=320).largest_bytes == 320


X, Y = mo.zeros((2, 3)), mo.zeros((4, 5))
ERRORS: list[tuple[str, type[Exception], Callable[[], Any]]] = [
    ("label 'b' has size 3 in operand 0 and 4 in operand 1", ValueError, lambda: mo.einsum("ab,bc", X, Y)),
    ("label 'i' has sizes 2 and 3 within operand 0", ValueError, lambda: mo.einsum("ii", X)),
    ("axis -1 of '...' has size 2 in operand 0 and 4", ValueError, lambda: mo.einsum("...a,...b", X, Y)),
    ("label '1' has size 3 in operand 0 and 4", ValueError, lambda: mo.einsum(X, [0, 1], Y, [1, 2])),
    ("the subscripts are for 2 operands, 1 are given", TypeError, lambda: mo.einsum("ab,bc", X)),
    ("the subscripts are for 1 operands, 2 are given", TypeError, lambda: mo.einsum("ab", X, Y)),
    ("has 2 dimensions, its subscripts 'abc' name 3", ValueError, lambda: mo.einsum("abc", X)),
    ("its subscripts '...abc' name 3", ValueError, lambda: mo.einsum("...abc", X)),
    ("its subscripts 'a' name 1", ValueError, lambda: mo.einsum("a", X)),
    ("output label 'c' stands in no operand", ValueError, lambda: mo.einsum("ab->c", X)),
    ("output label 'a' stands twice", ValueError, lambda: mo.einsum("ab->aa", X)),
    ("'1' in the subscripts 'a1' is not a letter", ValueError, lambda: mo.einsum("a1", X)),
    ("'.' in the subscripts 'a.b' is not a letter", ValueError, lambda: mo.einsum("a.b", X)),
    ("'-' in the subscripts 'ab-c' is not a letter", ValueError, lambda: mo.einsum("ab-c", X)),
    ("',' in the subscripts 'ab->a,b' is not a letter", ValueError, lambda: mo.einsum("ab->a,b", X)),
    ("more than one ellipsis", ValueError, lambda: mo.einsum("...a...", X)),
    ("more than one '->'", ValueError, lambda: mo.einsum("ab->a->b", X)),
    ("1 axes under '...', the output has no '...'", ValueError, lambda: mo.einsum("...a->a", X)),
    ("no subscripts and no operands", TypeError, lambda: mo.einsum()),
    ("without subscripts", TypeError, lambda: mo.einsum(X)),
    ("int stands where a list of labels should", TypeError, lambda: mo.einsum(X, 3)),
    ("'a' is neither an integer nor an Ellipsis", TypeError, lambda: mo.einsum(X, ["a", "b"])),
    ("the label -1 is negative", ValueError, lambda: mo.einsum(X, [0, -1])),
    ("more than one Ellipsis", ValueError, lambda: mo.einsum(X, [..., 0, ...])),
    ("str is not a tensor", TypeError, lambda: mo.einsum("a", "text")),
    ("optimize='best' is unknown", TypeError, lambda: mo.einsum("ab", X, optimize="best")),
    ("optimize=3 is no path", TypeError, lambda: mo.einsum("ab,cd", X, Y, optimize=3)),
    ("the path leaves 2 operands", TypeError, lambda: mo.einsum("ab,cd,ab", X, Y, X, optimize=[(0, 1)])),
    ("does not name different ones of 2 operands", TypeError, lambda: mo.einsum("ab,cd", X, Y, optimize=[(0, 2)])),
]


@pytest.mark.parametrize(("message", "kind", "call"), ERRORS, ids=[row[0] for row in ERRORS])
def test_errors(message: str, kind: type[Exception], call: Callable[[], Any]) -> None:
    """One sentence, on this line, of the class a NumPy user would catch."""
    with pytest.raises(kind) as error:
        call()
    assert str(error.value).startswith("[einsum] ") and message in str(error.value)
    assert "test_einsum.py:" in str(error.value)
