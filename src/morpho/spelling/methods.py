"""Methods of tensors that NumPy's arrays and PyTorch's tensors have, made when one is first asked for.

A name in `FUNCTIONS` is the function of `mo` with the tensor as its first argument; with `_` at its end it assigns the
result to the tensor, as `x[...] = f(x)` does. The rest are written below.
"""

from __future__ import annotations

import builtins
import functools
import math
import opcode
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import DType, as_dtype
from morpho.base.errors import ArgumentError, DTypeError, ShapeError, fail
from morpho.nn.random import next_key
from morpho.spelling import numpy_functions as npf
from morpho.spelling import torch_functions as torchf
from morpho.spelling import torch_process as process
from morpho.spelling import wide as widef
from morpho.tensor.autodiff.grad_mode import Tracked
from morpho.tensor.functions.indexing.parts import OF_METHOD, assign_result, changed, is_alone, remembered
from morpho.tensor.state.variable import Variable
from morpho.tensor.tools.callers import caller_outside, use_of_result, wants_pair

_FUNCTIONS = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint allclose amax amin aminmax angle arccos
arccosh arcsin arcsinh arctan arctan2 arctanh argpartition argsort argwhere asin asinh atan atan2 atanh baddbmm
bincount bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bmm broadcast_to ceil
cholesky cholesky_inverse cholesky_solve choose chunk clamp clamp_max clamp_min clip conj conj_physical conjugate
copysign corrcoef cos cosh count_nonzero cov cross cummax cummin cumprod cumsum deg2rad det diag diag_embed diagflat
diagonal diagonal_scatter diff digamma dist div divide dot dsplit eq erf erfc erfinv exp exp2 expand_copy expm1 fix
flip fliplr flipud float_power floor floor_divide fmax fmin fmod frac frexp gather gcd ge ger greater
greater_equal gt hardshrink heaviside histc histogram hsplit hypot i0 igamma igammac index_add index_copy index_fill
index_put index_reduce index_select inner inverse isclose isfinite isinf isnan isneginf isposinf isreal kron kthvalue
lcm ldexp le lerp less less_equal lgamma log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logdet
logical_and logical_not logical_or logical_xor logit logsumexp lt masked_fill masked_scatter masked_select matmul
matrix_exp matrix_power maximum median minimum mm mode moveaxis movedim msort mul multinomial multiply mv mvlgamma
nan_to_num nanmean nanmedian nanquantile nansum narrow narrow_copy ne neg negative nextafter not_equal numel outer
pinverse polygamma positive pow prelu ptp quantile rad2deg ravel reciprocal relu remainder renorm repeat_interleave
roll rot90 round rsqrt scatter scatter_add scatter_reduce searchsorted select_scatter sgn sigmoid sign signbit sin
sinc sinh slice_scatter slogdet softmax split_with_sizes sqrt square squeeze stft sub subtract svd swapaxes swapdims
take take_along_dim tan tanh tensor_split tile topk trace tril triu true_divide trunc unbind unflatten unique
unique_consecutive unsqueeze vdot vsplit xlogy nonzero_static qr lstsq triangular_solve istft bernoulli is_same_size
is_floating_point is_complex is_signed is_nonzero is_conj is_neg is_inference get_device t diagonal_copy resolve_conj
resolve_neg dequantize unsafe_chunk unsafe_split unsafe_split_with_sizes
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
# Functions whose result has the shape of the tensor, so that `name_` has a meaning.
_IN_PLACE = """
abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin arcsinh arctan arctan2
arctanh asin asinh atan atan2 atanh baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
bitwise_xor ceil celu clamp clamp_max clamp_min clip conj_physical copysign cos cosh cumprod cumsum deg2rad digamma
div divide dropout elu eq erf erfc erfinv exp exp2 expm1 fill fix float_power floor floor_divide fmod frac gcd ge
greater greater_equal gt hardtanh heaviside hypot i0 igamma igammac index_add index_copy index_fill index_put
index_reduce lcm ldexp le leaky_relu lerp less less_equal lgamma log log10 log1p log2 logical_and logical_not
logical_or logical_xor logit lt masked_fill masked_scatter mul multiply mvlgamma nan_to_num ne neg negative nextafter
not_equal polygamma pow rad2deg reciprocal relu remainder renorm round rrelu rsqrt scatter scatter_add scatter_reduce
selu sgn sigmoid sign sin sinc sinh sqrt square sub subtract tan tanh threshold tril triu true_divide trunc xlogy
alpha_dropout feature_alpha_dropout feature_dropout
"""
IN_PLACE = frozenset(_IN_PLACE.split())
# Methods whose results are views in NumPy and PyTorch: an assignment goes through them.
VIEWS = frozenset(["diagonal", "moveaxis", "movedim", "narrow", "permute", "ravel", "reshape_as", "select", "squeeze",
                   "swapaxes", "swapdims", "t", "transpose", "unflatten", "unsqueeze", "view", "view_as"])
SPECIAL: dict[str, Any] = {}


def special(function: Callable[..., Any]) -> Callable[..., Any]:
    if function.__name__.endswith("_") or function.__name__ in ("fill", "put", "partition", "sort"):
        function = _unless_lost(function)
    SPECIAL[function.__name__.removesuffix("__").rstrip("0")] = function
    return function


def _unless_lost(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: mo.Tensor, *args: Any, **options: Any) -> Any:
        if is_alone(sys.getrefcount(self), OF_METHOD, self) and is_dropped():
            assign_result(self, function.__name__, lambda part: function(part, *args, **options))
            return None
        with changed(self):
            return function(self, *args, **options)

    return call


def method(name: str) -> Any:
    """The method of a name, a property, or None."""
    if name in SPECIAL:
        return remembered(SPECIAL[name]) if name in VIEWS else SPECIAL[name]
    if name in FUNCTIONS:
        return remembered(function_of(name)) if name in VIEWS else function_of(name)
    plain = name.removesuffix("_")
    if plain != name and plain in IN_PLACE:
        return assigning(plain)
    return None


def names() -> list[str]:
    """The methods and properties of tensors that this file gives, for completion."""
    return sorted({*FUNCTIONS, *SPECIAL, *[f"{name}_" for name in IN_PLACE]})


def function_of(name: str) -> Any:
    from morpho.spelling.table import find

    if name in mo.__all__:
        return getattr(mo, name)
    found = find(name)
    return getattr(mo.nn.functional, name) if found is None else found


@functools.cache
def assigning(name: str) -> Callable[..., Any]:
    function = function_of(name)

    def assign_(self: mo.Tensor, *args: Any, **options: Any) -> mo.Tensor | None:
        if is_alone(sys.getrefcount(self), OF_METHOD, self) and is_dropped():
            assign_result(self, f"{name}_", lambda part: assign(part, function(part, *args, **options)))
            return None
        with changed(self):
            assign(self, function(self, *args, **options))
        return self

    assign_.__name__ = assign_.__qualname__ = f"{name}_"
    assign_.__doc__ = f"Assign what `{name}` gives to the tensor itself, as `x[...] = {name}(x)` does."
    return assign_


def is_dropped() -> bool:
    """Whether the line that called the caller makes no use of the result: CPython's next instruction says so."""
    frame = sys._getframe(2)
    code, place = frame.f_code.co_code, frame.f_lasti + 2
    while place < len(code) and opcode.opname[code[place]] == "CACHE":
        place += 2
    return place < len(code) and opcode.opname[code[place]] == "POP_TOP"


_WIDTHS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # kinds of dtypes: one assigned in place must hold all that is given


def assign(x: mo.Tensor, result: mo.Tensor) -> None:
    """x[...] = result, which must have the shape of x."""
    if tuple(result.shape) != tuple(x.shape):
        raise fail(ShapeError, "assign",
                   f"a result of shape {tuple(result.shape)} is not assigned to a tensor of shape "
                                         f"{tuple(x.shape)}")
    if _WIDTHS[result.dtype.kind] > _WIDTHS[x.dtype.kind]:
        raise fail(DTypeError, "assign", f"a result of dtype {result.dtype} does not fit a tensor of dtype {x.dtype}",
                   f"write x = x.astype({result.dtype}) before, or assign what fits: x[...] = y.astype({x.dtype})")
    x[...] = result if result.dtype is x.dtype else result.astype(x.dtype)


# -- shapes --------------------------------------------------------------------------------------------------------
@special
def view(self: mo.Tensor, *shape: Any) -> mo.Tensor:
    """PyTorch's sizes, or NumPy's dtype, in which the bytes are read anew."""
    if len(shape) == 1 and isinstance(shape[0], DType | str | builtins.type | np.dtype):
        return mo.asarray(np.ascontiguousarray(self.numpy()).view(as_dtype(shape[0]).numpy))
    if not shape:
        return torchf.clone(self)
    return mo.reshape(self, shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape)


@special
def view_as(self: mo.Tensor, other: Any) -> mo.Tensor:
    return mo.reshape(self, other.shape)


SPECIAL["reshape_as"] = view_as


@special
def permute(self: mo.Tensor, *dims: Any, axes: Any = None) -> mo.Tensor:
    dims = dims if axes is None else (axes,)
    return mo.permute_dims(self, tuple(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else dims)


@special
def transpose(self: mo.Tensor, *axes: Any, **named: Any) -> mo.Tensor:
    if named:
        return npf.transpose(self, *axes, **named)
    if not axes or axes == (None,):
        return npf.transpose(self)
    return npf.transpose(self, *axes)


@special
def flatten(self: mo.Tensor, start_dim: Any = 0, end_dim: int = -1, *, order: str = "C") -> mo.Tensor:
    if isinstance(start_dim, str):
        order, start_dim = start_dim, 0
    if order != "C":
        return mo.ravel(self, order=order)
    return mo.flatten(self, start_axis=start_dim, end_axis=end_dim)


@special
def expand(self: mo.Tensor, *sizes: Any) -> mo.Tensor:
    return torchf.expand(self, *sizes)


@special
def expand_as(self: mo.Tensor, other: Any) -> mo.Tensor:
    return mo.broadcast_to(self, other.shape)


@special
def repeat(self: mo.Tensor, *repeats: Any, axis: Any = None, dim: Any = None) -> mo.Tensor:
    """NumPy's: elements repeated, along an axis. PyTorch's several counts raise: `tile` takes them."""
    if dim is not None or len(repeats) > 2 or (len(repeats) == 2 and axis is not None):
        raise widef.unsaid("repeat", "x.repeat(n, axis=0)", f"x.tile({', '.join(map(str, repeats))})")
    if not repeats:
        raise fail(ArgumentError, "repeat", "repeat() takes at least 1 argument")
    count, *more = repeats
    if not more and axis is None and isinstance(count, list | tuple) and len(count) not in (1, int(self.size)):
        raise widef.unsaid("repeat", "x.repeat(n, axis=0)", f"x.tile({count})")
    if more and isinstance(more[0], int) and more[0] >= self.ndim:
        raise widef.unsaid("repeat", "x.repeat(n, axis=0)", f"x.tile({', '.join(map(str, repeats))})")
    return mo.repeat(self, count, axis=more[0] if more else axis)


@special
def split(self: mo.Tensor, split_size: Any, dim: Any = None) -> tuple[mo.Tensor, ...]:
    """PyTorch's parts of a size; by the word dim=, since NumPy's function of the name takes a number of parts."""
    if dim is None:
        raise widef.unsaid("split", f"mo.split(x, {split_size})", f"x.split({split_size}, dim=0)")
    return widef.split_sizes(self, split_size, dim)


@special
def unfold(self: mo.Tensor, dimension: int, size: int, step: int) -> mo.Tensor:
    if not self.ndim:
        return mo.reshape(self, (1,))[:size]
    count = (self.shape[dimension] - size) // step + 1
    places = mo.arange(count)[:, None] * step + mo.arange(size)[None, :]
    taken = mo.take(self, mo.ravel(places), axis=dimension)
    dimension %= self.ndim
    made = mo.reshape(taken, (*self.shape[:dimension], count, size, *self.shape[dimension + 1:]))
    return mo.moveaxis(made, dimension + 1, -1)


@special
def resize(self: mo.Tensor, *new_shape: Any, refcheck: bool = True) -> None:
    raise fail(ArgumentError, "resize", "the shape of a tensor does not change", "write x = mo.resize(x, shape)")


@special
def select(self: mo.Tensor, dim: int, index: int) -> mo.Tensor:
    return torchf.select_axis(self, dim, index)


@special
def sum_to_size(self: mo.Tensor, *size: Any) -> mo.Tensor:
    sizes = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
    extra = self.ndim - len(sizes)
    axes = tuple(range(extra)) + tuple(i + extra for i, n in enumerate(sizes) if n == 1 and self.shape[i + extra] != 1)
    return mo.reshape(mo.sum(self, axis=axes, keepdims=True), sizes) if axes else self


def slice_copy(self: mo.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> mo.Tensor:
    return self[(slice(None),) * (dim % self.ndim) + (slice(start, end, step),)]


# -- sizes ---------------------------------------------------------------------------------------------------------
@special
def dim(self: mo.Tensor) -> int:
    return self.ndim


SPECIAL["ndimension"] = dim


@special
def nelement(self: mo.Tensor) -> int:
    return int(self.size)


@special
def element_size(self: mo.Tensor) -> int:
    return self.itemsize


@special
def stride(self: mo.Tensor, dim: Any = None) -> Any:
    steps = [math.prod(self.shape[i + 1:]) for i in range(self.ndim)]
    return tuple(steps) if dim is None else steps[dim]


@special
def storage_offset(self: mo.Tensor) -> int:
    return 0


@special
def is_contiguous(self: mo.Tensor, memory_format: Any = None) -> bool:
    return True


# -- dtypes, devices, copies ---------------------------------------------------------------------------------------
def _to_dtype(name: str) -> Callable[[mo.Tensor], mo.Tensor]:
    def convert(self: mo.Tensor, memory_format: Any = None) -> mo.Tensor:
        if self.dtype.is_complex and not name.startswith("complex"):  # as PyTorch: the imaginary part is dropped
            return self != 0 if name == "bool" else mo.astype(mo.real(self), name)
        return mo.astype(self, name, copy=False)

    convert.__name__ = name
    return convert


SPECIAL |= {name: _to_dtype(target) for name, target in {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "int": "int32", "long": "int64",
    "short": "int16", "char": "int8", "byte": "uint8", "bool": "bool", "cfloat": "complex64",
    "cdouble": "complex128"}.items()}


@special
def type(self: mo.Tensor, dtype: Any = None) -> Any:
    names = {"float32": "Float", "float64": "Double", "int64": "Long", "int32": "Int", "bool": "Bool", "uint8": "Byte",
             "float16": "Half", "int16": "Short", "int8": "Char", "bfloat16": "BFloat16"}
    return f"torch.{names.get(self.dtype.name, self.dtype.name)}Tensor" if dtype is None else mo.astype(self, dtype)


@special
def type_as(self: mo.Tensor, other: mo.Tensor) -> mo.Tensor:
    return mo.astype(self, other.dtype)


@special
def cpu(self: mo.Tensor, memory_format: Any = None) -> mo.Tensor:
    return self.to("cpu")


@special
def cuda(self: mo.Tensor, device: Any = None, non_blocking: bool = False) -> mo.Tensor:
    return self.to("cuda" if device is None else f"cuda:{device}" if isinstance(device, int) else device)


@special
def copy(self: mo.Tensor, order: str = "C") -> mo.Tensor:
    return mo.asarray(self, copy=True)


@special
def clone(self: mo.Tensor, *, memory_format: Any = None) -> mo.Tensor:
    return torchf.clone(self)


@special
def contiguous(self: mo.Tensor, memory_format: Any = None) -> mo.Tensor:
    return self


SPECIAL["pin_memory"] = SPECIAL["share_memory_"] = contiguous


def detach(input: mo.Tensor) -> mo.Tensor:
    return input.detach()


@special
def detach_(self: mo.Tensor) -> mo.Tensor:
    self.requires_grad_(False)
    return self


@special
def force(self: mo.Tensor) -> mo.Tensor:
    return self.realise()


@special
def new_tensor(self: mo.Tensor, data: Any, *, dtype: Any = None, device: Any = None,
               requires_grad: bool = False) -> mo.Tensor:
    return torchf.tensor(data, dtype=self.dtype if dtype is None else dtype, requires_grad=requires_grad)


def _new(name: str) -> Callable[..., mo.Tensor]:
    def make(self: mo.Tensor, *size: Any, dtype: Any = None, device: Any = None,
             requires_grad: bool = False) -> mo.Tensor:
        sizes = tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size
        made = getattr(mo, name)(sizes, dtype=self.dtype if dtype is None else dtype,
                                 device=self.device if device is None else device)
        return made.requires_grad_() if requires_grad else made

    return make


SPECIAL |= {f"new_{name}": _new(name) for name in ("zeros", "ones", "empty")}


@special
def new_full(self: mo.Tensor, size: Any, fill_value: Any, *, dtype: Any = None, device: Any = None) -> mo.Tensor:
    return mo.full(tuple(size), fill_value, dtype=self.dtype if dtype is None else dtype)


@special
def tobytes(self: mo.Tensor, order: str = "C") -> bytes:
    return self.numpy().tobytes(order)  # type: ignore[arg-type]


@special
def tofile(self: mo.Tensor, fid: Any, sep: str = "", format: str = "%s") -> None:
    self.numpy().tofile(fid, sep, format)


# -- assignment ----------------------------------------------------------------------------------------------------
@special
def fill(self: mo.Tensor, value: Any) -> None:
    """Assign one value to all elements, as NumPy's method does."""
    self[...] = value


@special
def fill_(self: mo.Tensor, value: Any) -> mo.Tensor:
    self[...] = value
    return self


@special
def zero_(self: mo.Tensor) -> mo.Tensor:
    self[...] = 0
    return self


@special
def copy_(self: mo.Tensor, src: Any, non_blocking: bool = False) -> mo.Tensor:
    src = mo.asarray(src)
    self[...] = src if src.dtype is self.dtype else src.astype(self.dtype)
    return self


@special
def fill_diagonal_(self: mo.Tensor, fill_value: Any, wrap: bool = False) -> mo.Tensor:
    npf.fill_diagonal(self, fill_value, wrap)
    return self


@special
def put(self: mo.Tensor, indices: Any, values: Any, mode: str = "raise") -> None:
    npf.put(self, indices, values)


@special
def put_(self: mo.Tensor, index: Any, source: Any, accumulate: bool = False) -> mo.Tensor:
    if accumulate:
        flat = mo.ravel(self).at[mo.ravel(mo.asarray(index))].add(mo.ravel(mo.asarray(source)))
        self[...] = mo.reshape(flat, self.shape)
    else:
        npf.put(self, index, source)
    return self


@special
def sort(self: mo.Tensor, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None, dim: Any = None,
         descending: Any = None) -> Any:
    """NumPy's: the tensor itself becomes sorted, and None comes back; PyTorch's pair by the word dim=."""
    if dim is None and descending is not None:
        raise widef.unsaid("sort", "x.sort()", "x.sort(dim=-1, descending=True)")
    if dim is None and builtins.type(axis) is int and (use := use_of_result(caller_outside(__file__))) \
            and wants_pair("sort", use, self.shape, axis):
        dim = axis
    if dim is not None:
        return widef.WIDE["sort"](self, dim=dim, descending=bool(descending))
    self[...] = mo.sort(self, axis=axis)
    return None


@special
def partition(self: mo.Tensor, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None) -> None:
    self[...] = mo.partition(self, kth, axis=axis)


@special
def transpose_(self: mo.Tensor, *axes: Any) -> mo.Tensor:
    raise fail(ArgumentError, "transpose_", "the shape of a tensor does not change", "write x = x.transpose(...)")


for _name in ("t_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_", "resize_", "resize_as_", "as_strided_"):
    SPECIAL[_name] = transpose_


def _drawn(self: mo.Tensor, made: mo.Tensor) -> mo.Tensor:
    self[...] = made.astype(self.dtype)
    return self


@special
def uniform_(self: mo.Tensor, from_: float = 0.0, to: float = 1.0, *, generator: Any = None, a: Any = None,
             b: Any = None) -> mo.Tensor:
    low, high = from_ if a is None else a, to if b is None else b
    return _drawn(self, process.rand(*self.shape or ((),), generator=generator) * (high - low) + low)


@special
def normal_(self: mo.Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> mo.Tensor:
    return _drawn(self, process.randn(*self.shape or ((),), generator=generator) * std + mean)


@special
def bernoulli_(self: mo.Tensor, p: Any = 0.5, *, generator: Any = None) -> mo.Tensor:
    return _drawn(self, process.rand(*self.shape or ((),), generator=generator) < p)


@special
def random_(self: mo.Tensor, from_: int = 0, to: Any = None, *, generator: Any = None) -> mo.Tensor:
    low, high = (0, from_) if to is None and from_ else (from_, to)
    high = 1 << (24 if self.dtype.is_float else 31) if high is None else high
    return _drawn(self, process.randint(low, high, self.shape, generator=generator))


@special
def exponential_(self: mo.Tensor, lambd: float = 1.0, *, generator: Any = None) -> mo.Tensor:
    return _drawn(self, mo.random.exponential(next_key(), self.shape, rate=lambd))


@special
def cauchy_(self: mo.Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Any = None) -> mo.Tensor:
    return _drawn(self, mo.random.cauchy(next_key(), self.shape, loc=median, scale=sigma))


@special
def log_normal_(self: mo.Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> mo.Tensor:
    return _drawn(self, mo.random.lognormal(next_key(), self.shape, mean=mean, std=std))


@special
def geometric_(self: mo.Tensor, p: float, *, generator: Any = None) -> mo.Tensor:
    return _drawn(self, mo.random.geometric(next_key(), p, self.shape))


# -- elements ------------------------------------------------------------------------------------------------------
@special
def nonzero(self: mo.Tensor, *, as_tuple: bool = True) -> Any:
    return mo.nonzero(self) if as_tuple else mo.argwhere(self)


@special
def compress(self: mo.Tensor, condition: Any, axis: Any = None, out: Any = None) -> mo.Tensor:
    return mo.compress(condition, self, axis=axis)


@special
def choose(self: mo.Tensor, choices: Any, out: Any = None, mode: str = "raise") -> mo.Tensor:
    return mo.choose(self, choices)


@special
def where(self: mo.Tensor, condition: Any, other: Any) -> mo.Tensor:
    return mo.where(condition, self, other)


@special
def equal(self: mo.Tensor, other: Any) -> bool:
    """PyTorch's method: whether shape and all elements are equal; `x == y` compares element by element."""
    return mo.array_equal(self, other)


@special
def norm(self: mo.Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> mo.Tensor:
    return torchf.norm(self, p, dim, keepdim, dtype)


@special
def apply_(self: mo.Tensor, callable: Callable[[Any], Any]) -> mo.Tensor:
    return _drawn(self, npf.vectorize(callable)(self))


@special
def map_(self: mo.Tensor, other: Any, callable: Callable[[Any, Any], Any]) -> mo.Tensor:
    return _drawn(self, npf.vectorize(callable)(self, other))


@special
def itemset(self: mo.Tensor, *args: Any) -> None:
    raise fail(ArgumentError, "itemset", "NumPy 2 has no itemset", "write x[index] = value")


# -- properties ----------------------------------------------------------------------------------------------------
def _property(name: str, getter: Callable[[Any], Any], doc: str) -> None:
    SPECIAL[name] = property(getter, doc=doc)


_property("real", lambda self: mo.real(self), "The real part.")
_property("imag", lambda self: mo.imag(self), "The imaginary part.")
_property("H", lambda self: torchf.adjoint(_matrix(self)), "The conjugate of a matrix with its axes exchanged.")
_property("mH", lambda self: torchf.adjoint(self), "Conjugates, the last two axes exchanged.")
SPECIAL["flat"] = property(lambda self: Flat(self), lambda self, value: Flat(self).__setitem__(slice(None), value),
                           doc="The elements in order: `x.flat[3]`, `x.flat[::5] = 1`, `for number in x.flat`.")
_property("base", lambda self: None, "None: tensors are values, and views of nothing.")
_property("flags", lambda self: self.numpy().flags, "How the elements lie in memory, as NumPy says it.")
_property("ctypes", lambda self: self.numpy().ctypes, "NumPy's description for ctypes, to be read.")
_property("is_cuda", lambda self: self.device.startswith("cuda"), "Whether the elements lie on a GPU.")
_property("is_cpu", lambda self: self.device == "cpu", "Whether the elements lie in the memory of the CPU.")
_property("is_leaf", lambda self: _is_leaf(self), "Whether gradients end here.")
_property("grad_fn", lambda self: None if _is_leaf(self) else GradFn(self),
          "None for a leaf, else a name for what computed the tensor; `mo.grad` and `.backward()` are the gradients.")
_property("layout", lambda self: None, "None: the engine sees to the layout.")
_property("retains_grad", lambda self: self.grad is not None, "Whether `.grad` holds a gradient.")
for _name in ("is_sparse", "is_quantized", "is_meta", "is_mps", "is_xpu", "is_mkldnn", "is_nested", "is_sparse_csr",
              "is_vulkan", "is_ipu", "is_maia", "is_mtia", "is_xla"):
    _property(_name, lambda self: False, "False: there are no such tensors.")


class Flat:
    """The elements of a tensor in order, to be read and assigned to."""

    def __init__(self, x: mo.Tensor) -> None:
        self.base = x

    def __getitem__(self, key: Any) -> mo.Tensor:
        return self.base.reshape(-1)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        line = self.base.reshape(-1)
        line[key] = mo.resize(mo.ravel(value), line[key].shape) if mo.ndim(value) else value  # repeated, as NumPy does
        self.base[...] = line.reshape(self.base.shape)

    def __iter__(self) -> Any:
        return iter(self.base.reshape(-1))

    def __len__(self) -> int:
        return int(self.base.size)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array(self.base.numpy().ravel(), dtype)

    def copy(self) -> mo.Tensor:
        return mo.asarray(self.base.reshape(-1), copy=True)


def _is_leaf(x: Any) -> bool:
    if not x.requires_grad or isinstance(x, Variable):
        return True
    track = getattr(x, "_track", None)
    return isinstance(track, Tracked) and track.wanted and track.program is None


class GradFn:
    """The name of the operation that computed a tensor, as `x.grad_fn` prints it."""

    def __init__(self, x: mo.Tensor) -> None:
        self._operation = x.program().op.name

    def name(self) -> str:
        return "".join(part.capitalize() for part in self._operation.split("_")) + "Backward0"

    def __repr__(self) -> str:
        return f"<{self.name()}>"


def _matrix(x: mo.Tensor) -> mo.Tensor:
    if x.ndim != 2:
        raise fail(ShapeError, "H", f"shape {tuple(x.shape)} is not a matrix", "use x.mH")
    return x


def _flags(name: str) -> Callable[..., bool]:
    return lambda self: name == "coalesced"


SPECIAL |= {"is_pinned": _flags(""), "is_shared": _flags(""), "is_set_to": lambda self, other: self is other}
