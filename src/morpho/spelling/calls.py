"""Calls in NumPy's and PyTorch's words: `mo.sum(x, 0)`, `mo.softmax(x, dim=1)`, `mo.add(a, b, out=c)`.

A function of Morpho that refuses a call hands it here (see `tensor/tools/foreign_calls.py`), so that calls in Morpho's
own words cost nothing. The call is bound anew by the tables below; what fits none of them stays refused.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import DType
from morpho.base.errors import ArgumentError, fail
from morpho.spelling.linear_algebra import lstsq, lu
from morpho.spelling.wide import WIDE, check_fractions, put_out_of
from morpho.tensor.tools import foreign_calls
from morpho.tensor.tools.callers import caller_outside, use_of_result, wants_pair

WIDE.update(lstsq=lstsq, lu=lu)

RENAMED = {  # another library's keyword -> Morpho's; the first one that the function has
    "dim": ("axis", "axes"), "dims": ("axis", "axes", "shift"), "axes": ("axis",), "axis": ("axes", "dim"),
    "keepdim": ("keepdims",), "ddof": ("correction",), "unbiased": ("correction",), "a_min": ("min",),
    "a_max": ("max",), "size": ("shape",), "steps": ("num",), "diagonal": ("k",), "pad_width": ("widths",),
    "loc": ("mean",), "in_dims": ("in_axes",), "out_dims": ("out_axes",), "newshape": ("shape",),
    "reps": ("repetitions",),
    "is_causal": ("causal",), "start_dim": ("start_axis",), "end_dim": ("end_axis",), "dim1": ("axis1",),
    "dim2": ("axis2",), "dim0": ("axis1",), "shifts": ("shift",), "indices_or_sections": ("sections",), "N": ("n",),
    "negative_slope": ("slope",), "func": ("function",), "f": ("function",), "m": ("x",), "fun": ("function",),
    "minlength": ("minlength",), "trim": ("strip_zeros",), "varargs": ("spacing",), "M": ("n_cols", "m"),
    "norm": ("norm",), "rcond": ("rtol",), "bias": ("bias",), "repeats": ("repeats",), "p": ("ord",),
    "attn_mask": ("mask",),
    "boundaries": ("boundaries",), "test_elements": ("values",), "ar1": ("x1",), "ar2": ("x2",),
    "offset": ("k",), "weight": ("weights",),
}
CONVERTED: dict[str, Callable[[Any], Any]] = {"unbiased": int}
PLACES = {  # keywords for what Morpho's functions take by place alone, and which place that is
    **dict.fromkeys(("input", "self", "a", "x", "x1", "array", "arr", "tensor", "tensors", "arrays", "object", "obj",
                     "data", "tup", "arys", "ary", "y", "v", "m", "seq", "query", "shape", "element", "elements",
                     "object_list", "condition", "start", "N", "p", "z"), 0),
    **dict.fromkeys(("other", "b", "x2", "index", "indices", "mat2", "vec2", "target", "v", "bins", "stop", "key",
                     "kth", "q", "repeats", "end", "values", "exponent", "weight", "M", "k", "chunks", "sections",
                     "indices_or_sections", "split_size_or_sections", "test_elements", "axis1", "dim0", "order",
                     "source", "nbins", "reps", "dims", "obj", "x"), 1),
    **dict.fromkeys(("src", "axis2", "dim1", "destination", "value"), 2),
}
IGNORED = frozenset({  # what changes no value here: tensors are values, and the engine sees to layout and copies
    "memory_format", "order", "subok", "like", "non_blocking", "pin_memory", "set_to_none", "casting",
    "overwrite_input",
    "layout", "sparse", "validate_args",
})
EXTRAS = frozenset({"out", "where", "dtype", "requires_grad", "alpha", "inplace", "device"})
ORDERS = {  # function -> the orders in which NumPy and PyTorch take arguments, in Morpho's words
    **dict.fromkeys(("sum", "prod"), ("x axis dtype out keepdims", "x axis keepdims dtype")),
    **dict.fromkeys(("mean", "nanmean", "nansum", "nanprod"), ("x axis dtype out keepdims", "x axis keepdims dtype")),
    **dict.fromkeys(("std", "var", "nanstd", "nanvar"), ("x axis dtype out correction keepdims",)),
    **dict.fromkeys(("max", "min", "any", "all", "argmax", "argmin", "nanmax", "nanmin", "nanargmax", "nanargmin"),
                    ("x axis out keepdims", "x axis keepdims")),
    **dict.fromkeys(("median", "nanmedian"), ("x axis out overwrite_input keepdims", "x axis keepdims")),
    **dict.fromkeys(("quantile", "percentile", "nanquantile", "nanpercentile"),
                    ("x q axis out overwrite_input method keepdims", "x q axis keepdims")),
    **dict.fromkeys(("cumulative_sum", "cumulative_prod"), ("x axis dtype out",)),
    **dict.fromkeys(("concat", "stack"), ("arrays axis out",)), **dict.fromkeys(("unstack",), ("x axis",)),
    **dict.fromkeys(("zeros", "ones", "empty"), ("shape dtype",)), "full": ("shape fill_value dtype",),
    **dict.fromkeys(("zeros_like", "ones_like", "empty_like"), ("x dtype",)), "full_like": ("x fill_value dtype",),
    "eye": ("n_rows n_cols k dtype",), "arange": ("start stop step dtype",), "asarray": ("obj dtype",),
    "tril": ("x k",), "triu": ("x k",), "diag": ("x k",), "diagflat": ("x k",), "flip": ("x axis",),
    "roll": ("x shift axis",), "rot90": ("x k axes",), "repeat": ("x repeats axis",),
    "take": ("x indices axis out mode",),
    "take_along_axis": ("x indices axis",), "put_along_axis": ("array indices values axis",),
    "pad": ("x widths mode value",), "count_nonzero": ("x axis",), "diff": ("x n axis prepend append",),
    "sort": ("x axis kind order",), "argsort": ("x axis kind order", "x axis descending stable"),
    "searchsorted": ("x1 x2 side sorter",), "flatten": ("x start_axis end_axis",), "logcumsumexp": ("x axis",),
    "cummax": ("x axis",), "cummin": ("x axis",), "chunk": ("x chunks axis",), "split": ("x sections axis",),
    "array_split": ("x sections axis",), "append": ("array values axis",), "delete": ("array obj axis",),
    "insert": ("array obj values axis",), "compress": ("condition array axis out",),
    "diagonal": ("x offset axis1 axis2",),
    "diag_embed": ("x offset axis1 axis2",), "allclose": ("x1 x2 rtol atol equal_nan",),
    "isclose": ("x1 x2 rtol atol equal_nan",), "array_equal": ("x1 x2 equal_nan",), "angle": ("z deg",),
    "trapezoid": ("y x dx axis",), "cumulative_trapezoid": ("y x dx axis initial",), "average": ("x axis weights",),
    "partition": ("x kth axis",), "argpartition": ("x kth axis",), "ptp": ("x axis out keepdims",),
    "topk": ("x k axis largest sorted",), "tensordot": ("x1 x2 axes",), "vecdot": ("x1 x2 axis",),
    "histogram": ("x bins range density weights",), "histogram2d": ("x y bins range density weights",),
    "histogram_bin_edges": ("x bins range weights",), "digitize": ("x bins right",),
    "cov": ("x y rowvar bias correction",),
    "corrcoef": ("x y rowvar",), "nan_to_num": ("x nan posinf neginf",), "interp": ("x xp fp left right period",),
    "unique": ("x return_index return_inverse return_counts axis",), "isin": ("x values assume_unique invert",),
    "clip": ("x min max out",), "gradient": ("y spacing",), "convolve": ("a v mode",), "correlate": ("a v mode",),
    "unwrap": ("p discont axis period",), "vander": ("x n increasing",), "one_hot": ("indices num_classes",),
    "softmax": ("x axis dtype",), "log_softmax": ("x axis dtype",), "logsumexp": ("x axis keepdims",),
    "cdist": ("x1 x2 p",), "pdist": ("x p",), "bucketize": ("x boundaries out_int32 right",), "conj": ("x",),
    "unique_consecutive": ("x return_inverse return_counts axis",), "astype": ("x dtype",),
    "polyfit": ("x y deg rcond",),
    "grid_sample": ("x grid mode padding_mode align_corners",), "layer_norm": ("x",),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), ("x weight bias stride padding dilation groups",)),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
                    ("x weight bias stride padding output_padding groups dilation",)),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"),
                    ("x kernel_size stride padding dilation ceil_mode return_indices",)),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"),
                    ("x kernel_size stride padding ceil_mode count_include_pad",)),
    "attention": ("q k v mask",), "unfold": ("x kernel_size dilation padding stride",),
    "fold": ("x output_size kernel_size dilation padding stride",),
    **dict.fromkeys(("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"), ("x n axis norm",)),
    **dict.fromkeys(("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"), ("x s axes norm",)),
    **dict.fromkeys(("fftfreq", "rfftfreq"), ("n d",)), **dict.fromkeys(("fftshift", "ifftshift"), ("x axes",)),
    "norm": ("x ord axis keepdims",), "vector_norm": ("x ord axis keepdims",), "svd": ("x full_matrices",),
    "qr": ("x mode",), "pinv": ("x rtol",), "lstsq": ("x1 x2 rtol",), "cond": ("x p",), "cross": ("x1 x2 axis",),
    "matrix_rank": ("x rtol",), "matrix_norm": ("x ord",), "trace": ("x offset",), "cholesky": ("x upper",),
    "binary_cross_entropy": ("input target weight",), "mse_loss": ("input target",),
    "hann_window": ("length periodic",), "hamming_window": ("length periodic",),
    "kaiser_window": ("length periodic beta",),
    "blackman_window": ("length periodic",), "bartlett_window": ("length periodic",),
    "normal": ("key shape dtype",), "uniform": ("key shape dtype low high",), "randint": ("key shape low high dtype",),
}


class Binding:
    """Arguments of a function in Morpho's words, and what to do besides calling it."""

    __slots__ = ("args", "extras", "function", "options")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.args: list[Any] = []
        self.options: dict[str, Any] = {}
        self.extras: dict[str, Any] = {}

    def run(self) -> Any:
        extras, name = self.extras, self.function.__name__
        if extras.get("where") is True:
            del extras["where"]
        if "where" in extras and extras.get("out") is None:
            self.args[0], self.extras = _masked(name, self.args[0], extras.pop("where")), extras
        dtype = extras.get("dtype")
        if name in OF_FLOATS:
            check_fractions(name, dtype)
        if dtype is not None:
            self.args = [mo.astype(arg, dtype) if isinstance(arg, mo.Tensor) else arg for arg in self.args]
            if not any(isinstance(arg, mo.Tensor) for arg in self.args):
                self.args = [mo.asarray(arg, dtype=dtype) for arg in self.args[:1]] + self.args[1:]
        if "alpha" in extras:
            self.args[1] = mo.multiply(self.args[1], extras["alpha"])
        result = self.function(*self.args, **self.options)
        if "device" in extras:
            result = result.to(extras["device"])
        out = extras.get("out")
        if "where" in extras:
            result = mo.where(mo.asarray(extras["where"]), result, out)
        if extras.get("requires_grad"):
            result.requires_grad_()
        if out is not None:
            return put_out(out, result)
        if extras.get("inplace") and isinstance(self.args[0], mo.Tensor):
            return put_out(self.args[0], result)
        return result


PAIRS = frozenset(("max", "min", "median", "nanmedian", "sort"))  # whose PyTorch namesakes give values and indices
OF_FLOATS = frozenset(("nanmean", "nanstd", "nanvar"))


def _masked(name: str, x: Any, mask: Any) -> mo.Tensor:
    """The elements that `where=` chooses, for functions that leave NaN out."""
    x = mo.asarray(x)
    if not name.startswith("nan") or not x.dtype.is_inexact:
        raise fail(ArgumentError, name, "where= without out= leaves the other elements undefined",
                   f"give out=, or write mo.where(mask, mo.{name}(x), other)")
    return mo.where(mo.asarray(mask), x, mo.nan)


def put_out(out: Any, result: Any) -> Any:
    """Assign results to the tensors of `out=`, as `out[...] = result` does, and return them."""
    if isinstance(out, tuple | list):
        if len(out) == 1 and not isinstance(result, tuple):
            return put_out(out[0], result)
        return tuple(put_out(one, value) for one, value in zip(out, result, strict=True))
    return put_out_of(out, result)


def respelled(function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]) -> Binding | None:
    """The call in Morpho's words, or None where no spelling of NumPy's or PyTorch's fits."""
    name = function.__name__
    home = function.__module__ or ""
    if not home.startswith("morpho"):
        return None
    if name == "__init__":
        from morpho.spelling import constructors

        return constructors.respelled(function, args, options)  # type: ignore[return-value]
    homes = ("morpho.tensor.functions", "morpho.tensor.recorded", "morpho.spelling", "morpho.linalg")
    if name in PAIRS and not options and 1 < len(args) < 4 and type(args[1]) is int:
        use = use_of_result(caller_outside(__file__, foreign_calls.__file__, str(mo.__file__)))
        if use and wants_pair(name, use, mo.asarray(args[0]).shape, args[1]):
            args, options = args[:1], {"dim": args[1], **dict.fromkeys(["keepdim"] * (args[2:] == (True,)), True)}
    wide = WIDE.get(name) if home.startswith(homes) or home == "morpho" else None
    for target in (wide, function):
        if target is not None:
            binding = bind(target, name, args, options)
            if binding is not None:
                return binding
    return None


@functools.lru_cache(maxsize=2048)
def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def bind(function: Callable[..., Any], name: str, args: tuple[Any, ...],
         options: Mapping[str, Any]) -> Binding | None:
    signature = signature_of(function)
    parameters = signature.parameters
    kinds = {value.kind for value in parameters.values()}
    places = [key for key, value in parameters.items()
              if value.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    binding = Binding(function)
    binding.args = list(args)
    by_place: dict[int, Any] = {}
    for key, value in options.items():
        own = own_keyword(key, parameters, options)
        if own:
            if own in binding.options:
                return None
            binding.options[own] = CONVERTED.get(key, _same)(value)
        elif (key in IGNORED and key not in parameters) or (value is None and key in EXTRAS):
            continue
        elif key in places:
            by_place[places.index(key)] = value
        elif key in EXTRAS and allows(key, function, name, parameters):
            binding.extras[key] = value
        elif (place := place_of(key, places, len(args))) is not None and place not in by_place:
            by_place[place] = value
        else:
            return None
    for place in sorted(by_place):
        if place != len(binding.args):
            return None
        binding.args.append(by_place[place])
    if len(binding.args) > len(places) and inspect.Parameter.VAR_POSITIONAL not in kinds:
        if not place_surplus(binding, name, places, parameters):
            return None
    try:
        signature.bind(*binding.args, **binding.options)
    except TypeError:
        return None
    return binding


def _same(value: Any) -> Any:
    return value


def own_keyword(key: str, parameters: Mapping[str, inspect.Parameter], options: Mapping[str, Any]) -> str:
    """Morpho's keyword for one of another library, or "" where there is none."""
    named = {name for name, value in parameters.items() if value.kind in (
        inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)}
    if key in named:
        return key
    return next((own for own in RENAMED.get(key, ()) if own in named and own not in options), "")


def place_of(key: str, places: list[str], count: int) -> int | None:
    if key not in PLACES or not places:
        return None
    place = PLACES[key]
    if place < count and key in ("y", "v", "x", "z", "p", "N", "k", "obj", "shape") and count < len(places):
        place = count
    return place if count <= place < len(places) else None


def allows(key: str, function: Callable[..., Any], name: str, parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Whether an argument that every function of another library takes has a meaning for this one."""
    first = next(iter(parameters), "")
    if key == "device":
        return first in ("x", "x1", "obj") and "dtype" in parameters
    if key == "requires_grad":
        return "dtype" in parameters
    if key == "alpha":
        return name in ("add", "subtract")
    if key == "where":
        return first in ("x", "x1")
    return True


def place_surplus(binding: Binding, name: str, places: list[str], parameters: Mapping[str, inspect.Parameter]) -> bool:
    """Give names to arguments beyond those that are taken by place."""
    args, count = binding.args, len(places)
    if places[-1:] == ["shape"] and all(isinstance(arg, int | np.integer) for arg in args[count - 1:]):
        binding.args = [*args[:count - 1], tuple(int(size) for size in args[count - 1:])]
        return True
    if len(args) == count + 1 and places in (["x"], ["x1", "x2"]) and isinstance(args[count], mo.Tensor | np.ndarray) \
            and name not in ORDERS and name not in WIDE and "out" not in binding.extras:
        binding.args, binding.extras["out"] = args[:count], args[count]  # NumPy's f(x, out) and f(x1, x2, out)
        return True
    for order in ORDERS.get(name, ()):
        words = order.split()
        if words[:count] != places or len(args) > len(words):
            continue
        pairs = list(zip(words[count:], args[count:], strict=False))
        if all(fits(word, value) for word, value in pairs) and not any(word in binding.options for word, _ in pairs):
            binding.args = args[:count]
            for word, value in pairs:
                if word in parameters:
                    binding.options[word] = value
                elif word in EXTRAS and value is not None:
                    binding.extras[word] = value
                elif word not in EXTRAS and word not in IGNORED and value is not None:
                    return False
            return True
    return False


def fits(word: str, value: Any) -> bool:
    """Whether a value can be meant by an argument of this name."""
    if word == "keepdims":
        return isinstance(value, bool | np.bool_)
    if word == "dtype":
        return value is None or isinstance(value, DType | type | str | np.dtype) or hasattr(value, "dtype_of")
    if word == "out":
        return value is None or isinstance(value, mo.Tensor | np.ndarray | tuple)
    if word in ("axis", "axes", "offset", "k", "n"):
        return not isinstance(value, bool | float | str) and not (
            isinstance(value, mo.Tensor | np.ndarray) and np.ndim(value) > 0)
    if word in ("kind", "mode", "method", "side", "norm", "reduction"):
        return value is None or isinstance(value, str)
    return True
