"""The cases: forms of the table, and what names and signatures of public functions tell.

A function of tensors alone is pointwise; one with `axis=` goes along axes. Tracing shows its dtypes.
A new op with a `summary`, and a new public function, appear without a line here; `uncovered()` lists what does not.
"""

from __future__ import annotations

import functools
import inspect
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.surface.draws import Call, Draw, Form
from benchmarks.surface.forms import forms
from morpho.ir.op import REGISTRY

DTYPES = ("float32", "float64", "bfloat16", "int32", "int64", "bool", "complex64", "complex128")
SIZES = {"1": 1, "1k": 1000, "64k": 1 << 16, "1M": 1 << 20, "16M": 1 << 24}
PLACES = {"": mo, "linalg.": mo.linalg, "fft.": mo.fft, "special.": mo.special, "nn.": mo.nn}
# What takes no tensors, or returns none, or is about programs: there is no call to time.
NO_CALLS = frozenset(
    [
        "asarray",
        "broadcast_arrays",
        "can_cast",
        "finfo",
        "iinfo",
        "isdtype",
        "result_type",
        "choose_device",
        "device",
        "device_states",
        "devices",
        "pin",
        "from_dlpack",
        "compile",
        "realise",
        "tune",
        "cache",
        "profile",
        "checkpoint",
        "checkpoint_sequential",
        "custom_gradient",
        "custom_jvp",
        "custom_vjp",
        "enable_grad",
        "grad",
        "hessian",
        "hvp",
        "is_grad_enabled",
        "jacfwd",
        "jacrev",
        "jvp",
        "linearize",
        "no_grad",
        "stop_gradient",
        "value_and_grad",
        "vjp",
        "vmap",
        "settings",
        "associative_scan",
        "cond",
        "fori_loop",
        "map",
        "scan",
        "switch",
        "while_loop",
        "einsum_path",
        "quantise",
        "empty",
        "empty_like",
        "nn.activation",
        "nn.checkpoint",
        "nn.checkpoint_sequential",
        "nn.seed",
        "nn.stream",
        "expand_dims",
        "squeeze",
        "reshape",
        "ravel",
        "flatten",
        "unflatten",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "moveaxis",
        "swapaxes",
        "split",
        "array_split",
        "chunk",
        "hsplit",
        "vsplit",
        "unstack",
        "bartlett_window",
        "blackman_window",
        "hamming_window",
        "hann_window",
        "kaiser_window",
        "diag_indices",
        "tril_indices",
        "triu_indices",
        "full",
        "full_like",
        "zeros_like",
        "ones_like",
        "fft.fftfreq",
        "fft.rfftfreq",
        "positive",
        "unravel_index",
    ]
)
# Under another name, the same function.
SAME = {
    "linalg.matmul": "matmul",
    "linalg.outer": "outer",
    "linalg.tensordot": "tensordot",
    "linalg.vecdot": "vecdot",
    "linalg.matrix_transpose": "matrix_transpose",
    "linalg.diagonal": "diagonal",
    "special.erf": "erf",
    "special.erfc": "erfc",
    "special.exp2": "exp2",
    "special.expm1": "expm1",
    "special.log1p": "log1p",
    "special.lgamma": "lgamma",
    "special.gammaln": "lgamma",
    "special.psi": "digamma",
    "special.expit": "sigmoid",
    "special.digamma": "digamma",
    "special.erfinv": "erfinv",
    "special.i0": "i0",
    "special.logit": "logit",
    "special.log_softmax": "log_softmax",
    "special.softmax": "softmax",
    "special.logsumexp": "logsumexp",
    "special.xlogy": "xlogy",
    "special.polygamma": "polygamma",
    "nn.cross_entropy": "cross_entropy",
}
DOMAINS = {
    "sqrt": (0.1, 3),
    "rsqrt": (0.1, 3),
    "log": (0.1, 3),
    "log2": (0.1, 3),
    "log10": (0.1, 3),
    "log1p": (-0.8, 3),
    "acosh": (1.1, 3),
    "asin": (-0.9, 0.9),
    "acos": (-0.9, 0.9),
    "atanh": (-0.9, 0.9),
    "erfinv": (-0.95, 0.95),
    "logit": (0.05, 0.95),
    "pow": (0.2, 3),
    "lgamma": (0.2, 8),
    "digamma": (0.2, 8),
    "reciprocal": (0.2, 3),
    "divide": (0.5, 3),
    "bitwise_left_shift": (1, 7),
    "bitwise_right_shift": (1, 7),
    "floor_divide": (0.5, 9),
    "remainder": (0.5, 9),
    "fmod": (0.5, 9),
    "divmod": (0.5, 9),
    "xlogy": (0.1, 3),
    "prod": (0.9, 1.1),
    "nanprod": (0.9, 1.1),
    "cumulative_prod": (0.98, 1.02),
    "cbrt": (0.1, 3),
    "kl_div": (0.1, 3),
    "erfcinv": (0.1, 1.9),
    "ndtri": (0.05, 0.95),
    "entr": (0.1, 3),
    "rel_entr": (0.1, 3),
    "beta": (0.5, 5),
    "betaln": (0.5, 5),
    "betainc": (0.1, 0.9),
    "gammainc": (0.5, 5),
    "gammaincc": (0.5, 5),
    "zeta": (1.5, 5),
    "bessel_y0": (0.5, 9),
    "bessel_y1": (0.5, 9),
    "xlog1py": (0.1, 3),
    "i0": (-5, 5),
    "gcd": (1, 1000),
    "lcm": (1, 1000),
    "log_ndtr": (-3, 3),
    "ldexp": (1, 4),
}
# Peers whose name is another one, and whose axis is another word.
ALIASES = {
    "cumulative_sum": ("cumsum", "cumsum"),
    "cumulative_prod": ("cumprod", "cumprod"),
    "pow": ("pow", "power"),
    "bitwise_invert": ("bitwise_not", "invert"),
    "leaky_relu": ("nn.functional.leaky_relu", ""),
    "elu": ("nn.functional.elu", ""),
    "gelu": ("nn.functional.gelu", ""),
    "mish": ("nn.functional.mish", ""),
    "silu": ("nn.functional.silu", ""),
    "relu": ("relu", ""),
    "selu": ("selu", ""),
    "softplus": ("nn.functional.softplus", ""),
    "conj": ("conj_physical", "conj"),
    "concat": ("cat", "concatenate"),
    "count_nonzero": ("count_nonzero", "count_nonzero"),
    "max": ("amax", "max"),
    "min": ("amin", "min"),
    "real": ("real", "real"),
    "special.bessel_j0": ("special.bessel_j0", ""),
    "special.bessel_j1": ("special.bessel_j1", ""),
    "special.bessel_y0": ("special.bessel_y0", ""),
    "special.bessel_y1": ("special.bessel_y1", ""),
    "cummax": ("cummax", "maximum.accumulate"),
    "cummin": ("cummin", "minimum.accumulate"),
    "cbrt": ("", "cbrt"),
    "bitwise_left_shift": ("bitwise_left_shift", "left_shift"),
    "bitwise_right_shift": ("bitwise_right_shift", "right_shift"),
}
SCIPYS = {
    "lgamma": "gammaln",
    "digamma": "psi",
    "sigmoid": "expit",
    "bessel_j0": "j0",
    "bessel_j1": "j1",
    "bessel_y0": "y0",
    "bessel_y1": "y1",
    "erf": "erf",
    "erfc": "erfc",
    "logit": "logit",
    "xlogy": "xlogy",
    "i0": "i0",
    "erfinv": "erfinv",
}
SINGLE_AXIS = frozenset(
    ("softmax", "log_softmax", "logsumexp", "cummax", "cummin", "cumulative_sum", "cumulative_prod", "logcumsumexp")
)
AXIS_NAMES = (
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "ptp",
)


@dataclass(frozen=True)
class Case:
    """A form at a dtype, its values or its gradient."""

    form: Form
    dtype: str
    slope: bool = False

    @property
    def key(self) -> str:
        return f"{self.form.name}{' gradient' if self.slope else ''} | {self.form.label} | {self.dtype}"

    def arrays(self) -> list[np.ndarray]:
        rng = np.random.default_rng(zlib.crc32(f"{self.form.name} {self.form.label} {self.dtype}".encode()))
        return [draw.array(rng, self.dtype) for draw in self.form.draws]


@functools.cache
def public() -> dict[str, Call]:
    """Every public function by its dotted name, those that are another's name left out."""
    names = {
        prefix + name: getattr(place, name)
        for prefix, place in PLACES.items()
        for name in (mo.__all__ if place is mo else sorted(set(dir(place)) & _own_names(place)))
    }
    names |= {op.name: getattr(mo, op.name) for op in REGISTRY.values() if op.summary and hasattr(mo, op.name)}
    return {
        name: value
        for name, value in names.items()
        if name not in SAME
        and not name.rpartition(".")[2].startswith("_")
        and callable(value)
        and not inspect.isclass(value)
        and not isinstance(value, ModuleType | type(mo.float32))
    }


def _own_names(place: Any) -> set[str]:
    return {name for name in dir(place) if getattr(getattr(place, name), "__module__", "").startswith("morpho")}


def uncovered() -> list[str]:
    """Public functions without a case."""
    covered = {case.form.name for case in cases()}
    return sorted(set(public()) - covered - NO_CALLS)


def _lookup(place: Any, name: str) -> Call | None:
    for part in name.split("."):
        place = getattr(place, part, None)
    return place if name and callable(place) else None


def namesakes(name: str) -> dict[str, Call]:
    """The same function of each peer, by its name."""
    import scipy.special
    import torch

    torchs, numpys = ALIASES.get(name, (name, name))
    last = name.rpartition(".")[2]
    calls = {
        "torch": _lookup(torch, torchs) or _lookup(torch, f"special.{last}") or _lookup(torch.nn.functional, last),
        "numpy": _lookup(np, numpys),
        "scipy": _lookup(scipy.special, SCIPYS.get(last, last)),
    }
    return {library: call for library, call in calls.items() if call is not None}


def _along(library: str, call: Call, axis: int | None, name: str) -> Call:
    if library == "torch":
        if name in ("cummax", "cummin"):
            return lambda x: call(x, -1 if axis is None else axis).values
        if name in ("std", "var"):
            return lambda x: call(x, correction=0) if axis is None else call(x, axis, correction=0)
        if axis is None:
            return (lambda x: call(x.ravel(), 0)) if name.startswith("cum") else call
        return lambda x: call(x, dim=axis)
    return lambda x: call(x, axis=axis)


def _own_along(call: Call, axis: int | None) -> Call:
    return lambda x: call(x, axis=axis)


def _required(function: Call) -> tuple[int, set[str]] | None:
    """How many tensors it takes, and its keywords; None where it takes something else as well."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    first = [p for p in parameters if p.kind is p.POSITIONAL_ONLY and p.default is p.empty]
    others = [p for p in parameters if p not in first]
    if not 1 <= len(first) <= 3 or any(p.default is p.empty for p in others):
        return None
    return len(first), {p.name for p in others}


def derived() -> Iterator[Form]:
    """Forms of the functions that no row of the table is about."""
    rows = {form.name for form in forms()}
    for name, function in public().items():
        if name in NO_CALLS or name in rows or (wanted := _required(function)) is None:
            continue
        count, keywords = wanted
        last = name.rpartition(".")[2]
        low, high = DOMAINS.get(last, (-3.0, 3.0))
        draw = functools.partial(Draw, low=low, high=high)
        peers = namesakes(name)
        if "axis" in keywords and count == 1:
            yield from _axis_forms(name, function, peers, draw)
            continue
        for label, size in SIZES.items():
            yield Form(
                name,
                label,
                (draw((size,)),) * count,
                function,
                peers,
                DTYPES if label in ("1k", "1M") else ("float32",),
                tuple(range(count)) if label in ("1", "1k", "1M") else (),
                label in ("1k", "1M") and (label == "1M" or count > 0),
                family="pointwise",
            )
        yield Form(
            name,
            "1M, every second",
            (draw((1 << 21,)),) * count,
            _strided(function),
            {k: _strided(c) for k, c in peers.items()},
            ("float32",),
            (),
            False,
            family="pointwise",
        )
        yield Form(
            name,
            "1024x1024, transposed",
            (draw((1024, 1024)),) * count,
            _transposed(function),
            {k: _transposed(c) for k, c in peers.items()},
            ("float32",),
            (),
            False,
            family="pointwise",
        )


def _strided(call: Call) -> Call:
    return lambda *arrays: call(*[x[::2] for x in arrays])


def _transposed(call: Call) -> Call:
    return lambda *arrays: call(*[x.T for x in arrays])


def _axis_forms(name: str, function: Call, peers: dict[str, Call], draw: Any) -> Iterator[Form]:
    shapes: list[tuple[tuple[int, ...], tuple[int | None, ...]]] = [
        ((1,), (0,)),
        ((1000,), (0,)),
        ((256, 256), (0, 1)),
        ((1 << 20,), (0,)),
        ((1024, 1024), (0, 1)),
        ((64, 128, 128), (1,)),
        ((65536, 16), (0, 1)),
        ((16, 65536), (0, 1)),
        ((4096, 4096), (0, 1)),
    ]
    for shape, axes in shapes:
        for axis in axes:
            big = shape in ((1024, 1024), (1 << 20,))
            label = "x".join(map(str, shape)) + (f", axis {axis}" if len(shape) > 1 else "")
            yield Form(
                name,
                label,
                (draw(shape),),
                _own_along(function, axis),
                {library: _along(library, call, axis, name) for library, call in peers.items()},
                DTYPES if big else ("float32",),
                (0,) if big or shape == (1000,) else (),
                big,
                family="axes",
                rough=name.startswith(("arg", "nanarg")),
            )
    if name not in SINGLE_AXIS:
        yield Form(
            name,
            "1024x1024, all",
            (draw((1024, 1024)),),
            _own_along(function, None),
            {library: _along(library, call, None, name) for library, call in peers.items()},
            ("float32",),
            (),
            False,
            family="axes",
        )
    yield Form(
        name,
        "1024x1024 transposed, axis 1",
        (draw((1024, 1024)),),
        _transposed(_own_along(function, 1)),
        {library: _transposed(_along(library, call, 1, name)) for library, call in peers.items()},
        ("float32",),
        (),
        False,
        family="axes",
    )


def takes(form: Form, dtype: str) -> bool:
    """Whether Morpho takes that dtype, by tracing one call on the smallest values."""
    rng = np.random.default_rng(0)
    small = [
        Draw(tuple(min(n, 4) for n in draw.shape), draw.kind, draw.low, draw.high, draw.special)
        for draw in form.draws
    ]
    try:
        form.own(
            *[
                mo.asarray(draw.array(rng, dtype)).astype(getattr(mo, dtype))
                if draw.kind == "same"
                else mo.asarray(draw.array(rng, dtype))
                for draw in small
            ]
        )
    except Exception:  # any refusal says no
        return False
    return True


@functools.cache
def cases() -> tuple[Case, ...]:
    """All cases, functions in the order of their names."""
    result = []
    allowed: dict[tuple[str, str], bool] = {}
    derived_forms = list(derived())
    for form in [*forms(), *derived_forms]:
        wide = form.family in ("pointwise", "axes") and len(form.dtypes) == len(DTYPES)
        for dtype in form.dtypes:
            if wide and not allowed.setdefault((form.name, dtype), takes(form, dtype)):
                continue
            if (
                form.family in ("pointwise", "axes")
                and not wide
                and dtype == "float32"
                and not allowed.setdefault((form.name, dtype), takes(form, dtype))
            ):
                if form.label != "1M" and allowed.setdefault((form.name, "int64"), takes(form, "int64")):
                    result.append(Case(form, "int64"))
                continue
            result.append(Case(form, dtype))
            if form.slopes and dtype == "float32":
                result.append(Case(form, dtype, True))
    return tuple(result)
