"""Products with activations in 8 bits by every instruction set of this machine, one thread: the bits are compared, and
the times of one layer of SmolLM2 shown for several numbers of rows, the least of alternating rounds.

    python -m benchmarks.serve.int8_units [ROUNDS]
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.machine import available_isas, machine
from morpho.tensor.functions.products.rounded import RoundedWeight

ROWS = (1, 4, 16, 64, 256)
K, N = 576, 1536


def run(rounds: int = 15) -> bool:
    """Whether all bits are equal."""
    here = machine()
    isas = [name for name in ("avx2", "avx512", "amx", "neon") if name in available_isas(here)]
    print(f"{here.cpu_name}: {', '.join(isas)}; VNNI {'avx512_vnni' in here.features}, i8mm {'i8mm' in here.features}")
    rng, equal = np.random.default_rng(0), True
    for kind in ("q4_1", "q8_0"):
        weight = RoundedWeight(mo.quantise(rng.standard_normal((N, K)).astype(np.float32), kind))
        for rows in ROWS:
            x = mo.asarray(rng.standard_normal((rows, K)).astype(np.float32), copy=True)
            calls: dict[str, Any] = {}
            for isa in isas:
                with mo.settings(isa=isa, threads=1):
                    calls[isa] = mo.compile(lambda x, weight=weight: x @ weight)
                    calls[isa](x)
            bits = {isa: _called(call, x, isa).numpy().tobytes() for isa, call in calls.items()}
            equal &= len({*bits.values()}) == 1
            least = dict.fromkeys(isas, float("inf"))
            for _ in range(rounds):
                for isa, call in calls.items():
                    begun = time.perf_counter()
                    _called(call, x, isa)
                    least[isa] = min(least[isa], time.perf_counter() - begun)
            print(f"{kind} {rows:4} rows: " + ", ".join(
                f"{isa} {1e6 * took:.0f} us ({2e-9 * rows * K * N / took:.0f} GOP/s)" for isa, took in least.items())
                + ("" if len({*bits.values()}) == 1 else "  OTHER BITS"), flush=True)
    print("PASS  the same bits" if equal else "FAIL  other bits")
    return equal


def _called(call: Any, x: mo.Tensor, isa: str) -> mo.Tensor:
    with mo.settings(isa=isa, threads=1):
        return call(x)  # type: ignore[no-any-return]


if __name__ == "__main__":
    raise SystemExit(not run(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
