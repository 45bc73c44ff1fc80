"""Fourier transforms of short overlapping pieces of a signal, and the signal from them."""

from __future__ import annotations

from typing import Any

from morpho.base.dims import Dim
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.base.shapes import as_integer
from morpho.ir.node import build
from morpho.ir.op import REGISTRY
from morpho.ops.algebra import constant, expand
from morpho.tensor.core import Tensor
from morpho.tensor.functions import elementwise as ew
from morpho.tensor.functions import fft
from morpho.tensor.functions.create import ones
from morpho.tensor.functions.move import moveaxis, pad, reshape
from morpho.tensor.operands import as_node, promoted


def _arguments(name: str, n_fft: Any, hop_length: Any, win_length: Any, window: Any, dtype: Any) -> tuple[int, int,
                                                                                                          Tensor]:
    size = as_integer(n_fft, name, "n_fft")
    hop = size // 4 if hop_length is None else as_integer(hop_length, name, "hop_length")
    length = size if win_length is None else as_integer(win_length, name, "win_length")
    if size < 1 or hop < 1 or not 0 < length <= size:
        raise fail(ArgumentError, name, f"n_fft {size}, hop_length {hop} and win_length {length} do not fit together")
    weights = ones(length, dtype=dtype) if window is None else ew.astype(Tensor.of_node(as_node(window, name)), dtype)
    if weights.shape != (length,):
        raise fail(ShapeError, name, f"a window of shape {weights.shape} has not {length} elements")
    before = (size - length) // 2
    return size, hop, pad(weights, (before, size - length - before))


def stft(x: Any, n_fft: int, /, hop_length: int | None = None, win_length: int | None = None, window: Any = None, *,
         center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool = True) -> Tensor:
    """Fourier transforms of pieces of n_fft elements along the last axis of real x, one every `hop_length` (a quarter
    unless given), weighted by a window: (..., frequencies, pieces), complex.

    center: x is padded by half a piece on both sides, so that piece i is about element i * hop_length.
    normalized: divided by sqrt(n_fft).
    onesided: the n_fft // 2 + 1 frequencies that are not negative; all otherwise.

    >>> mo.stft(mo.ones(16), 8, window=mo.hann_window(8)).shape
    (5, 9)
    """
    name = "stft"
    signal = Tensor.of_node(promoted(name, x, floating=True)[0])
    if signal.dtype.is_complex or not signal.ndim:
        raise fail(DTypeError if signal.ndim else ShapeError, name,
                   f"{signal.dtype}{signal.shape} is not a line of real numbers")
    size, hop, weights = _arguments(name, n_fft, hop_length, win_length, window, signal.dtype)
    if center:
        signal = pad(signal, [(0, 0)] * (signal.ndim - 1) + [(size // 2, size // 2)], mode=pad_mode)
    if isinstance(signal.shape[-1], Dim) or signal.shape[-1] < size:
        raise fail(ShapeError, name, f"a signal of {signal.shape[-1]} elements has no piece of {size}")
    pieces = Tensor.of_node(build("window", signal.node, axes=(signal.ndim - 1,), sizes=(size,), steps=(hop,),
                                  dilations=(1,)))
    found = (fft.rfft if onesided else fft.fft)(pieces * weights, norm="ortho" if normalized else "backward")
    return moveaxis(found, -1, -2)


def istft(x: Any, n_fft: int, /, hop_length: int | None = None, win_length: int | None = None, window: Any = None, *,
          center: bool = True, normalized: bool = False, onesided: bool | None = None,
          length: int | None = None) -> Tensor:
    """The signal of which `stft` with the same arguments gave x: pieces weighted and added, divided by the sum of the
    squared windows. `length` elements of it, or as many as are certain. Without `onesided`, x has all frequencies if
    they are n_fft, as in PyTorch.

    >>> signal, window = mo.sin(mo.arange(64.0)), mo.hann_window(16)
    >>> again = mo.istft(mo.stft(signal, 16, window=window), 16, window=window)
    >>> mo.allclose(signal, again, atol=1e-5)
    True
    """
    name = "istft"
    spectrum = Tensor.of_node(as_node(x, name))
    if not spectrum.dtype.is_complex or spectrum.ndim < 2:
        raise fail(DTypeError, name, f"{spectrum.dtype}{spectrum.shape} is not complex, of frequencies and pieces")
    real = ew.real(spectrum).dtype
    size, hop, weights = _arguments(name, n_fft, hop_length, win_length, window, real)
    onesided = spectrum.shape[-2] != size if onesided is None else onesided
    rows = size // 2 + 1 if onesided else size
    if spectrum.shape[-2] != rows or isinstance(spectrum.shape[-1], Dim):
        raise fail(ShapeError, name, f"{spectrum.shape[-2]} frequencies are not the {rows} of n_fft {size}")
    turned, norm = moveaxis(spectrum, -1, -2), "ortho" if normalized else "backward"
    pieces = fft.irfft(turned[..., :size // 2 + 1], n=size, norm=norm)  # the rest mirrors these, as a signal is real
    count = int(spectrum.shape[-1])
    signal, envelope = _added(pieces * weights, hop), _added(reshape(weights * weights, (1, size)), hop, count)
    start = size // 2 if center else 0
    whole = (count - 1) * hop + size
    end = whole - start if length is None and center else whole if length is None else start + as_integer(
        length, name, "length")
    if end > whole:
        signal, envelope = (pad(part, [(0, 0)] * (part.ndim - 1) + [(0, end - whole)]) for part in (signal, envelope))
    signal, envelope = signal[..., start:end], envelope[..., start:end]
    return ew.where(ew.greater(envelope, 1e-11), signal / ew.where(ew.greater(envelope, 1e-11), envelope, 1.0), signal)


def _added(pieces: Tensor, hop: int, count: int | None = None) -> Tensor:
    """Pieces (..., count, size) added up where they lay, one every `hop` elements."""
    if count is not None:
        pieces = Tensor.of_node(expand(pieces.node, (*pieces.shape[:-2], count, pieces.shape[-1])))
    *batch, number, size = pieces.shape
    shape = (*batch, (number - 1) * hop + size)
    line = expand(constant(0, pieces.dtype), shape)
    seen = build("window", line, axes=(len(shape) - 1,), sizes=(size,), steps=(hop,), dilations=(1,))
    (found,) = REGISTRY["window"].vjp(seen, pieces.node)  # type: ignore[operator]
    return Tensor.of_node(found)


