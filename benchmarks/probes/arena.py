"""The planned arena of a graph of several kernels against the bytes alive at its fullest moment."""

from __future__ import annotations

import json

import numpy as np

import morpho as mo


def function(x, weight, bias):
    """Column means between row norms: they cannot become one kernel, so intermediates of several sizes remain."""
    t = x
    for _ in range(6):
        normed = mo.layer_norm(t + mo.mean(t, axis=0, keepdims=True), weight, bias, eps=1e-5)
        share = mo.softmax(normed, axis=-1)
        t = normed * share + mo.max(share, axis=0, keepdims=True)
    return t


def main() -> None:
    """Print both figures of ``f.stats``."""
    rng = np.random.default_rng(0)
    x = mo.asarray(rng.standard_normal((512, 256), dtype=np.float32))
    weight, bias = (mo.asarray(rng.standard_normal(256, dtype=np.float32)) for _ in range(2))
    compiled = mo.compile(function)
    compiled(x, weight, bias)
    stats = compiled.stats
    print(json.dumps({"arena_bytes": stats["arena_bytes"], "liveness_bytes": stats["liveness_bytes"],
                      "kernels": stats.get("kernels"), "bytes_avoided": stats.get("bytes_avoided")}, default=str))


if __name__ == "__main__":
    main()
