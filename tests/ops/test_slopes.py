"""Gradients at the edges: NaN where the function has no derivative, its limit at an infinity, nothing hidden."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import DTypeError
from morpho.ir.node import build
from morpho.ir.op import ONE, REGISTRY, NoGradient
from morpho.tensor.core import Tensor

INF, NAN = math.inf, math.nan
EDGES = [-INF, -3e38, -200.0, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 100.0, 200.0, 3e38, INF, NAN]
UNARY = sorted(name for name, op in REGISTRY.items() if op.kind == "elementwise" and op.arity == ONE
               and not isinstance(op.vjp, NoGradient)
               and name not in ("negative", "cast", "sign", "real", "imag", "conj"))  # a step, and of complex numbers


OUTSIDE = {"log": (mo.log, 0.0), "log2": (mo.log2, 0.0), "log10": (mo.log10, 0.0), "log1p": (mo.log1p, -1.0),
           "atanh": (mo.atanh, -1.0), "acosh": (mo.acosh, 1.0)}  # functions and where their domains begin


@pytest.mark.parametrize("name", sorted(set(OUTSIDE) - {"acosh"}))
def test_slopes_outside_of_a_domain_do_not_come_through_where(name: str) -> None:
    """0 times the slope of the formula is 0: reverse mode has what forward mode has, and PyTorch and JAX."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch`")
    function, least = OUTSIDE[name]
    x = [least - 3.0, least - 0.5, least + 0.25, least + 0.5]
    for one in ways(lambda x: mo.where(x > least, function(x), 3 * x), mo.asarray(x)):
        assert one[:2] == [3, 3] and np.isfinite(one).all()
    there = torch.tensor(x, requires_grad=True)
    getattr(torch, name)(there).sum().backward()
    np.testing.assert_allclose(slopes(function, x), there.grad.numpy(), rtol=1e-5)


def test_slopes_of_a_determinant_of_a_singular_matrix() -> None:
    """The cofactors."""
    assert mo.grad(mo.linalg.det)(mo.asarray([[1.0, 2.0], [2.0, 4.0]])).tolist() == [[4, -2], [-2, 1]]
    assert mo.grad(mo.linalg.det)(mo.zeros((1, 1))).tolist() == [[1]]
    x = mo.asarray([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
    assert mo.grad(mo.linalg.det)(x).tolist() == [[-3, 6, -3], [6, -12, 6], [-3, 6, -3]]
    assert mo.hessian(mo.linalg.det)(mo.zeros((2, 2))).numpy().reshape(4, 4)[0].tolist() == [0, 0, 0, 1]


def cofactors(x: np.ndarray) -> np.ndarray:
    n = len(x)
    return np.array([[(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(x, i, 0), j, 1)) for j in range(n)]
                     for i in range(n)])


def test_slopes_of_a_determinant_of_a_larger_singular_matrix() -> None:
    """Of the first matrix PyTorch 2.13 has the values written here, of the second, whose elimination ends with a zero,
    zeros, and NaN of its second derivative."""
    x = np.array([[1.0, 2, 0, 1], [3, 1, 2, 0], [4, 3, 2, 1], [0, 1, 1, 2]])
    by_torch = [[-7, 7, 7, -7], [-7, 7, 7, -7], [7, -7, -7, 7], [0, 0, 0, 0]]
    np.testing.assert_allclose(mo.grad(mo.linalg.det)(mo.asarray(x)).numpy(), by_torch, atol=1e-13)
    x[1] = 2 * x[0]
    found = mo.grad(mo.linalg.det)(mo.asarray(x))
    np.testing.assert_allclose(found.numpy(), cofactors(x), atol=1e-13)
    assert np.abs(found.numpy()).max() > 3
    along = mo.asarray(np.arange(16.0).reshape(4, 4))
    assert mo.jvp(mo.linalg.det, (mo.asarray(x),), (along,))[1].item() == pytest.approx((found * along).sum().item())
    step = 1e-5 * along.numpy()
    change = (cofactors(x + step) - cofactors(x - step)) / 2e-5
    turned = mo.hessian(mo.linalg.det)(mo.asarray(x)).numpy()
    np.testing.assert_allclose((turned * along.numpy()).sum((2, 3)), change, atol=1e-6)


def test_slopes_of_determinants_some_of_them_zero() -> None:
    """A stack, rows, and compiled; of rank n - 2 there is no slope, and a regular matrix has the bits it has alone."""
    draw = np.random.default_rng(3).standard_normal((5, 5))
    stack = mo.asarray(np.stack([draw, np.diag([1.0, 2.0, 3.0, 4.0, 0.0]), np.diag([1.0, 2.0, 3.0, 0.0, 0.0])]))
    slope = mo.grad(lambda x: mo.linalg.det(x).sum())
    for one in (slope(stack), mo.compile(slope)(stack), mo.vmap(mo.grad(mo.linalg.det))(stack)):
        np.testing.assert_allclose(one.numpy(), [cofactors(x) for x in stack.numpy()], atol=1e-12)
    regular = mo.asarray(draw)
    assert mo.array_equal(mo.grad(mo.linalg.det)(regular), mo.linalg.det(regular) * mo.linalg.inv(regular).mT)
    x = np.array([[1, 1j, 0, 2], [1, 1j, 0, 2], [0, 1, 1 + 1j, 0], [2, 0, 1, 1]])
    found = mo.grad(lambda x: mo.real(mo.linalg.det(x)))(mo.asarray(x)).numpy()
    np.testing.assert_allclose(found, cofactors(x).conj(), atol=1e-12)


def test_slopes_of_a_norm_of_order_below_one() -> None:
    for x, want in (([0.0, 0.0], [0, 0]), ([0.0, 4.0], [0, 1])):
        assert mo.grad(lambda x: mo.linalg.vector_norm(x, ord=0.5))(mo.asarray(x)).tolist() == want


def slopes(function: object, values: object) -> list[float]:
    return mo.grad(lambda x: function(x).sum())(mo.asarray(values, dtype=mo.float32)).tolist()  # type: ignore[operator]


@pytest.mark.parametrize("name", UNARY)
def test_where_a_function_has_no_value_it_has_no_slope(name: str) -> None:
    def apply(x: Tensor) -> Tensor:
        return Tensor.of_node(build(name, x.node))

    values = apply(mo.asarray(EDGES)).tolist()
    for x, y, slope in zip(EDGES, values, slopes(apply, EDGES), strict=True):
        if name in (*OUTSIDE, "logit") and not math.isnan(x):
            continue  # the slope of the formula, as in other libraries (JAX for `logit`)
        assert math.isnan(slope) or not math.isnan(y), f"{name} at {x} is {y} and its slope {slope}"


@pytest.mark.parametrize(("function", "below", "above"), [
    (mo.silu, 0, 1), (mo.mish, 0, 1), (mo.gelu, 0, 1), (lambda x: mo.gelu(x, approximate="tanh"), 0, 1),
    (mo.softplus, 0, 1), (mo.sigmoid, 0, 0), (mo.tanh, 0, 0), (mo.erf, 0, 0), (mo.atan, 0, 0), (mo.elu, 0, 1),
    (lambda x: mo.selu(x) / 1.0507009873554805, 0, 1), (mo.relu, 0, 1), (mo.exp, 0, INF), (mo.asinh, 0, 0),
    (lambda x: mo.grad(lambda y: mo.gelu(y).sum())(x), 0, 0),
])
def test_the_slope_at_an_infinity_is_its_limit(function: object, below: float, above: float) -> None:
    for far in (INF, 3e38, 1e30, 200.0):
        found = slopes(function, [-far, far])
        assert found == pytest.approx([below, above], abs=1e-30 if far > 200 else 0.01), (far, found)


def test_powers() -> None:
    def exponent(base: float, power: float) -> float:
        return mo.grad(lambda y: mo.asarray(base) ** y)(mo.asarray(power)).item()

    assert math.isnan(exponent(-2.0, 2.0)) and math.isnan(exponent(-2.0, 0.5)) and math.isnan(exponent(-0.5, INF))
    assert math.isnan(mo.grad(lambda x: (-2.0) ** x)(mo.asarray(3.0)).item())
    assert exponent(0.0, 2.0) == exponent(0.0, 0.0) == exponent(INF, -1.0) == 0 and exponent(0.0, -1.0) == -INF
    assert exponent(2.0, 3.0) == pytest.approx(8 * math.log(2)) and exponent(INF, 1.0) == INF


def test_the_larger_of_a_number_and_nan() -> None:
    for function in (mo.maximum, mo.minimum):
        pair = mo.grad(lambda a, b, f=function: f(a, b).sum(), argnums=(0, 1))
        a, b = pair(mo.asarray([NAN, 1.0, 2.0, 3.0]), mo.asarray([1.0, NAN, 2.0, 4.0]))
        assert a.tolist()[:3] == [1, 1, 0.5] and b.tolist()[:3] == [1, 1, 0.5]
    assert a.tolist()[3] == 1 and b.tolist()[3] == 0
    assert slopes(mo.relu, [NAN, 0.0, -0.0, -1.0, 1.0]) == [1, 0, 0, 0, 1]  # at 0 as in PyTorch


def ways(function: Callable[..., mo.Tensor], x: mo.Tensor) -> list[list[float]]:
    """The slopes of an elementwise function in reverse and forward mode, compiled, per row, and in a loop."""
    gradient = mo.grad(lambda x: function(x).sum())
    return [gradient(x).tolist(), mo.jvp(function, (x,), (mo.ones_like(x),))[1].tolist(),
            mo.compile(gradient)(x).tolist(), mo.vmap(mo.grad(function))(x).tolist(),
            mo.compile(lambda x: mo.jvp(function, (x,), (mo.ones_like(x),))[1])(x).tolist(),
            mo.grad(lambda x: mo.fori_loop(0, 1, lambda i, c: function(c), x).sum())(x).tolist()]


@pytest.mark.parametrize("bound", [0.0, -0.0, 0, 2.0])
def test_ties_share_the_slope_whatever_the_bound_is_written_as(bound: float) -> None:
    """Numbers in the code, tensors, bounds of `clip`; before and after any rewriting."""
    x = mo.asarray([float(bound), bound - 1.0, bound + 1.0])
    for limit in (bound, mo.asarray(float(bound))):
        for one in ways(lambda x, b=limit: mo.maximum(x, b), x) + ways(lambda x, b=limit: mo.maximum(b, x), x):
            assert one == [0.5, 0, 1]
        for one in ways(lambda x, b=limit: mo.minimum(x, b), x) + ways(lambda x, b=limit: mo.clip(x, max=b), x):
            assert one == [0.5, 1, 0]
        for one in ways(lambda x, b=limit: mo.clip(x, b, bound + 1.0), x):
            assert one == [0.5, 0, 0.5]
    assert mo.compile(lambda x, b: mo.grad(lambda x: mo.maximum(x, b).sum())(x))(x, bound).tolist() == [0.5, 0, 1]
    assert all(one == [0, 0, 1] for one in ways(mo.relu, x - bound))


def test_relu_is_one_maximum_of_the_same_bits(rng: np.random.Generator) -> None:
    x = mo.asarray(np.array([NAN, INF, -INF, -0.0, 0.0, -2.0, 3.0, 1e-45], np.float32))
    for level in range(4):
        with mo.settings(level=level):
            assert mo.relu(x).numpy().tobytes() == mo.maximum(x, 0.0).numpy().tobytes()
    assert mo.relu(mo.asarray([-3, 4])).tolist() == [0, 4] and mo.relu(-3) == 0
    with pytest.raises(DTypeError, match="relu"):
        mo.relu(mo.asarray([1j]))


POOLS: dict[str, tuple[Callable[..., mo.Tensor], Callable[..., Any], tuple[int, ...]]] = {
    "1d": (lambda x: mo.max_pool1d(x, 2), lambda F, x: F.max_pool1d(x, 2), (2, 2, 9)),
    "overlapping": (lambda x: mo.max_pool2d(x, 3, stride=2, padding=1), lambda F, x: F.max_pool2d(x, 3, 2, 1),
                    (1, 2, 7, 8)),
    "dilated": (lambda x: mo.max_pool2d(x, 2, dilation=2), lambda F, x: F.max_pool2d(x, 2, dilation=2), (1, 2, 7, 8)),
    "large": (lambda x: mo.max_pool2d(x, 6), lambda F, x: F.max_pool2d(x, 6), (1, 2, 12, 13)),
    "ceil": (lambda x: mo.max_pool2d(x, 3, stride=2, ceil_mode=True),
             lambda F, x: F.max_pool2d(x, 3, 2, ceil_mode=True), (1, 2, 8, 8)),
    "indices": (lambda x: mo.max_pool2d(x, 2, return_indices=True)[0], lambda F, x: F.max_pool2d(x, 2), (1, 2, 4, 4)),
    "3d": (lambda x: mo.max_pool3d(x, 2), lambda F, x: F.max_pool3d(x, 2), (1, 1, 4, 4, 4)),
    "adaptive": (lambda x: mo.adaptive_max_pool2d(x, (2, 3)), lambda F, x: F.adaptive_max_pool2d(x, (2, 3)),
                 (1, 2, 5, 7)),
    "adaptive, alike": (lambda x: mo.adaptive_max_pool2d(x, 2), lambda F, x: F.adaptive_max_pool2d(x, 2), (1, 2, 4, 4)),
    "global": (mo.global_max_pool, lambda F, x: F.adaptive_max_pool2d(x, 1)[..., 0, 0], (2, 2, 3, 3)),
}


@pytest.mark.parametrize("name", POOLS)
def test_the_first_of_equal_elements_of_a_window_has_the_slope(name: str, rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch`")
    pool, peer, shape = POOLS[name]
    x = rng.integers(0, 3, shape).astype("f")
    there = torch.tensor(x, requires_grad=True)
    y = peer(torch.nn.functional, there)
    weights = rng.integers(1, 9, tuple(y.shape)).astype("f")
    (y * torch.tensor(weights)).sum().backward()
    want, x = there.grad.numpy(), mo.asarray(x)
    gradient = mo.grad(lambda x: (pool(x) * weights).sum())
    assert np.array_equal(gradient(x).numpy(), want) and np.array_equal(mo.compile(gradient)(x).numpy(), want)
    rows = mo.grad(lambda x: (mo.vmap(pool)(x) * weights).sum())(mo.expand_dims(x, axis=0))
    assert np.array_equal(rows.numpy()[0], want)
    along = rng.integers(1, 9, shape).astype("f")
    pushed = mo.jvp(lambda x: (pool(x) * weights).sum(), (x,), (mo.asarray(along),))[1]
    assert pushed.item() == (want * along).sum()
    assert np.isnan(gradient(x * NAN).numpy()).any()


def test_an_extreme_that_is_nan_hides_nothing() -> None:
    for function in (mo.max, mo.min):
        found = np.array(slopes(lambda x, f=function: f(x, axis=1), [[NAN, 1.0], [2.0, 2.0], [INF, 1.0]]))
        assert np.isnan(found[0]).all() and not np.isnan(found[1:]).any() and found[1].tolist() == [0.5, 0.5]


def test_the_rest_of_a_division() -> None:
    both = mo.grad(lambda a, b: mo.remainder(a, b).sum(), argnums=(0, 1))
    a, b = both(mo.asarray([0.5, 7.0, -7.0, INF]), mo.asarray([-INF, 3.0, 3.0, 2.0]))
    assert a.tolist() == [1] * 4 and b.tolist()[:3] == [1, -2, 3] and math.isnan(b.tolist()[3])


def test_a_product_without_one_of_its_factors() -> None:
    """The others, whatever the one is: a zero, an infinity, or one that makes the whole overflow."""
    for values, wanted in (([2.0, INF, 3.0], [INF, 6, INF]), ([-INF, 2, 3], [6, -INF, -INF]), ([0.0, 2, 3], [6, 0, 0]),
                           ([1e30, 1e30, 2.0], [2e30, 2e30, INF]), ([0.0, 0, 3], [0, 0, 0]), ([4.0], [1])):
        assert slopes(mo.prod, values) == pytest.approx(wanted), values
    x = np.array([[[2.0, INF], [3, 5]], [[7, 1], [0, 4]]], "f")
    found = mo.grad(lambda x: mo.prod(x, axis=(0, 2)).sum())(mo.asarray(x)).numpy()
    assert found[0, 0, 1] == 14 and found[1, 1, 0] == 60 and np.isinf(found[0, 0, 0])
    assert mo.grad(mo.prod)(mo.zeros((0,))).shape == (0,)
    assert mo.grad(lambda x: mo.grad(mo.prod)(x).sum())(mo.asarray([2.0, 3.0, 0.0])).tolist() == [3, 2, 5]
    dynamic = mo.compile(mo.grad(lambda x: mo.prod(x)), dynamic={"x": {0: mo.Dim("n", 1, 9)}})
    assert [dynamic(mo.asarray(v)).tolist() for v in ([2.0, INF], [2.0, 3, 4])] == [[INF, 2], [12, 8, 6]]


def test_running_products() -> None:
    assert slopes(mo.cumulative_prod, [2.0, INF, 3.0]) == [INF, 8, INF]  # at the infinity 2 + 2 * 3
    assert slopes(mo.cumulative_prod, [-INF, 2, 3]) == [9, -INF, -INF]
    assert slopes(mo.cumulative_prod, [2.0, 0, 3]) == [1, 8, 0]
    assert slopes(lambda x: mo.cumulative_prod(x)[:2], [2.0, 3, INF]) == [4, 2, 0]  # the last counts for nothing


def test_roots_of_nothing() -> None:
    """The slope of the root is infinite there; that of what is taken the root of, 0, decides, as in PyTorch."""
    norms = [lambda x, p=p: mo.linalg.vector_norm(x, ord=p) for p in (2, 3, 1.5)]
    for function in (mo.std, lambda x: mo.std(x, correction=1), mo.var):
        assert slopes(function, [2.0, 2, 2]) == slopes(function, [0.0, 0, 0]) == [0, 0, 0]
    for function in norms:
        assert slopes(function, [0.0, 0]) == [0, 0] and function(mo.zeros(2)).item() == 0
    rows = mo.grad(lambda x: mo.std(x, axis=1).sum())(mo.asarray([[1.0, 1], [1, 3]])).tolist()
    assert rows == [[0, 0], [-0.5, 0.5]] and math.isnan(slopes(mo.std, [NAN, 1.0])[0])


def test_infinite_sums_of_powers() -> None:
    for values, wanted in (([2.0, INF, 3.0], [0, 1, 0]), ([INF, INF, 1], [0.5, 0.5, 0]), ([-INF, -INF], [0, 0]),
                           ([-INF, 1.0], [0, 1])):
        assert slopes(mo.logsumexp, values) == wanted
    assert all(map(math.isnan, slopes(mo.logsumexp, [NAN, INF])))


def test_logaddexp_of_infinities_is_logsumexps() -> None:
    """What is masked out on both sides has no say; second slopes are those of the logistic function."""
    inf = math.inf
    pairs = [(-inf, -inf), (inf, inf), (-inf, 1.0), (inf, 1.0), (2.0, inf), (0.0, 0.0), (1.0, -2.0)]
    a, b = (mo.asarray(list(one), dtype="float64") for one in zip(*pairs, strict=True))
    found = mo.grad(lambda a, b: mo.sum(mo.logaddexp(a, b)), argnums=(0, 1))(a, b)
    want = mo.grad(lambda x: mo.sum(mo.logsumexp(x, axis=0)))(mo.stack([a, b])).numpy()
    assert np.allclose([one.numpy() for one in found], want, rtol=1e-14, atol=0)
    second = mo.grad(lambda a: mo.sum(mo.grad(lambda a: mo.sum(mo.logaddexp(a, b)))(a)))(a).numpy()
    share = want[0]
    assert np.allclose(second[2:], (share * (1 - share))[2:]) and np.isfinite(second).all()
    pushed = mo.jvp(lambda a: mo.logaddexp(a, b), (a,), (mo.ones_like(a),))[1].numpy()
    assert np.allclose(pushed, share)


@pytest.mark.parametrize("values", [(1, 2, 3, 0), (1, 1, 1, 0), (1, 2, 0, 0), (1, 1, 0, 0), (1, 2, 3, 1e-13)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_second_derivatives_of_determinants_of_singular_matrices(values: tuple[float, ...], turned: bool) -> None:
    """Those of a polynomial: minors of two rows and columns less. Factors with two equal values have no slopes."""
    left, right = (np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0] for seed in (1, 2))
    matrix = left @ np.diag(values) @ right if turned else np.diag(np.asarray(values, np.float64))
    found = mo.hessian(mo.linalg.det)(mo.asarray(matrix)).numpy()
    wanted = np.zeros((4, 4, 4, 4))
    for i, k in itertools.permutations(range(4), 2):
        for j, m in itertools.permutations(range(4), 2):
            rows, columns = ([n for n in range(4) if n not in pair] for pair in ((i, k), (j, m)))
            sign = (-1) ** (i + j + k + m) * (1 if (i < k) == (j < m) else -1)
            wanted[i, j, k, m] = sign * np.linalg.det(matrix[np.ix_(rows, columns)])
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_slogdet_of_a_singular_matrix_has_no_slope_and_others_of_the_stack_keep_theirs() -> None:
    x = mo.asarray(np.stack([np.eye(3) * 2, np.zeros((3, 3)), np.ones((3, 3))]))
    first, *others = mo.grad(lambda x: mo.sum(mo.linalg.slogdet(x)[1]))(x).numpy()
    assert (first == np.eye(3) / 2).all() and np.isnan(others).all()


@pytest.mark.parametrize("ord", [-1, -1.5, -2, -3])
@pytest.mark.parametrize("x", [[0.0, 1.0], [0.0, 0.0], [1.0, -2.0]])
def test_norms_of_negative_order_have_slope_0_where_an_element_is_0(ord: float, x: list[float]) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch`")
    there = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    torch.linalg.vector_norm(there, ord).backward()
    gradient = mo.grad(lambda x: mo.linalg.vector_norm(x, ord=ord))
    for one in (gradient, mo.compile(gradient), mo.jacfwd(lambda x: mo.linalg.vector_norm(x, ord=ord))):
        np.testing.assert_allclose(one(mo.asarray(np.asarray(x))).numpy(), there.grad.numpy(), rtol=1e-12)
