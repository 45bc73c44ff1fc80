"""Products of bfloat16 by each tile, sums handed over and not: `python -m benchmarks.gpu.tiles cuda:0`. All have the
same bits; the time is the median between events."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.everything_kernels import parameters
from benchmarks.gpu.timing import morpho_seconds
from morpho.backends.cuda.gemm import lower
from morpho.ir.graph import Graph
from morpho.runtime.plans import on_device

TILES = ((128, 256), (128, 192), (128, 128))
PROBLEMS = {  # m, k, n, what follows
    "linear + gelu": (8192, 768, 3072, "gelu"), "linear + gelu_tanh": (8192, 768, 3072, "gelu_tanh"),
    "product": (8192, 768, 3072, ""), "bias": (8192, 768, 2304, "bias"), "back": (8192, 3072, 768, ""),
    "small": (8192, 768, 768, ""), "head": (8192, 768, 50257, ""), "4096": (4096, 4096, 4096, ""),
    "8192": (8192, 8192, 8192, "")}


def written(what: str, turned: bool) -> Any:
    """The program."""
    def f(a: Any, b: Any, *c: Any) -> Any:
        found = a @ (b.T if turned else b)
        found = found + c[0] if c else found
        return {"gelu": mo.gelu, "gelu_tanh": lambda x: mo.gelu(x, approximate="tanh")}.get(what, lambda x: x)(found)
    return f


def main(device: str = "cuda:0", only: str = "", scale: int = 1) -> int:
    """How many products have other bits than the first of their kind."""
    rng, wrong = np.random.default_rng(0), 0
    for name, (m, k, n, what) in PROBLEMS.items():
        if only and name not in only.split(","):
            continue
        m, n = m // scale, n // scale
        turned = n % 8 != 0
        shapes = [(m, k), (n, k) if turned else (k, n)] + ([(n,)] if what else [])
        tensors = [mo.asarray(rng.standard_normal(shape, np.float32)).astype(mo.bfloat16).realise().to(device)
                   for shape in shapes]
        first, said = None, []
        for tile in TILES:
            for handed in (False, True):
                on_device._executables.clear()
                lower._group_tile = lambda *sizes, tile=tile: (*tile, 64, tile[1])  # type: ignore[assignment]
                lower.has_rounds = lambda kernel, sizes, handed=handed: handed  # type: ignore[assignment]
                made = written(what, turned)(*parameters(tensors))
                buffers = [t.elements() for t in tensors]
                (result,) = on_device.run(Graph((made.node,)), device, buffers, {})
                bits = result.numpy()
                first = bits if first is None else first
                same = bits.tobytes() == first.tobytes()
                wrong += not same
                us = 0.0 if "emulated" in device else 1e6 * morpho_seconds(device, [made], buffers, 5)
                said.append(f"{tile[0]}x{tile[1]}{' handed' if handed else ''} {us:.1f}{'' if same else ' OTHER BITS'}")
        print(f"{name:20} {m}x{k}x{n}: {', '.join(said)} us", flush=True)
    return wrong


if __name__ == "__main__":
    if sys.argv[1].startswith("cuda_emulated"):
        from morpho.backends.cuda.emulator.install import install

        install()
    sys.exit(bool(main(sys.argv[1], "".join(sys.argv[2:3]), int("".join(sys.argv[3:4]) or 1))))
