"""Special functions against mpmath's values, which are stored (`python -m benchmarks.special_values` makes them)."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError, DTypeError

VALUES: dict[str, list[list[float]]] = json.loads((Path(__file__).parent / "special_values.json").read_text())
# float64: as many last places as measured, and some; near zeros of a function its error is that of values of size 0.1
PLACES = {"lgamma": 8, "digamma": 32, "erfcx": 4, "erfinv": 4, "ndtr": 4, "log_ndtr": 6, "ndtri": 4, "i0": 4, "i0e": 4,
          "i1": 16, "i1e": 16, "bessel_j0": 16, "bessel_j1": 16, "bessel_y0": 64, "bessel_y1": 64, "zeta": 6,
          "gammainc": 128, "gammaincc": 128, "betainc": 128, "polygamma": 8}
SCALE = {"lgamma": 0.1, "digamma": 0.1, "bessel_j0": 0.1, "bessel_j1": 0.1, "bessel_y0": 0.1, "bessel_y1": 0.1}


def call(name: str, rows: np.ndarray, dtype: Any) -> np.ndarray:
    columns = [rows[:, k].astype(dtype) for k in range(rows.shape[1] - 1)]
    if name == "polygamma":
        orders = rows[:, 0].astype(int)
        return np.array([mo.special.polygamma(int(n), x[None]).item() for n, x in zip(orders, columns[1], strict=True)])
    return getattr(mo.special, name)(*[mo.asarray(c) for c in columns]).numpy()


@pytest.mark.parametrize("name", VALUES)
def test_against_stored_values(name: str) -> None:
    rows = np.array(VALUES[name])
    wanted = rows[:, -1]
    found = call(name, rows, np.float64)
    error = np.abs(found - wanted) / np.maximum(np.abs(wanted), SCALE.get(name, 0.0)) / np.finfo(np.float64).eps
    assert error.max() <= PLACES[name], (rows[error.argmax()], found[error.argmax()])
    narrow = call(name, rows, np.float32).astype(np.float32)
    with np.errstate(over="ignore"):
        places = np.abs(narrow.astype(np.float64) - wanted) / np.spacing(np.abs(wanted.astype(np.float32)))
    assert np.nanmax(places) <= 1.0, rows[np.nanargmax(places)]  # promised are 2


EDGES = {
    "lgamma": {0.0: math.inf, -1.0: math.inf, 1.0: 0.0, 2.0: 0.0, math.inf: math.inf, -math.inf: math.inf},
    "digamma": {0.0: -math.inf, -1.0: math.nan, math.inf: math.inf, -math.inf: math.nan},
    "erfcx": {0.0: 1.0, math.inf: 0.0, -math.inf: math.inf},
    "erfinv": {0.0: 0.0, 1.0: math.inf, -1.0: -math.inf, 1.5: math.nan},
    "ndtr": {0.0: 0.5, math.inf: 1.0, -math.inf: 0.0}, "log_ndtr": {math.inf: 0.0, -math.inf: -math.inf},
    "ndtri": {0.0: -math.inf, 0.5: 0.0, 1.0: math.inf, -0.1: math.nan},
    "i0": {0.0: 1.0, math.inf: math.inf, 1e30: math.inf},
    "i0e": {0.0: 1.0, math.inf: 0.0}, "i1": {0.0: 0.0, -math.inf: -math.inf}, "i1e": {0.0: 0.0, math.inf: 0.0},
    "bessel_j0": {0.0: 1.0, math.inf: 0.0}, "bessel_j1": {0.0: 0.0, math.inf: 0.0},
    "bessel_y0": {0.0: -math.inf, -1.0: math.nan, math.inf: 0.0},
    "bessel_y1": {0.0: -math.inf, -1.0: math.nan, math.inf: 0.0},
}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name: str) -> None:
    points = {**EDGES[name], math.nan: math.nan}
    for dtype in ("float32", "float64"):
        found = getattr(mo.special, name)(mo.asarray(list(points), dtype=dtype)).numpy()
        np.testing.assert_array_equal(found, np.array(list(points.values()), dtype))


def test_edges_of_several() -> None:
    inf, nan = math.inf, math.nan
    assert mo.digamma([-0.0]).tolist() == [inf]
    a, x = [0.0, 1.0, 1.0, inf, 1.0, -1.0, 0.0], [1.0, 0.0, inf, 1.0, nan, 1.0, 0.0]
    np.testing.assert_array_equal(mo.special.gammainc(a, x).numpy(), [1, 0, 1, 0, nan, nan, nan])
    np.testing.assert_array_equal(mo.special.gammaincc(a, x).numpy(), [0, 1, 0, 1, nan, nan, nan])
    np.testing.assert_array_equal(mo.special.betainc([1.0, 1.0, 1.0, -1.0, 2.0, 0.0], [1.0, 1.0, 1.0, 1.0, 0.0, 2.0],
                                                     [0.0, 1.0, 1.5, 0.5, 0.5, 0.5]).numpy(), [0, 1, nan, nan, 0, 1])
    np.testing.assert_array_equal(mo.special.zeta([1.0, 0.5, 2.0, 2.0], [1.0, 1.0, 0.0, -0.5]).numpy(),
                                  [inf, nan, inf, nan])
    most = np.finfo(np.float64).max
    a = mo.asarray(np.array([0.5, 1.0, 150.0, 1e5, 3e5, 5e-324, most, 1e308, 1e308, 1e305, 1e308]))
    x = mo.asarray(np.array([1e308, most, 1e308, 1e308, most, most, most, 1e308, 9e307, 1e308, 1.7e308]))
    np.testing.assert_array_equal(mo.special.gammainc(a, x).numpy(), [1, 1, 1, 1, 1, 1, 0.5, 0.5, 0, 1, 1])
    np.testing.assert_array_equal(mo.special.gammaincc(a, x).numpy(), [0, 0, 0, 0, 0, 0, 0.5, 0.5, 1, 0, 0])
    large = mo.special.gammainc(mo.asarray([3e5, 1e8, 1e12]), mo.asarray([3e5, 1e8, 1e12])).numpy()
    np.testing.assert_allclose(large, [0.5002428, 0.5000133, 0.5000001], rtol=1e-6)


SHARES = [  # a, b, x, and the share of the beta distribution below x by mpmath, 50 digits
    (0.3850161434425999, 13.621069196671439, 0.35690813601100385, 0.9996282117967379),
    (84.55313477122425, 275.2503526855402, 0.2111236242873749, 0.14179635613464964),
    (45.16872308480642, 1.5578101262959683, 0.6726503933000887, 8.699556714662268e-08),
    (154.03449006647986, 287.96546814209023, 0.1509616830208827, 6.466122740592049e-25),
    (238.43805550048464, 4.253287371854412, 0.4076397222366829, 1.4653569125594114e-87),
    (273.4620765093197, 166.67349450249705, 0.1782897691234805, 1.3368001247388223e-94),
    (271.58791226745575, 37.40362526731908, 0.22280181412002178, 2.3880817149262365e-134),
    (218.32400316694165, 60.57345775183666, 0.1457279622450065, 6.505559238838127e-126)]


def test_betainc_in_its_tails() -> None:
    a, b, x, wanted = (np.array(column) for column in zip(*SHARES, strict=True))
    found = mo.special.betainc(mo.asarray(a), mo.asarray(b), mo.asarray(x)).numpy()
    assert (np.abs(found - wanted) <= 16 * np.spacing(wanted)).all()


MIDDLES = [  # the same of very large parameters within two standard deviations, by quadrature with mpmath, 80 digits
    (106797631721.79735, 98678581868372.27, 0.0010811077061951163, 0.5040495353009571),
    (16963367347.252422, 152548758177.207, 0.10007307788799126, 0.9702258300043007),
    (36590185332.64569, 109192194712.05211, 0.250994063138021, 0.9757318346754287),
    (944210318938670.5, 8952513608362.275, 0.9906075716558864, 0.5004543524598603),
    (2007907121889234.2, 1593934702769.2114, 0.9992067997636289, 0.055586820786977),
    (2.015193510927749e16, 2306134711839859.5, 0.8973137617021293, 0.5217244832199794),
    (3.4189400665806036e16, 246946088165139.38, 0.99282891158065, 0.5191782258471058),
    (432589217905.33936, 269056137275309.88, 0.0016052217700654992, 0.4712807279667858),
    (19198426376.12023, 7504065418773.352, 0.0025518473914804196, 0.06909663162861718)]


def test_betainc_of_very_large_parameters() -> None:
    a, b, x, wanted = (np.array(column) for column in zip(*MIDDLES, strict=True))
    found = mo.special.betainc(mo.asarray(a), mo.asarray(b), mo.asarray(x)).numpy()
    assert (np.abs(found - wanted) <= 16 * np.spacing(wanted)).all()


def test_betainc_of_parameters_at_their_ends() -> None:
    """Tiny and vast ones count by their quotient."""
    a = np.array([5e-324, 1e-300, 1e-310, 1e-310, 2.0, 1e9, 1e12, 1e20, 1.7e308, 1.7e308])
    b = np.array([5e-324, 3e-300, 2.0, 1e20, 1e-320, 1e9, 1e12, 1e20, 1.7e308, 1.7e308])
    x = np.array([0.5] * 9 + [0.4])
    found = mo.special.betainc(mo.asarray(a), mo.asarray(b), mo.asarray(x)).numpy()
    wanted = [0.5, 0.75, 1.0, 1.0, 1.9e-321, 0.5, 0.5, 0.5, 0.5, 0.0]
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-322)


BETALN = [-0.06169893734073618, 0.47008483055501254, -33.968820791977386, 20.723265814952782]


def test_what_nearly_cancels() -> None:
    """Values by mpmath, 50 digits."""
    a = mo.asarray(np.array([510631.9591958801, 0.3223048726665616, 20.0, 1e-9]))
    b = mo.asarray(np.array([0.14595246825343958, 5.850142877489007, 30.0, 2e9]))
    np.testing.assert_allclose(mo.special.betaln(a, b).numpy(), BETALN, rtol=3e-14)
    p = mo.asarray(np.array([0.5 + 2.0**-30, 0.5055938890702067, 0.45, 0.75, 0.1]))
    np.testing.assert_allclose(mo.special.logit(p).numpy(), 2 * np.arctanh(2 * p.numpy() - 1), rtol=4e-16 * 2)
    x, y = np.float32([0.0044456404, 0.037304953]), np.float32([0.004718137, 0.037381336])
    wide = x.astype(float) * np.log1p((x.astype(float) - y) / y) - x.astype(float) + y
    np.testing.assert_array_max_ulp(mo.special.kl_div(x, y).numpy(), wide.astype(np.float32), 1)
    assert mo.special.rel_entr(mo.asarray([1.0, 5e-324], dtype=mo.float64),
                               mo.asarray([5e-324, 2.0], dtype=mo.float64)).tolist() == [744.4400719213812, -3.68e-321]
    found = mo.special.betaln(mo.asarray([0.0, 0.0, 1.0, -0.5]), mo.asarray([0.0, 3.0, math.inf, 2.0])).tolist()
    assert found[:3] == [math.inf, math.inf, -math.inf] and found[3] == pytest.approx(math.log(4))


def test_by_their_definitions() -> None:
    x = np.linspace(-4, 4, 33)
    p = np.linspace(0.01, 0.99, 33)
    close = np.testing.assert_allclose
    close(mo.erf(mo.special.erfinv(mo.asarray(p))).numpy(), p, rtol=1e-14)
    close(mo.special.erfcinv(mo.asarray(2 * p)).numpy(), mo.special.erfinv(mo.asarray(1 - 2 * p)).numpy(), atol=1e-14)
    close(mo.special.expit(mo.special.logit(mo.asarray(p))).numpy(), p, rtol=1e-13)
    close(mo.special.beta(mo.asarray(p), 2.0).numpy(), 1 / (p * (p + 1)), rtol=1e-13)
    close(mo.special.multigammaln(mo.asarray(p + 3), 2).numpy(), math.log(math.pi) / 2 + np.array(
        [math.lgamma(v + 3) + math.lgamma(v + 2.5) for v in p]), rtol=1e-13)
    close(mo.special.kl_div(mo.asarray(p), 0.5).numpy(), p * np.log(p / 0.5) - p + 0.5, rtol=1e-12)
    close(mo.special.entr(mo.asarray(p)).numpy(), -p * np.log(p), rtol=1e-14)
    close(mo.xlogy(mo.asarray(x), 3.0).numpy(), x * math.log(3), rtol=1e-14)
    close(mo.special.xlog1py(mo.asarray(x), 0.5).numpy(), x * math.log1p(0.5), rtol=1e-14)
    close((mo.special.gammainc(2.5, mo.asarray(p)) + mo.special.gammaincc(2.5, mo.asarray(p))).numpy(), 1.0, rtol=1e-14)
    a, b = RNG_WHOLE
    np.testing.assert_array_equal(mo.gcd(a, b).numpy(), np.gcd(a, b))
    np.testing.assert_array_equal(mo.lcm(a, b).numpy(), np.lcm(a, b))


RNG_WHOLE = np.random.default_rng(3).integers(-400, 400, (2, 99))
SLOPES = {"lgamma": (0.2, 6), "digamma": (-2.9, 6), "erfcx": (-2, 4), "erfinv": (-0.9, 0.9), "ndtr": (-3, 3),
          "log_ndtr": (-9, 3),
          "ndtri": (0.05, 0.95), "i0": (-4, 4), "i0e": (-4, 4), "i1": (-4, 4), "i1e": (-4, 4), "bessel_j0": (-12, 12),
          "bessel_j1": (-12, 12), "bessel_y0": (0.3, 12), "bessel_y1": (0.3, 12), "logit": (0.1, 0.9), "entr": (0.1, 2)}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes(name: str) -> None:
    x = np.random.default_rng(5).uniform(*SLOPES[name], 9)
    function = getattr(mo.special, name)
    found = mo.grad(lambda v: function(v).sum())(mo.asarray(x)).numpy()
    step = 1e-5
    wanted = (function(mo.asarray(x + step)).numpy() - function(mo.asarray(x - step)).numpy()) / (2 * step)
    np.testing.assert_allclose(found, wanted, rtol=2e-7, atol=2e-8)


def test_slopes_of_several() -> None:
    x, step = np.linspace(0.1, 0.9, 7), 1e-6
    for function in (lambda v: mo.special.gammainc(1.7, v), lambda v: mo.special.gammaincc(0.6, v),
                     lambda v: mo.special.zeta(2.5, v),
                     lambda v: mo.special.betainc(1.5, 2.5, v), lambda v: mo.special.polygamma(2, v),
                     lambda v: mo.xlogy(v, v),
                     lambda v: mo.special.rel_entr(v, 1 - v)):
        found = mo.grad(lambda v, function=function: function(v).sum())(mo.asarray(x)).numpy()
        wanted = (function(mo.asarray(x + step)).numpy() - function(mo.asarray(x - step)).numpy()) / (2 * step)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
    assert mo.grad(lambda v: mo.xlogy(v, mo.asarray([0.0])).sum())(mo.asarray([0.0])).tolist() == [0.0]


def test_what_is_refused() -> None:
    for function in (lambda a: mo.special.gammainc(a, 1.0), lambda a: mo.special.zeta(a, 1.0),
                     lambda a: mo.special.betainc(1.0, a, 0.5)):
        with pytest.raises(ArgumentError, match="no gradient with respect to"):
            mo.grad(lambda a, function=function: function(a).sum())(mo.asarray([2.0]))
    with pytest.raises(ArgumentError, match="no derivative -1"):
        mo.special.polygamma(-1, 1.0)
    with pytest.raises(DTypeError, match="complex64 is not taken"):
        mo.lgamma([1j])
    with pytest.raises(DTypeError, match="not an integer"):
        mo.lcm([1.5], [2.0])


def test_native_and_the_same_beside_others() -> None:
    """One kernel, and an element has the bits that it has alone, also where others need more terms."""
    a = np.array([0.3, 5.0, 400.0, 9000.0, 2.0] * 7)
    x = np.array([0.1, 7.0, 390.0, 9100.0, 30.0] * 7)
    compiled = mo.compile(lambda a, x: mo.special.gammaincc(a, x) + mo.lgamma(a) * mo.special.bessel_j0(x), whole=True)
    together = compiled(mo.asarray(a), mo.asarray(x)).numpy()
    alone = [compiled(mo.asarray(a[i:i + 1]), mo.asarray(x[i:i + 1])).numpy()[0] for i in range(5)]
    np.testing.assert_array_equal(together[:5], alone)
    np.testing.assert_array_equal(together.reshape(7, 5), np.tile(together[:5], (7, 1)))


IN_FLOAT = {"erfinv": (-1, 1, 2), "erfcinv": (0, 2, 2), "ndtri": (0, 1, 2), "ndtr": (-15, 15, 2), "logit": (0, 1, 2),
            "erfc": (-4, 10.3, 3), "cbrt": (-1e30, 1e30, 1)}


@pytest.mark.parametrize("name", IN_FLOAT)
def test_float32_formulas_against_scipy(name: str) -> None:
    """Everyday arguments, those near both ends of the domain, and subnormal ones."""
    special = pytest.importorskip("scipy.special")
    low, high, limit = IN_FLOAT[name]
    random = np.random.default_rng(5)
    small = np.ldexp(random.uniform(1, 2, 4000), random.integers(-149, 0, 4000))
    x = np.concatenate([random.uniform(low, high, 4000), small, low + small, high - small]).astype(np.float32)
    x = x[(x >= low) & (x <= high)]
    found = (mo.cbrt if name == "cbrt" else getattr(mo.special, name))(mo.asarray(x)).numpy()
    with np.errstate(all="ignore"):
        wanted = getattr(special, name)(x.astype(np.float64))
        places = np.abs(found - wanted) / np.spacing(np.abs(wanted.astype(np.float32)).astype(np.float32))
    assert found.dtype == np.float32
    assert np.array_equal(np.isinf(found), np.isinf(wanted.astype(np.float32)))
    assert np.nanmax(np.where(np.isinf(wanted), 0.0, places)) <= limit
