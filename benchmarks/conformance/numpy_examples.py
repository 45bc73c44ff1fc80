"""The examples in NumPy's own docstrings, run with Morpho in NumPy's place.

An example is a chain of lines. Each expression whose value NumPy shows is computed by both; the values are compared as
arrays, so that Morpho's way of printing does not count. A line that Morpho refuses ends the example.
"""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import types
import warnings
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.conformance.opinfo import Tally, within

# What has no meaning here: memory, text files, types of text and dates, printing, subclasses of ndarray.
SKIPPED = {
    "array2string", "array_repr", "array_str", "asfortranarray", "asmatrix", "base_repr", "bmat", "busday_count",
    "busday_offset", "byte_bounds", "copyto", "datetime_as_string", "datetime_data", "dtype", "errstate",
    "format_float_positional", "format_float_scientific", "fromfile", "frompyfunc", "genfromtxt", "get_printoptions",
    "getbufsize", "geterr", "geterrcall", "info", "is_busday", "isfortran", "lib", "load", "loadtxt", "matrix",
    "may_share_memory", "memmap", "ndarray", "ndenumerate", "ndindex", "nditer", "nested_iters", "printoptions",
    "put", "recarray", "record", "require", "save", "savetxt", "savez", "savez_compressed", "set_printoptions",
    "setbufsize", "seterr", "seterrcall", "shares_memory", "show_config", "show_runtime", "test", "typename",
    "vectorize"}


def examples_of(module: types.ModuleType) -> dict[str, Any]:
    """Functions of NumPy that Morpho has too."""
    ours: Any = mo
    for part in module.__name__.split(".")[1:]:
        ours = getattr(ours, part, None)
    return {name: function for name in sorted(module.__all__)
            if callable(function := getattr(module, name)) and not inspect.isclass(function) and name not in SKIPPED
            and ours is not None and getattr(ours, name, None) is not None}


def array_of(value: Any) -> Any:
    if isinstance(value, mo.Tensor):
        return value.numpy()
    if isinstance(value, tuple | list):
        return [array_of(item) for item in value]
    return np.asarray(value)


def same(got: Any, wanted: Any) -> bool:
    one, other = array_of(got), array_of(wanted)
    if isinstance(one, list) != isinstance(other, list):
        one, other = np.asarray(one), np.asarray(other)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if other.dtype.kind not in "biufc":
        return str(one) == str(other)
    return one.shape == other.shape and np.allclose(one, other, rtol=1e-5, atol=1e-6, equal_nan=True)


def run_example(tally: Tally, name: str, function: Any) -> None:
    theirs: dict[str, Any] = {"np": np}
    ours: dict[str, Any] = {"np": mo}
    for example in doctest.DocTestParser().get_examples(function.__doc__ or ""):
        if example.exc_msg is not None or "import" in example.source or "plt." in example.source:
            continue
        try:
            code = compile(example.source, name, "eval" if example.want else "exec")
            with contextlib.redirect_stdout(io.StringIO()):
                wanted = eval(code, theirs)
        except Exception:
            continue
        try:
            with within(10), contextlib.redirect_stdout(io.StringIO()):
                got = eval(code, ours)
                equal = not example.want or wanted is None or same(got, wanted)
        except Exception as error:
            tally.count("refused", name, f"{example.source.strip()[:80]} -> {type(error).__name__}: {error}"[:220])
            return
        tally.count("equal" if equal else "other values", name,
                    "" if equal else f"{example.source.strip()[:80]}: {str(got)[:60]!r}, NumPy {str(wanted)[:60]!r}")


def run() -> Tally:
    """Every function that both have, in `numpy`, `numpy.linalg` and `numpy.fft`."""
    warnings.simplefilter("ignore")
    tally = Tally()
    for module in (np, np.linalg, np.fft):
        for name, function in examples_of(module).items():
            tally.present.append(f"{module.__name__}.{name}")
            run_example(tally, f"{module.__name__}.{name}", function)
    return tally
