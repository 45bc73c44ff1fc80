"""Exported libraries: what a call from C costs beside its kernel, and GPT-2's forward beside `mo.compile`, in turns.

    python -m benchmarks.exported
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

import morpho as mo

MAIN = r"""
#include <stdio.h>
#include <time.h>
#include "tiny.h"
static _Alignas(64) unsigned char room[TINY_WORKSPACE_BYTES + 64];
static double now(void) { return 1e9 * clock() / CLOCKS_PER_SEC; }
int main(void) {
    static float x[16], out[16];
    double best = 1e9;
    for (int round = 0; round < 20; round++) {
        double begun = now();
        for (int i = 0; i < 200000; i++) tiny_call(x, out, room);
        double each = (now() - begun) / 200000;
        if (each < best) best = each;
    }
    printf("%.1f\n", best);
}
"""


def call_nanoseconds(folder: Path) -> float:
    """Processor time of one call of `2 x + 1` on 16 elements."""
    written = mo.export(lambda x: x * 2 + 1, np.ones(16, "f"), path=folder, name="tiny")
    (folder / "main.c").write_text(MAIN)
    subprocess.run(["cc", "-O2", "-o", str(folder / "main"), str(folder / "main.c"), str(written.object),
                    f"-I{folder}"], check=True)
    return float(subprocess.run([str(folder / "main")], check=True, capture_output=True, text=True).stdout)


def gpt2(folder: Path, tokens: int = 64, repeats: int = 15) -> dict[str, float]:
    """GPT-2 small with random weights on one thread: seconds of `mo.compile` and of the library, in turns."""
    from morpho.nn.frozen import Frozen

    with mo.settings(threads=1):
        model = mo.models.create("gpt2").eval()
        frozen = Frozen(model)
        frozen.refresh()

        def forward(ids: mo.Tensor) -> mo.Tensor:
            frozen.use()
            with mo.no_grad():
                return model.head(model.hidden(ids)[:, -1:])

        ids = np.random.default_rng(0).integers(0, 50000, (1, tokens))
        compiled, tensor = mo.compile(forward), mo.asarray(ids)
        want = compiled(tensor).numpy().copy()
        written = mo.export(forward, ids, path=folder, name="gpt2")
        figures = written.functions["gpt2"]
        weights = np.memmap(written.weights, np.uint8, "r")
        room, out = np.zeros(figures["workspace_bytes"] + 64, np.uint8), np.zeros_like(want)
        words = [ids.ctypes.data, ids.nbytes, out.ctypes.data, out.nbytes, weights.ctypes.data, weights.nbytes,
                 -(-room.ctypes.data // 64) * 64, figures["workspace_bytes"], 0]
        record = np.array(words, np.int64)
        function = ctypes.CDLL(str(written.shared)).gpt2
        times: dict[str, list[float]] = {"compile": [], "library": []}
        for _ in range(repeats):
            begun = time.perf_counter()
            compiled(tensor).numpy()
            times["compile"].append(time.perf_counter() - begun)
            begun = time.perf_counter()
            assert function(ctypes.c_void_p(record.ctypes.data)) == 0
            times["library"].append(time.perf_counter() - begun)
        assert np.array_equal(out, want)
        assert written.shared is not None
        return {"compile": min(times["compile"]), "library": min(times["library"]), "export": written.seconds,
                "bytes": written.shared.stat().st_size}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(f"call {call_nanoseconds(Path(place) / 'tiny'):.1f} ns, its kernel included")
        found = gpt2(Path(place) / "gpt2")
        print(f"GPT-2 small, 64 tokens, one thread: compile {1e3 * found['compile']:.0f} ms, library "
              f"{1e3 * found['library']:.0f} ms ({found['compile'] / found['library']:.2f}x); export "
              f"{found['export']:.1f} s, library {found['bytes'] >> 10} kB")
