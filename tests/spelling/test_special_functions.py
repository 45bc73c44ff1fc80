"""`mo.special` beyond its own ops: each function within its bound of mpmath, and slopes that agree with differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import mpmath as mp
import numpy as np
import pytest

import morpho as mo
from morpho.spelling.table import _SPECIAL

RNG = np.random.default_rng(8)
WIDE = np.concatenate([10 ** RNG.uniform(-4, 2, 9), RNG.uniform(0.1, 9, 9)])
BOTH = np.concatenate([WIDE, -WIDE])
UNIT = RNG.uniform(0.02, 0.98, 9)
A, B = RNG.uniform(0.4, 8, 9), RNG.uniform(0.4, 8, 9)
SMALL = RNG.uniform(-0.9, 0.9, 9)
S = mo.special


@pytest.fixture(autouse=True)
def _interpreted(request: pytest.FixtureRequest) -> Iterator[None]:
    """Functions composed of ops are interpreted, which needs no compilation: ops are compared with it elsewhere."""
    with mo.settings(device="cpu" if "native" in request.node.name else "reference"):
        yield


def dawson(x: Any) -> Any:
    return mp.sqrt(mp.pi) / 2 * mp.exp(-x * x) * mp.erfi(x)


def owens(h: Any, a: Any) -> Any:
    return mp.quad(lambda t: mp.exp(-h * h * (1 + t * t) / 2) / (1 + t * t), [0, a / 2, a]) / (2 * mp.pi)


def spherical(n: int) -> Callable[[Any], Any]:
    return lambda x: mp.sqrt(mp.pi / 2 / x) * mp.besselj(n + mp.mpf(1) / 2, x)


def share(a: Any, b: Any, x: Any) -> Any:
    return mp.betainc(a, b, 0, x, regularized=True)


def gamma_share(a: Any, x: Any) -> Any:
    return mp.gammainc(a, 0, x, regularized=True)


# name -> (function, mpmath's, relative bound, arguments); the bound is of the value, or of 1e-2 where that is smaller
CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], float, tuple[Any, ...]]] = {
    "exp1": (S.exp1, mp.e1, 1e-14, (WIDE,)), "expi": (S.expi, mp.ei, 1e-14, (BOTH,)),
    "expn": (lambda x: S.expn(3, x), lambda x: mp.expint(3, x), 4e-14, (WIDE,)),
    "si": (lambda x: S.sici(x)[0], mp.si, 2e-15, (BOTH,)), "ci": (lambda x: S.sici(x)[1], mp.ci, 1e-13, (WIDE,)),
    "shi": (lambda x: S.shichi(x)[0], mp.shi, 2e-15, (BOTH,)),
    "chi": (lambda x: S.shichi(x)[1], mp.chi, 1e-14, (WIDE,)),
    "fresnel s": (lambda x: S.fresnel(x)[0], mp.fresnels, 2e-15, (BOTH,)),
    "fresnel c": (lambda x: S.fresnel(x)[1], mp.fresnelc, 2e-15, (BOTH,)),
    "dawsn": (S.dawsn, dawson, 2e-15, (BOTH,)), "erfi": (S.erfi, mp.erfi, 2e-15, (SMALL * 3,)),
    "spence": (S.spence, lambda x: mp.re(mp.polylog(2, 1 - x)), 2e-15, (WIDE,)),
    "owens_t": (S.owens_t, owens, 1e-14, (A / 2, B)),
    "k0": (S.k0, lambda x: mp.besselk(0, x), 4e-15, (WIDE,)), "k1": (S.k1, lambda x: mp.besselk(1, x), 4e-15, (WIDE,)),
    "k0e": (S.k0e, lambda x: mp.exp(x) * mp.besselk(0, x), 4e-15, (WIDE,)),
    "k1e": (S.k1e, lambda x: mp.exp(x) * mp.besselk(1, x), 4e-15, (WIDE,)),
    "kn": (lambda x: S.kn(3, x), lambda x: mp.besselk(3, x), 1e-14, (WIDE,)),
    "ellipk": (S.ellipk, mp.ellipk, 2e-15, (SMALL,)), "ellipe": (S.ellipe, mp.ellipe, 4e-15, (SMALL,)),
    "ellipkm1": (S.ellipkm1, lambda p: mp.ellipk(1 - p), 1e-13, (10 ** RNG.uniform(-20, 0, 9),)),
    "agm": (S.agm, mp.agm, 2e-15, (A, B)),
    "hyp1f1": (S.hyp1f1, mp.hyp1f1, 1e-13, (A, B, RNG.uniform(-50, 50, 9))),
    "hyp1f1 far": (S.hyp1f1, mp.hyp1f1, 1e-13, (A, B, RNG.uniform(110, 300, 9) * np.sign(SMALL))),
    "hyp2f1": (S.hyp2f1, mp.hyp2f1, 1e-13, (A / 2, B / 2, A + 1, SMALL)),
    "hyp2f1 far": (S.hyp2f1, mp.hyp2f1, 1e-12, (A / 2, B / 2, A + 1, -20 * UNIT)),
    "hyp0f1": (S.hyp0f1, mp.hyp0f1, 1e-13, (A, B)),
    "gammaincinv": (lambda a, p: S.gammainc(a, S.gammaincinv(a, p)), lambda a, p: p, 1e-14, (A, UNIT)),
    "gammainccinv": (lambda a, p: S.gammaincc(a, S.gammainccinv(a, p)), lambda a, p: p, 1e-14, (A, UNIT)),
    "betaincinv": (lambda a, b, p: S.betainc(a, b, S.betaincinv(a, b, p)), lambda a, b, p: p, 1e-14, (A, B, UNIT)),
    "betainccinv": (lambda a, b, p: S.betaincc(a, b, S.betainccinv(a, b, p)), lambda a, b, p: p, 1e-13, (A, B, UNIT)),
    "betaincc": (S.betaincc, lambda a, b, x: share(b, a, 1 - x), 1e-13, (A, B, UNIT)),
    "bdtr": (lambda p: S.bdtr(3, 9, p), lambda p: share(6, 4, 1 - p), 1e-13, (UNIT,)),
    "bdtrc": (lambda p: S.bdtrc(3, 9, p), lambda p: share(4, 6, p), 1e-13, (UNIT,)),
    "nbdtr": (lambda p: S.nbdtr(3, 9, p), lambda p: share(9, 4, p), 1e-13, (UNIT,)),
    "nbdtrc": (lambda p: S.nbdtrc(3, 9, p), lambda p: share(4, 9, 1 - p), 1e-13, (UNIT,)),
    "pdtr": (lambda m: S.pdtr(3, m), lambda m: 1 - gamma_share(4, m), 1e-13, (A,)),
    "pdtrc": (lambda m: S.pdtrc(3, m), lambda m: gamma_share(4, m), 1e-13, (A,)),
    "chdtr": (S.chdtr, lambda v, x: gamma_share(v / 2, x / 2), 1e-13, (A, B)),
    "chdtrc": (S.chdtrc, lambda v, x: 1 - gamma_share(v / 2, x / 2), 1e-13, (A, B)),
    "chdtri": (lambda v, p: S.chdtrc(v, S.chdtri(v, p)), lambda v, p: p, 1e-13, (A, UNIT)),
    "gdtr": (lambda b, x: S.gdtr(2.0, b, x), lambda b, x: gamma_share(b, 2 * x), 1e-13, (A, B)),
    "gdtrc": (lambda b, x: S.gdtrc(2.0, b, x), lambda b, x: 1 - gamma_share(b, 2 * x), 1e-13, (A, B)),
    "fdtr": (S.fdtr, lambda n, d, x: share(n / 2, d / 2, n * x / (n * x + d)), 1e-13, (A, B, UNIT * 3)),
    "fdtrc": (S.fdtrc, lambda n, d, x: share(d / 2, n / 2, d / (n * x + d)), 1e-13, (A, B, UNIT * 3)),
    "fdtri": (lambda n, d, p: S.fdtr(n, d, S.fdtri(n, d, p)), lambda n, d, p: p, 1e-13, (A, B, UNIT)),
    "stdtr": (S.stdtr, lambda v, t: 1 - share(v / 2, mp.mpf(1) / 2, v / (v + t * t)) / 2, 1e-13, (A, B)),
    "stdtrit": (lambda v, p: S.stdtr(v, S.stdtrit(v, p)), lambda v, p: p, 1e-13, (A, UNIT)),
    "eval_legendre": (lambda x: S.eval_legendre(5, x), lambda x: mp.legendre(5, x), 1e-13, (SMALL,)),
    "eval_chebyt": (lambda x: S.eval_chebyt(5, x), lambda x: mp.chebyt(5, x), 1e-13, (SMALL,)),
    "eval_chebyu": (lambda x: S.eval_chebyu(5, x), lambda x: mp.chebyu(5, x), 1e-13, (SMALL,)),
    "eval_chebyc": (lambda x: S.eval_chebyc(5, x), lambda x: 2 * mp.chebyt(5, x / 2), 1e-13, (SMALL,)),
    "eval_chebys": (lambda x: S.eval_chebys(5, x), lambda x: mp.chebyu(5, x / 2), 1e-13, (SMALL,)),
    "eval_sh_legendre": (lambda x: S.eval_sh_legendre(4, x), lambda x: mp.legendre(4, 2 * x - 1), 1e-13, (UNIT,)),
    "eval_sh_chebyt": (lambda x: S.eval_sh_chebyt(4, x), lambda x: mp.chebyt(4, 2 * x - 1), 1e-13, (UNIT,)),
    "eval_sh_chebyu": (lambda x: S.eval_sh_chebyu(4, x), lambda x: mp.chebyu(4, 2 * x - 1), 1e-13, (UNIT,)),
    "eval_hermite": (lambda x: S.eval_hermite(5, x), lambda x: mp.hermite(5, x), 1e-13, (SMALL,)),
    "eval_hermitenorm": (lambda x: S.eval_hermitenorm(4, x), lambda x: x**4 - 6 * x**2 + 3, 1e-13, (SMALL,)),
    "eval_laguerre": (lambda x: S.eval_laguerre(5, x), lambda x: mp.laguerre(5, 0, x), 1e-13, (SMALL,)),
    "eval_genlaguerre": (lambda x: S.eval_genlaguerre(5, 0.5, x), lambda x: mp.laguerre(5, 0.5, x), 1e-13, (SMALL,)),
    "assoc_laguerre": (lambda x: S.assoc_laguerre(x, 3, 2), lambda x: mp.laguerre(3, 2, x), 1e-13, (SMALL,)),
    "eval_gegenbauer": (lambda x: S.eval_gegenbauer(5, 0.7, x), lambda x: mp.gegenbauer(5, mp.mpf(0.7), x), 1e-13,
                        (SMALL,)),
    "eval_jacobi": (lambda x: S.eval_jacobi(5, 0.3, 0.6, x), lambda x: mp.jacobi(5, mp.mpf(0.3), mp.mpf(0.6), x), 1e-13,
                    (SMALL,)),
    "lpmv": (lambda x: S.lpmv(2, 4, x), lambda x: mp.legenp(4, 2, x), 1e-13, (SMALL,)),
    "lpmn": (lambda x: S.lpmn(2, 4, x)[0][1, 3], lambda x: mp.legenp(3, 1, x), 1e-13, (SMALL,)),
    "lpmn slope": (lambda x: S.lpmn(2, 4, x)[1][1, 3], lambda x: mp.diff(lambda t: mp.legenp(3, 1, t), x), 1e-13,
                   (SMALL,)),
    "lpmn_values": (lambda x: S.lpmn_values(2, 4, x, True)[2, 3],
                    lambda x: mp.sqrt(7 / (4 * mp.pi) / 120) * mp.legenp(3, 2, x), 1e-13, (SMALL,)),
    "sph_harm_y": (lambda x: mo.imag(S.sph_harm_y(3, -2, x, 0.5)), lambda x: mp.im(mp.spherharm(3, -2, x, mp.mpf(0.5))),
                   1e-13, (UNIT,)),
    "jn": (lambda x: S.jn(4, x), lambda x: mp.besselj(4, x), 2e-14, (BOTH,)),
    "bessel_jn": (lambda x: S.bessel_jn(x, v=3)[2], lambda x: mp.besselj(2, x), 2e-14, (WIDE,)),
    "spherical_jn": (lambda x: S.spherical_jn(3, x), spherical(3), 2e-14, (WIDE,)),
    "rgamma": (S.rgamma, mp.rgamma, 1e-14, (BOTH[np.abs(BOTH) < 20],)),
    "loggamma": (S.loggamma, mp.loggamma, 1e-14, (A,)),
    "zetac": (S.zetac, lambda x: mp.zeta(x) - 1, 1e-14, (A + 1,)),
    "exprel": (S.exprel, lambda x: mp.expm1(x) / x, 2e-15, (SMALL,)),
    "powm1": (S.powm1, lambda x, y: mp.powm1(x, y), 1e-14, (A, B / 100)),
    "boxcox1p": (lambda x: S.boxcox1p(x, 0.5), lambda x: 2 * (mp.sqrt(1 + x) - 1), 1e-14, (A,)),
    "inv_boxcox1p": (lambda x: S.inv_boxcox1p(x, 0.5), lambda x: (1 + x / 2) ** 2 - 1, 1e-14, (A,)),
    "sindg": (S.sindg, lambda x: mp.sin(x * mp.pi / 180), 1e-13, (A * 40,)),
    "cosdg": (S.cosdg, lambda x: mp.cos(x * mp.pi / 180), 1e-13, (A * 40,)),
    "tandg": (S.tandg, lambda x: mp.tan(x * mp.pi / 180), 1e-13, (A * 9,)),
    "cotdg": (S.cotdg, lambda x: mp.cot(x * mp.pi / 180), 1e-13, (A * 9,)),
    "factorial2": (S.factorial2, lambda n: mp.fac2(n), 1e-12, (np.arange(12.0),)),
    "gamma": (S.gamma, mp.gamma, 1e-13, (BOTH[np.abs(BOTH) < 100],)),
    "poch": (S.poch, mp.rf, 1e-13, (A, B)), "beta": (S.beta, mp.beta, 1e-13, (A, B)),
    "factorial": (S.factorial, mp.factorial, 1e-13, (A,)),
}
WHOLE = {"bernoulli", "euler", "factorialk", "stirling2", "wofz", "lambertw", "voigt_profile", "fresnel", "sici",
         "shichi", *(name for name in _SPECIAL["polynomials"].split() if name.startswith("roots"))}


def exact(function: Callable[..., Any], arguments: tuple[Any, ...]) -> np.ndarray[Any, Any]:
    with mp.workdps(30):
        rows = zip(*[np.asarray(one, np.float64).tolist() for one in arguments], strict=True)
        return np.array([float(mp.re(function(*[mp.mpf(x) for x in row]))) for row in rows])


@pytest.mark.parametrize("name", CASES)
def test_values_are_within_their_bound(name: str) -> None:
    function, reference, bound, arguments = CASES[name]
    values = function(*[mo.asarray(one, dtype=mo.float64) for one in arguments]).numpy()
    truth = exact(reference, arguments)
    error = np.abs(values - truth) / np.maximum(np.abs(truth), 1e-2 if name in LOOSE else 1e-300)
    assert error.max() <= bound, (name, error.max(), [one[error.argmax()] for one in arguments])


@pytest.mark.parametrize("name", ["exp1", "jn", "hyp1f1", "owens_t"])
def test_native_values_are_within_their_bound(name: str) -> None:
    test_values_are_within_their_bound(name)


# near a zero of the function, or by recurrence from larger numbers, the error is of the size of those
LOOSE = {"si", "ci", "jn", "bessel_jn", "spherical_jn", "expi", "chi", "sindg", "cosdg", "powm1", "rgamma", "loggamma",
         *(name for name in CASES if name.startswith(("eval", "lpm", "sph", "assoc", "hyp")))}
SLOPES: dict[str, tuple[float, ...]] = {
    "exp1": (1.3,), "expi": (-0.7,), "expn": (2.4,), "si": (6.0,), "ci": (1.2,), "chi": (0.8,), "fresnel s": (1.1,),
    "fresnel c": (2.2,), "dawsn": (0.8,), "erfi": (0.5,), "spence": (1.7,), "owens_t": (0.7, 1.4), "k0": (1.1,),
    "k1e": (2.5,), "kn": (1.5,), "ellipk": (0.3,), "ellipe": (0.6,), "exprel": (0.4,), "eval_jacobi": (0.3,),
    "lpmn": (0.3,), "sph_harm_y": (0.7,), "jn": (2.2,), "spherical_jn": (1.2,), "rgamma": (1.4,),
}


@pytest.mark.parametrize("name", SLOPES)
def test_slopes_agree_with_differences(name: str) -> None:
    function = CASES[name][0]
    assert mo.testing.check_gradients(function, *[mo.asarray(x, dtype=mo.float64) for x in SLOPES[name]]) < 1e-6


@pytest.mark.parametrize("function", [lambda x: S.hyp1f1(1.2, 2.3, x), lambda x: S.hyp2f1(1.2, 0.3, 2.0, x),
                                      lambda x: S.gammaincinv(2.5, x), lambda x: S.gammainccinv(2.5, x),
                                      lambda x: S.betaincinv(2.5, 1.5, x), lambda x: S.stdtr(2.5, x),
                                      lambda x: S.stdtrit(2.5, x), lambda x: S.hyp0f1(2.5, x)])
def test_slopes_with_parameters(function: Callable[[Any], Any]) -> None:
    assert mo.testing.check_gradients(function, mo.asarray(0.4, dtype=mo.float64)) < 1e-6


def test_second_slopes() -> None:
    slope = mo.grad(mo.special.dawsn)
    assert mo.testing.check_gradients(slope, mo.asarray(0.8, dtype=mo.float64)) < 1e-6


def test_a_slope_of_a_parameter_is_an_error() -> None:
    with pytest.raises(mo.errors.ArgumentError, match="no gradient with respect to its parameters"):
        mo.grad(lambda a: S.hyp1f1(a, 2.0, 1.0))(mo.asarray(1.5))


DENSITIES: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "norm": (lambda x: mo.stats.norm.logpdf(x, 0.5, 2.0), lambda x: mp.log(mp.npdf(x, 0.5, 2)), 1e-14),
    "norm tail": (lambda x: mo.stats.norm.sf(x * 4), lambda x: mp.ncdf(-x * 4), 1e-13),
    "gamma": (lambda x: mo.stats.gamma.cdf(x, 2.5, scale=2.0), lambda x: gamma_share(2.5, x / 2), 1e-13),
    "beta": (lambda x: mo.stats.beta.cdf(x / 10, 2.0, 3.5), lambda x: share(2, 3.5, x / 10), 1e-12),
    "t": (lambda x: mo.stats.t.logpdf(x, 3.0), lambda x: mp.log(2 / (mp.pi * mp.sqrt(3) * (1 + x * x / 3)**2)), 1e-13),
    "cauchy": (mo.stats.cauchy.cdf, lambda x: mp.mpf(1) / 2 + mp.atan(x) / mp.pi, 1e-14),
    "poisson": (lambda x: mo.stats.poisson.logpmf(3, x), lambda x: 3 * mp.log(x) - x - mp.log(6), 1e-13),
    "chi2": (lambda x: mo.stats.chi2.sf(x, 3.0), lambda x: 1 - gamma_share(1.5, x / 2), 1e-13),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_distributions(name: str) -> None:
    function, reference, bound = DENSITIES[name]
    values, truth = function(mo.asarray(A, dtype=mo.float64)).numpy(), exact(reference, (A,))
    assert np.max(np.abs(values - truth) / np.maximum(np.abs(truth), 1e-300)) < bound
    assert mo.testing.check_gradients(function, mo.asarray(1.3, dtype=mo.float64)) < 1e-6


def test_parts_without_scipy() -> None:
    line = mo.asarray(np.sin(np.arange(64.0)))
    assert mo.signal.convolve([1, 2, 3], [0, 1], "same").tolist() == [0, 1, 2]
    frequencies, _, spectra = mo.signal.stft(line, nperseg=16)
    assert frequencies.shape == (9,) and np.allclose(mo.signal.istft(spectra, nperseg=16)[1][:64].numpy(), line.numpy())
    assert mo.ndimage.map_coordinates([[0.0, 1.0], [2.0, 3.0]], [[0.5], [0.25]], order=1).tolist() == [1.25]
    image = mo.asarray([[0.0, 1.0], [2.0, 5.0]], dtype=mo.float64)
    assert mo.testing.check_gradients(lambda p: mo.ndimage.map_coordinates(image, [p, p], order=1),
                                      mo.asarray([0.3], dtype=mo.float64)) < 1e-6
    assert mo.stats.rankdata([10, 30, 20, 20]).tolist() == [1.0, 4.0, 2.5, 2.5]
    assert tuple(float(one) for one in mo.stats.mode(mo.asarray([1, 2, 2, 1, 3]))) == (1.0, 2.0)
    assert mo.stats.norm(1.0, 2.0).mean().item() == 1.0 and mo.scipy.stats is mo.stats
    for call, text in ((lambda: mo.stats.norm.pdf(1.0, 2, 3, 4), "takes at most 3 positional arguments but 4 were"),
                       (lambda: mo.stats.beta.pdf(0.5, 2.0), "misses the argument 'b'"),
                       (lambda: mo.stats.norm.pdf(0.5, mean=2.0), "unexpected keyword argument 'mean'"),
                       (lambda: mo.ndimage.zoom(mo.ones((2, 2)), 2, order=6), "order=6 is not one of 0 to 5"),
                       (lambda: mo.signal.find_peaks(mo.ones((2, 2))), "a signal of 2 axes has no peaks"),
                       (lambda: mo.signal.sosfilt(mo.ones((2, 5)), mo.ones(4)), "are not rows of 6"),
                       (lambda: mo.signal.convolve([1], [2], "all"), "use 'full', 'same' or 'valid'")):
        with pytest.raises((mo.errors.ArgumentError, mo.errors.ShapeError), match=text):
            call()


def test_complex_functions() -> None:
    z = RNG.uniform(-5, 5, 12) + 1j * RNG.uniform(-2, 5, 12)
    truth = np.array([complex(mp.exp(-mp.mpc(x) ** 2) * mp.erfc(-1j * mp.mpc(x))) for x in z])
    assert np.max(np.abs(S.wofz(mo.asarray(z)).numpy() / truth - 1)) < 1e-12
    for k in (0, -1, 2):
        truth = np.array([complex(mp.lambertw(complex(x), k)) for x in z])
        assert np.max(np.abs(S.lambertw(mo.asarray(z), k).numpy() / truth - 1)) < 1e-13
    assert S.voigt_profile(0.0, 1.0, 0.5).item() == pytest.approx(float(
        mp.erfc(mp.sqrt(0.125)) * mp.exp(0.125) / mp.sqrt(2 * mp.pi)), rel=1e-6)


def test_numbers_and_quadratures() -> None:
    assert S.bernoulli(6).tolist() == pytest.approx([1, -0.5, 1 / 6, 0, -1 / 30, 0, 1 / 42])
    assert S.euler(6).tolist() == [1, 0, -1, 0, 5, 0, -61]
    assert S.stirling2(5, 2) == 15 and S.factorialk(9, 3, exact=True) == 162 and S.factorial2(9, exact=True) == 945
    for name, weight, total in (("legendre", 2, 2 / 3), ("hermite", np.sqrt(np.pi), np.sqrt(np.pi) / 2),
                                ("hermitenorm", np.sqrt(2 * np.pi), np.sqrt(2 * np.pi)), ("laguerre", 1, 2),
                                ("chebyt", np.pi, np.pi / 2), ("chebyu", np.pi / 2, np.pi / 8)):
        nodes, weights, mu = getattr(S, f"roots_{name}")(5, mu=True)
        assert mu == pytest.approx(weight) and float((weights * nodes * nodes).sum()) == pytest.approx(total)


def test_dtypes_shapes_and_ends() -> None:
    assert S.exp1(mo.ones(3)).dtype is mo.float32 and S.exp1(2).dtype is mo.float32
    assert S.owens_t(1.0, mo.ones((2, 1), dtype=mo.float64)).dtype is mo.float64
    assert S.exp1([0.0, -1.0, np.inf]).tolist()[0] == np.inf and np.isnan(S.exp1(-1.0).item())
    assert S.expi([-np.inf, 0.0]).tolist() == [-0.0, -np.inf] and S.expn(2, 0.0).item() == 1.0
    assert S.ellipk([1.0]).item() == np.inf and np.isnan(S.ellipk(2.0).item()) and S.spence(0.0).item() > 1.64
    assert mo.vmap(S.dawsn)(mo.ones((2, 3))).shape == (2, 3) and S.expn([1, 2], 1.0).shape == (2,)
    with pytest.raises(mo.errors.ArgumentError, match=r"exp1\(\) takes 1 positional argument but 2 were given"):
        S.exp1(1.0, 2.0)


def test_every_name_is_called() -> None:
    names = {name for names in _SPECIAL.values() for name in names.split()}
    assert not names - set(CASES) - WHOLE
