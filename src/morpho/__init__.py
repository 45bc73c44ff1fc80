"""Morpho: a tensor compiler and runtime in pure Python.

>>> import morpho as mo
>>> x = mo.asarray([1.0, 2.0, 3.0])
>>> (mo.gelu(x) * 2).sum().item()
11.5...

This module is the namespace of the Python Array API standard 2024.12 with `mo.linalg` and `mo.fft`, and beside it
activations, norms and losses, gather and scatter, `mo.random`, `mo.compile`, `mo.grad`, `mo.tasks`, `mo.settings`,
`mo.pool`; `mo.weights` reads and writes files of weights.
"""

from morpho.base import startup as _startup  # isort: skip  first: an interrupt from here on is understood

import sys as _sys
from math import e, inf, nan, pi
from typing import Any as _Any

from morpho.base import errors
from morpho.base.dims import Dim
from morpho.base.dtypes import (
    bfloat16,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from morpho.base.dtypes import bool_ as bool
from morpho.base.python.lazy_module import expect_handles as _expect_handles
from morpho.base.settings import settings
from morpho.tensor.control.associative import associative_scan
from morpho.tensor.control.branches import cond, switch
from morpho.tensor.control.loops import fori_loop, map, scan, while_loop
from morpho.tensor.convert import public_asarray as asarray
from morpho.tensor.core import Tensor, realise
from morpho.tensor.device import choose_device, device, device_states, devices, pin, synchronize
from morpho.tensor.functions.create import (
    arange,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from morpho.tensor.functions.elementwise import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    astype,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_invert,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clip,
    conj,
    copysign,
    cos,
    cosh,
    divide,
    equal,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    imag,
    isfinite,
    isinf,
    isnan,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    multiply,
    negative,
    nextafter,
    not_equal,
    positive,
    pow,
    real,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    subtract,
    tan,
    tanh,
    trunc,
    where,
)
from morpho.tensor.functions.elementwise import is_public as _is_public
from morpho.tensor.functions.elementwise import of_record as _of_record
from morpho.tensor.functions.elementwise import public_names as _public_names
from morpho.tensor.functions.late import LATE as _FUNCTIONS
from morpho.tensor.functions.move import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from morpho.tensor.functions.neural.activations import (
    elu,
    gelu,
    layer_norm,
    leaky_relu,
    log_softmax,
    logsumexp,
    mish,
    relu,
    rms_norm,
    selu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from morpho.tensor.functions.neural.attention import attention
from morpho.tensor.functions.neural.batch_norm import batch_norm, batch_norm_training
from morpho.tensor.functions.neural.convolution import conv1d, conv2d, conv_transpose1d, conv_transpose2d
from morpho.tensor.functions.neural.losses import cross_entropy
from morpho.tensor.functions.neural.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    avg_pool1d,
    avg_pool2d,
    global_avg_pool,
    global_max_pool,
    max_pool1d,
    max_pool2d,
)
from morpho.tensor.functions.products.products import matmul, outer, tensordot, vecdot
from morpho.tensor.functions.products.quantised import Quantised, quantise
from morpho.tensor.functions.reduce import (
    all,
    any,
    argmax,
    argmin,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from morpho.tensor.functions.searching.search import (
    embedding,
    nonzero,
    one_hot,
    scatter,
    scatter_add,
    searchsorted,
    take,
    take_along_axis,
)
from morpho.tensor.functions.searching.sets import unique_all, unique_counts, unique_inverse, unique_values
from morpho.tensor.functions.searching.sorting import argsort, sort
from morpho.tensor.functions.utility import diff
from morpho.tensor.interop.interop import from_dlpack
from morpho.tensor.interop.libraries.backends import offer as _offer
from morpho.tensor.namespace import API_VERSION as __array_api_version__
from morpho.tensor.namespace import array_namespace_info as __array_namespace_info__
from morpho.tensor.namespace import can_cast, finfo, iinfo, isdtype, result_type
from morpho.tensor.operators import install as _install
from morpho.tensor.state.state import State
from morpho.tensor.tools.foreign_calls import add_ufunc_methods as _add_ufunc_methods
from morpho.tensor.tools.foreign_calls import hint_calls as _hint_calls
from morpho.tensor.tools.foreign_calls import keyless_draws as _keyless_draws
from morpho.tensor.tools.foreign_calls import respellings as _respellings
from morpho.tensor.tools.foreign_calls import ufunc_methods as _ufunc_methods
from morpho.tensor.tools.foreign_names import hint_imports as _hint_imports
from morpho.tensor.tools.foreign_names import more_names as _more_names
from morpho.tensor.tools.foreign_names import space_names as _space_names
from morpho.tensor.tools.foreign_names import tensor_methods as _tensor_methods

_install()

newaxis = None

__all__ = [
    # constants
    "e", "inf", "nan", "newaxis", "pi",
    # dtypes
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16",
    "float32", "float64", "complex64", "complex128", "astype", "broadcast_arrays", "broadcast_to", "can_cast",
    "finfo", "iinfo", "isdtype", "result_type",
    # creation
    "choose_device", "device", "device_states", "devices", "pin", "synchronize",
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
    # elementwise
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil", "clip", "conj", "copysign",
    "cos", "cosh", "divide", "equal", "erf", "erfc", "exp", "exp2", "expm1", "floor", "floor_divide", "greater",
    "greater_equal", "hypot", "imag", "isfinite", "isinf", "isnan", "less", "less_equal", "log", "log1p", "log2",
    "log10", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "multiply",
    "negative", "nextafter", "not_equal", "positive", "pow", "real", "reciprocal", "remainder", "round", "sign",
    "signbit", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc", "where",
    # activations, norms and losses
    "attention", "cross_entropy", "elu", "gelu", "layer_norm", "leaky_relu", "log_softmax", "logsumexp", "mish", "relu",
    "rms_norm", "selu", "sigmoid", "silu", "softmax", "softplus",
    # convolution and pooling
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d",
    "avg_pool2d", "batch_norm", "batch_norm_training", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d",
    "global_avg_pool", "global_max_pool", "max_pool1d", "max_pool2d",
    # products
    "Quantised", "einsum", "einsum_path", "fft", "linalg", "matmul", "matrix_transpose", "outer", "quantise",
    "polyfit", "roots", "tensordot", "vecdot",
    # movement
    "concat", "expand_dims", "flip", "moveaxis", "pad", "permute_dims", "repeat", "reshape", "roll", "squeeze",
    "stack", "tile", "unstack",
    # indexing, searching, sets, sorting
    "argmax", "argmin", "argsort", "count_nonzero", "embedding", "nonzero", "one_hot", "scatter", "scatter_add",
    "searchsorted", "sort", "take", "take_along_axis", "unique_all", "unique_counts", "unique_inverse", "unique_values",
    # loops and branches
    "associative_scan", "cond", "fori_loop", "map", "scan", "switch", "while_loop",
    # statistics and utility
    "all", "any", "cumulative_prod", "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
    # the engine
    "Dim", "State", "Tensor", "compile", "debug", "errors", "export", "extend", "pool", "random", "realise", "settings",
    "special", "tasks", "testing", "tune", "cache", "monitor", "memory", "profile", "certify", "within",
    # gradients and training
    "amp", "checkpoint", "checkpoint_sequential", "cluster", "custom_gradient", "custom_jvp", "custom_vjp", "data",
    "distributed", "enable_grad",
    "grad", "hessian", "hvp", "is_grad_enabled", "jacfwd", "jacrev", "jvp", "linearize", "logic", "models", "nn",
    "onnx", "no_grad", "optim", "plan", "rl", "sparse", "stop_gradient", "tree", "value_and_grad", "vjp", "vmap",
    "weights",
]

__all__ += sorted(_FUNCTIONS)  # the array language beyond the standard, loaded when first asked for

for _name in _public_names():  # ops that are functions by their records alone
    globals().setdefault(_name, _of_record(_name))
__all__ += [_name for _name in _public_names() if _name not in __all__]

_hint_calls(globals(), __all__)  # calls with other libraries' keywords
_add_ufunc_methods(globals())
_hint_imports()  # and imports of their modules
_expect_handles()  # for parts that are loaded later
_offer()  # backends to libraries that look for them


def __dir__() -> list[str]:
    later = [name for name in _public_names() if name not in __all__]
    return [*__all__, *later, *_spelling("table").ALL, "__array_api_version__", "__array_namespace_info__", "__doc__",
            "__name__", "__version__"]


_LATE = {  # name -> module and what to take from it: loaded when first asked for
    **_FUNCTIONS,
    "checkpoint": ("morpho.tensor.autodiff.checkpoint", "checkpoint"),
    "checkpoint_sequential": ("morpho.tensor.autodiff.checkpoint", "checkpoint_sequential"),
    "vmap": ("morpho.tensor.autodiff.vmap", "vmap"),
    "compile": ("morpho.tensor.jit.compile", "compile"), "grad": ("morpho.tensor.autodiff.gradient", "grad"),
    **{name: ("morpho.tensor.autodiff.gradient", name) for name in ("value_and_grad", "vjp")},
    **{name: ("morpho.tensor.autodiff.forward", name) for name in ("jvp", "linearize")},
    **{name: ("morpho.tensor.autodiff.jacobian", name) for name in ("hessian", "hvp", "jacfwd", "jacrev")},
    **{name: ("morpho.tensor.autodiff.custom", name)
       for name in ("custom_gradient", "custom_jvp", "custom_vjp", "stop_gradient")},
    **{name: ("morpho.tensor.autodiff.autograd", name) for name in ("enable_grad", "is_grad_enabled", "no_grad")},
    **{name: ("morpho.tensor.functions.products.einsum", name) for name in ("einsum", "einsum_path")},
    "cache": ("morpho.tensor.tools.cache", "cache"), "monitor": ("morpho.observe.monitor", ""),
    "extend": ("morpho.tensor.tools.extend", ""), "fft": ("morpho.tensor.functions.fft", ""),
    "debug": ("morpho.tensor.tools.debug", ""), "testing": ("morpho.tensor.tools.testing", ""),
    "random": ("morpho.tensor.functions.random", ""), "pool": ("morpho.runtime.memory.pool", ""),
    "special": ("morpho.tensor.functions.special", ""),
    "tune": ("morpho.tensor.tools.tune", "tune"),
    **{name: ("morpho.tensor.tools.certify", name) for name in ("certify", "within")},
    "profile": ("morpho.observe.record.session", "profile"), "memory": ("morpho.observe.memory", ""),
    "export": ("morpho.ahead.export", "export"),
    "tasks": ("morpho.tensor.tools.tasks", ""), "tree": ("morpho.tensor.tools.tree", ""),
    **{name: ("morpho.torch", name) for name in ("from_exported", "from_torch", "to_torch")},
    "torch": ("morpho.torch", ""),
    **{name: ("morpho.linalg.polynomials", name) for name in ("polyfit", "roots")},
    **{name: (f"morpho.{name}", "")
       for name in ("amp", "cluster", "data", "distributed", "distributions", "kernel", "linalg", "logic", "models",
                    "nn", "onnx", "optim", "plan", "rl", "sparse", "weights")},
}


def _spelling(file: str) -> _Any:
    """A file of NumPy's and PyTorch's spelling, loaded when a program first uses one."""
    import importlib

    return importlib.import_module(f"morpho.spelling.{file}")


_respellings.append(lambda *call: _spelling("calls").respelled(*call))
_ufunc_methods.append(lambda kind, name: _spelling("ufuncs").method(kind, name))
_keyless_draws.append(lambda *call: _spelling("legacy").keyless(*call))
_tensor_methods.append(lambda name: _spelling("methods").method(name))
_space_names.append(lambda place, name: _spelling("table").find_in(place, name))
_more_names.append(lambda: _spelling("methods").names())
def _settings_of_a_backend(name: str) -> _Any:
    """`mo.backends.cudnn` and the like; a look for a private name loads nothing."""
    if name.startswith("_"):
        raise AttributeError(f"module 'morpho.backends' has no attribute {name!r}")
    return _spelling("spaces").backend(name)


vars(_sys.modules["morpho.backends"])["__getattr__"] = _settings_of_a_backend


def __getattr__(name: str) -> _Any:
    if name in _LATE:
        import importlib

        module, attribute = _LATE[name]
        found = importlib.import_module(module)
        globals()[name] = getattr(found, attribute) if attribute else found
        _hint_calls(globals(), [name])
        _add_ufunc_methods(globals(), [name])
        return globals()[name]
    if name == "__version__":  # read only when asked for: the package's metadata takes a while to find
        from morpho.base.distribution import version

        return version()
    if _is_public(name):  # an op that was registered later
        return _of_record(name)
    if not name.startswith("_"):
        alias = _spelling("table").find(name)
        if alias is None and name.endswith("_"):  # a method that assigns, as a function: relu_(x)
            alias = _spelling("methods").method(name)
        if alias is not None:
            globals()[name] = alias
            return alias
    import sys

    from morpho.tensor.tools.foreign_names import missing

    raise missing("mo", name, sys.modules[__name__], "module 'morpho'")
