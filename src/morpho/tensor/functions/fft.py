"""`mo.fft`: the Fourier transform extension of the Array API, in native code (`backends/kernels/fft/`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from morpho.base.checks import check_numbers
from morpho.base.dims import Dim
from morpho.base.dtypes import as_dtype, complex64, complex128, float32, float64
from morpho.base.errors import ArgumentError, DTypeError, ValueFault, fail
from morpho.base.shapes import as_integer, as_items, normalise_axes, normalise_axis
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast
from morpho.tensor.convert import asarray
from morpho.tensor.core import Tensor, check_device
from morpho.tensor.functions.examples import documented
from morpho.tensor.functions.move import roll
from morpho.tensor.operands import as_node
from morpho.tensor.scalars import DEFAULT_FLOAT
from morpho.tensor.tools.foreign_calls import hint_calls
from morpho.tensor.tools.foreign_names import module_attribute

__all__ = ["fft", "ifft", "fftn", "ifftn", "rfft", "irfft", "rfftn", "irfftn", "hfft", "ihfft", "fft2", "ifft2",
           "rfft2", "irfft2", "fftfreq", "rfftfreq", "fftshift", "ifftshift"]

_NORMS = ("backward", "ortho", "forward")


def __dir__() -> list[str]:
    return __all__


__getattr__ = module_attribute("fft", __name__)  # names of other libraries


def _operand(name: str, x: Any) -> Node:
    """Halves, integers and truth values become float32: a transform has no dtype for them."""
    node = as_node(x, name)
    return node if node.dtype in (float32, float64, complex64, complex128) else cast(node, float32)


def _transform(name: str, function: str, x: Any, sizes: Sequence[int | None], axes: Sequence[int], norm: str) -> Tensor:
    """`sizes` are the lengths of the transform; what comes back of half-spectra counts double, less the ends."""
    if norm not in _NORMS:
        raise fail(ArgumentError, name, f"norm {norm!r} is unknown", "use 'backward', 'ortho' or 'forward'")
    node = _operand(name, x)
    numbers = tuple(normalise_axis(axis, len(node.shape), name) for axis in axes)
    lengths = [node.shape[axis] if size is None else size if isinstance(size, Dim) else
               as_integer(size, name, "the length") for size, axis in zip(sizes, numbers, strict=True)]
    if function in ("irfftn", "hfft") and sizes[-1] is None:
        lengths[-1] = 2 * (node.shape[numbers[-1]] - 1)
    for length in lengths:
        if length < 1:
            raise fail(ValueFault, name, f"a transform of length {length} does not exist")
    if function in ("rfftn", "ihfft") and node.dtype.is_complex:
        raise fail(DTypeError, name, f"dtype {node.dtype} is not real", "take real() first")
    return Tensor.of_node(build("fft", node, function=function, axes=numbers, sizes=tuple(lengths), norm=norm))


def _line(name: str, function: str, summary: str) -> Callable[..., Tensor]:
    def transform(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return _transform(name, function, x, (n,), (axis,), norm)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = documented(f"fft.{name}", summary)
    return transform


def _block(name: str, function: str, summary: str, usual: tuple[int, ...] | None = None) -> Callable[..., Tensor]:
    """`usual` are the axes where none are given; else those that `s` has sizes for, or all."""

    def transform(x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = usual,
                  norm: str = "backward") -> Tensor:
        rank = len(as_node(x, name).shape)
        if axes is None:
            axes = range(rank) if s is None else range(rank - len(as_items(s)), rank)
        axes = as_items(axes)
        sizes = [None] * len(axes) if s is None else as_items(s)
        if len(sizes) != len(axes):
            raise fail(ArgumentError, name, f"{len(sizes)} sizes do not fit {len(axes)} axes")
        if not sizes:
            raise fail(ArgumentError, name, "there is no axis to transform")
        return _transform(name, function, x, sizes, axes, norm)

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = documented(f"fft.{name}", summary)
    return transform


fft = _line("fft", "fftn", "The discrete Fourier transform along an axis.")
ifft = _line("ifft", "ifftn", "The inverse of `fft`.")
rfft = _line("rfft", "rfftn", "The transform of a real signal: n // 2 + 1 frequencies, the rest being mirrored.")
irfft = _line("irfft", "irfftn", "The inverse of `rfft`; `n` is the length of the signal.")
hfft = _line("hfft", "hfft", "The real transform of a signal that is its own mirrored conjugate.")
ihfft = _line("ihfft", "ihfft", "The inverse of `hfft`.")
fftn = _block("fftn", "fftn", "The discrete Fourier transform over several axes.")
ifftn = _block("ifftn", "ifftn", "The inverse of `fftn`.")
rfftn = _block("rfftn", "rfftn", "The transform of a real signal over several axes.")
irfftn = _block("irfftn", "irfftn", "The inverse of `rfftn`.")
fft2 = _block("fft2", "fftn", "`fftn` over the last two axes.", (-2, -1))
ifft2 = _block("ifft2", "ifftn", "The inverse of `fft2`.", (-2, -1))
rfft2 = _block("rfft2", "rfftn", "`rfftn` over the last two axes.", (-2, -1))
irfft2 = _block("irfft2", "irfftn", "The inverse of `rfft2`.", (-2, -1))


def _frequencies(name: str, n: int, d: float, dtype: Any, device: Any) -> Tensor:
    import numpy as np

    check_device(device, name)
    target = DEFAULT_FLOAT if dtype is None else as_dtype(dtype)
    if not target.is_float:
        raise fail(DTypeError, name, f"dtype {target} is not floating")
    n = as_integer(n, name, "the length")
    if n < 1:
        raise fail(ArgumentError, name, f"a window of length {n} has no frequencies")
    check_numbers(name, d=d)
    if d == 0:
        raise fail(ValueFault, name, "the spacing d is 0")
    return asarray(getattr(np.fft, name)(n, d), dtype=target)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies that `fft` of length n gives, in cycles per unit of the spacing d.

    >>> mo.fft.fftfreq(4)
    Tensor([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies that `rfft` of length n gives.

    >>> mo.fft.rfftfreq(4)
    Tensor([0.  , 0.25, 0.5 ], dtype=float32)
    """
    return _frequencies("rfftfreq", n, d, dtype, device)


def _shifted(name: str, x: Any, axes: Any, direction: int) -> Tensor:
    shape = as_node(x, name).shape
    numbers = normalise_axes(None if axes is None else as_items(axes), len(shape), name)
    shifts = tuple(direction * (shape[axis] // 2) for axis in numbers)
    return roll(x, shifts, axis=numbers) if numbers else Tensor.of_node(as_node(x, name))


def fftshift(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The zero frequency moved to the middle.

    >>> mo.fft.fftshift(mo.fft.fftfreq(4))
    Tensor([-0.5 , -0.25,  0.  ,  0.25], dtype=float32)
    """
    return _shifted("fftshift", x, axes, 1)


def ifftshift(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of `fftshift`.

    >>> mo.fft.ifftshift(mo.fft.fftshift(mo.fft.fftfreq(4)))
    Tensor([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)
    """
    return _shifted("ifftshift", x, axes, -1)


hint_calls(globals(), __all__)
