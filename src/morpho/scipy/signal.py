"""`mo.signal`: SciPy's convolutions, correlations, filters and spectra, on tensors, with gradients.

>>> from morpho.scipy import signal
>>> signal.convolve([1.0, 2.0, 3.0], [0.0, 1.0, 0.5], mode="same").tolist()
[1.0, 2.5, 4.0]
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, ShapeError, fail

MODES = ("full", "same", "valid")


def _inexact(x: Any) -> Any:
    x = mo.asarray(x)
    return x if x.dtype.is_inexact else x.astype(mo.float32)


def _pair(name: str, in1: Any, in2: Any, mode: str) -> tuple[Any, Any, Any]:
    """Both signals, and the dtype of the result where it is an integer's."""
    if mode not in MODES:
        raise fail(ArgumentError, name, f"mode {mode!r} is unknown", "use 'full', 'same' or 'valid'")
    first, second = mo.asarray(in1), mo.asarray(in2)
    if first.ndim != second.ndim:
        raise fail(ShapeError, name, f"signals of {first.ndim} and {second.ndim} axes do not fit",
                   "in1 and in2 have as many axes")
    dtype = mo.result_type(first, second)
    wide = dtype if dtype.is_inexact else mo.float64
    return first.astype(wide), second.astype(wide), dtype


def _centred(x: Any, shape: Sequence[int], axes: Sequence[int]) -> Any:
    key = [slice(None)] * x.ndim
    for axis, size in zip(axes, shape, strict=True):
        start = (x.shape[axis] - size) // 2
        key[axis] = slice(start, start + size)
    return x[tuple(key)]


def _cut(name: str, full: Any, first: Any, second: Any, mode: str, axes: Sequence[int]) -> Any:
    if mode == "full":
        return full
    if mode == "same":
        return _centred(full, [first.shape[axis] for axis in axes], axes)
    sizes = [first.shape[axis] - second.shape[axis] + 1 for axis in axes]
    turned = [second.shape[axis] - first.shape[axis] + 1 for axis in axes]
    if min(sizes) < 1 and min(turned) >= 1:
        sizes = turned
    if min(sizes) < 1:
        raise fail(ShapeError, name, "for mode 'valid' one signal is at least as large as the other along every axis")
    return _centred(full, sizes, axes)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """A convolution by Fourier transforms."""
    first, second, dtype = _pair("fftconvolve", in1, in2, mode)
    along = tuple(range(first.ndim)) if axes is None else tuple(
        axis % first.ndim for axis in ((axes,) if isinstance(axes, int) else axes))
    if first.ndim == 0:
        return first * second
    sizes = [first.shape[axis] + second.shape[axis] - 1 for axis in along]
    lengths = [_good_length(size) for size in sizes]
    if dtype.is_complex:
        product = mo.fft.ifftn(mo.fft.fftn(first, s=lengths, axes=along) * mo.fft.fftn(second, s=lengths, axes=along),
                               axes=along)
    else:
        spectra = [mo.fft.rfftn(one, s=lengths, axes=along) for one in (first, second)]
        product = mo.fft.irfftn(spectra[0] * spectra[1], s=lengths, axes=along)
    key: list[Any] = [slice(None)] * first.ndim
    for axis, size in zip(along, sizes, strict=True):
        key[axis] = slice(0, size)
    return _as(_cut("fftconvolve", product[tuple(key)], first, second, mode, along), dtype, True)


oaconvolve = fftconvolve


def _good_length(size: int) -> int:
    """The next number of factors 2, 3 and 5, which transforms are quick at."""
    while True:
        rest = size
        for factor in (2, 3, 5):
            while rest % factor == 0:
                rest //= factor
        if rest == 1:
            return size
        size += 1


def _as(x: Any, dtype: Any, by_transform: bool) -> Any:
    if dtype.is_inexact:
        return x.astype(dtype)
    return mo.round(x).astype(dtype) if not by_transform else x


def _direct(first: Any, second: Any) -> Any:
    """The whole convolution by sums: of each element of the smaller signal with the larger one."""
    if math.prod(second.shape) > math.prod(first.shape):
        first, second = second, first
    widths = [(size - 1, size - 1) for size in second.shape]
    wide = mo.pad(first, widths)
    shape = [a + b - 1 for a, b in zip(first.shape, second.shape, strict=True)]
    total: Any = None
    for place in np.ndindex(*second.shape):
        key = tuple(slice(size - 1 - at, size - 1 - at + count)
                    for size, at, count in zip(second.shape, place, shape, strict=True))
        part = wide[key] * second[place]
        total = part if total is None else total + part
    return total


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """A convolution of signals with as many axes: by sums where one is small, else by Fourier transforms."""
    first, second, dtype = _pair("convolve", in1, in2, mode)
    if method not in ("auto", "direct", "fft"):
        raise fail(ArgumentError, "convolve", f"method {method!r} is unknown", "use 'auto', 'direct' or 'fft'")
    if first.ndim == 0:
        return (first * second).astype(dtype)
    small = min(math.prod(first.shape), math.prod(second.shape))
    if first.ndim == 1 and method == "direct" and small > 64:
        full = mo.convolve(first, second)
    elif method == "direct" or (method == "auto" and small <= 64):
        full = _direct(first, second)
    else:
        full = fftconvolve(first, second)
    return _as(_cut("convolve", full, first, second, mode, range(first.ndim)), dtype, False)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """A correlation: the convolution with the second signal turned around and conjugated."""
    second = mo.asarray(in2)
    turned = mo.conj(mo.flip(second) if second.ndim else second)
    first = mo.asarray(in1)
    if mode == "valid" and first.ndim and any(a < b for a, b in zip(first.shape, second.shape, strict=False)):
        return mo.flip(mo.conj(convolve(second, mo.conj(mo.flip(first)), mode, method)))
    return convolve(in1, turned, mode, method)


def correlation_lags(in1_len: int, in2_len: int, mode: str = "full") -> Any:
    """The lags that the elements of `correlate` of two lines belong to."""
    lags = mo.arange(-in2_len + 1, in1_len)
    if mode == "full":
        return lags
    count = in1_len if mode == "same" else abs(in1_len - in2_len) + 1
    start = (in1_len + in2_len - 1 - count) // 2
    return lags[start:start + count]


_BOUNDARY = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


def convolve2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0) -> Any:
    first, second, dtype = _pair("convolve2d", in1, in2, mode)
    if boundary not in _BOUNDARY:
        raise fail(ArgumentError, "convolve2d", f"boundary {boundary!r} is unknown", "use 'fill', 'wrap' or 'symm'")
    if first.ndim != 2:
        raise fail(ShapeError, "convolve2d", f"a signal of {first.ndim} axes is not a plane")
    if mode == "valid" and any(a < b for a, b in zip(first.shape, second.shape, strict=True)):
        first, second = second, first
    if boundary == "fill" and fillvalue == 0:
        return _as(_cut("convolve2d", convolve(first, second), first, second, mode, (0, 1)), dtype, False)
    widths = [(size - 1, size - 1) for size in second.shape]
    options = {"value": fillvalue} if boundary == "fill" else {}
    wide = mo.pad(first, widths, mode=_BOUNDARY[boundary], **options)
    full = convolve(wide, second, "valid")
    return _as(_cut("convolve2d", full, first, second, mode, (0, 1)), dtype, False)


def correlate2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: float = 0) -> Any:
    first, second = mo.asarray(in1), mo.asarray(in2)
    if mode == "valid" and any(a < b for a, b in zip(first.shape, second.shape, strict=True)):
        return mo.flip(mo.conj(correlate2d(second, first, mode, boundary, fillvalue)))
    full = convolve2d(first, mo.conj(mo.flip(second)), "full" if mode == "same" else mode, boundary, fillvalue)
    if mode != "same":
        return full
    return full[tuple(slice(b // 2, b // 2 + a) for a, b in zip(first.shape, second.shape, strict=True))]


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: bool = False) -> Any:
    """The signal without its mean, or without its line by least squares, between breaks."""
    x = _inexact(data)
    if type in ("constant", "c"):
        return x - mo.mean(x, axis=axis, keepdims=True)
    if type not in ("linear", "l"):
        raise fail(ArgumentError, "detrend", f"type {type!r} is unknown", "use 'linear' or 'constant'")
    rows = mo.moveaxis(x, axis, -1)
    count = rows.shape[-1]
    breaks = sorted({0, count, *np.atleast_1d(np.asarray(bp)).astype(int).tolist()})
    parts = []
    for start, end in itertools.pairwise(breaks):
        part = rows[..., start:end]
        places = np.arange(end - start) - (end - start - 1) / 2
        norm = float((places * places).sum()) or 1.0
        line = mo.asarray(places).astype(part.dtype)
        slope = mo.sum(part * line, axis=-1, keepdims=True) / norm
        parts.append(part - mo.mean(part, axis=-1, keepdims=True) - slope * line)
    return mo.moveaxis(mo.concat(parts, axis=-1) if len(parts) > 1 else parts[0], -1, axis)


# -- windows -------------------------------------------------------------------------------------------------------
def _cosines(name: str, weights: Sequence[float]) -> Callable[..., Any]:
    def window(M: int, sym: bool = True) -> Any:
        if M <= 1:
            return mo.ones(max(M, 0), dtype=mo.float64)
        angle = mo.arange(M).astype(mo.float64) * (2 * math.pi / (M - 1 if sym else M))
        terms = [(-1) ** k * weight * mo.cos(k * angle) for k, weight in enumerate(weights)]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    window.__name__ = window.__qualname__ = name
    return window


hann = _cosines("hann", (0.5, 0.5))
hamming = _cosines("hamming", (0.54, 0.46))
blackman = _cosines("blackman", (0.42, 0.50, 0.08))
nuttall = _cosines("nuttall", (0.3635819, 0.4891775, 0.1365995, 0.0106411))
blackmanharris = _cosines("blackmanharris", (0.35875, 0.48829, 0.14128, 0.01168))
flattop = _cosines("flattop", (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368))
boxcar = _cosines("boxcar", (1.0,))


def _longer(M: int, sym: bool, values: Callable[[int], Any]) -> Any:
    return values(M) if sym or M <= 1 else values(M + 1)[:-1]


def gaussian(M: int, std: float, sym: bool = True) -> Any:
    return _longer(M, sym, lambda n: mo.exp(-0.5 * mo.square((mo.arange(n).astype(mo.float64) - (n - 1) / 2) / std)))


def bartlett(M: int, sym: bool = True) -> Any:
    return _longer(M, sym, lambda n: 1 - mo.abs(mo.arange(n).astype(mo.float64) * (2 / (n - 1)) - 1) if n > 1
                   else mo.ones(n, dtype=mo.float64))


def cosine(M: int, sym: bool = True) -> Any:
    return _longer(M, sym, lambda n: mo.sin((mo.arange(n).astype(mo.float64) + 0.5) * (math.pi / n)))


def kaiser(M: int, beta: float, sym: bool = True) -> Any:
    return _longer(M, sym, lambda n: mo.special.i0(beta * mo.sqrt(mo.maximum(1 - mo.square(
        mo.arange(n).astype(mo.float64) * (2 / (n - 1)) - 1), 0.0))) / mo.special.i0(mo.float64(beta)) if n > 1
        else mo.ones(n, dtype=mo.float64))


def tukey(M: int, alpha: float = 0.5, sym: bool = True) -> Any:
    if alpha <= 0:
        return boxcar(M)
    if alpha >= 1:
        return hann(M, sym)

    def values(n: int) -> Any:
        place = mo.minimum(mo.arange(n), n - 1 - mo.arange(n)).astype(mo.float64)
        edge = alpha * (n - 1) / 2
        return mo.where(place < edge, 0.5 * (1 + mo.cos(math.pi * (place / edge - 1))), mo.ones_like(place))

    return _longer(M, sym, values)


_WINDOWS: dict[str, Callable[..., Any]] = {
    "hann": hann, "hamming": hamming, "blackman": blackman, "nuttall": nuttall, "blackmanharris": blackmanharris,
    "flattop": flattop, "boxcar": boxcar, "gaussian": gaussian, "bartlett": bartlett, "cosine": cosine,
    "kaiser": kaiser, "tukey": tukey, "rectangular": boxcar, "hanning": hann}


def general_cosine(M: int, a: Any, sym: bool = True) -> Any:
    weights = [float(one) for one in (a.tolist() if isinstance(a, mo.Tensor) else a)]
    return _cosines("general_cosine", weights)(M, sym)


def general_hamming(M: int, alpha: float, sym: bool = True) -> Any:
    return general_cosine(M, (alpha, 1.0 - alpha), sym)


def exponential(M: int, center: float | None = None, tau: float = 1.0, sym: bool = True) -> Any:
    """exp(-|n - center| / tau); the centre of a window that is not symmetric is that of the longer one."""
    if center is None:
        return _longer(M, sym, lambda n: mo.exp(-mo.abs(mo.arange(n).astype(mo.float64) - (n - 1) / 2) / tau))
    return mo.exp(-mo.abs(mo.arange(M).astype(mo.float64) - center) / tau)


def _in_pytorchs_words(function: Callable[..., Any]) -> Callable[..., Any]:
    """The window with PyTorch's keywords besides: `dtype=`, `device=`, `requires_grad=`, and `std=1` of `gaussian`."""

    @functools.wraps(function)
    def window(M: int, *args: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False,
               layout: Any = None, **options: Any) -> Any:
        line = function(M, *args, **options)
        line = line if dtype is None and device is None else line.to(device=device, dtype=dtype)
        return line.requires_grad_() if requires_grad else line

    return window


_MORE: dict[str, Callable[..., Any]] = {
    "general_cosine": general_cosine, "general_hamming": general_hamming, "exponential": exponential}
windows = SimpleNamespace(**{name: _in_pytorchs_words(window) for name, window in {**_WINDOWS, **_MORE}.items()})


def get_window(window: Any, Nx: int, fftbins: bool = True) -> Any:
    """A window by its name, or by a tuple of its name and parameter."""
    if isinstance(window, str | float):
        window = (window,) if isinstance(window, str) else ("kaiser", window)
    name, *parameters = window
    if name not in _WINDOWS:
        raise fail(ArgumentError, "get_window", f"window {name!r} is unknown",
                   f"use one of {', '.join(sorted(_WINDOWS))}")
    return _WINDOWS[name](Nx, *parameters, sym=not fftbins)


# -- spectra -------------------------------------------------------------------------------------------------------
def _segments(x: Any, size: int, step: int) -> Any:
    """Windows of the last axis, in a new last axis."""
    count = (x.shape[-1] - size) // step + 1
    places = mo.arange(count)[:, None] * step + mo.arange(size)[None, :]
    return mo.reshape(mo.take(x, mo.ravel(places), axis=-1), (*x.shape[:-1], count, size))


def _window(name: str, window: Any, nperseg: Any, length: Any) -> tuple[Any, int]:
    if isinstance(window, str | tuple):
        size = min(256 if nperseg is None else int(nperseg), length)
        return get_window(window, size), size
    values = mo.asarray(window)
    if nperseg is not None and int(nperseg) != values.shape[0]:
        raise fail(ShapeError, name, f"nperseg={nperseg} is not the length of the window, {values.shape[0]}")
    if values.shape[0] > length:
        raise fail(ShapeError, name, f"a window of {values.shape[0]} is longer than the signal, {length}")
    return values, int(values.shape[0])


def _spectra(name: str, x: Any, fs: float, window: Any, nperseg: Any, noverlap: Any, nfft: Any, trend: Any,
             onesided: bool, scaling: str, mode: str) -> tuple[Any, Any, Any, float]:
    """Frequencies, times, transforms of segments (the last two axes are frequency and time), and the scale."""
    values, size = _window(name, window, nperseg, x.shape[-1])
    overlap = size // 2 if noverlap is None else int(noverlap)
    count = size if nfft is None else int(nfft)
    if overlap >= size or count < size:
        raise fail(ArgumentError, name, f"noverlap={overlap} and nfft={count} do not fit segments of {size}")
    values = values.astype(mo.float64)
    if scaling not in ("density", "spectrum", "psd"):
        raise fail(ArgumentError, name, f"scaling {scaling!r} is unknown", "use 'density' or 'spectrum'")
    total = mo.sum(values * values) * fs if scaling in ("density", "psd") else mo.square(mo.sum(values))
    scale = 1.0 / float(total)
    parts = _segments(x, size, size - overlap)
    if trend:
        parts = trend(parts) if callable(trend) else detrend(parts, axis=-1, type=trend)
    parts = parts * values.astype(mo.float64 if x.dtype in (mo.float64, mo.complex128) else mo.float32)
    one = onesided and not x.dtype.is_complex
    transform = mo.fft.rfft(parts, n=count) if one else mo.fft.fft(parts, n=count)
    frequencies = (mo.fft.rfftfreq if one else mo.fft.fftfreq)(count, 1 / fs, dtype=mo.float64)
    times = (mo.arange(parts.shape[-2]).astype(mo.float64) * (size - overlap) + size / 2) / fs
    return frequencies, times, mo.moveaxis(transform, -1, -2), scale


def _doubled(power: Any, count: int, is_half: bool) -> Any:
    """Both halves of the spectrum of a real signal in one."""
    if not is_half:
        return power
    rows = power.shape[-2]
    factor = np.full(rows, 2.0)
    factor[0] = 1.0
    if count % 2 == 0:
        factor[-1] = 1.0
    return power * mo.asarray(factor[:, None]).astype(mo.real(power).dtype)


def _averaged(power: Any, average: str) -> Any:
    if average == "mean":
        return mo.mean(power, axis=-1)
    if average != "median":
        raise fail(ArgumentError, "welch", f"average {average!r} is unknown", "use 'mean' or 'median'")
    count = power.shape[-1]
    bias = 1 + sum(1 / (k + 1) - 1 / k for k in range(2, count, 2))
    if power.dtype.is_complex:
        return (mo.median(mo.real(power), axis=-1) + 1j * mo.median(mo.imag(power), axis=-1)) / bias
    return mo.median(power, axis=-1) / bias


def csd(x: Any, y: Any, fs: float = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None,
        nfft: Any = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
        axis: int = -1, average: str = "mean") -> tuple[Any, Any]:
    """Welch's estimate of the cross power spectral density: frequencies and densities."""
    same = y is x
    first = mo.moveaxis(_inexact(x), axis, -1)
    second = first if same else mo.moveaxis(_inexact(y), axis, -1)
    if not same and first.shape[-1] != second.shape[-1]:
        length = max(first.shape[-1], second.shape[-1])
        first, second = (mo.pad(one, [*[(0, 0)] * (one.ndim - 1), (0, length - one.shape[-1])])
                         for one in (first, second))
    half = return_onesided and not first.dtype.is_complex and not second.dtype.is_complex
    settings = (fs, window, nperseg, noverlap, nfft, detrend, half, scaling, "psd")
    frequencies, _, one, scale = _spectra("csd", first, *settings)
    two = one if same else _spectra("csd", second, *settings)[2]
    power = (mo.real(one * mo.conj(one)) if same else mo.conj(one) * two) * scale
    count = _window("csd", window, nperseg, first.shape[-1])[1] if nfft is None else int(nfft)
    density = _averaged(_doubled(power, count, half), average)
    return frequencies, mo.moveaxis(density, -1, axis) if density.ndim > 1 else density


def welch(x: Any, fs: float = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None, nfft: Any = None,
          detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density", axis: int = -1,
          average: str = "mean") -> tuple[Any, Any]:
    """Welch's estimate of the power spectral density: frequencies and densities."""
    x = mo.asarray(x)
    return csd(x, x, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)


def periodogram(x: Any, fs: float = 1.0, window: Any = "boxcar", nfft: Any = None, detrend: Any = "constant",
                return_onesided: bool = True, scaling: str = "density", axis: int = -1) -> tuple[Any, Any]:
    x = mo.asarray(x)
    return csd(x, x, fs, window, x.shape[axis], 0, nfft, detrend, return_onesided, scaling, axis)


def coherence(x: Any, y: Any, fs: float = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None,
              nfft: Any = None, detrend: Any = "constant", axis: int = -1) -> tuple[Any, Any]:
    settings = (fs, window, nperseg, noverlap, nfft, detrend, True, "density", axis)
    frequencies, first = welch(x, *settings)
    cross = csd(x, y, *settings)[1]
    return frequencies, mo.square(mo.abs(cross)) / (first * welch(y, *settings)[1])


def stft(x: Any, fs: float = 1.0, window: Any = "hann", nperseg: Any = 256, noverlap: Any = None, nfft: Any = None,
         detrend: Any = False, return_onesided: bool = True, boundary: Any = "zeros", padded: bool = True,
         axis: int = -1, scaling: str = "spectrum") -> tuple[Any, Any, Any]:
    """The transforms of windows: frequencies, times, and the transforms with time as the last axis."""
    x = mo.moveaxis(_inexact(x), axis, -1)
    size = _window("stft", window, nperseg, x.shape[-1])[1]
    overlap = size // 2 if noverlap is None else int(noverlap)
    borders = [(0, 0)] * (x.ndim - 1)
    if boundary == "zeros":
        x = mo.pad(x, [*borders, (size // 2, size // 2)])
    elif boundary is not None:
        raise fail(ArgumentError, "stft", f"boundary {boundary!r} is not taken", "use 'zeros' or None")
    if padded:
        x = mo.pad(x, [*borders, (0, (-(x.shape[-1] - size) % (size - overlap)) % size)])
    frequencies, times, made, scale = _spectra("stft", x, fs, window, size, overlap, nfft, detrend, return_onesided,
                                               scaling, "stft")
    if boundary is not None:
        times = times - size / 2 / fs
    made = made * math.sqrt(scale)
    return frequencies, times, made if axis in (-1, x.ndim - 1) else mo.moveaxis(made, -2, axis)


def istft(Zxx: Any, fs: float = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None, nfft: Any = None,
          input_onesided: bool = True, boundary: bool = True, time_axis: int = -1, freq_axis: int = -2,
          scaling: str = "spectrum") -> tuple[Any, Any]:
    """The signal of `stft`'s transforms: times and values."""
    spectra = mo.moveaxis(mo.asarray(Zxx), (freq_axis, time_axis), (-2, -1))
    rows = spectra.shape[-2]
    count = int(nfft) if nfft is not None else 2 * (rows - 1) if input_onesided else rows
    if nperseg is None:
        size = count if isinstance(window, str | tuple) else int(mo.asarray(window).shape[0])
    else:
        size = int(nperseg)
        if nfft is None and input_onesided and size == count + 1:
            count = size
    overlap = size // 2 if noverlap is None else int(noverlap)
    step = size - overlap
    values = _window("istft", window, size, size)[0].astype(mo.float64)
    frames = mo.moveaxis(spectra, -1, -2)
    parts = mo.fft.irfft(frames, n=count) if input_onesided else mo.fft.ifft(frames, n=count)
    scale = float(mo.sum(values)) if scaling == "spectrum" else math.sqrt(fs * float(mo.sum(values * values)))
    line = values.astype(mo.real(parts).dtype)
    parts = parts[..., :size] * scale * line
    number = parts.shape[-2]
    length = size + (number - 1) * step
    places = mo.ravel(mo.arange(number)[:, None] * step + mo.arange(size)[None, :])
    flat = mo.reshape(parts, (*parts.shape[:-2], number * size))
    total = mo.zeros((*parts.shape[:-2], length), dtype=parts.dtype).at[..., places].add(flat)
    norm = mo.zeros(length, dtype=line.dtype).at[places].add(mo.tile(line * line, number))
    if boundary:
        total, norm = total[..., size // 2:length - size // 2], norm[size // 2:length - size // 2]
    x = total / mo.where(norm > 1e-10, norm, 1.0)
    return mo.arange(x.shape[-1]).astype(mo.float64) / fs, x


def spectrogram(x: Any, fs: float = 1.0, window: Any = ("tukey", 0.25), nperseg: Any = None, noverlap: Any = None,
                nfft: Any = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
                axis: int = -1, mode: str = "psd") -> tuple[Any, Any, Any]:
    if mode != "psd":
        raise fail(ArgumentError, "spectrogram", f"mode {mode!r} is not taken", "use stft")
    x = mo.moveaxis(_inexact(x), axis, -1)
    size = _window("spectrogram", window, nperseg, x.shape[-1])[1]
    overlap = size // 8 if noverlap is None else int(noverlap)
    frequencies, times, made, scale = _spectra("spectrogram", x, fs, window, size, overlap, nfft, detrend,
                                               return_onesided, scaling, mode)
    power = mo.real(made * mo.conj(made)) * scale
    half = return_onesided and not x.dtype.is_complex
    return frequencies, times, _doubled(power, size if nfft is None else nfft, half)


# -- filters -------------------------------------------------------------------------------------------------------
def hilbert(x: Any, N: int | None = None, axis: int = -1) -> Any:
    """The analytic signal: the spectrum without its negative half."""
    x = _inexact(x)
    count = x.shape[axis] if N is None else N
    factor = np.zeros(count)
    factor[0] = 1
    factor[1:(count + 1) // 2] = 2
    if count % 2 == 0:
        factor[count // 2] = 1
    spectrum = mo.moveaxis(mo.fft.fft(x, n=count, axis=axis), axis, -1) * mo.asarray(factor).astype(x.dtype)
    return mo.moveaxis(mo.fft.ifft(spectrum), -1, axis)


def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """The filter of coefficients b and a along an axis; with `zi` also the last state."""
    x = _inexact(x)
    rows = mo.moveaxis(x, axis, 0)
    b, a = (mo.asarray(one, dtype=x.dtype) for one in (b, a))
    size = max(b.shape[0], a.shape[0])
    b, a = (mo.pad(one, [(0, size - one.shape[0])]) / a[0] for one in (b, a))
    state = mo.zeros((size, *rows.shape[1:]), dtype=x.dtype)
    if zi is not None:
        state = mo.concat([mo.moveaxis(mo.asarray(zi).astype(x.dtype), axis, 0), state[:1]], axis=0)
    column = (slice(None), *[None] * (rows.ndim - 1))

    def step(state: Any, row: Any) -> Any:
        y = b[0] * row + state[0]
        following = mo.concat([state[1:], mo.zeros_like(state[:1])], axis=0)
        rest = mo.concat([b[1:], b[:1] * 0], axis=0)[column] * row - mo.concat([a[1:], a[:1] * 0], axis=0)[column] * y
        return following + rest, y

    last, made = mo.scan(step, state, rows)
    made = mo.moveaxis(made, 0, axis)
    return made if zi is None else (made, mo.moveaxis(last[:-1], 0, axis))


def sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """The filter of second-order sections, one after another; with `zi` also the last states."""
    sections = mo.asarray(sos)
    if sections.ndim != 2 or sections.shape[1] != 6:
        raise fail(ShapeError, "sosfilt", f"sections of shape {tuple(sections.shape)} are not rows of 6",
                   "a row is b0, b1, b2, a0, a1, a2")
    states = []
    for number in range(sections.shape[0]):
        section = sections[number]
        state = None if zi is None else mo.asarray(zi)[number]
        x = lfilter(section[:3], section[3:], x, axis, state)
        if zi is not None:
            x, state = x
            states.append(state)
    return x if zi is None else (x, mo.stack(states))


# -- peaks: which elements they are depends on the values, so that NumPy finds them when the line runs ---------------
def _line(name: str, x: Any) -> np.ndarray:
    line = np.asarray(x.numpy() if isinstance(x, mo.Tensor) else x)
    if line.ndim != 1:
        raise fail(ShapeError, name, f"a signal of {line.ndim} axes has no peaks", "give one of its rows")
    return line.astype(np.float64)


def _maxima(line: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Middles and both ends of plateaus that are higher than both of their neighbours."""
    if line.size < 3:
        return (np.zeros(0, np.int64),) * 3
    starts = np.concatenate([[0], np.flatnonzero(line[1:] != line[:-1]) + 1])
    ends = np.concatenate([starts[1:] - 1, [line.size - 1]])
    values = line[starts]
    tops = np.flatnonzero((values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])) + 1
    return (starts[tops] + ends[tops]) // 2, starts[tops], ends[tops]


def _bounds(limits: Any, size: int, peaks: np.ndarray) -> tuple[Any, Any]:
    """The least and the largest value of a condition: a number, a pair, or an array with one for each sample."""
    if isinstance(limits, mo.Tensor):
        limits = limits.numpy()
    low, high = limits if isinstance(limits, tuple | list) or (
        isinstance(limits, np.ndarray) and limits.shape == (2,) and size != 2) else (limits, None)
    least, most = (one[peaks] if isinstance(one, np.ndarray) and one.ndim else one for one in (low, high))
    return least, most


def _within(values: np.ndarray, low: Any, high: Any) -> np.ndarray:
    keep = np.ones(values.shape, bool)
    keep = keep & (values >= low) if low is not None else keep
    return keep & (values <= high) if high is not None else keep


def _prominences(line: np.ndarray, peaks: np.ndarray, wlen: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    half = line.size if wlen is None else max(math.ceil(wlen) | 1, 3) // 2
    heights, bases = np.zeros(len(peaks)), np.zeros((2, len(peaks)), np.int64)
    for number, peak in enumerate(peaks):
        first, last = max(peak - half, 0), min(peak + half, line.size - 1)
        left, right = line[first:peak + 1][::-1], line[peak:last + 1]
        lows = []
        for side, part in enumerate((left, right)):
            higher = np.flatnonzero(part > line[peak])
            part = part[:higher[0]] if higher.size else part
            place = int(np.argmin(part))
            lows.append(part[place])
            bases[side, number] = peak - place if side == 0 else peak + place
        heights[number] = line[peak] - max(lows)
    return heights, bases[0], bases[1]


def peak_prominences(x: Any, peaks: Any, wlen: Any = None) -> tuple[Any, Any, Any]:
    """How far each peak stands above the higher one of the lowest points on its sides, and these points."""
    places = np.asarray(peaks.numpy() if isinstance(peaks, mo.Tensor) else peaks, np.int64)
    return tuple(map(mo.asarray, _prominences(_line("peak_prominences", x), places, wlen)))  # type: ignore[return-value]


def _widths(line: np.ndarray, peaks: np.ndarray, part: float, data: Any) -> tuple[np.ndarray, ...]:
    heights, lefts, rights = data
    levels = line[peaks] - heights * part
    ends = np.zeros((2, len(peaks)))
    for number, (peak, level) in enumerate(zip(peaks, levels, strict=True)):
        for side, (base, step) in enumerate(((lefts[number], -1), (rights[number], 1))):
            place = peak
            while place != base and level < line[place]:
                place += step
            ends[side, number] = place
            if line[place] < level:
                ends[side, number] -= step * (level - line[place]) / (line[place - step] - line[place])
    return ends[1] - ends[0], levels, ends[0], ends[1]


def peak_widths(x: Any, peaks: Any, rel_height: float = 0.5, prominence_data: Any = None,
                wlen: Any = None) -> tuple[Any, ...]:
    """Widths of peaks at a part of their prominence: widths, heights of the lines, and their ends."""
    line = _line("peak_widths", x)
    places = np.asarray(peaks.numpy() if isinstance(peaks, mo.Tensor) else peaks, np.int64)
    data = _prominences(line, places, wlen) if prominence_data is None else tuple(
        one.numpy() if isinstance(one, mo.Tensor) else one for one in prominence_data)
    return tuple(map(mo.asarray, _widths(line, places, rel_height, data)))


def _far_apart(peaks: np.ndarray, heights: np.ndarray, distance: float) -> np.ndarray:
    """Which peaks stay, the highest first, when none may be nearer than `distance` to one that stays."""
    keep, least = np.ones(len(peaks), bool), math.ceil(distance)
    for number in np.argsort(heights)[::-1]:
        if keep[number]:
            keep &= (np.abs(peaks - peaks[number]) >= least) | (np.arange(len(peaks)) == number)
    return keep


def find_peaks(x: Any, height: Any = None, threshold: Any = None, distance: Any = None, prominence: Any = None,
               width: Any = None, wlen: Any = None, rel_height: float = 0.5,
               plateau_size: Any = None) -> tuple[Any, dict[str, Any]]:
    """Places of the peaks that fulfil all conditions, and what was measured for these conditions."""
    line = _line("find_peaks", x)
    if distance is not None and distance < 1:
        raise fail(ArgumentError, "find_peaks", f"distance={distance} is below 1")
    peaks, lefts, rights = _maxima(line)
    measured: dict[str, np.ndarray] = {}

    def keep(stays: np.ndarray) -> None:
        nonlocal peaks
        peaks = peaks[stays]
        measured.update({name: values[stays] for name, values in measured.items()})

    if plateau_size is not None:
        measured.update(plateau_sizes=rights - lefts + 1, left_edges=lefts, right_edges=rights)
        keep(_within(measured["plateau_sizes"], *_bounds(plateau_size, line.size, peaks)))
    if height is not None:
        measured["peak_heights"] = line[peaks]
        keep(_within(line[peaks], *_bounds(height, line.size, peaks)))
    if threshold is not None:
        low, high = _bounds(threshold, line.size, peaks)
        sides = line[peaks] - line[peaks - 1], line[peaks] - line[peaks + 1]
        measured.update(left_thresholds=sides[0], right_thresholds=sides[1])
        keep(_within(np.minimum(*sides), low, None) & _within(np.maximum(*sides), None, high))
    if distance is not None:
        keep(_far_apart(peaks, line[peaks], distance))
    if prominence is not None or width is not None:
        heights, left, right = _prominences(line, peaks, wlen)
        measured.update(prominences=heights, left_bases=left, right_bases=right)
    if prominence is not None:
        keep(_within(measured["prominences"], *_bounds(prominence, line.size, peaks)))
    if width is not None:
        widths = _widths(line, peaks, rel_height, (measured["prominences"], measured["left_bases"],
                                                   measured["right_bases"]))
        measured.update(zip(("widths", "width_heights", "left_ips", "right_ips"), widths, strict=True))
        keep(_within(measured["widths"], *_bounds(width, line.size, peaks)))
    return mo.asarray(peaks), {name: mo.asarray(values) for name, values in measured.items()}


def medfilt(volume: Any, kernel_size: Any = 3) -> Any:
    from morpho.scipy import ndimage

    return ndimage.median_filter(volume, size=kernel_size, mode="constant")


def savgol_coeffs(window_length: int, polyorder: int, deriv: int = 0, delta: float = 1.0) -> Any:
    half = window_length // 2
    places = np.arange(-half, window_length - half, dtype=float)[::-1]
    matrix = places ** np.arange(polyorder + 1)[:, None]
    wanted = np.zeros(polyorder + 1)
    wanted[deriv] = math.factorial(deriv) / delta**deriv
    return mo.asarray(np.linalg.lstsq(matrix, wanted, rcond=None)[0])


def resample(x: Any, num: int, axis: int = 0) -> Any:
    """The signal at `num` places by its Fourier transform, as if it were periodic."""
    x = mo.moveaxis(_inexact(x), axis, -1)
    count = x.shape[-1]
    if x.dtype.is_complex:
        raise fail(ArgumentError, "resample", "complex signals are not taken", "resample both parts")
    spectrum = mo.fft.rfft(x)
    keep = min(num, count)
    factor = np.ones(keep // 2 + 1)
    if keep % 2 == 0 and num != count:
        factor[-1] = 2.0 if num < count else 0.5
    made = mo.fft.irfft(spectrum[..., :keep // 2 + 1] * mo.asarray(factor).astype(x.dtype), n=num) * (num / count)
    return mo.moveaxis(made, -1, axis)
