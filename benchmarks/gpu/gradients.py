"""Gradients of attention beside PyTorch's, by value: `python -m benchmarks.gpu.gradients [device]`.

Each is compared with PyTorch's in float32, and with itself in a second run: it must have the same bits.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import morpho as mo

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 12, 1024, 64), (2, 12, 1024, 64), {"causal": True}), ((2, 4, 2048, 64), (2, 4, 2048, 64), {}),
    ((1, 8, 1000, 128), (1, 8, 1000, 128), {"causal": True}), ((1, 4, 777, 128), (1, 4, 1300, 128), {}),
    ((2, 8, 300, 64), (2, 2, 500, 64), {}), ((1, 2, 600, 80), (1, 2, 600, 80), {"causal": True}),
    ((1, 2, 900, 64), (1, 2, 900, 64), {"causal": True, "window": 200})]


def main(device: str = "cuda:0") -> None:
    """Print the relative differences of dq, dk and dv."""
    import torch

    rng = np.random.default_rng(0)
    for queries, keys, options in CASES:
        arrays = [rng.standard_normal(shape).astype("f") for shape in (queries, keys, keys, queries)]
        q, k, v, ct = (mo.asarray(x, device=device).astype(mo.bfloat16) for x in arrays)

        def loss(a: Any, b: Any, c: Any, ct: Any = ct, options: dict[str, Any] = options) -> Any:
            return mo.sum(mo.attention(a, b, c, **options).astype(mo.float32) * ct.astype(mo.float32))

        run = mo.compile(mo.grad(loss, argnums=(0, 1, 2)))
        got, again = ([x.astype(mo.float32).numpy() for x in run(q, k, v)] for _ in range(2))
        theirs = [torch.tensor(x.astype(mo.float32).numpy(), device="cuda", requires_grad=n < 3)
                  for n, x in enumerate((q, k, v, ct))]
        group = queries[1] // keys[1]
        b, c = (x.repeat_interleave(group, 1) for x in theirs[1:3])
        far = torch.arange(queries[2])[:, None] - torch.arange(keys[2])[None] if options else None
        seen = None if far is None else ((far >= 0) & (far < options.get("window", 1 << 30))).cuda()
        result = torch.nn.functional.scaled_dot_product_attention(theirs[0], b, c, attn_mask=seen)
        want = [x.cpu().numpy() for x in torch.autograd.grad(result, theirs[:3], theirs[3])]
        apart = [float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(got, want, strict=True)]
        same = all(a.tobytes() == b.tobytes() for a, b in zip(got, again, strict=True))
        print(queries, keys, options, [f"{x:.1e}" for x in apart], "same bits again" if same else "OTHER BITS AGAIN",
              flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
