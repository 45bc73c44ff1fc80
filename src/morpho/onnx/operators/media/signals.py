"""Signals: Fourier transforms, windows, mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.proto.dtypes import element_type
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, tensor

FAMILY = Family("signals")


def _complex(x: Any) -> Any:
    """The last axis holds real and imaginary parts, or real ones alone."""
    wide = cast(x, mo.float64)  # zeros of a spectrum are zeros of float32 then
    number = mo.complex128
    real = mo.astype(wide[..., 0], number)
    return real if x.shape[-1] == 1 else real + mo.astype(wide[..., 1], number) * mo.asarray(1j, dtype=number)


def _parts(x: Any, dtype: Any) -> Any:
    return cast(mo.stack([mo.real(x), mo.imag(x)], axis=-1), dtype)


@FAMILY.op("DFT")
def dft(call: Call, x: Any, length: Any = None, axis: Any = None) -> Any:
    x = tensor(x)
    chosen = call.get("axis", 1) if call.version < 20 else (
        -2 if axis is None else int(call.integers(axis, "its axis")[0]))
    at = call.axis(chosen, len(x.shape))
    count = None if length is None else int(call.integers(length, "its length")[0])
    inverse, half = bool(call.get("inverse", 0)), bool(call.get("onesided", 0))
    signal = _complex(x)
    if inverse and half:
        size = count or 2 * (x.shape[at] - 1)
        return mo.expand_dims(cast(mo.fft.irfft(signal, n=size, axis=at), x.dtype), axis=-1)
    if half and x.shape[-1] == 1:
        return _parts(mo.fft.rfft(mo.real(signal), n=count, axis=at), x.dtype)
    found = (mo.fft.ifft if inverse else mo.fft.fft)(signal, n=count, axis=at)
    if half:
        found = found[(slice(None),) * at + (slice(0, found.shape[at] // 2 + 1),)]
    return _parts(found, x.dtype)


@FAMILY.op("STFT")
def stft(call: Call, signal: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    signal = tensor(signal)
    hop = int(call.integers(step, "its step")[0])
    size = int(call.integers(length, "its length")[0]) if length is not None else (
        window.shape[0] if window is not None else signal.shape[1])
    if hop < 1 or size > signal.shape[1]:
        raise call.error(f"frames of {size} every {hop} do not fit a signal of {signal.shape[1]}")
    frames = (signal.shape[1] - size) // hop + 1
    places = np.arange(frames)[:, None] * hop + np.arange(size)
    rows = mo.reshape(mo.take(signal, mo.asarray(places.reshape(-1)), axis=1),
                      (signal.shape[0], frames, size, signal.shape[2]))
    if window is not None:
        rows = rows * mo.reshape(tensor(window), (1, 1, size, 1))
    found = mo.fft.fft(_complex(rows), axis=2)
    if call.get("onesided", 1):
        found = found[:, :, :size // 2 + 1]
    return _parts(found, signal.dtype)


WINDOWS = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 1 - 25 / 46, 0.0),
           "BlackmanWindow": (0.42, 0.5, 0.08)}


@FAMILY.op(*WINDOWS)
def window(call: Call, size: Any) -> Any:
    count = int(call.integers(size, "its size")[0])
    if not 0 <= count < 1 << 28:
        raise call.error(f"the size {count} is not possible")
    a, b, c = WINDOWS[call.node.op]
    period = count if call.get("periodic", 1) else max(count - 1, 1)
    angle = 2 * np.pi * np.arange(count) / period
    values = a - b * np.cos(angle) + c * np.cos(2 * angle)
    return cast(mo.asarray(values), element_type(call.get("output_datatype", 1)).dtype or mo.float32)


@FAMILY.op("MelWeightMatrix")
def mel_weights(call: Call, bands: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """Triangles on the mel scale, as HTK has it, rounded to bins."""
    count, size, sampling = (int(call.integers(value, "its sizes")[0]) for value in (bands, length, rate))
    least, most = (float(call.static(value, "its edges").reshape(-1)[0]) for value in (low, high))
    if not (0 < count < 1 << 20 and 0 < size < 1 << 24 and sampling > 0):
        raise call.error("its sizes are not possible")
    bins = size // 2 + 1
    lowest, highest = (2595 * np.log10(1 + edge / 700) for edge in (least, most))
    edges = lowest + np.arange(count + 2) * ((highest - lowest) / (count + 2))  # the specification's step
    places = np.floor((size + 1) * (700 * (10 ** (edges / 2595) - 1)) / sampling).astype(np.int64)
    table = np.zeros((bins, count))
    for band in range(count):
        first, middle, last = places[band:band + 3]
        if middle == first:
            table[middle, band] = 1
        else:
            table[first:middle + 1, band] = (np.arange(first, middle + 1) - first) / (middle - first)
        if last > middle:
            table[middle:last, band] = (last - np.arange(middle, last)) / (last - middle)
    return cast(mo.asarray(table), element_type(call.get("output_datatype", 1)).dtype or mo.float32)
