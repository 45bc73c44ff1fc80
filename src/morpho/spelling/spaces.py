"""Names of NumPy and PyTorch that are no functions: index builders, namespaces, kinds of dtypes."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np

import morpho as mo
from morpho import scipy as scipy
from morpho.base.dtypes import as_dtype
from morpho.spelling.torch_functions import functional_call, stack_module_state
from morpho.spelling.torch_process import manual_seed

dtype = as_dtype
euler_gamma = 0.57721566490153286060
Size: Any = tuple
True_, False_ = True, False
s_, index_exp = np.s_, np.index_exp
floating, integer, number, inexact = np.floating, np.integer, np.number, np.inexact
complexfloating, generic = np.complexfloating, np.generic
signedinteger, unsignedinteger = np.signedinteger, np.unsignedinteger
strided, contiguous_format, preserve_format, channels_last = (
    "strided", "contiguous_format", "preserve_format", "channels_last")


class _Joined:
    """`np.r_[...]` and `np.c_[...]`: slices, numbers and arrays joined."""

    def __init__(self, builder: Any, columns: bool) -> None:
        self._builder, self._columns = builder, columns

    def __getitem__(self, key: Any) -> mo.Tensor:
        parts = key if isinstance(key, tuple) else (key,)
        plain = tuple(part.numpy() if isinstance(part, mo.Tensor) else part for part in parts)
        if any(isinstance(part, str) for part in plain):
            return mo.asarray(self._builder[plain])
        lines = [mo.asarray(self._builder[part]) if isinstance(part, slice) else mo.asarray(part) for part in parts]
        lines = [mo.atleast_1d(line) for line in lines]
        if self._columns:
            return mo.concat([line[:, None] if line.ndim == 1 else line for line in lines], axis=-1)
        return mo.concat(lines, axis=0)


class _Grid:
    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def __getitem__(self, key: Any) -> Any:
        made = self._builder[key]
        return tuple(mo.asarray(line) for line in made) if isinstance(made, tuple | list) else mo.asarray(made)


r_, c_ = _Joined(np.r_, False), _Joined(np.r_, True)
mgrid, ogrid = _Grid(np.mgrid), _Grid(np.ogrid)


def errstate(**settings: Any) -> AbstractContextManager[Any]:
    """Morpho warns of no infinities or NaN, so there is nothing to silence; mo.debug.nans() finds them."""
    return nullcontext()


def seterr(**settings: Any) -> dict[str, str]:
    return geterr()


def geterr() -> dict[str, str]:
    return {"divide": "ignore", "over": "ignore", "under": "ignore", "invalid": "ignore"}


def set_num_threads(number: int) -> None:
    """The number of threads of every later run of this thread of Python."""
    from morpho.base import settings

    settings.current.set(settings.settings(threads=int(number)).__enter__())


def _typed(name: str) -> Any:
    def make(data: Any = (), *sizes: int) -> mo.Tensor:
        if isinstance(data, int):
            return mo.zeros((data, *sizes), dtype=name)
        return mo.asarray(data, dtype=name)

    return make


FloatTensor, DoubleTensor, LongTensor, IntTensor, BoolTensor = (
    _typed(name) for name in ("float32", "float64", "int64", "int32", "bool"))


class _Space(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no {name!r} here")


func = _Space(vmap=mo.vmap, grad=mo.grad, jacrev=mo.jacrev, jacfwd=mo.jacfwd, hessian=mo.hessian, vjp=mo.vjp,
              jvp=mo.jvp,
              linearize=mo.linearize, functional_call=functional_call, stack_module_state=stack_module_state,
              grad_and_value=lambda function, *args, **options: _swapped(mo.value_and_grad(function, *args, **options)))


def _swapped(function: Any) -> Any:
    def call(*args: Any) -> Any:
        value, slope = function(*args)
        return slope, value

    return call


def _has_cuda() -> bool:
    return any(name.startswith("cuda") for name in mo.devices())


cuda = _Space(is_available=_has_cuda, device_count=lambda: sum(name.startswith("cuda") for name in mo.devices()),
              manual_seed=manual_seed, manual_seed_all=manual_seed, synchronize=lambda device=None: None,
              empty_cache=lambda: None, current_device=lambda: 0, amp=mo.amp)
backends = SimpleNamespace(cudnn=SimpleNamespace(deterministic=True, benchmark=False, enabled=True,
                                                 is_available=lambda: False, allow_tf32=False),
                           cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=False)),
                           mps=SimpleNamespace(is_available=lambda: False, is_built=lambda: False))


def backend(name: str) -> Any:
    """`mo.backends.cudnn` and the like: settings of other libraries, which are read and change nothing."""
    if name.startswith("_") or not hasattr(backends, name):
        raise AttributeError(f"module 'morpho.backends' has no attribute {name!r}", name=name)
    return getattr(backends, name)


utils = _Space(data=mo.data, checkpoint=SimpleNamespace(checkpoint=mo.checkpoint,
                                                        checkpoint_sequential=mo.checkpoint_sequential))
lax = _Space(**{name: getattr(mo, name) for name in (
    "scan", "cond", "switch", "while_loop", "fori_loop", "map", "associative_scan", "stop_gradient", "top_k")})
jit = mo.compile

