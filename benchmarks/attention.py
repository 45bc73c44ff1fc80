"""Attention on one thread, beside PyTorch's where that is installed: processor time, the least of some runs.

    python benchmarks/attention.py

Processor time and not the clock's, so that other programs on the machine disturb little; one thread, so that it is
that of the thread which calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import morpho as mo
from morpho.ir.node import Node
from morpho.tensor.autodiff.gradient import pull_back
from morpho.tensor.core import Tensor

# batch, heads, key-value heads, queries, keys, depth; causal
CASES = [((1, 12, 12, 1024, 1024, 64), False), ((1, 12, 12, 1024, 1024, 64), True), ((1, 12, 12, 128, 128, 64), False),
         ((1, 12, 12, 1, 1024, 64), False), ((1, 32, 8, 1, 4096, 128), False)]


def least_ms(call: Callable[[], Any], runs: int = 15) -> float:
    """Milliseconds of this thread's processor time."""
    found = []
    call()
    for _ in range(runs):
        started = time.thread_time()
        call()
        found.append(time.thread_time() - started)
    return 1e3 * min(found)


def inputs(shape: tuple[int, ...]) -> list[np.ndarray]:
    batch, heads, kv_heads, queries, keys, depth = shape
    rng = np.random.default_rng(0)
    return [rng.standard_normal(s, dtype=np.float32) for s in (
        (batch, heads, queries, depth), (batch, kv_heads, keys, depth), (batch, kv_heads, keys, depth),
        (batch, heads, queries, depth))]


def morpho_calls(shape: tuple[int, ...], causal: bool) -> Iterator[Callable[[], Any]]:
    """The forward pass, and forward and backward together."""
    q, k, v, ct = (mo.asarray(a) for a in inputs(shape))
    forward = mo.compile(lambda q, k, v: mo.attention(q, k, v, causal=causal))

    def slopes(q: Tensor, k: Tensor, v: Tensor, ct: Tensor) -> tuple[Tensor, ...]:
        leaves: list[Node] = [q.node, k.node, v.node]
        result = mo.attention(q, k, v, causal=causal)
        return tuple(Tensor.of_node(slope) for slope in pull_back([result.node], [ct.node], leaves))

    both = mo.compile(slopes)
    yield lambda: forward(q, k, v)
    yield lambda: both(q, k, v, ct)


def torch_calls(shape: tuple[int, ...], causal: bool) -> Iterator[Callable[[], Any]]:
    """The same by PyTorch; nothing where it is not installed."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)
    q, k, v, ct = (torch.from_numpy(a) for a in inputs(shape))
    options = {"is_causal": causal, "enable_gqa": q.shape[1] != k.shape[1]}
    attention = torch.nn.functional.scaled_dot_product_attention
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    yield lambda: attention(q, k, v, **options)
    yield lambda: torch.autograd.grad(attention(*leaves, **options), leaves, ct)


def main() -> None:
    for shape, causal in CASES:
        batch, heads, _, queries, keys, depth = shape
        flops = 4 * batch * heads * queries * keys * depth / (2 if causal else 1)
        with mo.settings(threads=1):
            ours = [least_ms(call) for call in morpho_calls(shape, causal)]
        peer = [least_ms(call) for call in torch_calls(shape, causal)]
        print(f"{shape}{' causal' if causal else ''}: {ours[0]:.3f} ms, {flops / ours[0] / 1e6:.1f} GFLOP/s, "
              f"with gradient {ours[1]:.3f} ms" + (f"; PyTorch {peer[0]:.3f} ms and {peer[1]:.3f} ms" if peer else ""))


if __name__ == "__main__":
    main()
