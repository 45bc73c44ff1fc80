"""Products: of matrices, of vectors, over any axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from morpho.base import settings
from morpho.base.dims import Shape, product
from morpho.base.dtypes import DType, as_dtype, bool_, float32, float64, int32
from morpho.base.errors import ArgumentError, AxisError, DTypeError, ShapeError, fail
from morpho.base.shapes import as_integer, as_items, broadcast, normalise_axis
from morpho.ir.node import Node, build
from morpho.ops.algebra import cast, expand, mul, permute, reduce, reshape
from morpho.runtime import thresholds
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.autodiff.precision import EXAMPLES, lowered, rounded_once
from morpho.tensor.core import Tensor
from morpho.tensor.functions.products.quantised import Quantised, TransposedWeight
from morpho.tensor.functions.products.quantised import product as quantised_product
from morpho.tensor.operands import promoted, promoted_arrays
from morpho.tensor.recorded import pair, recorded


def _numeric(name: str, x1: Any, x2: Any, low: bool = False) -> tuple[Node, Node, bool]:
    """Both operands in one dtype, and whether they were truth values: the product of those is whether any pair is
    true, found by counting pairs."""
    a, b = lowered(name, "product", x1, x2) if low else promoted(name, x1, x2)
    return (cast(a, int32), cast(b, int32), True) if a.dtype is bool_ else (a, b, False)


def _result(node: Node, is_truth: bool) -> Tensor:
    return Tensor.of_node(cast(node, bool_) if is_truth else node)


ALGORITHMS = ("auto", "kernel", "parallel", "blas", "strassen")
THREADS = {"auto": "auto", "kernel": "one", "parallel": "many"}  # Morpho's own code


@pair
def matmul(x1: Any, x2: Any, /, *, algorithm: str = "auto", dtype: Any = None) -> Tensor:
    """The matrix product; leading axes are batches and broadcast, a vector counts as a row or a column.

    `dtype` converts both sides first: `matmul(a, b, dtype=mo.int32)` multiplies int8 matrices exactly. `algorithm`:
    `kernel` is Morpho's own code on one thread, `parallel` divides it among threads, `auto` chooses between these two,
    which have the same bits, and between packing x2 and reading it unpacked, by dispatch thresholds
    (`morpho doctor --measure`). `blas` is NumPy's OpenBLAS and `strassen` Strassen's method in Winograd's form; both
    have bits of their own and are used when named, or by `auto` under `mo.settings(fast=True)` where they were measured
    to be faster; they take floats, and `strassen` known sizes. A `Quantised` x2 counts as its transpose, (k, n),
    written or not.

    >>> import morpho as mo
    >>> mo.matmul(mo.ones((2, 3)), mo.ones((3, 2)), algorithm="kernel").tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    if algorithm not in ALGORITHMS:
        raise fail(ArgumentError, "matmul", f"algorithm {algorithm!r} is unknown", "use " + ", ".join(ALGORITHMS))
    dtype = None if dtype is None else as_dtype(dtype)
    if isinstance(x1, Quantised | TransposedWeight) or isinstance(x2, Quantised | TransposedWeight):
        return _with_quantised(x1, x2, algorithm, dtype)
    a, b, is_truth = _numeric("matmul", x1, x2, low=dtype is None and algorithm in THREADS)
    if dtype is not None:
        if dtype.is_integer and not (a.dtype.is_integer and b.dtype.is_integer):
            raise fail(DTypeError, "matmul", f"{a.dtype} and {b.dtype} in {dtype}: fractions would be cut off",
                       "convert with astype if that is meant")
        a, b, is_truth = cast(a, dtype), cast(b, dtype), False
    if not a.shape or not b.shape:
        raise fail(ShapeError, "matmul", f"shapes {a.shape} and {b.shape}: a 0-dimensional tensor has no product",
                   "use multiply")
    if a.shape[-1] != b.shape[max(len(b.shape) - 2, 0)]:
        raise fail(ShapeError, "matmul", f"shapes {a.shape} and {b.shape} do not align: "
                                         f"{a.shape[-1]} != {b.shape[max(len(b.shape) - 2, 0)]}")
    row, column = len(a.shape) == 1, len(b.shape) == 1
    a = reshape(a, (1, *a.shape)) if row else a
    b = reshape(b, (*b.shape, 1)) if column else b
    batch = broadcast("matmul", a.shape, b.shape, inner=2)
    a, b = expand(a, (*batch, *a.shape[-2:])), expand(b, (*batch, *b.shape[-2:]))
    return _result(_without(_by(algorithm, a, b), row, column), is_truth)


def _with_quantised(x1: Any, x2: Any, algorithm: str, dtype: DType | None) -> Tensor:
    if isinstance(x1, Quantised | TransposedWeight):
        raise fail(ArgumentError, "matmul", "quantised weights stand on the left", "write x @ weight.T")
    if algorithm not in THREADS:
        raise fail(ArgumentError, "matmul", f"algorithm={algorithm!r} does not take quantised weights",
                   "use " + ", ".join(THREADS) + ", or dequantise()")
    return quantised_product(x1, x2, THREADS[algorithm], dtype)


def _fast(a: Node, b: Node) -> str:
    """Algorithm of `auto`: under `fast` another one if it was measured to be faster on this machine."""
    sizes = (*a.shape[-2:], b.shape[-1])
    if not settings.get().fast or a.dtype not in (float32, float64) or not all(isinstance(s, int) for s in sizes):
        return "auto"
    trace = tracing.current
    found = thresholds.current().fast_algorithm(*sizes, blas=trace is None or not trace.whole)  # type: ignore[arg-type, misc]
    if trace is not None and found != "auto":
        trace.notes[f"fast: a product {sizes[0]} x {sizes[1]} x {sizes[2]} by {found}, measured to be faster"] = None
    return found


def _by(algorithm: str, a: Node, b: Node) -> Node:
    algorithm = _fast(a, b) if algorithm == "auto" else algorithm
    if algorithm == "auto" or (algorithm in ("kernel", "parallel") and a.dtype.is_complex):
        return build("matmul", a, b)
    if algorithm in ("kernel", "parallel"):
        return build("matmul", a, b, threads="one" if algorithm == "kernel" else "many")
    if not a.dtype.is_float and not (a.dtype.is_complex and algorithm == "blas"):
        raise fail(DTypeError, "matmul", f"algorithm={algorithm!r} does not take {a.dtype}",
                   "use algorithm='auto'" + (", which is exact" if a.dtype.is_integer else ""))
    if algorithm == "blas":
        return build("matmul_blas", a, b)
    from morpho.tensor.functions.products.strassen import strassen

    return strassen(a, b)


def _without(node: Node, row: bool, column: bool) -> Node:
    shape = node.shape
    if column:
        shape = shape[:-1]
    if row:
        shape = shape[:-1] if column else (*shape[:-2], shape[-1])
    return reshape(node, shape)


@recorded
@rounded_once
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The sum of products along an axis of both; the first is conjugated.

    >>> mo.linalg.vecdot([1.0, 2.0], [3.0, 4.0])
    Tensor(11., dtype=float32)
    """
    a, b, is_truth = _numeric("vecdot", x1, x2)
    axis = as_integer(axis, "vecdot", "axis")
    if axis >= 0 and len(a.shape) == len(b.shape):
        axis -= len(a.shape)
    rank = min(len(a.shape), len(b.shape))
    if not -rank <= axis < 0:
        raise fail(AxisError, "vecdot", f"axis {axis} is not among -{rank}..-1, the axes both tensors have")
    if a.shape[axis] != b.shape[axis]:
        raise fail(ShapeError, "vecdot", f"shapes {a.shape} and {b.shape} do not align: "
                                         f"{a.shape[axis]} != {b.shape[axis]}")
    shape = broadcast("vecdot", a.shape, b.shape)
    a = build("conj", a) if a.dtype.is_complex else a
    number = len(shape) + axis
    total = reduce("sum", mul(expand(a, shape), expand(b, shape)), (number,))
    return _result(reshape(total, (*shape[:number], *shape[number + 1:])), is_truth)


def _pairs(axes: Any, a: Shape, b: Shape) -> tuple[list[int], list[int]]:
    if not hasattr(axes, "__iter__"):
        axes = as_integer(axes, "tensordot", "axes")
        if not 0 <= axes <= min(len(a), len(b)):
            raise fail(ArgumentError, "tensordot", f"{axes} axes cannot be contracted over shapes {a} and {b}")
        return list(range(len(a) - axes, len(a))), list(range(axes))
    sides = [as_items(side) for side in axes]
    if len(sides) != 2:
        raise fail(ArgumentError, "tensordot", f"axes {axes} are not a number or two lists of axes")
    first, second = sides
    if len(first) != len(second):
        raise fail(ArgumentError, "tensordot", f"{len(first)} axes cannot be contracted with {len(second)}")
    return ([normalise_axis(axis, len(a), "tensordot") for axis in first],
            [normalise_axis(axis, len(b), "tensordot") for axis in second])


@recorded
def tensordot(x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """The sum of products over `axes`: the last ones of x1 with the first ones of x2, or two lists of pairs.

    >>> mo.linalg.tensordot(mo.ones((2, 3)), mo.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    a, b, is_truth = _numeric("tensordot", x1, x2, low=True)
    first, second = _pairs(axes, a.shape, b.shape)
    if any(a.shape[i] != b.shape[j] for i, j in zip(first, second, strict=True)):
        raise fail(ShapeError, "tensordot", f"shapes {a.shape} and {b.shape} do not align over axes {first}, {second}")
    left = [axis for axis in range(len(a.shape)) if axis not in first]
    right = [axis for axis in range(len(b.shape)) if axis not in second]
    inner = product(tuple(a.shape[axis] for axis in first))
    rows, columns = tuple(a.shape[axis] for axis in left), tuple(b.shape[axis] for axis in right)
    left_matrix = reshape(permute(a, (*left, *first)), (product(rows), inner))
    right_matrix = reshape(permute(b, (*second, *right)), (inner, product(columns)))
    return _result(reshape(build("matmul", left_matrix, right_matrix), (*rows, *columns)), is_truth)


@recorded
def outer(x1: Any, x2: Any, /) -> Tensor:
    """Every element of one vector times every one of another.

    >>> mo.linalg.outer([1, 2], [10, 20, 30])
    Tensor([[10, 20, 30],
            [20, 40, 60]], dtype=int64)
    """
    a, b = promoted_arrays("outer", x1, x2)
    if len(a.shape) != 1 or len(b.shape) != 1:
        raise fail(ShapeError, "outer", f"shapes {a.shape} and {b.shape} are not two vectors")
    shape = (*a.shape, *b.shape)
    a, b = expand(reshape(a, (*a.shape, 1)), shape), expand(reshape(b, (1, *b.shape)), shape)
    return Tensor.of_node(build("logical_and", a, b) if a.dtype is bool_ else mul(a, b))


EXAMPLES["product"] = (matmul, [(256, 256), (256, 256)])
