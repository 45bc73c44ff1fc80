"""`mo.special`: special functions, in float64 and rounded once, or in float32 with formulas of their own.

Slopes are with respect to the argument. With respect to the parameters of `gammainc`, `gammaincc`, `betainc`, `zeta`
and `polygamma` there are none: asking for them is an error.
"""

from __future__ import annotations

import math
from typing import Any

from morpho.base.dtypes import float64
from morpho.base.errors import ArgumentError, fail
from morpho.base.shapes import as_integer
from morpho.ir.node import Node, build
from morpho.tensor.autodiff.autograd import is_differentiated
from morpho.tensor.autodiff.precision import in_class
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions.elementwise import erf, erfc, exp2, expm1, log1p
from morpho.tensor.functions.neural.activations import log_softmax, logsumexp, sigmoid, softmax
from morpho.tensor.operands import broadcasted, promoted
from morpho.tensor.tools.foreign_calls import hint_calls
from morpho.tensor.tools.foreign_names import module_attribute

__all__ = ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "beta", "betainc", "betaln", "digamma", "entr", "erf",
           "erfc", "erfcinv", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc", "gammaln", "i0",
           "i0e", "i1", "i1e", "kl_div", "lgamma", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
           "multigammaln", "ndtr", "ndtri", "polygamma", "psi", "rel_entr", "softmax", "xlog1py", "xlogy", "zeta"]


def __dir__() -> list[str]:
    return __all__


def _nodes(name: str, *values: Any) -> list[Node]:
    nodes = [in_class(name, node) for node in promoted(name, *values, floating=True)]
    return broadcasted(name, *nodes)


def _of(name: str, *values: Any) -> Tensor:
    return Tensor.of_node(build(name, *_nodes(name, *values)))


def _fixed(name: str, **parameters: Any) -> None:
    """Refuse a gradient with respect to parameters."""
    for what, value in parameters.items():
        if isinstance(value, Tensor) and value.dtype.is_float and is_differentiated(value):
            raise fail(ArgumentError, name, f"it has no gradient with respect to {what}",
                       f"take {what}.detach() where the gradient may end")


# -- gamma ------------------------------------------------------------------------------------------------------------
def lgamma(x: Any, /) -> Tensor:
    """The logarithm of |gamma(x)|.

    >>> mo.special.lgamma([0.5, 1.0, 5.0]).tolist()
    [0.5723649263381958, 0.0, 3.178053855895996]
    """
    return _of("lgamma", x)


def gammaln(x: Any, /) -> Tensor:
    """SciPy's name of `lgamma`.

    >>> mo.special.gammaln([2.0, 3.0]).tolist()
    [0.0, 0.6931471824645996]
    """
    return _of("lgamma", x)


def digamma(x: Any, /) -> Tensor:
    """The slope of `lgamma`.

    >>> mo.special.digamma([1.0]).tolist()
    [-0.5772156715393066]
    """
    return _of("digamma", x)


def psi(x: Any, /) -> Tensor:
    """SciPy's name of `digamma`.

    >>> mo.special.psi([1.0]).tolist()
    [-0.5772156715393066]
    """
    return _of("digamma", x)


def polygamma(n: int, x: Any, /) -> Tensor:
    """The n-th derivative of `digamma`, for x > 0; for n of 0 and 1 also below.

    >>> mo.special.polygamma(1, [1.0]).tolist()
    [1.644934058189392]
    """
    order = as_integer(n, "polygamma", "n")
    if order < 0:
        raise fail(ArgumentError, "polygamma", f"there is no derivative {order}")
    if order == 0:
        return digamma(x)
    (node,) = _nodes("digamma", x)
    value = Tensor.of_node(node)
    if order == 1:
        return Tensor.of_node(build("trigamma", node))
    wide = ew.astype(value, float64)  # the factorial is large
    found = zeta(float(order + 1), wide) * ((-1.0) ** (order + 1) * math.factorial(order))
    return ew.astype(found, value.dtype)


def multigammaln(a: Any, d: int, /) -> Tensor:
    """The logarithm of the gamma function of d dimensions.

    >>> mo.special.multigammaln([3.0], 1).tolist()
    [0.6931471824645996]
    """
    count = as_integer(d, "multigammaln", "d")
    if count < 1:
        raise fail(ArgumentError, "multigammaln", f"{count} dimensions are not one or more")
    value = Tensor.of_node(_nodes("lgamma", a)[0])
    total = lgamma(value)
    for k in range(1, count):
        total = total + lgamma(value - k / 2)
    return total + count * (count - 1) / 4 * math.log(math.pi)


def betaln(a: Any, b: Any, /) -> Tensor:
    """The logarithm of |beta(a, b)|.

    >>> mo.special.betaln([2.0], [3.0]).tolist()
    [-2.4849066734313965]
    """
    first, second = (Tensor.of_node(node) for node in _nodes("lgamma", a, b))
    wide = [ew.astype(x, float64) for x in (first, second)]
    small, large = ew.minimum(*wide), ew.maximum(*wide)
    found = lgamma(small) + lgamma(large) - lgamma(small + large)
    found = ew.where(ew.logical_and(ew.equal(small, 0), ew.greater_equal(large, 0)), float("inf"), found)
    found = ew.where(ew.logical_and(ew.greater(small, 0), ew.isinf(large)), float("-inf"), found)
    far = ew.logical_and(ew.greater(small, 0), ew.logical_and(ew.greater_equal(large, 10.0), ew.isfinite(large)))
    found = ew.where(far, _betaln_far(ew.where(far, small, 1.0), ew.where(far, large, 10.0)), found)
    return ew.astype(found, first.dtype)


def _betaln_far(small: Tensor, large: Tensor) -> Tensor:
    """The same of a number and one from 10 on, by Stirling's formula: nearly all of two logarithms of the gamma
    function cancels, so that it is left out."""
    share = small / (small + large)
    rest = _stirling_rest(large) - _stirling_rest(small + large)
    one = lgamma(small) + small - small * ew.log(small + large) + (large - 0.5) * ew.log1p(ew.negative(share))
    both = _stirling_rest(ew.maximum(small, 10.0)) + 0.5 * math.log(2 * math.pi) - 0.5 * ew.log(large)
    both = both + (small - 0.5) * ew.log(share) + large * ew.log1p(ew.negative(share))
    return rest + ew.where(ew.greater_equal(small, 10.0), both, one)


def _stirling_rest(x: Tensor) -> Tensor:
    """lgamma(x) - ((x - 1 / 2) log(x) - x + log(2 pi) / 2), for x from 10 on: the series by Bernoulli's numbers."""
    inverse = 1.0 / x
    square = inverse * inverse
    found = square * (-3617 / 122400) + 1 / 156
    for term in (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12):
        found = found * square + term
    return found * inverse


def beta(a: Any, b: Any, /) -> Tensor:
    """gamma(a) gamma(b) / gamma(a + b), for positive numbers.

    >>> mo.special.beta([2.0], [3.0]).tolist()
    [0.0833333358168602]
    """
    first, second = (Tensor.of_node(node) for node in _nodes("lgamma", a, b))
    return ew.astype(ew.exp(betaln(ew.astype(first, float64), ew.astype(second, float64))), first.dtype)


def gammainc(a: Any, x: Any, /) -> Tensor:
    """The share of the gamma distribution of shape a that lies below x.

    >>> mo.special.gammainc([1.0], [2.0]).tolist()
    [0.8646647334098816]
    """
    _fixed("gammainc", a=a)
    return _of("gammainc", a, x)


def gammaincc(a: Any, x: Any, /) -> Tensor:
    """1 - gammainc(a, x), to its own last digits.

    >>> mo.special.gammaincc([1.0], [2.0]).tolist()
    [0.1353352814912796]
    """
    _fixed("gammaincc", a=a)
    return _of("gammaincc", a, x)


def betainc(a: Any, b: Any, x: Any, /) -> Tensor:
    """The share of the beta distribution of shapes a and b that lies below x.

    >>> mo.special.betainc([2.0], [3.0], [0.5]).tolist()
    [0.6875]
    """
    _fixed("betainc", a=a, b=b)
    return _of("betainc", a, b, x)


def zeta(s: Any, q: Any = 1.0, /) -> Tensor:
    """The sum of (q + k)**-s over k = 0, 1, ..., for s > 1: Riemann's with q = 1, Hurwitz's otherwise.

    >>> mo.special.zeta([2.0]).tolist()
    [1.644934058189392]
    """
    _fixed("zeta", s=s)
    return _of("zeta", s, q)


# -- normal distribution ----------------------------------------------------------------------------------------------
def erfinv(x: Any, /) -> Tensor:
    """y with erf(y) = x.

    >>> mo.special.erfinv([0.0, 0.5, 1.0]).tolist()
    [0.0, 0.4769362807273865, inf]
    """
    return _of("erfinv", x)


def erfcinv(x: Any, /) -> Tensor:
    """y with erfc(y) = x.

    >>> mo.special.erfcinv([0.5]).tolist()
    [0.4769362807273865]
    """
    return _of("erfcinv", x)


def erfcx(x: Any, /) -> Tensor:
    """exp(x**2) erfc(x), which does not underflow.

    >>> mo.special.erfcx([0.0, 100.0]).tolist()
    [1.0, 0.005641613621264696]
    """
    return _of("erfcx", x)


def ndtr(x: Any, /) -> Tensor:
    """The share of the normal distribution below x.

    >>> mo.special.ndtr([0.0, 1.0]).tolist()
    [0.5, 0.8413447141647339]
    """
    return _of("ndtr", x)


def ndtri(x: Any, /) -> Tensor:
    """The number below which a share x of the normal distribution lies.

    >>> mo.special.ndtri([0.5, 0.975]).tolist()
    [0.0, 1.959964394569397]
    """
    return _of("ndtri", x)


def log_ndtr(x: Any, /) -> Tensor:
    """log(ndtr(x)), also where that underflows.

    >>> mo.special.log_ndtr([0.0, -100.0]).tolist()
    [-0.6931471824645996, -5005.5244140625]
    """
    return _of("log_ndtr", x)


# -- Bessel functions -------------------------------------------------------------------------------------------------
def i0(x: Any, /) -> Tensor:
    """The modified Bessel function of order 0.

    >>> mo.special.i0([0.0, 1.0]).tolist()
    [1.0, 1.2660658359527588]
    """
    return _of("i0", x)


def i0e(x: Any, /) -> Tensor:
    """exp(-|x|) i0(x).

    >>> mo.special.i0e([0.0, 1.0]).tolist()
    [1.0, 0.46575960516929626]
    """
    return _of("i0e", x)


def i1(x: Any, /) -> Tensor:
    """The modified Bessel function of order 1.

    >>> mo.special.i1([0.0, 1.0]).tolist()
    [0.0, 0.5651590824127197]
    """
    return _of("i1", x)


def i1e(x: Any, /) -> Tensor:
    """exp(-|x|) i1(x).

    >>> mo.special.i1e([0.0, 1.0]).tolist()
    [0.0, 0.207910418510437]
    """
    return _of("i1e", x)


def bessel_j0(x: Any, /) -> Tensor:
    """The Bessel function of the first kind of order 0.

    >>> mo.special.bessel_j0([0.0, 1.0]).tolist()
    [1.0, 0.7651976943016052]
    """
    return _of("bessel_j0", x)


def bessel_j1(x: Any, /) -> Tensor:
    """The Bessel function of the first kind of order 1.

    >>> mo.special.bessel_j1([0.0, 1.0]).tolist()
    [0.0, 0.44005057215690613]
    """
    return _of("bessel_j1", x)


def bessel_y0(x: Any, /) -> Tensor:
    """The Bessel function of the second kind of order 0; NaN below 0.

    >>> mo.special.bessel_y0([1.0]).tolist()
    [0.08825696259737015]
    """
    return _of("bessel_y0", x)


def bessel_y1(x: Any, /) -> Tensor:
    """The Bessel function of the second kind of order 1; NaN below 0.

    >>> mo.special.bessel_y1([1.0]).tolist()
    [-0.7812128067016602]
    """
    return _of("bessel_y1", x)


# -- logarithms -------------------------------------------------------------------------------------------------------
def expit(x: Any, /) -> Tensor:
    """SciPy's name of `mo.sigmoid`.

    >>> mo.special.expit([0.0]).tolist()
    [0.5]
    """
    return sigmoid(x)


def logit(x: Any, /, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of `mo.sigmoid`; with `eps` x is kept that far from 0 and 1.

    >>> mo.special.logit([0.5, 1.0]).tolist()
    [0.0, inf]
    """
    value = Tensor.of_node(_nodes("logit", x)[0])
    if eps is not None:
        value = ew.clip(value, eps, 1 - eps)
    return Tensor.of_node(build("logit", value.node))


def xlogy(x: Any, y: Any, /) -> Tensor:
    """x log(y), and 0 where x is 0 and y is no NaN.

    >>> mo.special.xlogy([0.0, 2.0], [0.0, 1.0]).tolist()
    [0.0, 0.0]
    """
    return _times_log(x, y, 0.0)


def xlog1py(x: Any, y: Any, /) -> Tensor:
    """x log(1 + y), and 0 where x is 0 and y is no NaN.

    >>> mo.special.xlog1py([0.0, 2.0], [-1.0, 0.0]).tolist()
    [0.0, 0.0]
    """
    return _times_log(x, y, 1.0)


def _times_log(x: Any, y: Any, added: float) -> Tensor:
    a, b = (Tensor.of_node(node) for node in _nodes("log", x, y))
    none = ew.logical_and(ew.equal(a, 0), ew.logical_not(ew.isnan(b)))
    inside = ew.where(none, 1.0 - added, b)  # where the logarithm is 0, and its slope is not asked for
    found = a * (ew.log1p(inside) if added else ew.log(inside))
    return ew.where(none, 0.0, found)


def entr(x: Any, /) -> Tensor:
    """-x log(x); 0 at 0 and -inf below.

    >>> mo.special.entr([0.0, 1.0, -1.0]).tolist()
    [0.0, -0.0, -inf]
    """
    value = Tensor.of_node(_nodes("log", x)[0])
    safe = ew.where(ew.less_equal(value, 0), 1.0, value)
    found = ew.negative(safe * ew.log(safe))
    return ew.where(ew.less(value, 0), float("-inf"), ew.where(ew.equal(value, 0), 0.0, found))


def rel_entr(x: Any, y: Any, /) -> Tensor:
    """x log(x / y); 0 where x is 0 and y not negative, inf where they are no shares.

    >>> mo.special.rel_entr([0.0, 1.0, 1.0], [1.0, 1.0, 0.0]).tolist()
    [0.0, 0.0, inf]
    """
    a, b = (Tensor.of_node(node) for node in _nodes("log", x, y))
    return ew.astype(_rel_entr(ew.astype(a, float64), ew.astype(b, float64)), a.dtype)


def _rel_entr(a: Tensor, b: Tensor) -> Tensor:
    inside = ew.logical_and(ew.greater(a, 0), ew.greater(b, 0))
    first, second = ew.where(inside, a, 1.0), ew.where(inside, b, 1.0)
    ratio = first / second
    near = ew.logical_and(ew.greater(ratio, 0.5), ew.less(ratio, 2.0))
    usual = ew.logical_and(ew.greater(ratio, 1e-300), ew.less(ratio, 1e300))  # else it may have lost its digits
    found = ew.where(usual, ew.log(ew.where(usual, ratio, 1.0)), ew.log(first) - ew.log(second))
    found = first * ew.where(near, ew.log1p(ew.where(near, (first - second) / second, 0.0)), found)
    none = ew.logical_and(ew.equal(a, 0), ew.greater_equal(b, 0))
    found = ew.where(inside, found, ew.where(none, 0.0, float("inf")))
    return ew.where(ew.logical_or(ew.isnan(a), ew.isnan(b)), a + b, found)


def kl_div(x: Any, y: Any, /) -> Tensor:
    """x log(x / y) - x + y, element by element (`mo.nn.kl_div` is PyTorch's loss).

    >>> mo.special.kl_div([1.0, 0.0], [1.0, 2.0]).tolist()
    [0.0, 2.0]
    """
    a, b = (Tensor.of_node(node) for node in _nodes("log", x, y))
    first, second = ew.astype(a, float64), ew.astype(b, float64)
    return ew.astype(_rel_entr(first, second) - first + second, a.dtype)


hint_calls(globals(), __all__)
__getattr__ = module_attribute("special", __name__)  # a hint for names of other libraries
