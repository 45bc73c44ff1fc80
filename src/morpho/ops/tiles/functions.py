"""Functions that kernels call. Outside of a kernel they are errors: the compiler reads them, it does not run them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from morpho.base.errors import ArgumentError, fail
from morpho.ops.tiles.translate import PRIMITIVES

F = TypeVar("F", bound=Callable[..., Any])


def _primitive(function: F) -> F:
    PRIMITIVES[function] = function.__name__
    return function


def _outside(name: str) -> NoReturn:
    raise fail(ArgumentError, f"kernel.{name}", "it is called outside of a kernel",
               "call it in a function under @mo.kernel(grid=...)")


@_primitive
def program_id(axis: int = 0) -> Any:
    """Return the number of the program along an axis of the grid."""
    _outside("program_id")


@_primitive
def num_programs(axis: int = 0) -> Any:
    """Return the size of the grid along an axis."""
    _outside("num_programs")


@_primitive
def load(window: Any, shape: Any = None, other: Any = 0, mask: Any = None) -> Any:
    """Read the tile at a window of an array.

    Args:
        window: An indexed array: `x[i, a:b]`, or `x[rows]` with an index tile, whose shape the result has.
        shape: Shape of the tile: a known number for each slice of the window.
        other: Value of elements that lie outside the window or the array, or that the mask leaves out.
        mask: Which elements are read.
    """
    _outside("load")


@_primitive
def store(window: Any, value: Any, mask: Any = None) -> None:
    """Write the elements of a tile that lie inside a window, an array and a mask."""
    _outside("store")


@_primitive
def atomic_add(window: Any, value: Any, mask: Any = None, unordered: bool = False) -> None:
    """Add a tile to elements of an array that other programs add to as well.

    Sums of floats then depend on the order in which programs arrive, so they need `unordered=True`.
    """
    _outside("atomic_add")


@_primitive
def atomic_max(window: Any, value: Any, mask: Any = None) -> None:
    """Raise elements of an array of integers to those of a tile."""
    _outside("atomic_max")


@_primitive
def atomic_min(window: Any, value: Any, mask: Any = None) -> None:
    """Lower elements of an array of integers to those of a tile."""
    _outside("atomic_min")


@_primitive
def arange(start: int, stop: int | None = None) -> Any:
    """Return the tile of int64 from `start` (or 0) up to `stop`; both are known numbers."""
    _outside("arange")


@_primitive
def zeros(shape: Any, dtype: Any = "float32") -> Any:
    """Return a tile of zeros."""
    _outside("zeros")


@_primitive
def full(shape: Any, value: Any, dtype: Any = None) -> Any:
    """Return a tile with the same value everywhere."""
    _outside("full")


@_primitive
def dot(a: Any, b: Any, acc: Any = None) -> Any:
    """Return the product of tiles (M, K) and (K, N), added to `acc`, in float32 or float64: `a @ b` in a kernel."""
    _outside("dot")


@_primitive
def cumsum(tile: Any, axis: int = -1) -> Any:
    """Return the running sums of a line."""
    _outside("cumsum")


@_primitive
def cumprod(tile: Any, axis: int = -1) -> Any:
    """Return the running products of a line."""
    _outside("cumprod")


@_primitive
def cummax(tile: Any, axis: int = -1) -> Any:
    """Return the running maximum of a line."""
    _outside("cummax")


@_primitive
def cummin(tile: Any, axis: int = -1) -> Any:
    """Return the running minimum of a line."""
    _outside("cummin")


@_primitive
def sort(tile: Any) -> Any:
    """Return the elements of a line in ascending order, NaN last."""
    _outside("sort")


@_primitive
def where(condition: Any, x: Any, y: Any) -> Any:
    """Return elements of x where a condition holds, else of y."""
    _outside("where")


@_primitive
def sum(tile: Any, axis: int | None = None) -> Any:
    """Return the sum of a tile, or of its rows (axis 1) or columns (axis 0), in a fixed order."""
    _outside("sum")


@_primitive
def require(condition: Any) -> None:
    """Report an index outside its axis unless a condition of one value holds."""
    _outside("require")


@_primitive
def prod(tile: Any, axis: int | None = None) -> Any:
    """Return the product of a tile, or of its rows or columns, in a fixed order."""
    _outside("prod")


@_primitive
def maximum(x: Any, y: Any) -> Any:
    """Return the larger element of two tiles; NaN wins."""
    _outside("maximum")


@_primitive
def minimum(x: Any, y: Any) -> Any:
    """Return the smaller element of two tiles; NaN wins."""
    _outside("minimum")


@_primitive
def max(tile: Any, axis: int | None = None) -> Any:
    """Return the largest element of a tile, or of its rows or columns; NaN wins."""
    _outside("max")


@_primitive
def min(tile: Any, axis: int | None = None) -> Any:
    """Return the least element of a tile, or of its rows or columns; NaN wins."""
    _outside("min")
