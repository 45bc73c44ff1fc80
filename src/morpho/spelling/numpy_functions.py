"""NumPy's functions that are more than another name for one of Morpho's, with NumPy's argument order.

Those that NumPy writes to their argument (`fill_diagonal`, `put`, `place`, `copyto`) assign to the tensor, as
`x[...] = value` does; tensors made from its old value keep that.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import as_dtype
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail


def _out(out: Any, result: mo.Tensor) -> mo.Tensor:
    if out is None:
        return result
    out[...] = result
    return out


# -- making --------------------------------------------------------------------------------------------------------
def array(object: Any, dtype: Any = None, *, copy: Any = True, order: Any = None, subok: bool = False, ndmin: int = 0,
          like: Any = None, device: Any = None) -> mo.Tensor:
    if copy is None or copy is True:
        made = mo.asarray(object, dtype=dtype, device=device)
    else:
        made = mo.asarray(object, dtype=dtype, device=device, copy=None)
    while made.ndim < ndmin:
        made = made[None]
    return made


def asanyarray(a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: Any = None,
               like: Any = None) -> mo.Tensor:
    return mo.asarray(a, dtype=dtype, device=device, copy=copy)


def asarray_chkfinite(a: Any, dtype: Any = None, order: Any = None) -> mo.Tensor:
    made = mo.asarray(a, dtype=dtype)
    if made.dtype.is_inexact and not mo.all(mo.isfinite(made)):
        raise fail(mo.errors.ValueFault, "asarray_chkfinite", "there is an infinity or NaN among the elements")
    return made


def copy(a: Any, order: Any = "K", subok: bool = False) -> mo.Tensor:
    return mo.asarray(a, copy=True)


def identity(n: int, dtype: Any = None, *, like: Any = None) -> mo.Tensor:
    return mo.eye(n, dtype=dtype)


def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, like: Any = None) -> mo.Tensor:
    return mo.tril(mo.ones((N, N if M is None else M), dtype=dtype), k=k)


def logspace(start: Any, stop: Any = None, num: int = 50, endpoint: bool = True, base: float = 10.0, dtype: Any = None,
             axis: int = 0, *, end: Any = None, steps: Any = None, device: Any = None) -> mo.Tensor:
    stop, num = end if stop is None else stop, num if steps is None else steps
    if not isinstance(endpoint, bool | np.bool_):
        raise fail(ArgumentError, "logspace", "the fourth argument is NumPy's endpoint and PyTorch's base",
                   f"write mo.logspace(start, stop, num, base={endpoint}) for PyTorch's meaning")
    line = np.logspace(_plain(start), _plain(stop), num, endpoint, base, axis=axis)
    return mo.asarray(line, dtype=dtype if dtype is not None else mo.complex64 if np.iscomplexobj(line)
                      else mo.float32, device=device)


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None,
              axis: int = 0) -> mo.Tensor:
    line = np.geomspace(_plain(start), _plain(stop), num, endpoint, axis=axis)
    plain = mo.complex64 if np.iscomplexobj(line) else mo.float32
    return mo.asarray(line, dtype=dtype if dtype is not None else plain)


def _plain(value: Any) -> Any:
    return value.numpy() if isinstance(value, mo.Tensor) else value


def indices(dimensions: Sequence[int], dtype: Any = int, sparse: bool = False) -> Any:
    dimensions = tuple(dimensions)
    lines = [mo.arange(int(size), dtype=dtype) for size in dimensions]
    rank = len(lines)
    shaped = [mo.reshape(line, tuple(-1 if i == axis else 1 for i in range(rank))) for axis, line in enumerate(lines)]
    if sparse:
        return tuple(shaped)
    if not shaped:
        return mo.zeros((0,), dtype=dtype)
    return mo.stack([mo.broadcast_to(line, tuple(dimensions)) for line in shaped])


def fromfunction(function: Callable[..., Any], shape: Sequence[int], *, dtype: Any = float, **settings: Any) -> Any:
    wanted = mo.float32 if dtype is float else dtype
    return function(*indices(shape, dtype=wanted), **settings)


def fromiter(iter: Iterable[Any], dtype: Any, count: int = -1) -> mo.Tensor:
    return mo.asarray(np.fromiter(iter, as_dtype(dtype).numpy, count))


def frombuffer(buffer: Any, dtype: Any = float, count: int = -1, offset: int = 0) -> mo.Tensor:
    return mo.asarray(np.frombuffer(buffer, as_dtype(dtype).numpy, count, offset))


def fromfile(file: Any, dtype: Any = float, count: int = -1, sep: str = "", offset: int = 0) -> mo.Tensor:
    return mo.asarray(np.fromfile(file, as_dtype(dtype).numpy, count, sep, offset))


def fromstring(string: str, dtype: Any = float, count: int = -1, *, sep: str) -> mo.Tensor:
    return mo.asarray(np.fromstring(string, as_dtype(dtype).numpy, count, sep=sep))


def loadtxt(fname: Any, dtype: Any = float, **settings: Any) -> mo.Tensor:
    return mo.asarray(np.loadtxt(fname, as_dtype(dtype).numpy, **settings))


def genfromtxt(fname: Any, dtype: Any = float, **settings: Any) -> mo.Tensor:
    return mo.asarray(np.genfromtxt(fname, as_dtype(dtype).numpy, **settings))


def savetxt(fname: Any, X: Any, *args: Any, **settings: Any) -> None:
    np.savetxt(fname, _plain(X), *args, **settings)


def _window(name: str) -> Callable[[int], mo.Tensor]:
    def function(M: int) -> mo.Tensor:
        return getattr(mo, f"{name}_window")(M, periodic=False, dtype=mo.float64)

    return function


bartlett, blackman, hamming, hanning = (_window(name) for name in ("bartlett", "blackman", "hamming", "hann"))


def kaiser(M: int, beta: float) -> mo.Tensor:
    return mo.kaiser_window(M, beta=beta, periodic=False, dtype=mo.float64)


# -- what an array is ----------------------------------------------------------------------------------------------
def ndim(a: Any) -> int:
    return len(shape(a))


def shape(a: Any) -> tuple[int, ...]:
    return tuple(a.shape) if hasattr(a, "shape") else np.shape(a)


def size(a: Any, axis: Any = None) -> int:
    if axis is None:
        return math.prod(shape(a))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return math.prod(shape(a)[one] for one in axes)


def isscalar(element: Any) -> bool:
    return np.isscalar(element)


def iterable(y: Any) -> bool:
    return shape(y) != () if isinstance(y, mo.Tensor) else np.iterable(y)


def iscomplexobj(x: Any) -> bool:
    return mo.asarray(x).dtype.is_complex


def isrealobj(x: Any) -> bool:
    return not mo.asarray(x).dtype.is_complex


def isreal(x: Any) -> mo.Tensor:
    return mo.equal(mo.imag(mo.asarray(x)), 0)


def iscomplex(x: Any) -> mo.Tensor:
    return mo.not_equal(mo.imag(mo.asarray(x)), 0)


def isfortran(a: Any) -> bool:
    return False


def issubdtype(arg1: Any, arg2: Any) -> bool:
    kinds = {"integer": "integral", "floating": "real floating", "complexfloating": "complex floating",
             "signedinteger": "signed integer", "unsignedinteger": "unsigned integer", "number": "numeric"}
    name = getattr(arg2, "__name__", "")
    if name == "inexact":
        return as_dtype(arg1).is_inexact
    if name == "generic":
        return True
    if name in kinds:
        return mo.isdtype(as_dtype(arg1), kinds[name])
    return as_dtype(arg1) is as_dtype(arg2)


def promote_types(type1: Any, type2: Any) -> Any:
    return mo.result_type(as_dtype(type1), as_dtype(type2))


def array_repr(arr: Any, *args: Any, **settings: Any) -> str:
    return repr(mo.asarray(arr))


def array_str(a: Any, *args: Any, **settings: Any) -> str:
    return np.array_str(_plain(mo.asarray(a)), *args, **settings)


def array2string(a: Any, *args: Any, **settings: Any) -> str:
    return np.array2string(_plain(mo.asarray(a)), *args, **settings)


def broadcast_shapes(*args: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*args)


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Tensors are values: what is done to one never shows in another."""
    return False


shares_memory = may_share_memory


def get_printoptions() -> Any:
    return np.get_printoptions()


def set_printoptions(precision: Any = None, threshold: Any = None, edgeitems: Any = None, linewidth: Any = None,
                     profile: Any = None, sci_mode: Any = None, **settings: Any) -> None:
    """How tensors are printed: NumPy's settings, which tensors follow; PyTorch's `sci_mode=False` is suppress=True."""
    if sci_mode is not None:
        settings["suppress"] = not sci_mode
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    np.set_printoptions(**{key: value for key, value in given.items() if value is not None}, **settings)


def printoptions(*args: Any, **settings: Any) -> Any:
    return np.printoptions(*args, **settings)


# -- arithmetic ----------------------------------------------------------------------------------------------------
def fabs(x: Any) -> mo.Tensor:
    x = mo.asarray(x)
    return mo.abs(x if x.dtype.is_float else x.astype(mo.float64))


def rint(x: Any) -> mo.Tensor:
    x = mo.asarray(x)
    return mo.round(x if x.dtype.is_inexact else x.astype(mo.float64))


def float_power(x1: Any, x2: Any) -> mo.Tensor:
    x1, x2 = (mo.asarray(one) for one in (x1, x2))
    wide = mo.complex128 if x1.dtype.is_complex or x2.dtype.is_complex else mo.float64
    return mo.pow(x1.astype(wide), x2.astype(wide))


def logaddexp2(x1: Any, x2: Any) -> mo.Tensor:
    scale = math.log(2)
    x1, x2 = (mo.asarray(one) for one in (x1, x2))
    return mo.logaddexp(x1 * scale, x2 * scale) / scale


def isneginf(x: Any, out: Any = None) -> mo.Tensor:
    return _out(out, mo.equal(mo.asarray(x), -mo.inf) if mo.asarray(x).dtype.is_float else mo.isinf(x))


def isposinf(x: Any, out: Any = None) -> mo.Tensor:
    return _out(out, mo.equal(mo.asarray(x), mo.inf) if mo.asarray(x).dtype.is_float else mo.isinf(x))


def spacing(x: Any) -> mo.Tensor:
    x = mo.asarray(x)
    away = mo.where(mo.less(x, 0), -mo.inf, mo.inf)
    return mo.nextafter(x, away.astype(x.dtype)) - x


def bitwise_count(x: Any) -> mo.Tensor:
    x = mo.asarray(x)
    if x.dtype is mo.bool:
        return x.astype(mo.uint8)
    if not x.dtype.is_integer:
        raise fail(DTypeError, "bitwise_count", f"dtype {x.dtype} is not an integer")
    rest, count = mo.abs(x), mo.zeros(x.shape, dtype=x.dtype)
    for bit in range(x.dtype.itemsize * 8):
        count = count + mo.bitwise_and(mo.bitwise_right_shift(rest, bit), 1)
    return count.astype(mo.uint8)


def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> mo.Tensor:
    a = mo.asarray(a)
    return cumsum(mo.where(mo.isnan(a), 0, a) if a.dtype.is_inexact else a, axis, dtype, out)


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> mo.Tensor:
    a = mo.asarray(a)
    return cumprod(mo.where(mo.isnan(a), 1, a) if a.dtype.is_inexact else a, axis, dtype, out)


def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> mo.Tensor:
    a = mo.asarray(a)
    a, axis = (mo.ravel(a), 0) if axis is None else (a, axis)
    return _out(out, mo.cumulative_sum(a, axis=axis, dtype=dtype))


def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> mo.Tensor:
    a = mo.asarray(a)
    a, axis = (mo.ravel(a), 0) if axis is None else (a, axis)
    return _out(out, mo.cumulative_prod(a, axis=axis, dtype=dtype))


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> mo.Tensor:
    line = mo.ravel(mo.asarray(ary))
    parts = [mo.diff(line)]
    if to_begin is not None:
        parts.insert(0, mo.ravel(mo.asarray(to_begin, dtype=line.dtype)))
    if to_end is not None:
        parts.append(mo.ravel(mo.asarray(to_end, dtype=line.dtype)))
    return mo.concat(parts)


def around(a: Any, decimals: int = 0, out: Any = None) -> mo.Tensor:
    from morpho.spelling.wide import WIDE

    return WIDE["round"](a, decimals, out)


# -- products ------------------------------------------------------------------------------------------------------
def dot(a: Any, b: Any, out: Any = None) -> mo.Tensor:
    a, b = mo.asarray(a), mo.asarray(b)
    if a.ndim == 0 or b.ndim == 0:
        return _out(out, a * b)
    if a.ndim <= 2 and b.ndim <= 2:
        return _out(out, mo.matmul(a, b))
    return _out(out, mo.tensordot(a, b, axes=((a.ndim - 1,), (max(b.ndim - 2, 0),))))


def vdot(a: Any, b: Any) -> mo.Tensor:
    a, b = (mo.ravel(mo.asarray(one)) for one in (a, b))
    return mo.vecdot(a, b)


def inner(a: Any, b: Any) -> mo.Tensor:
    a, b = mo.asarray(a), mo.asarray(b)
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    return mo.tensordot(a, b, axes=((a.ndim - 1,), (b.ndim - 1,)))


def matvec(x1: Any, x2: Any) -> mo.Tensor:
    return mo.matmul(mo.asarray(x1), mo.asarray(x2)[..., None])[..., 0]


def vecmat(x1: Any, x2: Any) -> mo.Tensor:
    return mo.matmul(mo.conj(mo.asarray(x1))[..., None, :], mo.asarray(x2))[..., 0, :]


def cross(a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None, *,
          dim: Any = None) -> mo.Tensor:
    axis = dim if axis is None else axis
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = mo.moveaxis(mo.asarray(a), axisa, -1), mo.moveaxis(mo.asarray(b), axisb, -1)
    if a.shape[-1] == 2 and b.shape[-1] == 2:
        return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    if a.shape[-1] == 2 or b.shape[-1] == 2:
        a, b = (mo.concat([one, mo.zeros_like(one[..., :1])], axis=-1) if one.shape[-1] == 2 else one for one in (a, b))
    return mo.moveaxis(mo.linalg.cross(a, b, axis=-1), -1, axisc)


def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> mo.Tensor:
    return _out(out, mo.sum(mo.diagonal(a, offset=offset, axis1=axis1, axis2=axis2), axis=-1, dtype=dtype))


# -- arranging -----------------------------------------------------------------------------------------------------
def transpose(a: Any, axes: Any = None, *rest: Any, dim0: Any = None, dim1: Any = None) -> mo.Tensor:
    """NumPy's transpose; PyTorch's pair of axes is taken where it cannot be a permutation."""
    a = mo.asarray(a)
    if dim0 is not None and dim1 is not None:
        return mo.swapaxes(a, dim0, dim1)
    if rest:
        pair = (axes, *rest)
        if len(pair) == 2 and a.ndim != 2:
            return mo.swapaxes(a, *pair)
        if len(pair) == 2 and tuple(one % 2 for one in pair) == (0, 1):
            raise fail(ArgumentError, "transpose",
                       "NumPy leaves a matrix as it is here, and PyTorch exchanges its axes",
                       "write x.T, or x.transpose((0, 1)) for NumPy's meaning")
        axes = pair
    axes = tuple(reversed(range(a.ndim))) if axes is None else axes
    return mo.permute_dims(a, axes if isinstance(axes, tuple | list) else (axes,))


def rollaxis(a: Any, axis: int, start: int = 0) -> mo.Tensor:
    a = mo.asarray(a)
    axis, start = axis % a.ndim, start + a.ndim if start < 0 else start
    return mo.moveaxis(a, axis, start - 1 if start > axis else start)


def dsplit(ary: Any, indices_or_sections: Any) -> tuple[mo.Tensor, ...]:
    if len(shape(ary)) < 3:
        raise fail(ShapeError, "dsplit", f"shape {shape(ary)} has fewer than three axes")
    return mo.split(ary, indices_or_sections, axis=2)


def resize(a: Any, new_shape: Any) -> mo.Tensor:
    line = mo.ravel(mo.asarray(a))
    sizes = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    count = math.prod(sizes)
    if line.size == 0 or count == 0:
        return mo.zeros(sizes, dtype=line.dtype)
    return mo.reshape(mo.tile(line, (-(-count // line.size),))[:count], sizes)


def trim_zeros(filt: Any, trim: str = "fb", axis: Any = None) -> mo.Tensor:
    array = mo.asarray(filt)
    places = np.nonzero(_plain(array))
    axes = range(array.ndim) if axis is None else [one % array.ndim for one in np.atleast_1d(axis).tolist()]
    key: list[slice] = [slice(None)] * array.ndim
    for one in axes:
        line = places[one]
        if line.size == 0:
            key[one] = slice(0, 0)
            continue
        first = int(line.min()) if "f" in trim.lower() else 0
        last = int(line.max()) + 1 if "b" in trim.lower() else array.shape[one]
        key[one] = slice(first, last)
    return array[tuple(key)]


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **settings: Any) -> mo.Tensor:
    arr = mo.asarray(arr)
    lines = mo.moveaxis(arr, axis, -1)
    flat = mo.reshape(lines, (-1, lines.shape[-1]))
    made = mo.stack([mo.asarray(func1d(flat[row], *args, **settings)) for row in range(flat.shape[0])])
    result = mo.reshape(made, (*lines.shape[:-1], *made.shape[1:]))
    place = axis % arr.ndim
    return mo.moveaxis(result, tuple(range(arr.ndim - 1, result.ndim)), tuple(range(place, place + made.ndim - 1)))


def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> mo.Tensor:
    a = mo.asarray(a)
    for axis in axes if isinstance(axes, tuple | list) else (axes,):
        result = func(a, axis)
        a = result if result.ndim == a.ndim else mo.expand_dims(result, axis)
    return a


# -- looking up and writing ----------------------------------------------------------------------------------------
def extract(condition: Any, arr: Any) -> mo.Tensor:
    return mo.compress(mo.ravel(mo.asarray(condition)).astype(mo.bool), mo.ravel(mo.asarray(arr)))


def ix_(*args: Any) -> tuple[mo.Tensor, ...]:
    lines = [mo.asarray(arg) for arg in args]
    lines = [mo.nonzero(line)[0] if line.dtype is mo.bool else line for line in lines]
    return tuple(mo.reshape(line, tuple(-1 if i == place else 1 for i in range(len(lines))))
                 for place, line in enumerate(lines))


def ravel_multi_index(multi_index: Any, dims: Any, mode: str = "raise", order: str = "C") -> mo.Tensor:
    modes = dict.fromkeys(range(len(tuple(dims))), mode) if isinstance(mode, str) else dict(enumerate(mode))
    if not set(modes.values()) <= {"raise", "clip", "wrap"} or order not in ("C", "F"):
        raise fail(ArgumentError, "ravel_multi_index", f"mode {mode!r} with order {order!r} is not taken",
                   "modes are 'raise', 'clip' and 'wrap', orders 'C' and 'F'")
    parts, dims = [mo.asarray(part) for part in multi_index], tuple(dims)
    for axis, own in modes.items():
        if own == "clip":
            parts[axis] = mo.clip(parts[axis], 0, dims[axis] - 1)
        elif own == "wrap":
            parts[axis] = mo.remainder(parts[axis], dims[axis])
        elif mo.any(mo.logical_or(parts[axis] < 0, parts[axis] >= dims[axis])):
            raise fail(mo.errors.IndexFault, "ravel_multi_index", f"an index leaves axis {axis} of size {dims[axis]}")
    if order == "F":
        parts, dims = parts[::-1], dims[::-1]
    place = mo.zeros_like(parts[0])
    for part, length in zip(parts, dims, strict=True):
        place = place * length + part
    return place


def lexsort(keys: Any, axis: int = -1) -> mo.Tensor:
    lines = [mo.asarray(key) for key in keys]
    order = mo.argsort(lines[0], axis=axis)
    for key in lines[1:]:
        order = mo.take_along_axis(order, mo.argsort(mo.take_along_axis(key, order, axis=axis), axis=axis), axis=axis)
    return order


def sort_complex(a: Any) -> mo.Tensor:
    a = mo.asarray(a)
    wide = a if a.dtype.is_complex else a.astype(mo.complex128 if a.dtype.itemsize > 4 else mo.complex64)
    order = lexsort((mo.imag(wide), mo.real(wide)))
    return mo.take_along_axis(wide, order, axis=-1)


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> mo.Tensor:
    return mo.union1d(mo.setdiff1d(ar1, ar2), mo.setdiff1d(ar2, ar1))


def array_equiv(a1: Any, a2: Any) -> bool:
    try:
        first, second = mo.broadcast_arrays(mo.asarray(a1), mo.asarray(a2))
    except ValueError:
        return False
    return bool(mo.all(mo.equal(first, second)))


def tril_indices_from(arr: Any, k: int = 0) -> tuple[mo.Tensor, ...]:
    rows, columns = shape(arr)
    return mo.tril_indices(rows, k, columns)


def triu_indices_from(arr: Any, k: int = 0) -> tuple[mo.Tensor, ...]:
    rows, columns = shape(arr)
    return mo.triu_indices(rows, k, columns)


def diag_indices_from(arr: Any) -> tuple[mo.Tensor, ...]:
    sizes = shape(arr)
    if len(sizes) < 2 or len(set(sizes)) != 1:
        raise fail(ShapeError, "diag_indices_from", f"shape {sizes} has no diagonal of equal sizes")
    return mo.diag_indices(sizes[0], len(sizes))


def mask_indices(n: int, mask_func: Callable[..., Any], k: Any = 0) -> tuple[mo.Tensor, ...]:
    return tuple(mo.nonzero(mo.asarray(mask_func(mo.ones((n, n)), k)) != 0))


def fill_diagonal(a: mo.Tensor, val: Any, wrap: bool = False, *, inplace: bool = True) -> mo.Tensor | None:
    """Write the main diagonal of a tensor; `inplace=False`, JAX's word, returns a new one."""
    if wrap:
        raise fail(ArgumentError, "fill_diagonal", "wrap=True is not taken", "write the rows by slices")
    target = a if inplace else mo.asarray(a, copy=True)
    place = mo.arange(builtins.min(target.shape))
    values = val if np.ndim(_plain(val)) == 0 else mo.asarray(val)[:place.shape[0]]
    target[(place,) * target.ndim] = values
    return None if inplace else target


def put(a: mo.Tensor, ind: Any, v: Any, mode: str = "raise", *, inplace: bool = True) -> mo.Tensor | None:
    place = mo.ravel(mo.asarray(ind))
    values = resize(mo.asarray(v, dtype=a.dtype), place.shape[0])
    flat = mo.ravel(a) + 0 if a.dtype is not mo.bool else mo.asarray(mo.ravel(a), copy=True)
    flat[place] = values
    made = mo.reshape(flat, a.shape)
    if not inplace:
        return made
    a[...] = made
    return None


def place(arr: mo.Tensor, mask: Any, vals: Any, *, inplace: bool = True) -> mo.Tensor | None:
    where = mo.flatnonzero(mo.asarray(mask) != 0)
    return put(arr, where, vals, inplace=inplace)


def putmask(a: mo.Tensor, mask: Any, values: Any) -> None:
    values = mo.reshape(resize(mo.asarray(values, dtype=a.dtype), a.size), a.shape)
    a[...] = mo.where(mo.asarray(mask), values, a)


def copyto(dst: mo.Tensor, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    src = mo.broadcast_to(mo.asarray(src).astype(dst.dtype), dst.shape)
    dst[...] = src if where is True else mo.where(mo.asarray(where), src, dst)


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **settings: Any) -> mo.Tensor:
    x = mo.asarray(x)
    conditions = list(condlist) if isinstance(condlist, list | tuple) else [condlist]
    conditions = [mo.asarray(one) for one in conditions]
    functions = list(funclist)
    result = mo.zeros_like(x)
    if len(functions) == len(conditions) + 1:
        last = functions.pop()
        result = mo.broadcast_to(mo.asarray(last(x, *args, **settings) if callable(last) else last, dtype=x.dtype),
                                 x.shape)
    for condition, function in zip(conditions, functions, strict=True):
        value = function(x, *args, **settings) if callable(function) else function
        result = mo.where(condition, mo.asarray(value, dtype=x.dtype), result)
    return result


def select(condlist: Any, choicelist: Any, default: Any = 0) -> mo.Tensor:
    return mo.select(condlist, choicelist, default)


def packbits(a: Any, axis: Any = None, bitorder: Any = "big") -> mo.Tensor:
    return mo.asarray(np.packbits(_plain(mo.asarray(a)), axis, bitorder))


def unpackbits(a: Any, axis: Any = None, count: Any = None, bitorder: Any = "big") -> mo.Tensor:
    return mo.asarray(np.unpackbits(_plain(mo.asarray(a)), axis, count, bitorder))


def histogramdd(sample: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None, *,
                weight: Any = None) -> Any:
    weights = weight if weights is None else weights
    made, edges = np.histogramdd(_plain(mo.asarray(sample)), bins, range, bool(density), _plain(weights))
    return mo.asarray(made), [mo.asarray(edge) for edge in edges]


# -- polynomials ---------------------------------------------------------------------------------------------------
def poly(seq_of_zeros: Any) -> mo.Tensor:
    roots = mo.asarray(seq_of_zeros)
    roots = mo.linalg.eigvals(roots) if roots.ndim == 2 else roots
    made = mo.ones((1,), dtype=roots.dtype)
    for place in range(roots.shape[0]):
        shifted = mo.concat([made, mo.zeros((1,), dtype=made.dtype)])
        made = shifted - mo.concat([mo.zeros((1,), dtype=made.dtype), made * roots[place]])
    return made


def _aligned(a1: Any, a2: Any) -> tuple[mo.Tensor, mo.Tensor]:
    first, second = (mo.atleast_1d(mo.asarray(one)) for one in (a1, a2))
    length = builtins.max(first.shape[0], second.shape[0])
    return tuple(mo.pad(one, (length - one.shape[0], 0)) for one in (first, second))  # type: ignore[return-value]


def polyadd(a1: Any, a2: Any) -> mo.Tensor:
    first, second = _aligned(a1, a2)
    return first + second


def polysub(a1: Any, a2: Any) -> mo.Tensor:
    first, second = _aligned(a1, a2)
    return first - second


def polymul(a1: Any, a2: Any) -> mo.Tensor:
    first, second = (mo.atleast_1d(mo.asarray(one)) for one in (a1, a2))
    return mo.convolve(first, second)


def polydiv(u: Any, v: Any) -> tuple[mo.Tensor, mo.Tensor]:
    quotient, rest = np.polydiv(_plain(mo.asarray(u)), _plain(mo.asarray(v)))
    return mo.asarray(quotient), mo.asarray(rest)


def polyder(p: Any, m: int = 1) -> mo.Tensor:
    p = mo.asarray(p)
    for _ in range(m):
        degree = p.shape[0] - 1
        p = p[:-1] * mo.arange(degree, 0, -1).astype(p.dtype)
    return p


def polyint(p: Any, m: int = 1, k: Any = None) -> mo.Tensor:
    p = mo.asarray(p)
    p = p if p.dtype.is_inexact else p.astype(mo.float64)
    constants = [0.0] * m if k is None else [float(one) for one in np.broadcast_to(_plain(k), (m,))]
    for constant in constants:
        degree = p.shape[0]
        p = mo.concat([p / mo.arange(degree, 0, -1).astype(p.dtype), mo.asarray([constant], dtype=p.dtype)])
    return p


# -- functions of functions ----------------------------------------------------------------------------------------
def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, **settings: Any) -> Callable[..., Any]:
    made = np.frompyfunc(func, nin, nout, **settings)

    def call(*args: Any) -> Any:
        results = made(*[_plain(mo.asarray(arg)) for arg in args])
        parts = [mo.asarray(np.array(part.tolist() if hasattr(part, "tolist") else part))
                 for part in (results if nout > 1 else (results,))]
        return tuple(parts) if nout > 1 else parts[0]

    return call


def vectorize(pyfunc: Callable[..., Any] | None = None, otypes: Any = None, doc: Any = None, excluded: Any = None,
              cache: bool = False, signature: Any = None) -> Callable[..., Any]:
    """A function of numbers as one of arrays, called once for each element."""
    if pyfunc is None:
        return lambda function: vectorize(function, otypes, doc, excluded, cache, signature)

    made = np.vectorize(pyfunc, otypes, doc, excluded, cache, signature)
    return lambda *args: mo.asarray(made(*[_plain(mo.asarray(arg)) for arg in args]))


# -- files: tensors by name, never objects ---------------------------------------------------------------------------
def save(file: Any, arr: Any = None, allow_pickle: bool = False, fix_imports: Any = None, **settings: Any) -> None:
    """Write an array as NumPy's `.npy`; called as PyTorch's `save(obj, path)`, a tree of tensors as safetensors."""
    from morpho.spelling.files import save_tree

    if arr is None or isinstance(arr, str) or hasattr(arr, "write") or hasattr(arr, "__fspath__"):
        save_tree(file, arr, **settings)
    else:
        np.save(file, _plain(mo.asarray(arr)), allow_pickle=False)


def savez(file: Any, *args: Any, allow_pickle: bool = False, **named: Any) -> None:
    np.savez(file, *[_plain(mo.asarray(arg)) for arg in args],
             **{name: _plain(mo.asarray(value)) for name, value in named.items()})


def savez_compressed(file: Any, *args: Any, allow_pickle: bool = False, **named: Any) -> None:
    np.savez_compressed(file, *[_plain(mo.asarray(arg)) for arg in args],
                        **{name: _plain(mo.asarray(value)) for name, value in named.items()})


def load(file: Any, *args: Any, **settings: Any) -> Any:
    """Read `.npy` and `.npz` of NumPy, or what `mo.save` wrote: tensors by name. Pickles are never read."""
    from morpho.spelling.files import load_any

    return load_any(file)
