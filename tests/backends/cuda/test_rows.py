"""A row's bits do not depend on the rows beside it: products, attention, norms, whatever tile or kernel they go to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.cuda.gemm.quantised import few_rows
from morpho.ir.node import build
from morpho.ops.neural.quantised import LAYOUTS

CHOSEN = (1, 9, 17, 130)  # rows at which another kernel or tile is taken


def half(array: np.ndarray) -> mo.Tensor:
    return mo.asarray(array.astype("f")).astype(mo.bfloat16)


def with_logarithms(q: Any, k: Any, v: Any, first: int) -> tuple[mo.Tensor, mo.Tensor]:
    """Attention of queries that stand at `first` on, and the logarithms of its sums, which nothing rounds."""
    found = mo.attention(q, k, v, causal=True, offset=first)
    node = found.node
    while node.op.name != "attention":
        node = node.inputs[0]
    return found, mo.Tensor.of_node(build("pick", node, index=1, spec=node.outputs[1]))


@pytest.mark.parametrize("chip", [0, 1], ids=["hopper", "ampere"])
def test_queries_in_pieces_have_the_bits_of_the_whole_prompt(gpu: str, rng: np.random.Generator, chip: int) -> None:
    device, length = gpu.replace(":0", f":{chip}"), 135
    q, k, v = (half(rng.standard_normal((1, 1, length, 16))).to(device) for _ in range(3))
    whole = [x.astype(mo.float32).numpy() for x in mo.compile(lambda *given: with_logarithms(*given, 0))(q, k, v)]
    for first, last in ((3, 131), (129, 130)):  # tiles begin elsewhere, and see more blocks of keys
        f = mo.compile(lambda *given, at=first: with_logarithms(*given, at))
        part = f(q[:, :, first:last], k[:, :, :last], v[:, :, :last])
        for got, want in zip(part, whole, strict=True):
            assert got.astype(mo.float32).numpy().tobytes() == want[:, :, first:last].tobytes(), (first, last)


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["gelu", "float32", "norm"])
@pytest.mark.parametrize("chip", [0, 1], ids=["hopper", "ampere"])
def test_rows_have_the_bits_they_have_among_others(gpu: str, rng: np.random.Generator, request: Any, name: str,
                                                  chip: int) -> None:
    device, k, n = gpu.replace(":0", f":{chip}"), 48, 40
    dtype = mo.float32 if name == "float32" else mo.bfloat16
    x, w = (mo.asarray(rng.standard_normal(shape).astype("f")).astype(dtype).to(device) for shape in ((260, k), (k, n)))
    b = mo.asarray(rng.standard_normal(n).astype("f")).astype(dtype).to(device)
    f = mo.compile({"gelu": lambda x: mo.gelu(x @ w + b), "float32": lambda x: mo.softmax(x @ w, axis=-1),
                    "norm": lambda x: mo.layer_norm(x @ w, b, b) @ mo.permute_dims(w, (1, 0))}[name])
    whole = f(x).astype(mo.float32).numpy()
    for rows in range(1, 261) if request.config.option.exhaustive else CHOSEN:
        assert f(x[:rows]).astype(mo.float32).numpy().tobytes() == whole[:rows].tobytes(), rows


def test_quantised_weights(gpu: str, rng: np.random.Generator) -> None:
    weight = mo.quantise(rng.standard_normal((40, 64)).astype("f"), "q8_0").data.to(gpu)
    for dtype in (mo.float32, mo.bfloat16):
        x = mo.asarray(rng.standard_normal((70, 64)).astype("f")).astype(dtype).to(gpu)
        f = mo.compile(lambda x, w: x @ mo.Quantised.of_tensor(w, (40, 64), "q8_0"))
        whole = f(x, weight).astype(mo.float32).numpy()
        for rows in (1, 4, 5, 16, 17):
            assert f(x[:rows], weight).astype(mo.float32).numpy().tobytes() == whole[:rows].tobytes()


@pytest.mark.parametrize("kind", ["q8_0", "q4_1"])
def test_few_rows_of_quantised_weights(gpu: str, rng: np.random.Generator, monkeypatch: Any, kind: str) -> None:
    monkeypatch.setattr(few_rows, "MOST_STAGES", 3)  # so that stages are asked for again
    k, n = 1024, 16
    layout = LAYOUTS[kind]
    data = rng.integers(0, 256, (n, k // 32, layout.block_bytes)).astype(np.uint8)
    headers = rng.uniform(0.001, 0.02, (n, k // 32, layout.headers * layout.groups))
    data[..., :layout.header_bytes] = headers.astype("<f4" if layout.wide else "<f2").view(np.uint8)
    weight = mo.Quantised.from_bytes(data.tobytes(), (n, k), kind).data.to(gpu)
    f = mo.compile(lambda x, w: x @ mo.Quantised.of_tensor(w, (n, k), kind))
    x = half(rng.standard_normal((20, k))).to(gpu)
    whole = f(x, weight).astype(mo.float32).numpy()
    for rows in (1, 9):
        assert f(x[:rows], weight).astype(mo.float32).numpy().tobytes() == whole[:rows].tobytes(), rows
        assert "tensor cores (few)" in f.explain()
