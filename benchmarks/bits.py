"""One digest per program and instruction set: the same on every machine, or the numerics contract is broken.

    python benchmarks/bits.py                      # every instruction set this machine has
    python benchmarks/bits.py --save               # after a change of numerics: write benchmarks/bits.json anew

They are compared with `benchmarks/bits.json`, which holds the digests of every machine seen so far.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.machine import available_isas, machine
from morpho.ir.node import build
from morpho.ir.op import REGISTRY
from morpho.tensor.core import Tensor

KNOWN = Path(__file__).parent / "bits.json"
SPECIALS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 3e38, -3e38, 0.5, 2.0, 88.0, -104.0, 1e-20]


def floats(count: int, dtype: str, seed: int) -> np.ndarray:
    """Numbers of all magnitudes from integer draws alone, so that every machine makes the same ones."""
    rng = np.random.default_rng(seed)
    mantissa = rng.integers(-(1 << 20), 1 << 20, count) / (1 << 18)
    values = mantissa * 2.0 ** rng.integers(-8, 6, count)
    values[:len(SPECIALS)] = SPECIALS
    with np.errstate(all="ignore"):
        return values.astype(dtype)


def digest(array: np.ndarray) -> str:
    """A hash of the bits in which all NaN are one."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def elementwise_programs() -> Iterator[tuple[str, Any]]:
    for name, op in sorted(REGISTRY.items()):
        if op.kind != "elementwise" or name in ("cast", "where", "threefry", "real", "imag", "conj"):
            continue
        for dtype in ("float32", "float64", "int32"):
            arguments = []
            for seed in range(int(op.arity[1])):
                values = floats(1003, dtype if dtype.startswith("f") else "float64", seed)
                finite = np.where(np.isfinite(values), values, 7).clip(-2e9, 2e9)
                arguments.append(mo.asarray(values if dtype.startswith("f") else finite.astype(dtype)))
            try:
                node = build(name, *[argument.node for argument in arguments])
            except TypeError:
                continue  # the op does not take this dtype
            yield f"{name}/{dtype}", Tensor.of_node(node)


def other_programs() -> Iterator[tuple[str, Any]]:
    numbers = np.nan_to_num(floats(67 * 9001, "float32", 5), posinf=2, neginf=-2).clip(-9, 9)
    matrix = mo.asarray(numbers.reshape(67, 9001))
    small = matrix[:, :130]
    for axis in (0, 1, None):
        for function in (mo.sum, mo.mean, mo.var, mo.max, mo.argmax, mo.prod):
            yield f"{function.__name__}/{axis}", function(matrix, axis=axis)
    for axis in (0, 1):
        for function in (mo.softmax, mo.log_softmax, mo.logsumexp):
            yield f"{function.__name__}/{axis}", function(matrix, axis=axis)
    yield "layer_norm", mo.layer_norm(matrix)
    yield "rms_norm", mo.rms_norm(matrix)
    yield "cumulative_sum", mo.cumulative_sum(small, axis=1)
    for dtype in ("float32", "float64", "float16", "bfloat16", "int32"):
        a = small.astype(dtype)
        yield f"matmul/{dtype}", (a @ a.T).astype("float64")
        yield f"half chain/{dtype}", ((a * 3 + a) * a - a).astype("float64")
        yield f"sum/{dtype}", mo.sum(a, axis=1).astype("float64")
    yield from attention_programs(numbers)
    yield from matrix_programs(numbers)
    yield "long sum", mo.sum(mo.reshape(matrix, (-1,))[:600_001] * 1.5)
    for source, target in (("float32", "int8"), ("float64", "uint32"), ("float32", "bfloat16"), ("float64", "float16")):
        yield f"cast {source} {target}", mo.asarray(floats(1003, source, 9)).astype(target).astype("float64")


def attention_programs(numbers: np.ndarray) -> Iterator[tuple[str, Any]]:
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        q, k, v = (mo.asarray(numbers[start:start + heads * 67 * 20].reshape(heads, 67, 20)).astype(dtype)
                   for start, heads in ((0, 6), (9000, 2), (12000, 2)))
        k, v = (mo.concat([x, x * 0.5, x + 1], axis=1) for x in (k, v))
        for label, options in (("all", {}), ("causal", {"causal": True, "offset": 100}), ("window", {"window": 70}),
                               ("mask", {"mask": k[0, :, 0] > 0}), ("bias", {"mask": k[0, :, 0]})):
            yield f"attention {label}/{dtype}", mo.attention(q, k, v, **options).astype("float64")
        yield f"attention one row/{dtype}", mo.attention(q[:2, :1], k, v).astype("float64")
        for name, at in (("q", 0), ("k", 1), ("v", 2)):
            def loss(x: Any, at: int = at, given: tuple[Any, ...] = (q, k, v)) -> Any:
                whole = mo.attention(*given[:at], x, *given[at + 1:], window=90, offset=60)
                return (whole * whole).sum()
            yield f"attention slope of {name}/{dtype}", mo.grad(loss)((q, k, v)[at]).astype("float64")


def matrix_programs(numbers: np.ndarray) -> Iterator[tuple[str, Any]]:
    """Factorisations of small matrices: in registers, and row by row."""
    for dtype in ("float32", "float64"):
        for n in (3, 6, 19):
            a = mo.asarray(numbers[:21 * n * n].reshape(21, n, n)).astype(dtype) + 4 * mo.eye(n, dtype=dtype)
            found = {"inv": mo.linalg.inv(a), "solve": mo.linalg.solve(a, a[:, :, ::-1]), "det": mo.linalg.det(a),
                     "lu": mo.concat(mo.linalg.lu(a), axis=-1), "qr": mo.concat(mo.linalg.qr(a), axis=-1),
                     "cholesky": mo.linalg.cholesky(a @ a.mT + mo.eye(n, dtype=dtype)),
                     "slogdet": mo.linalg.slogdet(a).logabsdet}
            for name, values in (("svd", mo.linalg.svd(a)), ("eigh", mo.linalg.eigh(a))):
                found[name] = mo.concat([mo.reshape(part, (-1,)) for part in values])
            for name, value in found.items():
                yield f"{name} {n}/{dtype}", value


def digests(isa: str) -> dict[str, str]:
    """Program to digest under one instruction set."""
    with mo.settings(isa=isa):
        return {label: digest(tensor.numpy()) for programs in (elementwise_programs, other_programs)
                for label, tensor in programs()}


def known() -> dict[str, str]:
    """The digests of every machine seen so far."""
    return json.loads(KNOWN.read_text(encoding="utf-8"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write this machine's digests as the known ones")
    options = parser.parse_args()
    names = [isa if isinstance(isa, str) else isa.name for isa in available_isas(machine())]
    if options.save:
        KNOWN.write_text(json.dumps(digests("native"), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    wrong = 0
    for name in names:
        found, expected = digests(name), known()
        different = [label for label in found if found[label] != expected.get(label)]
        for label in different:
            print(f"{name}: {label} is {found[label]}, known as {expected.get(label)}")
        wrong += len(different)
        print(f"{name}: {len(found)} programs, {len(different)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
