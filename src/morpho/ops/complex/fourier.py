"""Fourier transforms: `fft`, over several axes and in all forms, and `dft`, along one, which a pass makes of it.

`kind` is complex; real, from n real numbers to the n / 2 + 1 frequencies that are not mirrored; or half, back from
those. Lengths of the last two are even. Results are multiplied by `scale`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from morpho.base.errors import DTypeError, ValueFault, fail
from morpho.ir.node import Node, make
from morpho.ir.op import ONE, Attributes, NoGradient, Op, Spec, register
from morpho.ops.batching import along_axes, along_axis
from morpho.ops.complex.fourier_gradients import fft_rule
from morpho.ops.complex.parts import COMPLEX_OF, REAL_OF

PRIMES = (13, 11, 7, 5, 3)  # whose transforms are written out; lengths with others go by Bluestein
LONG = 16  # butterflies of a pass from which lanes run along a row


def radices(n: int) -> tuple[int, ...] | None:
    """Fours, then eights, then odd primes; None where a larger prime divides n.

    >>> radices(1024), radices(1000), radices(34)
    ((4, 4, 8, 8), (8, 5, 5, 5), None)
    """
    twos = (n & -n).bit_length() - 1 if n else 0
    odd = n >> twos
    found = [4] * {0: 0, 1: 2, 2: 1}[twos % 3] if twos > 1 else [2] * twos
    eights = twos - sum(r.bit_length() - 1 for r in found)
    found += [8] * (eights // 3)
    for prime in PRIMES:
        while odd % prime == 0:
            found.append(prime)
            odd //= prime
    return tuple(found) if odd == 1 else None


def is_long(n: int) -> bool:
    """Whether every pass of a transform has butterflies enough for lanes along a row."""
    chosen = radices(n)
    return chosen is not None and n // max(chosen, default=1) >= LONG


# -- over several axes -------------------------------------------------------------------------------------------------
def _infer_fft(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    """`sizes` are the lengths of the transform along `axes`; the halved ones keep n // 2 + 1 frequencies."""
    shape, dtype = inputs[0]
    function, axes, sizes = attributes["function"], attributes["axes"], list(attributes["sizes"])
    if dtype not in COMPLEX_OF:
        raise fail(DTypeError, function, f"dtype {dtype} is not taken", "convert to float32, float64 or complex")
    if function in ("rfftn", "ihfft") and dtype.is_complex:
        raise fail(DTypeError, function, f"dtype {dtype} is not real")
    if any(size < 1 for size in sizes):
        raise fail(ValueFault, function, f"a transform of length {min(sizes)} does not exist")
    if function in ("rfftn", "ihfft"):
        sizes[-1] = sizes[-1] // 2 + 1
    result = list(shape)
    for axis, size in zip(axes, sizes, strict=True):
        result[axis] = size
    kinds = REAL_OF if function in ("irfftn", "hfft") else COMPLEX_OF
    return Spec(tuple(result), kinds[dtype])


def _reference_fft(attributes: Attributes, x: Any) -> Any:
    function, axes, sizes = (attributes[name] for name in ("function", "axes", "sizes"))
    transform = getattr(np.fft, function)
    if function in ("hfft", "ihfft"):
        return transform(x, n=sizes[0], axis=axes[0], norm=attributes["norm"])
    return transform(x, s=sizes, axes=axes, norm=attributes["norm"])


# Where a length is known only when a function runs, NumPy computes it.
FFT = register(Op("fft", "contract", _infer_fft, fft_rule, _reference_fft, 40, "passes of `dft`", arity=ONE,
                  batch=along_axes, jvp=lambda node, tangents, push: [make(node.op, tangents, node.attributes)]))


# -- along one ---------------------------------------------------------------------------------------------------------
def _infer(inputs: Sequence[Spec], attributes: Attributes) -> Spec:
    shape, dtype = inputs[0]
    kind, axis, n = attributes["kind"], attributes["axis"], attributes["length"]
    if dtype not in COMPLEX_OF or dtype.is_complex == (kind == "real"):
        raise fail(DTypeError, "dft", f"dtype {dtype} is not taken")
    size = n // 2 + 1 if kind == "real" else n
    return Spec((*shape[:axis], size, *shape[axis + 1:]), (REAL_OF if kind == "half" else COMPLEX_OF)[dtype])


def _reference(attributes: Attributes, x: Any) -> Any:
    axis, n, kind = attributes["axis"], attributes["length"], attributes["kind"]
    found: Any
    if kind == "real":
        found = np.fft.rfft(x, n, axis)
    elif kind == "half":
        found = np.fft.irfft(x, n, axis, norm="forward")
    else:
        found = np.fft.ifft(x, n, axis, norm="forward") if attributes["inverse"] else np.fft.fft(x, n, axis)
    return found if attributes["scale"] == 1 else found * found.real.dtype.type(attributes["scale"])


def dft(x: Node, axis: int, length: int, kind: str = "complex", inverse: bool = False, scale: float = 1.0) -> Node:
    """A transform along one axis."""
    return make(DFT, (x,), {"axis": axis, "length": length, "kind": kind, "inverse": inverse, "scale": scale})


DFT = register(Op("dft", "contract", _infer, NoGradient("`fft` has one; this is what it becomes", missing=True),
                  _reference, 40, "Stockham passes, each butterfly rounded", arity=ONE, batch=along_axis))
