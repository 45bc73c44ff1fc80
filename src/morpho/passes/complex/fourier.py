"""`fft` as transforms along one axis each, which native code computes: n-d, real and mirrored forms, norms, lengths.

A real signal of even length is transformed as half as many complex numbers where it is long; others as complex ones.
"""

from __future__ import annotations

import math

from morpho.base.dims import product
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, conj, permute
from morpho.ops.complex.fourier import dft, is_long, radices
from morpho.ops.complex.parts import COMPLEX_OF

LEAST_CONVOLVED = 64  # length of a real signal from which the convolution of its halves is shorter
NARROW = 4  # columns; so few are transformed as rows


def is_static(node: Node) -> bool:
    """Whether the lengths of an `fft` are known numbers."""
    return all(isinstance(size, int) for size in node["sizes"])


def transforms(node: Node) -> Node:
    """The node in terms of `dft`."""
    x, function, axes, sizes, norm = node.inputs[0], node["function"], node["axes"], node["sizes"], node["norm"]
    if function == "hfft":  # the real transform of the conjugate
        x, function, norm = conj(x), "irfftn", {"backward": "forward", "forward": "backward"}.get(norm, norm)
    mirrored = function == "ihfft"
    if mirrored:
        function, norm = "rfftn", {"backward": "forward", "forward": "backward"}.get(norm, norm)
    inverse = function in ("ifftn", "irfftn")
    total = math.prod(sizes)
    scale = {"ortho": 1 / math.sqrt(total), "forward": 1.0 if inverse else 1 / total,
             "backward": 1 / total if inverse else 1.0}[norm]
    order = list(zip(axes, sizes, strict=True))
    if function == "rfftn":
        axis, n = order[-1]
        x = _real(_fitted(x, axis, n), axis, n, scale if len(order) == 1 else 1.0)
        order = order[:-1]
    elif function == "irfftn":
        last = order.pop()
    if not x.dtype.is_complex:
        x = cast(x, COMPLEX_OF[x.dtype])
    for number, (axis, n) in enumerate(reversed(order)):
        final = number == len(order) - 1 and function != "irfftn"
        x = _complex(_fitted(x, axis, n), axis, n, inverse, scale if final else 1.0)
    if function == "irfftn":
        x = _half(_fitted(x, last[0], last[1] // 2 + 1), *last, scale)
    return conj(x) if mirrored else x


def _fitted(x: Node, axis: int, n: int) -> Node:
    """Cut, or filled with zeros, to n along an axis."""
    rank, size = len(x.shape), x.shape[axis]
    if size == n:
        return x
    if isinstance(size, int) and size > n:
        sizes = tuple(n if d == axis else s for d, s in enumerate(x.shape))
        return build("slice", x, starts=(0,) * rank, sizes=sizes, steps=(1,) * rank)
    after = tuple(n - size if d == axis else 0 for d in range(rank))
    return build("pad", x, before=(0,) * rank, after=after, value=0.0)


def _last(x: Node, axis: int) -> tuple[Node, tuple[int, ...]]:
    """x with an axis moved to the end, and the way back."""
    order = (*(d for d in range(len(x.shape)) if d != axis), axis)
    return permute(x, order), tuple(order.index(d) for d in range(len(order)))


def _complex(x: Node, axis: int, n: int, inverse: bool, scale: float) -> Node:
    columns = product(x.shape[axis + 1:])
    if radices(n) is not None and (columns == 1 or not is_long(n) or not 1 < columns < NARROW):
        return dft(x, axis, n, "complex", inverse, scale)
    moved, back = _last(x, axis)
    return permute(dft(moved, len(x.shape) - 1, n, "complex", inverse, scale), back)


def _halves(n: int) -> bool:
    """Whether a real signal is transformed as half as many complex numbers."""
    return n % 2 == 0 and (is_long(n // 2) or (radices(n // 2) is None and n >= LEAST_CONVOLVED))


def _real(x: Node, axis: int, n: int, scale: float) -> Node:
    rank = len(x.shape)
    if _halves(n):
        moved, back = _last(x, axis)
        return permute(dft(moved, rank - 1, n, "real", False, scale), back)
    found = _complex(cast(x, COMPLEX_OF[x.dtype]), axis, n, False, scale)
    sizes = tuple(n // 2 + 1 if d == axis else s for d, s in enumerate(found.shape))
    return build("slice", found, starts=(0,) * rank, sizes=sizes, steps=(1,) * rank)


def _half(x: Node, axis: int, n: int, scale: float) -> Node:
    rank = len(x.shape)
    if _halves(n):
        moved, back = _last(x, axis)
        return permute(dft(moved, rank - 1, n, "half", True, scale), back)
    return build("real", _complex(_mirrored(x, axis, n), axis, n, True, scale))


def _mirrored(x: Node, axis: int, n: int) -> Node:
    """A whole spectrum from its half; the imaginary parts of the ends, which have no mirror, do not count."""
    rank = len(x.shape)

    def cut(start: int, count: int, step: int) -> Node:
        return build("slice", x, starts=tuple(start if d == axis else 0 for d in range(rank)),
                     sizes=tuple(count if d == axis else s for d, s in enumerate(x.shape)),
                     steps=tuple(step if d == axis else 1 for d in range(rank)))

    middle = (n - 1) // 2
    parts = [cast(build("real", cut(0, 1, 1)), x.dtype)]
    if middle:
        parts.append(cut(1, middle, 1))
    if n % 2 == 0:
        parts.append(cast(build("real", cut(n // 2, 1, 1)), x.dtype))
    if middle:
        parts.append(conj(cut(middle, middle, -1)))
    return build("concatenate", *parts, axis=axis) if len(parts) > 1 else parts[0]
