"""`morpho plan measure --model`: how long the layers of a model take on this machine, for `measured` of its node.

Every distinct layer (`Layer.key`: kind, sizes, batch, context, type) is built once with random weights and run by
Morpho itself: the whole prompt, and one more token with a full cache. What cannot be built keeps its
roofline, and is named.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from morpho.plan.model.card import ModelCard
from morpho.plan.model.layer import Layer

Calls = tuple[Callable[[], Any], Callable[[], Any]]  # of a prompt and of a token
KEY = re.compile(r"(block|embedding|head) ([\dx]+) batch (\d+) context (\d+) (f32|f16|bf16|int8|q4)")
FLOATS = {"f32": mo.float32, "f16": mo.float16, "bf16": mo.bfloat16}
PACKED = {"int8": "q8_0", "q4": "q4_1"}

ROUNDS = 5


def layer_times(card: ModelCard, known: dict[str, tuple[float, float]] | None = None) -> dict[str, tuple[float, float]]:
    """Seconds (prefill, decode) of each distinct layer of a model, by key; those already known are not measured again.

    >>> card = ModelCard.from_config("gpt2", context=8, dtype="f32")
    >>> sorted(key.split()[0] for key in {layer.key for layer in card.layers})
    ['block', 'embedding', 'head']
    """
    found: dict[str, tuple[float, float]] = {}
    for layer in card.layers:
        if layer.key in found:
            continue
        if known and layer.key in known:
            found[layer.key] = known[layer.key]
            continue
        calls = calls_of(layer, causal=card.phase == "decode")
        if calls is None:
            print(f"# not measured: {layer.key or layer.name}", file=sys.stderr)
            continue
        prompt, token = calls
        # An encoder has nothing to do when a token is decoded.
        found[layer.key] = best_of(prompt), best_of(token) if layer.decode_bytes else 0.0
    return found


def calls_of(layer: Layer, causal: bool = True) -> Calls | None:
    """The layer's work, compiled: a call for a prompt and one for a token; None where Morpho has no such layer."""
    parts = KEY.fullmatch(layer.key)
    if parts is None:
        return None
    sizes, batch, context = [int(size) for size in parts[2].split("x")], int(parts[3]), int(parts[4])
    if parts[1] == "block":
        return _block(sizes, batch, context, parts[5], causal and bool(layer.decode_bytes))
    if parts[1] == "head":
        return _head(sizes, batch, context, parts[5])
    return _embedding(sizes, batch, context, parts[5])


def _block(sizes: list[int], batch: int, context: int, dtype: str, causal: bool) -> Calls | None:
    width, hidden, heads, cached, gated = sizes
    depth = width // heads
    if width % heads or cached % depth or (dtype in PACKED and (width % 32 or hidden % 32 or cached % 32)):
        return None
    kind = FLOATS.get(dtype, mo.float32)
    block = mo.nn.TransformerBlock(width, heads, hidden, num_kv_heads=cached // depth, causal=causal, bias=not gated,
                                   activation="swiglu" if gated else "gelu", dtype=kind,
                                   normalization="rmsnorm" if gated else "layernorm")
    if dtype in PACKED:
        for part in (block.attention, block.feed_forward):
            for name, value in list(vars(part).items()):
                if isinstance(value, mo.nn.Linear):
                    outputs, inputs = map(int, value.weight.shape)
                    setattr(part, name, _packed(outputs, inputs, dtype))
    cache = mo.nn.KeyValueCache(batch, cached // depth, context, depth, kind)
    prompt = mo.compile(lambda x: block(x))
    token = mo.compile(lambda x, at: block(x, cache=cache, offset=at))
    rows, row, last = _rows(batch, context, width, kind), _rows(batch, 1, width, kind), mo.asarray(context - 1)
    return (lambda: prompt(rows)), (lambda: token(row, last))


def _head(sizes: list[int], batch: int, context: int, dtype: str) -> Calls | None:
    width, words = sizes
    if dtype in PACKED and width % 32:
        return None
    kind = FLOATS.get(dtype, mo.float32)
    norm = mo.nn.LayerNorm(width, dtype=kind)
    words_of = _packed(words, width, dtype) if dtype in PACKED else mo.nn.Linear(width, words, False, kind)
    logits = mo.compile(lambda x: words_of(norm(x)))
    rows, row = _rows(batch, context, width, kind), _rows(batch, 1, width, kind)
    return (lambda: logits(rows)), (lambda: logits(row))


def _embedding(sizes: list[int], batch: int, context: int, dtype: str) -> Calls | None:
    width, parameters = sizes
    if dtype in PACKED:
        return None
    table = mo.nn.Embedding(parameters // width, width, dtype=FLOATS[dtype])
    look_up = mo.compile(lambda tokens: table(tokens))
    rng = np.random.default_rng(0)
    many, one = (mo.asarray(rng.integers(0, parameters // width, (batch, count))) for count in (context, 1))
    return (lambda: look_up(many)), (lambda: look_up(one))


def _rows(batch: int, count: int, width: int, kind: Any) -> Any:
    """(batch, count, width) random numbers."""
    rows = np.random.default_rng(0).standard_normal((batch, count, width), dtype=np.float32)
    return mo.asarray(mo.asarray(rows).astype(kind))


def _packed(outputs: int, inputs: int, dtype: str) -> Any:
    """A linear layer with weights in blocks of 8 or 4 bits."""
    weight = np.random.default_rng(0).standard_normal((outputs, inputs), dtype=np.float32)
    return mo.nn.QuantisedLinear(mo.quantise(weight, PACKED[dtype]))


def best_of(call: Callable[[], Any]) -> float:
    """The shortest of some rounds: others on the machine only ever make it longer."""
    times = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        call().numpy()
        times.append(time.perf_counter() - began)
    return max(min(times), 1e-9)
