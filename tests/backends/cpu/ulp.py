"""Compiles one vector_math function into a loop over arrays and measures its error in units of the last place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from morpho.backends.code.emit import Emitter

Array = np.ndarray[Any, np.dtype[Any]]
ELEMENTS = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def loop_text(build: Callable[..., Any], element: str, lanes: int, arity: int = 1, **options: Any) -> str:
    """LLVM text of `kernel(inputs..., output, count)`; `count` is a multiple of `lanes`."""
    e = Emitter(lanes, **options)
    pointers = [f"%in{i}" for i in range(arity)]
    with e.loop(0, e.argument("%count", "i64", 1), lanes) as loop:
        values = [e.load(e.offset(pointer, element, loop.index), element) for pointer in pointers]
        e.store(build(e, *values), e.offset("%out", element, loop.index))
        loop.next()
    parameters = ", ".join(f"ptr noalias {name}" for name in [*pointers, "%out"])
    head = "\n".join(sorted(e.declarations))
    return f"{head}\ndefine void @kernel({parameters}, i64 %count) {{\nentry:\n{e.text()}\n  ret void\n}}\n"


def target_machine() -> llvm.TargetMachine:
    """Code generation for the machine the test runs on; a new one each time, since an engine keeps its own."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(cpu=llvm.get_host_cpu_name(), features=features, opt=3)


def assembly(build: Callable[..., Any], element: str, lanes: int, arity: int = 1) -> str:
    """The machine code of the loop as text, for counting instructions."""
    module = llvm.parse_assembly(loop_text(build, element, lanes, arity))
    return str(target_machine().emit_assembly(module))


class Compiled:
    """A function of arrays made from one vector_math function at one lane count."""

    def __init__(self, build: Callable[..., Any], dtype: Any, lanes: int, arity: int = 1, **options: Any) -> None:
        self.dtype, self.lanes, self.arity = np.dtype(dtype), lanes, arity
        module = llvm.parse_assembly(loop_text(build, ELEMENTS[self.dtype], lanes, arity, **options))
        module.verify()
        self.engine = llvm.create_mcjit_compiler(module, target_machine())
        self.engine.finalize_object()
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (arity + 1), ctypes.c_int64)
        self.call = signature(self.engine.get_function_address("kernel"))

    def __call__(self, *inputs: Array) -> Array:
        """The function of every element; the last partial vector is padded with ones."""
        count = inputs[0].size
        padded = -(-count // self.lanes) * self.lanes
        arrays = [np.ones(padded, self.dtype) for _ in inputs]
        for array, given in zip(arrays, inputs, strict=True):
            array[:count] = given
        out = np.empty(padded, self.dtype)
        self.call(*[array.ctypes.data for array in arrays], out.ctypes.data, padded)
        return out[:count]


def ulp_errors(got: Array, true: Array) -> Array:
    """|got - true| in units of the last place of `true` in the format of `got`; wrong NaN or infinity is inf.

    `true` is in a wider format. Where it lies past the largest finite number of the narrow format, the narrow
    infinity stands for 2**emax, as in the definition of rounding, so that overflow is judged like any other value.
    """
    info = np.finfo(got.dtype)
    top = true.dtype.type(2) ** int(info.maxexp)
    with np.errstate(all="ignore"):
        exponent = np.frexp(true)[1] - 1
        exponent = np.clip(exponent, int(info.minexp), int(info.maxexp) - 1)
        unit = np.ldexp(true.dtype.type(1), exponent - int(info.nmant))
        wide = got.astype(true.dtype)
        overflow = np.isinf(got) & (np.abs(true) >= top - unit / 2) & (np.sign(wide) == np.sign(true))
        error = np.abs(wide - true) / unit
        error = np.where(overflow | (wide == true) | (np.isnan(got) & np.isnan(true)), 0, error)
        return np.where(np.isnan(error), np.inf, error).astype(np.float64)


def float32_samples(count: int, seed: int = 0) -> Array:
    """Random bit patterns (every exponent, subnormals, NaN) and values of everyday size."""
    random = np.random.default_rng(seed)
    patterns = random.integers(0, 2**32, count // 2, dtype=np.uint32).view(np.float32)
    everyday = random.normal(0, 5, count - count // 2).astype(np.float32)
    return np.concatenate([patterns, everyday])


def float64_samples(count: int, seed: int = 0) -> Array:
    """Like `float32_samples`, half of it with exponents that functions have something to say about."""
    random = np.random.default_rng(seed)
    patterns = random.integers(0, 2**64, count // 4, dtype=np.uint64).view(np.float64)
    moderate = np.ldexp(random.uniform(-1, 1, count // 4), random.integers(-40, 12, count // 4))
    return np.concatenate([patterns, moderate, random.normal(0, 5, count - 2 * (count // 4))])


SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, float("inf"), float("-inf"), float("nan"))


def special_values(dtype: Any) -> Array:
    """Zeros, units, infinities, NaN, the limits of the format and their neighbours."""
    info = np.finfo(dtype)
    limits = [info.max, info.tiny, info.smallest_subnormal, info.eps, 1 + info.eps, 1 - info.epsneg]
    values = np.array([*SPECIAL, *limits, *[-value for value in limits]], dtype)
    with np.errstate(all="ignore"):
        return np.concatenate([values, np.nextafter(values, dtype(0)), np.nextafter(values, dtype(9))])
