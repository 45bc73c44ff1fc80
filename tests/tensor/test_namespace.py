"""The namespace is the whole of the Python Array API standard 2024.12: every name, every signature, and no leaks."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpy as np
import pytest

import morpho as mo

# name(parameters): `/` ends positional-only ones, `*` begins keyword-only ones, `=` marks a default.
FUNCTIONS = """
astype(x, dtype, /, *, copy=, device=)      broadcast_arrays(*arrays)           broadcast_to(x, /, shape)
can_cast(from_, to, /)                      finfo(type, /)                      iinfo(type, /)
isdtype(dtype, kind)                        result_type(*arrays_and_dtypes)
arange(start, /, stop=, step=, *, dtype=, device=)      asarray(obj, /, *, dtype=, device=, copy=)
empty(shape, *, dtype=, device=)            empty_like(x, /, *, dtype=, device=)
eye(n_rows, n_cols=, /, *, k=, dtype=, device=)                                 from_dlpack(x, /, *, device=, copy=)
full(shape, fill_value, *, dtype=, device=) full_like(x, /, fill_value, *, dtype=, device=)
linspace(start, stop, /, num, *, dtype=, device=, endpoint=)                    meshgrid(*arrays, indexing=)
ones(shape, *, dtype=, device=)             ones_like(x, /, *, dtype=, device=)
tril(x, /, *, k=)                           triu(x, /, *, k=)
zeros(shape, *, dtype=, device=)            zeros_like(x, /, *, dtype=, device=)
clip(x, /, min=, max=)                      where(condition, x1, x2, /)
take(x, indices, /, *, axis=)               take_along_axis(x, indices, /, *, axis=)
matmul(x1, x2, /, *, algorithm=, dtype=)    matrix_transpose(x, /)
tensordot(x1, x2, /, *, axes=)              vecdot(x1, x2, /, *, axis=)
concat(arrays, /, *, axis=)                 expand_dims(x, /, axis=)            flip(x, /, *, axis=)
moveaxis(x, source, destination, /)         permute_dims(x, /, axes)            repeat(x, repeats, /, *, axis=)
reshape(x, /, shape, *, copy=)              roll(x, /, shift, *, axis=)         squeeze(x, /, axis)
stack(arrays, /, *, axis=)                  tile(x, repetitions, /)             unstack(x, /, *, axis=)
argmax(x, /, *, axis=, keepdims=)           argmin(x, /, *, axis=, keepdims=)
count_nonzero(x, /, *, axis=, keepdims=)
nonzero(x, /)                               searchsorted(x1, x2, /, *, side=, sorter=)
unique_all(x, /)       unique_counts(x, /)  unique_inverse(x, /)                unique_values(x, /)
argsort(x, /, *, axis=, descending=, stable=)           sort(x, /, *, axis=, descending=, stable=)
cumulative_sum(x, /, *, axis=, dtype=, include_initial=)
cumulative_prod(x, /, *, axis=, dtype=, include_initial=)
max(x, /, *, axis=, keepdims=)              mean(x, /, *, axis=, keepdims=)     min(x, /, *, axis=, keepdims=)
prod(x, /, *, axis=, dtype=, keepdims=)     sum(x, /, *, axis=, dtype=, keepdims=)
std(x, /, *, axis=, correction=, keepdims=) var(x, /, *, axis=, correction=, keepdims=)
all(x, /, *, axis=, keepdims=)              any(x, /, *, axis=, keepdims=)
diff(x, /, *, axis=, n=, prepend=, append=)
"""
UNARY = """abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf
isnan log log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan
tanh trunc"""
BINARY = """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide equal
floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum
multiply nextafter not_equal pow remainder subtract"""
LINALG = """
cholesky(x, /, *, upper=, algorithm=)    cross(x1, x2, /, *, axis=)    det(x, /)
diagonal(x, /, *, offset=, axis1=, axis2=)
eigh(x, /)
eigvalsh(x, /)    inv(x, /)    matmul(x1, x2, /, *, algorithm=, dtype=)
matrix_norm(x, /, *, keepdims=, ord=)    matrix_power(x, n, /)
matrix_rank(x, /, *, rtol=)    matrix_transpose(x, /)    outer(x1, x2, /)    pinv(x, /, *, rtol=)
qr(x, /, *, mode=, algorithm=)
slogdet(x, /)    solve(x1, x2, /, *, algorithm=)    svd(x, /, *, full_matrices=)    svdvals(x, /)
tensordot(x1, x2, /, *, axes=)
trace(x, /, *, offset=, dtype=)    vecdot(x1, x2, /, *, axis=)    vector_norm(x, /, *, axis=, keepdims=, ord=)
"""
LINE = "(x, /, *, n=, axis=, norm=)"
BLOCK = "(x, /, *, s=, axes=, norm=)"
FFT = " ".join(name + LINE for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")) + " " + " ".join(
    name + BLOCK for name in ("fftn", "ifftn", "rfftn", "irfftn")) + """
fftfreq(n, /, *, d=, dtype=, device=) rfftfreq(n, /, *, d=, dtype=, device=) fftshift(x, /, *, axes=)
ifftshift(x, /, *, axes=)"""
CONSTANTS = "e inf nan newaxis pi"
DTYPES = """bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128"""
METHODS = """
__abs__ __add__ __and__ __array_namespace__ __bool__ __complex__ __dlpack__ __dlpack_device__ __eq__
__float__ __floordiv__ __ge__ __getitem__ __gt__ __index__ __int__ __invert__ __le__ __lshift__ __lt__ __matmul__
__mod__
__mul__ __ne__ __neg__ __or__ __pos__ __pow__ __rshift__ __setitem__ __sub__ __truediv__ __xor__ to_device dtype device
mT ndim shape size T"""
OPERATORS = "add sub mul truediv floordiv pow mod matmul and or xor lshift rshift"


def parsed(text: str) -> list[tuple[str, str]]:
    """(name, parameters) of a block of signatures."""
    found = []
    for piece in text.replace("\n", " ").split(")"):
        if piece.strip():
            name, parameters = piece.strip().split("(")
            found.append((name.strip(), ", ".join(p.strip() for p in parameters.split(","))))
    return found


def shown(function: object) -> str:
    """A signature in the notation above."""
    text, previous = [], None
    for parameter in inspect.signature(function).parameters.values():  # type: ignore[arg-type]
        kind = parameter.kind
        if previous is parameter.POSITIONAL_ONLY and kind is not previous:
            text.append("/")
        if kind is parameter.KEYWORD_ONLY and previous not in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL):
            text.append("*")
        star = "*" if kind is parameter.VAR_POSITIONAL else ""
        text.append(star + parameter.name + ("" if parameter.default is parameter.empty else "="))
        previous = kind
    if previous is inspect.Parameter.POSITIONAL_ONLY:
        text.append("/")
    return ", ".join(text)


EXPECTED = [(mo, name, parameters) for name, parameters in parsed(FUNCTIONS)]
EXPECTED += [(mo, name, "x, /") for name in UNARY.split()] + [(mo, name, "x1, x2, /") for name in BINARY.split()]
EXPECTED += [(mo.linalg, name, p) for name, p in parsed(LINALG)] + [(mo.fft, name, p) for name, p in parsed(FFT)]


def test_every_function_of_the_standard_with_its_signature() -> None:
    """Names, order, positional-only and keyword-only parameters, and which of them may be left out. Parameters of
    Morpho's own stand last, by name only (`algorithm=` of matmul and factorisations, `dtype=` of matmul, axes of
    diagonal)."""
    assert len(EXPECTED) == 170
    wrong = [f"{module.__name__}.{name}({shown(getattr(module, name))}) is not ({parameters})"
             for module, name, parameters in EXPECTED if shown(getattr(module, name)) != parameters]
    assert not wrong, "\n".join(wrong)


def test_constants_dtypes_and_methods() -> None:
    """The rest of the standard."""
    for name in CONSTANTS.split() + DTYPES.split():
        assert hasattr(mo, name), name
    assert (mo.e, mo.pi, mo.inf, mo.newaxis) == (np.e, np.pi, np.inf, None) and np.isnan(mo.nan)
    names = METHODS.split() + [f"__{side}{name}__" for name in OPERATORS.split() for side in "ir"]
    missing = [name for name in names if not hasattr(mo.Tensor, name)]
    assert not missing


def test_every_public_function_says_what_it_does() -> None:
    """A docstring each."""
    silent = [name for name in mo.__all__ if callable(getattr(mo, name)) and not getattr(mo, name).__doc__]
    assert not silent


def test_dir_shows_public_names_only() -> None:
    """No module, no helper and no import leaks; extensions are lists of functions."""
    assert sorted(set(mo.__all__)) == sorted(mo.__all__)
    assert all(not name.startswith("_") or name.startswith("__") for name in dir(mo))
    assert not {"base", "ops", "ir", "np", "builtins", "Any", "annotations"} & set(dir(mo))
    for module in (mo.linalg, mo.fft, mo.random):
        assert dir(module) == sorted(module.__all__) and all(hasattr(module, name) for name in module.__all__)


def test_array_namespace() -> None:
    """A tensor knows its namespace, and which versions it has."""
    x = mo.asarray([1.0])
    assert x.__array_namespace__() is mo and x.__array_namespace__(api_version="2024.12") is mo
    assert mo.__array_api_version__ == "2024.12"
    with pytest.raises(TypeError, match="__array_namespace__"):
        x.__array_namespace__(api_version="1999.01")


def test_array_namespace_info() -> None:
    """Capabilities, devices and dtypes."""
    info = mo.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert info.default_device() in info.devices()
    assert info.default_dtypes() == {"real floating": mo.float32, "complex floating": mo.complex64,
                                     "integral": mo.int64, "indexing": mo.int64}
    assert set(DTYPES.split()) <= set(info.dtypes())
    assert info.dtypes(kind="unsigned integer") == {f"uint{n}": getattr(mo, f"uint{n}") for n in (8, 16, 32, 64)}
    assert set(info.dtypes(kind=("bool", "complex floating"))) == {"bool", "complex64", "complex128"}


def test_finfo_and_iinfo() -> None:
    """Limits, bfloat16's too."""
    for name in ("float16", "float32", "float64"):
        ours, theirs = mo.finfo(getattr(mo, name)), np.finfo(name)
        assert (ours.bits, ours.eps, ours.max, ours.min) == (theirs.bits, theirs.eps, theirs.max, theirs.min)
        assert ours.smallest_normal == theirs.smallest_normal and isinstance(ours.eps, float)
    assert mo.finfo(mo.complex64).dtype is mo.float32
    assert mo.finfo(mo.bfloat16).eps == 2.0**-7 and mo.finfo(mo.bfloat16).max > 3.38e38
    assert mo.iinfo(mo.asarray([1], dtype=mo.uint8)).max == 255 and mo.iinfo(mo.int64).min == -(2**63)


def test_promotion() -> None:
    """Kinds, casts and results; numbers follow the tensor whatever their value."""
    assert mo.isdtype(mo.int8, "integral") and not mo.isdtype(mo.bfloat16, ("integral", "complex floating"))
    assert mo.isdtype(mo.float32, mo.float32) and mo.isdtype(mo.float16, "numeric")
    assert mo.can_cast(mo.int8, mo.int16) and not mo.can_cast(mo.float64, mo.float32)
    assert not mo.can_cast(mo.uint64, mo.int64)
    assert mo.result_type(mo.int8, mo.uint8) is mo.int16
    assert mo.result_type(mo.asarray([1.0]), 1e300) is mo.float32
    assert mo.result_type(mo.float16, mo.bfloat16) is mo.float32
    assert mo.result_type(mo.float64, 1j) is mo.complex128
    assert (mo.asarray([1], dtype=mo.uint8) + 1).dtype is mo.uint8
    assert (mo.asarray([True]) + 1).dtype is mo.int64
    with pytest.raises(TypeError, match=r"\[add\]"):
        mo.asarray([1], dtype=mo.uint64) + mo.asarray([1])


def test_import_is_light() -> None:
    """`numpy.fft` and LLVM are loaded when first used."""
    program = "import sys, morpho; print('llvmlite' in sys.modules, 'numpy.fft' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["False", "False"]
