"""`mo.stats`, `mo.signal` and `mo.ndimage` beside SciPy's functions, called with the same arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import morpho as mo

pytest.importorskip("scipy")
import scipy.ndimage
import scipy.signal
import scipy.stats

RNG = np.random.default_rng(5)
X = np.concatenate([RNG.normal(size=7) * 2, [0.0, 0.5, 1.0, 3.0, -1.0]])
Q = np.array([0.0, 0.01, 0.3, 0.5, 0.77, 0.999, 1.0, -0.5])
K = np.array([-1.0, 0.0, 1.0, 2.5, 3.0, 4.0, 7.0, 30.0])
LINE, OTHER, EVEN = RNG.normal(size=40), RNG.normal(size=9), RNG.normal(size=6)
PLANE, SMALL, KERNEL = RNG.normal(size=(9, 11)), RNG.normal(size=(3, 3)), RNG.normal(size=(2, 3))
LONG, MORE = RNG.normal(size=(2, 700)), RNG.normal(size=(2, 700))
SECTIONS = scipy.signal.butter(3, 0.3, output="sos")
TIES = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5])
SHAPES: dict[str, tuple[float, ...]] = {
    "norm": (), "uniform": (), "expon": (), "laplace": (), "logistic": (), "cauchy": (), "gumbel_r": (), "gumbel_l": (),
    "halfnorm": (), "halfcauchy": (), "rayleigh": (), "t": (3.5,), "chi2": (3.0,), "gamma": (2.5,), "invgamma": (3.5,),
    "beta": (2.0, 3.5), "f": (3.0, 7.0), "lognorm": (0.7,), "pareto": (2.5,), "weibull_min": (1.7,),
    "truncnorm": (-1.0, 2.5), "triang": (0.3,), "gennorm": (1.5,), "vonmises": (1.2,), "wrapcauchy": (0.4,)}
COUNTS: dict[str, tuple[float, ...]] = {
    "poisson": (2.5,), "bernoulli": (0.3,), "binom": (7, 0.4), "nbinom": (4, 0.4), "geom": (0.3,),
    "betabinom": (7, 2.0, 3.0), "randint": (1, 6), "hypergeom": (20, 7, 12)}


def _peaks(signal: Any, t: Callable[[Any], Any]) -> list[Any]:
    """Places and measures of peaks under conditions of every kind."""
    steps = np.round(LINE * 2) / 2  # with plateaus
    results: list[Any] = []
    for line, conditions in (
            (LINE, {}), (LINE, {"height": 0.2, "distance": 3}), (LINE, {"prominence": (0.5, None), "wlen": 9}),
            (LINE, {"width": (1.0, 3.0), "rel_height": 0.7}), (LINE, {"threshold": (0.1, 2.0)}),
            (steps, {"plateau_size": 1, "height": (None, 1.0)}), (LINE[:2], {})):
        places, measured = signal.find_peaks(t(line), **conditions)
        results += [places, *[measured[name] for name in sorted(measured)]]
    places = signal.find_peaks(t(LINE))[0]
    return [*results, *signal.peak_prominences(t(LINE), places), *signal.peak_widths(t(LINE), places)]


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    with mo.settings(device="reference"):
        yield


def agree(ours: Any, theirs: Any, tolerance: float = 1e-10) -> None:
    if isinstance(theirs, tuple | list):
        assert len(ours) == len(theirs)
        for own, other in zip(ours, theirs, strict=True):
            agree(own, other, tolerance)
        return
    assert np.shape(ours) == np.shape(theirs)
    np.testing.assert_allclose(np.asarray(ours), theirs, rtol=tolerance, atol=tolerance / 100, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SHAPES)
def test_continuous(name: str) -> None:
    ours, theirs, shapes = getattr(mo.stats, name), getattr(scipy.stats, name), SHAPES[name]
    x = mo.asarray(X)
    for loc, scale in ((0.0, 1.0), (0.4, 2.0)):
        for method in ("logpdf", "pdf", *(("cdf", "sf") if name != "vonmises" else ())):
            agree(getattr(ours, method)(x, *shapes, loc, scale), getattr(theirs, method)(X, *shapes, loc, scale), 1e-8)
        if ours.family.ppf is not None:
            for method in ("ppf", "isf") if loc else ("ppf",):
                agree(getattr(ours, method)(mo.asarray(Q), *shapes, loc, scale), getattr(theirs, method)(
                    Q, *shapes, loc, scale), 1e-7)
        if ours.family.moments is not None:
            agree(ours.mean(*map(mo.float64, shapes), loc=loc, scale=mo.float64(scale)),
                  theirs.mean(*shapes, loc=loc, scale=scale), 1e-8)
            agree(ours.var(*map(mo.float64, shapes), loc=loc, scale=mo.float64(scale)),
                  theirs.var(*shapes, loc=loc, scale=scale), 1e-8)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    ours, theirs, shapes = getattr(mo.stats, name), getattr(scipy.stats, name), COUNTS[name]
    for loc in (0, 1):
        for method in ("pmf", "logpmf", *(("cdf", "sf") if ours.family.cdf is not None else ())):
            agree(getattr(ours, method)(mo.asarray(K), *shapes, loc), getattr(theirs, method)(K, *shapes, loc), 1e-8)
    agree(ours.mean(*map(mo.float64, shapes)), theirs.mean(*shapes))
    agree(ours.var(*map(mo.float64, shapes)), theirs.var(*shapes))


COV = np.array([[2.0, 0.3], [0.3, 1.0]])
SHARES = np.array([0.2, 0.3, 0.5])
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "multivariate_normal": lambda s, t: s.stats.multivariate_normal.logpdf(t(PLANE[:, :2]), t(np.ones(2)), t(COV)),
    "multivariate_normal frozen": lambda s, t: s.stats.multivariate_normal(t(np.ones(2)), t(COV)).pdf(t(PLANE[0, :2])),
    "multivariate_normal line": lambda s, t: s.stats.multivariate_normal.pdf(t(LINE), 0.5, 2.0),
    "dirichlet": lambda s, t: s.stats.dirichlet.logpdf(t(SHARES), t(np.array([1.0, 2.0, 3.5]))),
    "multinomial": lambda s, t: s.stats.multinomial.logpmf(t(np.array([[1, 2, 3], [2, 2, 1]])), 6, t(SHARES)),
    "frozen": lambda s, t: (s.stats.norm(0.5, 2.0).logcdf(t(X)), s.stats.gamma(2.0, scale=3.0).pdf(t(X))),
    "words": lambda s, t: s.stats.beta.logpdf(t(X), a=2.0, b=t(np.array(3.0)), loc=0.1, scale=2.0),
    "logsf": lambda s, t: (s.stats.norm.logsf(t(X * 10)), s.stats.norm.interval(t(np.array(0.95)))),
    **{f"rankdata {method}": lambda s, t, method=method: s.stats.rankdata(t(TIES), method)
       for method in ("average", "min", "max", "dense", "ordinal")},
    "rankdata axis": lambda s, t: s.stats.rankdata(t(np.round(PLANE)), axis=1),
    "mode": lambda s, t: tuple(s.stats.mode(t(np.round(PLANE)), axis=1)), "sem": lambda s, t: (
        s.stats.sem(t(PLANE)), s.stats.sem(t(PLANE), axis=1, ddof=0), s.stats.sem(t(PLANE), axis=None)),
    "moments": lambda s, t: (s.stats.skew(t(PLANE)), s.stats.kurtosis(t(PLANE), axis=1, fisher=False), s.stats.skew(
        t(LINE), bias=False), s.stats.kurtosis(t(LINE), bias=False), s.stats.moment(t(LINE), 3)),
    "zscore": lambda s, t: s.stats.zscore(t(PLANE), axis=1, ddof=1), "gmean": lambda s, t: (s.stats.gmean(
        t(np.abs(PLANE))), s.stats.hmean(t(np.abs(LINE))), s.stats.iqr(t(PLANE)), s.stats.iqr(t(PLANE), axis=0)),
    "entropy": lambda s, t: (s.stats.entropy(t(SHARES)), s.stats.entropy(t(SHARES), t(SHARES[::-1].copy()), base=2)),
    "pearsonr": lambda s, t: tuple(s.stats.pearsonr(t(LINE[:9]), t(OTHER))),
    "spearmanr": lambda s, t: tuple(s.stats.spearmanr(t(LINE[:9]), t(OTHER))),
    "linregress": lambda s, t: tuple(s.stats.linregress(t(LINE[:9]), t(OTHER))),
    "ttests": lambda s, t: (tuple(s.stats.ttest_ind(t(LINE), t(OTHER))), tuple(s.stats.ttest_ind(
        t(LINE), t(OTHER), equal_var=False)), tuple(s.stats.ttest_1samp(t(LINE), 0.3)), tuple(s.stats.ttest_rel(
            t(LINE[:9]), t(OTHER)))),
    "chisquare": lambda s, t: tuple(s.stats.chisquare(t(np.array([16.0, 18, 16, 14, 12, 12])))),
    "gaussian_kde": lambda s, t: (s.stats.gaussian_kde(t(LINE))(t(X)), s.stats.gaussian_kde(t(PLANE[:2]), "silverman").
                                  logpdf(t(PLANE[2:4])), s.stats.gaussian_kde(t(LINE), 0.4, t(np.abs(LINE))).evaluate(
                                      t(X)), s.stats.gaussian_kde(t(LINE)).integrate_box_1d(-1.0, 1.0)),
    **{f"{name} {mode}": lambda s, t, name=name, mode=mode: (
        getattr(s.signal, name)(t(LINE), t(OTHER), mode), getattr(s.signal, name)(t(LINE), t(EVEN), mode),
        getattr(s.signal, name)(t(OTHER), t(LINE), mode), getattr(s.signal, name)(t(PLANE), t(KERNEL), mode))
       for name in ("convolve", "fftconvolve", "correlate") for mode in ("full", "same", "valid")},
    "convolve long": lambda s, t: (s.signal.convolve(t(LONG[0]), t(MORE[0])), s.signal.convolve(
        t(TIES), t(TIES[:3])), s.signal.correlate(t(LINE + 1j), t(OTHER * 1j), "same")),
    **{f"{name} {mode} {boundary}": lambda s, t, name=name, mode=mode, boundary=boundary: (
        getattr(s.signal, name)(t(PLANE), t(SMALL), mode, boundary), getattr(s.signal, name)(
            t(PLANE), t(KERNEL), mode, boundary, 0))
       for name in ("convolve2d", "correlate2d") for mode in ("full", "same", "valid")
       for boundary in ("fill", "wrap", "symm")},
    "detrend": lambda s, t: (s.signal.detrend(t(PLANE)), s.signal.detrend(t(PLANE), axis=0, type="constant"),
                             s.signal.detrend(t(LINE), bp=[10, 25])),
    "welch": lambda s, t: s.signal.welch(t(LONG), fs=10.0), "welch more": lambda s, t: s.signal.welch(
        t(LONG), 2.0, "hamming", 101, 20, 128, detrend="linear", scaling="spectrum", average="median"),
    "welch axis": lambda s, t: s.signal.welch(t(LONG.T), axis=0, return_onesided=False, nperseg=64),
    "csd": lambda s, t: s.signal.csd(t(LONG), t(MORE), nperseg=99), "coherence": lambda s, t: s.signal.coherence(
        t(LONG[0]), t(MORE[0]), nperseg=128), "periodogram": lambda s, t: s.signal.periodogram(t(LONG[0]), 3.0),
    "stft": lambda s, t: s.signal.stft(t(LONG), 2.0, nperseg=65), "stft more": lambda s, t: s.signal.stft(
        t(LONG[0]), window="blackman", nperseg=64, noverlap=48, boundary=None, padded=False),
    "istft": lambda s, t: s.signal.istft(t(scipy.signal.stft(LONG[0], nperseg=64)[2]), 2.0, nperseg=64),
    "spectrogram": lambda s, t: s.signal.spectrogram(t(LONG[0]), 5.0),
    "hilbert": lambda s, t: s.signal.hilbert(t(LINE)),
    "windows": lambda s, t: tuple(s.signal.get_window(w, 9, fft) for fft in (True, False) for w in (
        "hann", "hamming", "blackman", "nuttall", "blackmanharris", "flattop", "boxcar", "bartlett", "cosine",
        ("gaussian", 2.0), ("kaiser", 3.0), ("tukey", 0.4))),
    "lfilter": lambda s, t: (s.signal.lfilter([0.2, 0.3], [1.0, -0.5, 0.1], t(PLANE)), s.signal.lfilter(
        [0.5], [2.0, 0.5], t(PLANE), axis=0), s.signal.lfilter([0.2, 0.3], [1.0, -0.5], t(LINE),
                                                               zi=t(np.array([0.5])))),
    "savgol": lambda s, t: (s.signal.savgol_coeffs(7, 3), s.signal.savgol_coeffs(5, 2, deriv=1)),
    "resample": lambda s, t: (s.signal.resample(t(LINE), 25), s.signal.resample(t(LINE), 64), s.signal.resample(
        t(PLANE), 6, axis=1)), "medfilt": lambda s, t: (s.signal.medfilt(t(LINE), 5), s.signal.medfilt(t(PLANE), 3)),
    **{f"map_coordinates {mode} {order}": lambda s, t, mode=mode, order=order: s.ndimage.map_coordinates(
        t(PLANE), t(np.stack([X * 4 + 0.3, X[::-1] * 5 - 0.2])), order=order, mode=mode, cval=-2.0)
       for mode in ("constant", "nearest", "reflect", "mirror", "wrap", "grid-wrap") for order in (0, 1, 3)
       if (mode, order) != ("nearest", 3)},
    "map_coordinates nearest 3": lambda s, t: s.ndimage.map_coordinates(t(PLANE), t(np.stack([X * 2, X + 3])),
                                                                        mode="nearest"),
    **{f"spline {mode} {order}": lambda s, t, mode=mode, order=order: s.ndimage.spline_filter(t(PLANE), order,
                                                                                             mode=mode)
       for mode, order in (("mirror", 5), ("grid-wrap", 4), ("mirror", 2))},
    "splines": lambda s, t: (s.ndimage.shift(t(PLANE), (1.3, -0.5)), s.ndimage.zoom(t(PLANE), 1.7, order=2),
                             s.ndimage.rotate(t(PLANE), 30.0, order=5)),
    "map_coordinates grid-constant": lambda s, t: s.ndimage.map_coordinates(
        t(PLANE), t(np.stack([X * 4 + 0.3, X[::-1] * 5 - 0.2])), mode="grid-constant", cval=1.5),
    "sosfilt": lambda s, t: (s.signal.sosfilt(SECTIONS, t(LINE)), s.signal.sosfilt(SECTIONS, t(PLANE), axis=0)),
    "peaks": lambda s, t: _peaks(s.signal, t),
    "affine": lambda s, t: (s.ndimage.affine_transform(t(PLANE), t(np.array([[0.9, 0.2], [-0.1, 1.1]])), [0.5, -0.3],
                                                       order=1), s.ndimage.shift(t(PLANE), (1.5, -0.5), order=1),
                            s.ndimage.zoom(t(PLANE), 1.7, order=1), s.ndimage.rotate(t(PLANE), 30.0, order=1),
                            s.ndimage.rotate(t(PLANE), 30.0, reshape=False, order=1)),
    **{f"filters {mode}": lambda s, t, mode=mode: (
        s.ndimage.gaussian_filter(t(PLANE), 1.3, mode=mode), s.ndimage.uniform_filter(t(PLANE), 4, mode=mode),
        s.ndimage.sobel(t(PLANE), 0, mode=mode), s.ndimage.prewitt(t(PLANE), mode=mode),
        s.ndimage.laplace(t(PLANE), mode=mode), s.ndimage.correlate(t(PLANE), t(KERNEL), mode=mode),
        s.ndimage.convolve(t(PLANE), t(KERNEL), mode=mode), s.ndimage.convolve1d(t(PLANE), t(EVEN), 0, mode=mode),
        s.ndimage.median_filter(t(PLANE), 3, mode=mode), s.ndimage.maximum_filter(t(PLANE), (2, 3), mode=mode))
       for mode in ("reflect", "constant", "nearest", "mirror", "wrap")},
    "gaussian order": lambda s, t: s.ndimage.gaussian_filter(t(PLANE), 1.3, order=(1, 2)),
    "center_of_mass": lambda s, t: s.ndimage.center_of_mass(t(np.abs(PLANE))),
    "footprint": lambda s, t: s.ndimage.minimum_filter(t(PLANE), footprint=np.eye(3)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_the_same_as_scipy(name: str) -> None:
    agree(CALLS[name](mo, mo.asarray), CALLS[name](scipy, np.asarray), 1e-7)
