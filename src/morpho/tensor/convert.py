"""`asarray`: anything array-like becomes a tensor."""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from morpho.backends.driver.layout import array_address
from morpho.backends.registry import HOST, canonical, holder, memory_of
from morpho.base import settings
from morpho.base.checks import shown
from morpho.base.dtypes import BY_NUMPY, DType, as_dtype, bfloat16, makers, promote
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, ValueFault, fail, user_line
from morpho.base.shapes import contiguous_strides
from morpho.base.trees import refuse_depth
from morpho.ir.node import build
from morpho.ops.algebra import cast, reshape
from morpho.ops.special import reference_cast, round_bfloat16
from morpho.runtime.memory.buffer import Buffer, allocate, borrow, copy_bytes, view_memory
from morpho.runtime.memory.device_memory import upload
from morpho.runtime.trace import spans
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.core import Tensor, copied, evaluate
from morpho.tensor.device import placed
from morpho.tensor.eager import is_quiet, number_tensor, quiet
from morpho.tensor.interop.interop import from_dlpack, is_pytorch
from morpho.tensor.interop.libraries.arrow import column, speaks_arrow
from morpho.tensor.interop.ownership import is_fixed, is_temporary
from morpho.tensor.lifted import LiftedScalar
from morpho.tensor.scalars import DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INT
from morpho.tensor.tools.foreign_calls import hinted

TOLD_BYTES = 64 << 10  # of a copy: a profile is not told of shorter ones
_NUMBERS: dict[type, DType] = {int: DEFAULT_INT, float: DEFAULT_FLOAT}
LEAST_INT, MOST_INT = -(1 << 63), (1 << 63) - 1
_chosen = settings.current.get


def asarray(obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor of anything array-like, with the value that it has when this line runs.

    Memory that somebody may write is copied. What nobody can is taken as it is: read-only arrays, buffers of `bytes`,
    files mapped for reading, and an array that was made for this call. `copy=True` always copies. `copy=False` borrows:
    no byte is copied, the owner is kept alive, its memory is read when the graph runs, so that changes until then are
    seen, and never written; what cannot be borrowed is an error. Inside a compiled function arrays of its surroundings
    are borrowed, and read at every call.

    >>> x = np.arange(3.0)
    >>> kept, borrowed = mo.asarray(x), mo.asarray(x, copy=False)
    >>> x[0] = 7
    >>> kept.tolist(), borrowed.tolist()
    ([0.0, 1.0, 2.0], [7.0, 1.0, 2.0])
    """
    if device is not None or (settings.get().device != HOST and not isinstance(obj, Tensor)):
        target = settings.get().device if device is None else holder(device, "asarray")
        memory = memory_of(canonical(target, "asarray"))
        leaves = copy is None and tracing.current is None and memory != HOST
        if leaves and type(obj) is np.ndarray and dtype is None and is_plain(obj):
            return Tensor.of_buffer(upload(obj, BY_NUMPY[obj.dtype], memory))
        with settings.settings(device=HOST):  # what goes elsewhere at once needs no copy here
            made = borrowed(obj, dtype) if leaves else asarray(obj, dtype=dtype, copy=copy)
        return placed(made, device, "asarray")
    if copy is None and tracing.current is None and not isinstance(obj, Tensor):
        return _taken(obj, dtype)
    return borrowed(obj, dtype, copy)


@functools.wraps(asarray)
def public_asarray(*args: Any, **options: Any) -> Tensor:
    if len(args) == 1 and not options:
        kind = type(args[0])  # no name for what is given: it may be a temporary, whose memory is taken over below
        if (kind is int and LEAST_INT <= args[0] <= MOST_INT) or (kind is float and -3e38 < args[0] < 3e38):
            if (quiet.value and _chosen() is None) or is_quiet():  # the first is the second, without a call
                return number_tensor(Tensor, args[0], _NUMBERS[kind])  # type: ignore[no-any-return]
    if len(args) == 1 and not options and type(args[0]) is np.ndarray \
            and is_temporary(sys.getrefcount(args[0]), args[0]) and is_plain(args[0]):
        return asarray(args[0], copy=False)
    return _asked(*args, **options)  # type: ignore[no-any-return]


_asked = hinted(asarray)
makers.append(public_asarray)
public_asarray.is_hinted = True  # type: ignore[attr-defined]  # a frame around it would hold its arguments


def _taken(obj: Any, dtype: Any) -> Tensor:
    """A tensor whose value does not change, whatever becomes of the memory it was made from."""
    if type(obj) is np.ndarray and dtype is None and is_plain(obj):
        return Tensor.of_buffer(borrow(obj, BY_NUMPY[obj.dtype]) if is_fixed(obj) else _copied_array(obj))
    if isinstance(obj, bool | int | float | complex | list | tuple) and not isinstance(obj, np.generic):
        return borrowed(obj, dtype)  # in memory of its own
    found, wanted = borrowed(obj), None if dtype is None else as_dtype(dtype)
    fixed = found._layout is not None and (found._layout[4] or is_fixed(found._storage))
    if wanted is None or wanted is found.dtype:
        return found if fixed else Tensor.of_buffer(_stored(found.elements().numpy(), found.dtype, converted=True))
    if fixed or found.dtype is bfloat16 or (found.dtype.is_complex and not wanted.is_complex):
        made = Tensor.of_node(cast(found.node, wanted))
        return made if fixed else made.realise()
    return Tensor.of_buffer(_stored(found.elements().numpy(), wanted))


def _copied_array(array: np.ndarray) -> Buffer:
    """The elements of a plain array in memory of their own."""
    buffer = allocate(array.shape, BY_NUMPY[array.dtype])
    if not array.size:
        return buffer
    with _told(array.nbytes):
        copy_bytes(buffer.address, array_address(array), array.nbytes)
    return buffer


def owned(array: np.ndarray) -> Tensor:
    """The elements of an array in memory of their own, also while a function is traced, where other arrays are
    borrowed: nobody writes them, so what a function makes of them alone is made once."""
    plain = array if is_plain(array) else np.array(array, array.dtype.newbyteorder("="), order="C")
    if settings.get().device == HOST and is_plain(plain):
        return Tensor.of_buffer(_copied_array(plain))
    return asarray(plain, copy=True)


def unplaced(obj: Any) -> Tensor:
    """A number or table that nobody has put on a device: it goes where the tensors lie that it meets. It has the value
    of this moment, also inside a compiled function."""
    with settings.settings(device=HOST) if settings.get().device != HOST else nullcontext():
        made = asarray(obj)
    if not made.is_realised or made.device != HOST:
        return made  # of tensors, which lie somewhere
    return Tensor.of_node(evaluate.leaf(made.elements(), placed=False))


def following(obj: Any) -> Tensor:
    """Operands beside tensors: numbers, lists and arrays follow them to their device. Arrays around a
    compiled function do not: they are read at every call, where they lie."""
    if type(obj) is LiftedScalar:
        return Tensor.of_node(obj.strong())
    if type(obj) in (bool, int, float, complex) or isinstance(obj, np.generic | list | tuple) or (
            isinstance(obj, np.ndarray) and tracing.current is None):
        return unplaced(obj)
    return asarray(obj)


def _told(nbytes: int, converts: bool = False) -> AbstractContextManager[object]:
    """A profile is told of a copy that is long enough to matter, and whether it converts: `copy=False` cannot."""
    if spans.sink is None or nbytes < TOLD_BYTES:
        return nullcontext()
    return spans.span("transfer", spans.FROM_ARRAY, bytes=nbytes, line=user_line(), converts=converts)


def borrowed(obj: Any, dtype: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of arrays and buffers where that can be had, whoever may write it: for work that is done
    before anybody can, and where it is asked for."""
    if type(obj) is np.ndarray and dtype is None and not copy and is_plain(obj):
        return Tensor.of_buffer(borrow(obj, BY_NUMPY[obj.dtype]))
    if copy and type(obj) is np.ndarray and dtype is None and tracing.current is None and is_plain(obj):
        return Tensor.of_buffer(_copied_array(obj))  # no program: a model's file has hundreds of weights
    wanted = None if dtype is None else as_dtype(dtype)
    obj = Tensor.of_node(obj.strong()) if type(obj) is LiftedScalar else _unlabelled(obj)
    if isinstance(obj, Tensor):
        found = obj
    elif _is_column(obj):
        found = _from_foreign(_column(obj, copy), wanted, copy)
    elif not isinstance(obj, np.ndarray | np.generic) and hasattr(obj, "__dlpack__"):
        found = from_dlpack(obj, copy=False if copy is False and is_pytorch(obj) else None)
    else:
        found = _from_foreign(obj, wanted, copy)
    if wanted is not None and found.dtype is not wanted:
        if copy is False:
            raise fail(ValueFault, "asarray", f"{found.dtype} does not become {wanted} without a copy")
        return Tensor.of_node(cast(found.node, wanted))
    if copy and (isinstance(obj, Tensor) or not found.is_realised or not found._layout[4]):  # type: ignore[index]
        made = _copied_elements(found)
        return copied(found) if made is None else made
    return found


def _copied_elements(tensor: Tensor) -> Tensor | None:
    """A tensor whose elements lie in the CPU's memory, whole and in order, copied without a program; None for any
    other, and where more than values is asked for. A model's file has hundreds of weights."""
    if not is_quiet() or getattr(tensor, "_track", None) is not None or (buffer := tensor.buffer()) is None:
        return None
    if buffer.device != HOST or buffer.strides != contiguous_strides(buffer.shape):
        return None
    made = allocate(buffer.shape, buffer.dtype)
    count = math.prod(buffer.shape) * buffer.dtype.itemsize
    if count:
        copy_bytes(made.address, buffer.address, count)
    return Tensor.of_buffer(made)


def _unlabelled(obj: Any) -> Any:
    """Elements of an xarray `DataArray` or `Variable`, which may be a tensor."""
    return obj.data if type(obj).__module__.startswith("xarray.core.") and hasattr(obj, "data") else obj


def _is_masked(obj: Any) -> bool:
    """Whether an object is one of `numpy.ma`, which NumPy loads when somebody asks for it."""
    return "numpy.ma" in sys.modules and isinstance(obj, np.ma.MaskedArray)


def _is_column(obj: Any) -> bool:
    """Whether an object is a column or table of Arrow's, or one of pandas, which may have missing values."""
    if isinstance(obj, np.ndarray | np.generic | bool | int | float | complex | list | tuple):
        return type(obj) is not np.ndarray and _is_masked(obj)
    # An image of Pillow offers its pixels to Arrow as one flat column, and says its shape in its array interface.
    return (speaks_arrow(obj) and not hasattr(obj, "__array_interface__")) or hasattr(obj, "isna")


def _column(obj: Any, copy: bool | None) -> np.ndarray:
    """Elements of a column, without a copy if possible; missing values are an error."""
    if _is_masked(obj):
        masked = int(np.ma.getmaskarray(obj).sum())
        if masked:
            raise fail(ValueFault, "asarray", f"{masked} elements of the masked array are masked and have no value",
                       "give x.filled(value), or x.compressed()")
        return np.ma.getdata(obj)
    if not hasattr(obj, "isna"):
        return column(obj, copy)
    kinds = list(obj.dtypes) if getattr(obj, "ndim", 1) == 2 else [obj.dtype]
    if any(not isinstance(kind, np.dtype) for kind in kinds):  # NaN of plain floats is a number like any other
        missing = int(np.asarray(obj.isna()).sum())
        if missing:
            raise fail(ValueFault, "asarray", f"{missing} elements of the {type(obj).__name__} are missing and have no "
                                              "value", "fill or drop them first: .fillna(0), .dropna()")
    array = np.asarray(obj)
    if array.dtype.kind not in "biufc":
        raise fail(DTypeError, "asarray", f"the {type(obj).__name__} holds {array.dtype} elements, which are no "
                                          "numbers", "encode them first: a tokenizer, .cat.codes, or .astype")
    if copy is False and not np.shares_memory(array, np.asarray(obj)):
        raise fail(ValueFault, "asarray", f"a {type(obj).__name__} does not become a tensor without a copy",
                   "give one column of numbers")
    return array


def is_plain(array: np.ndarray) -> bool:
    """Whether an array can be borrowed as it is: of a dtype that tensors have, in this machine's order of bytes,
    contiguous."""
    return array.dtype in BY_NUMPY and array.flags.c_contiguous and array.flags.aligned


def _from_foreign(obj: Any, wanted: DType | None, copy: bool | None) -> Tensor:
    borrowed = isinstance(obj, np.ndarray | memoryview | bytearray | bytes) or hasattr(obj, "__array_interface__")
    number = isinstance(obj, bool | int | float | complex) and not isinstance(obj, np.generic)  # np.float64 is a float
    if number or (not borrowed and not hasattr(obj, "__array__") and not has_buffer(obj)):
        if copy is False:
            raise fail(ValueFault, "asarray", f"a {type(obj).__name__} does not become a tensor without a copy")
        return _from_python(obj, wanted)
    array = np.asarray(obj)
    found = _dtype_of(array)
    if found is bfloat16:
        array = array.view(np.uint16)
    usable = array.flags.aligned and array.dtype.isnative and all(s % array.itemsize == 0 for s in array.strides)
    if not usable or isinstance(obj, np.generic):
        if copy is False:
            raise fail(ValueFault, "asarray", "unaligned or foreign-endian memory cannot be borrowed")
        array = np.array(array.astype(array.dtype.newbyteorder("=")))
    return Tensor.of_buffer(borrow(array, found))


def has_buffer(obj: Any) -> bool:
    """Whether an object gives a view of its memory."""
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def _dtype_of(array: np.ndarray) -> DType:
    try:
        return as_dtype(array.dtype.newbyteorder("=") if array.dtype.kind in "iufc" else array.dtype)
    except DTypeError:
        raise fail(DTypeError, "asarray", f"NumPy dtype {array.dtype} has no tensor dtype",
                   "convert it with .astype first") from None


def _from_python(obj: Any, wanted: DType | None) -> Tensor:
    """Numbers and nested sequences: floats become float32, integers int64 unless a dtype is given; NumPy's arrays and
    numbers among them keep theirs."""
    try:
        holds_tensors = _holds_tensors(obj)
    except RecursionError:
        refuse_depth(obj, "asarray")
        raise
    if holds_tensors:
        return _stacked([asarray(item) for item in obj])
    try:
        array = np.asarray(obj)
    except ValueError as error:
        raise fail(ArgumentError, "asarray", f"the nested sequences do not form an array ({error})") from error
    kind = array.dtype.kind
    types = set() if kind == "b" or array.dtype == np.int64 else _leaf_types(obj)  # nothing to ask of those
    if types == {int} and kind not in "iu":  # larger than NumPy's integers: as they are
        array, kind = np.asarray(obj, object), "i"
    if kind not in "biufc":
        raise fail(DTypeError, "asarray", f"{type(obj).__name__} is not a tensor, a number or an array of numbers")
    defaults = {"f": DEFAULT_FLOAT, "c": DEFAULT_COMPLEX, "i": DEFAULT_INT, "u": DEFAULT_INT}
    target = wanted or _own_dtype(types, array) or defaults.get(kind) or as_dtype(array.dtype)
    if kind == "c" and target.kind != "c":
        raise fail(DTypeError, "asarray", f"complex numbers do not become {target}", "take their real part")
    if kind in "iu" and target.is_integer and array.size:
        info = np.iinfo(target.numpy)
        if array.min() < info.min or array.max() > info.max:
            low, high = int(array.min()), int(array.max())
            numbers = f"the number {low} does" if low == high else f"numbers from {low} to {high} do"
            larger = "use dtype=mo.uint64" if low >= 0 and info.max < high < 1 << 64 else "use a wider dtype"
            raise fail(DTypeError, "asarray", f"{numbers} not fit {target}", larger)
    if array.dtype.kind == "O":
        try:
            array = array.astype(target.numpy if target.is_integer else np.float64)
        except OverflowError:
            raise fail(DTypeError, "asarray", f"numbers up to {shown(array.max())} do not fit {target}") from None
    return Tensor.of_buffer(_stored(array, target))


def _stacked(items: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape along a new first axis, in the dtype they promote to."""
    shapes = {item.shape for item in items}
    if len(shapes) != 1:
        raise fail(ShapeError, "asarray", f"shapes {' and '.join(sorted(map(str, shapes)))} differ")
    target = functools.reduce(lambda found, item: promote(found, item.dtype, "asarray"), items, items[0].dtype)
    rows = [reshape(cast(item.node, target), (1, *item.shape)) for item in items]
    return Tensor.of_node(build("concatenate", *rows, axis=0) if len(rows) > 1 else rows[0])


def _own_dtype(types: set[type], array: np.ndarray) -> DType | None:
    """The dtype of NumPy's numbers among those of a list, which Python's follow unless they are of another kind; None
    where there are none."""
    if any(issubclass(kind, np.ndarray) for kind in types):
        return as_dtype(array.dtype)
    numbers = [np.dtype(kind) for kind in types if issubclass(kind, np.generic)]
    if not numbers:
        return None
    own = np.result_type(*numbers)
    fits = array.dtype.kind == own.kind or (own.kind in "fc" and array.dtype.kind in "iuf")
    return as_dtype(own) if fits and own in BY_NUMPY else None


def _leaf_types(obj: Any) -> set[type]:
    """The types of the numbers in nested sequences, a level at a time."""
    found: set[type] = set()
    level: Any = [obj]
    while True:
        types = set(map(type, level))
        nested = {kind for kind in types if issubclass(kind, list | tuple)}
        found |= types - nested
        if not nested:
            return found
        level = list(itertools.chain.from_iterable(
            level if types == nested else [item for item in level if type(item) in nested]))


def _holds_tensors(obj: Any) -> bool:
    return isinstance(obj, list | tuple) and any(
        isinstance(item, Tensor) or _holds_tensors(item) or is_pytorch(item) for item in obj)


def _stored(array: np.ndarray, dtype: DType, converted: bool = False) -> Buffer:
    """Elements in memory of their own, converted to a dtype unless they are."""
    from morpho.backends.reference.reference import encode

    buffer = allocate(array.shape, dtype)
    with np.errstate(all="ignore"), _told(array.nbytes, array.dtype != dtype.numpy):
        if converted:
            pass
        elif dtype is bfloat16:
            array = encode(round_bfloat16(array.astype(np.float32)), dtype)
        else:
            array = np.asarray(reference_cast({"dtype": dtype}, array)).astype(dtype.numpy)
        if array.size:
            np.copyto(view_memory(buffer.storage, buffer.address, buffer.shape, buffer.strides, dtype), array)
    return buffer
