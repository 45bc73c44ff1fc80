"""`morpho test-device`: small programs on a device, their bits beside the CPU's; in a checkout all ops too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import morpho as mo
from morpho.backends.registry import canonical
from morpho.base.errors import MorphoError
from morpho.cli.machine.bench import CHECKOUT, in_checkout


class Program(NamedTuple):
    """A program to run, and the largest error allowed relative to the norm of the CPU's result; 0 means equal bits."""

    name: str
    run: Callable[[Any], Any]
    dtypes: tuple[str, ...] = ("float32",)
    tolerance: float = 0.0


def _packed(device: str) -> mo.Quantised:
    """Weights of 72 outputs in 8 bits."""
    return mo.quantise(np.random.default_rng(1).standard_normal((72, 320)), "q8_0").to(device)


PROGRAMS = (
    Program("arithmetic", lambda x: x * 2 + 1 - x / 3, ("float32", "float64", "float16", "bfloat16")),
    Program("integers", lambda x: (x * 7 + 3) // 5 % 11, ("int32", "int64", "uint8", "int16")),
    Program("exp", mo.exp, ("float32", "float64")),
    Program("gelu", mo.gelu, ("float32", "bfloat16")),
    Program("tanh, sin, log", lambda x: mo.tanh(x) + mo.sin(x) * mo.log(mo.abs(x) + 1)),
    Program("sum of all", mo.sum, ("float32", "int64")),
    Program("sum of a long row", lambda x: mo.sum(mo.concat([x.reshape((-1,))] * 4)[:196608])),
    Program("sum of rows", lambda x: mo.sum(x, axis=-1), ("float32", "float16")),
    Program("sum of columns", lambda x: mo.sum(x, axis=0)),
    Program("largest", lambda x: mo.max(x, axis=-1), ("float32", "int32")),
    Program("softmax", lambda x: mo.softmax(x, axis=-1), ("float32", "bfloat16")),
    Program("layer norm", lambda x: (x - mo.mean(x, axis=-1, keepdims=True)) / mo.sqrt(
        mo.var(x, axis=-1, keepdims=True) + 1e-5)),
    Program("cumulative sum", lambda x: mo.cumulative_sum(x, axis=-1), ("float32",), 1e-6),
    Program("cumulative sum of integers", lambda x: mo.cumulative_sum(x, axis=-1), ("int32",)),
    Program("transposed view", lambda x: x.T[::-1, 1::3] * 2),
    Program("sort", lambda x: mo.sort(x, axis=-1), ("float32", "int32")),
    Program("random numbers", lambda x: x + mo.random.normal(mo.random.key(3), x.shape)),
    Program("product", lambda x: x @ x.T, ("float32", "float64", "int32")),
    Program("product on tensor cores", lambda x: x @ x.T, ("float16", "bfloat16"), 4e-3),
    Program("attention on tensor cores", lambda x: mo.attention(*[x.reshape((1, 3, -1, 64))[:, :, :90]] * 3),
            ("bfloat16",), 1e-2),
    Program("product of bytes", lambda x: mo.matmul(x[:, :320], x[:, :320].T, dtype=mo.int32), ("int8", "uint8")),
    Program("quantised weights", lambda x: x[:, :320] @ _packed(x.device)),
    Program("quantised on tensor cores", lambda x: x[:, :320] @ _packed(x.device), ("float16", "bfloat16"), 6e-3),
    Program("attention", lambda x: mo.attention(*[x.reshape((1, 3, -1, 64))[:, :, :90]] * 3, causal=True)),
    Program("gradient of attention", lambda x: mo.grad(lambda t: mo.sum(mo.attention(t, t, t) ** 2))(
        x.reshape((1, 3, -1, 64))[:, :, :90])),
    Program("gradient", lambda x: mo.grad(lambda t: mo.sum(mo.gelu(t) * t))(x)),
)


class Outcome(NamedTuple):
    """A program of a dtype; `wrong` is empty where its result is right."""

    name: str
    dtype: str
    wrong: str


def outcomes(device: str) -> Iterator[Outcome]:
    """Every program of every dtype, computed on the device and on the CPU.

    >>> next(outcomes("cpu"))
    Outcome(name='arithmetic', dtype='float32', wrong='')
    """
    values = np.random.default_rng(0).standard_normal((192, 333)) * 3
    for program in PROGRAMS:
        for name in program.dtypes:
            x = mo.asarray((values * (30 if "int" in name else 1)).astype("f")).astype(getattr(mo, name)).realise()
            try:
                with mo.device(device):
                    got = program.run(x.to(device)).realise().to("cpu").astype(mo.float64).numpy()
                want = program.run(x).astype(mo.float64).numpy()
            except MorphoError as error:
                yield Outcome(program.name, name, str(error))
                continue
            off = float(np.linalg.norm(got - want) / max(float(np.linalg.norm(want)), 1e-30))
            right = got.tobytes() == want.tobytes() or off <= program.tolerance
            yield Outcome(program.name, name, "" if right else f"off by {off:.1e} of the norm")


def test_device(device: str) -> int:
    """Print what is right and what is not; how many results are wrong."""
    name, wrong, count = canonical(device, "test-device"), 0, 0
    for found in outcomes(name):
        count, wrong = count + 1, wrong + bool(found.wrong)
        print(f"{found.name:28}{found.dtype:10}{found.wrong or 'right'}", flush=True)
    print(f"{count - wrong} of {count} results on {name} are right")
    if in_checkout() and (CHECKOUT / "benchmarks" / "gpu" / "table.py").exists():
        done = subprocess.run([sys.executable, "-m", "benchmarks.gpu.table", name], cwd=CHECKOUT, check=False)
        wrong += done.returncode != 0
    return wrong
