"""Morpho's GPT-2: the model of `mo.models`; step, forward pass and decoding, each one compiled function."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.models import gpt2
from benchmarks.train import gpt
from morpho.models.gpt2 import GPT2
from morpho.nn.frozen import Frozen
from morpho.nn.transformer.attention import KeyValueCache

TRACE_SECONDS: list[float] = []  # of every time that a step was followed in Python; later calls do not come there
AUTOCAST = {"bf16": "bfloat16", "auto": None}  # the last word of a case -> the dtype of `autocast`


class CheckpointedGPT2(GPT2):
    """A GPT whose blocks are computed again for their gradients."""

    def hidden(self, ids: mo.Tensor, caches: list[KeyValueCache] | None = None, offset: Any = 0,
               **_: Any) -> mo.Tensor:
        x = self.wpe(self.wte(ids), offset)
        for block in self.h:
            x = mo.checkpoint(block, x, None, offset)
        return self.ln_f(x)  # type: ignore[no-any-return]


def build(weights: dict[str, np.ndarray], heads: int, *, exact: bool = True, checkpoint: bool = False,
          dtype: Any = mo.float32) -> Any:
    """A model that holds these weights."""
    vocabulary, width = weights["wte.weight"].shape
    config = {"vocab_size": vocabulary, "n_positions": len(weights["wpe.weight"]), "n_embd": width, "n_head": heads,
              "n_layer": gpt2.layers_of(weights),
              "activation_function": "gelu" if exact else "gelu_new",
              "tie_word_embeddings": "lm_head.weight" not in weights}
    model = (CheckpointedGPT2 if checkpoint else GPT2).from_config(config, dtype=dtype)
    model.load_state_dict({name: mo.asarray(array, copy=True).astype(dtype) for name, array in weights.items()})
    return model


def optimiser_of(model: Any) -> Any:
    """AdamW over all weights."""
    return mo.optim.AdamW(model.parameters(), lr=gpt.LEARNING_RATE, weight_decay=gpt.WEIGHT_DECAY)


def casting(case: str) -> AbstractContextManager[Any]:
    """The precision of a case."""
    word = case.rpartition("_")[2]
    return mo.amp.autocast(AUTOCAST[word]) if word in AUTOCAST else nullcontext()


def compile_step(case: str = "gpt_step", memory_budget: Any = None) -> Callable[..., Any]:
    """step(model, opt, ids, targets) -> loss: forward, backward, clipping, AdamW, as one native function."""

    @mo.compile(memory_budget=memory_budget)
    def step(model: Any, opt: Any, ids: mo.Tensor, targets: mo.Tensor) -> mo.Tensor:
        started = time.perf_counter()
        with casting(case):
            loss = mo.cross_entropy(model(ids), targets)
        loss.backward()
        mo.optim.clip_grad_norm(model.parameters(), gpt.CLIP)
        opt.step()
        opt.zero_grad()
        TRACE_SECONDS.append(time.perf_counter() - started)
        return loss

    return step


def prepare(case: str, inputs: dict[str, np.ndarray]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The compiled step and its arguments."""
    model = build(gpt.weights_of(inputs), int(inputs["heads"]), checkpoint=case.endswith("_checkpoint")).train()
    ids, targets = (mo.asarray(inputs[key], copy=True).realise() for key in ("ids", "targets"))
    return compile_step(case), (model, optimiser_of(model), ids, targets)


class Inference:
    """A model that stands still: its weights are constants of both functions, which read them packed.

    >>> model = Inference(weights, heads=12)
    >>> logits = model.forward(ids)                        # (batch, length) -> (batch, length, vocabulary)
    >>> decode = model.decoder(cache)                      # (layers, 2, batch, heads, past, depth)
    >>> logits = decode(token, mo.asarray(past))           # (batch, 1) -> (batch, 1, vocabulary)
    """

    def __init__(self, weights: dict[str, np.ndarray], dtype: str = "float32", heads: int = gpt2.SMALL.heads) -> None:
        self.dtype = getattr(mo, dtype)
        self.model = build(weights, heads, exact=False, dtype=self.dtype).eval()
        self.frozen = Frozen(self.model)
        self.forward = mo.compile(self._logits)

    def _logits(self, ids: mo.Tensor) -> mo.Tensor:
        self.frozen.use()
        with mo.no_grad():
            return self.model(ids)  # type: ignore[no-any-return]

    def decoder(self, cache: np.ndarray) -> Any:
        """A compiled function of one token of each sequence and its position, which writes the cache in place."""
        held = self.model.make_caches(cache.shape[2], cache.shape[-2], self.dtype)
        for slot, (keys, values) in zip(held, cache, strict=True):
            slot.keys.value, slot.values.value = (mo.asarray(x, copy=True).astype(self.dtype) for x in (keys, values))

        @mo.compile
        def decode(ids: mo.Tensor, position: mo.Tensor) -> mo.Tensor:
            self.frozen.use()
            with mo.no_grad():
                return self.model.head(self.model.hidden(ids, held, position))  # type: ignore[no-any-return]

        return decode
