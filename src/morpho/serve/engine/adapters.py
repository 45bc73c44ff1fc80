"""LoRA adapters: small matrices beside a model's products, a different pair for every row of a batch.

An adapter adds (x A) B to the result of a product, with A (in, rank) and B (rank, out), which holds the scale. All
adapters of a bank lie side by side, and a row takes its own by number: one function serves any mix of them, none is
compiled again when one is added, and rows do not see each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.module import Module
from morpho.serve.engine.adapter_files import read_adapter


class AdapterBank:
    """Room for `most` adapters of a model, of rank `rank` at most.

    >>> from morpho.serve.engine.adapters import AdapterBank
    >>> model = mo.models.create("llama", vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
    ...                          num_attention_heads=2, max_position_embeddings=64)
    >>> bank = AdapterBank(model, most=2, rank=4)
    >>> bank.add("mine", {"model.layers.0.self_attn.q_proj": (np.ones((4, 8), "f4"), np.ones((8, 4), "f4"))})
    0
    >>> bank.number("mine")
    0
    """

    def __init__(self, model: Module, most: int = 8, rank: int = 16) -> None:
        self.model, self.most, self.rank = model, most, rank
        self.names: dict[str, int] = {}
        self._products = {name: module for name, module in model.named_modules()
                          if hasattr(module, "in_features") and hasattr(module, "out_features")}
        self._held: dict[str, tuple[mo.State, mo.State]] = {}  # of the products that some adapter has matrices for

    def number(self, name: str) -> int:
        if name not in self.names:
            known = ", ".join(self.names) or "none"
            raise fail(ArgumentError, "serve", f"there is no adapter {name!r}", f"there are: {known}")
        return self.names[name]

    @property
    def products(self) -> frozenset[str]:
        """The products that some adapter changes: with another one functions are made anew."""
        return frozenset(self._held)

    def add(self, name: str, matrices: Mapping[str, tuple[np.ndarray, np.ndarray]]) -> int:
        """Put in an adapter: by the name of a product its A (rank, in) and B (out, rank), which holds the scale."""
        if name in self.names or len(self.names) >= self.most:
            why = "is there already" if name in self.names else f"is one more than the {self.most} there is room for"
            raise fail(ArgumentError, "serve", f"adapter {name!r} {why}")
        found = {self._found(product): pair for product, pair in matrices.items()}
        for product, (a, b) in found.items():
            self._check(name, product, a, b)
        number = len(self.names)
        for product, (a, b) in found.items():
            module = self._products[product]
            if product not in self._held:
                sizes = ((self.most, module.in_features, self.rank), (self.most, self.rank, module.out_features))
                first, second = (mo.State(mo.zeros(size)) for size in sizes)
                self._held[product] = (first, second)
            for state, new in zip(self._held[product], (a.T, b.T), strict=True):
                whole = state.value.numpy(copy=True)
                whole[number, :new.shape[0], :new.shape[1]] = new
                state.value = mo.asarray(whole, copy=True)
        self.names[name] = number
        return number

    def load(self, name: str, folder: str | Path) -> int:
        """Put in an adapter from a folder as PEFT writes it."""
        return self.add(name, read_adapter(Path(folder)))

    def _found(self, product: str) -> str:
        for name in (product, product.removeprefix("transformer."), "model." + product):
            if name in self._products:
                return name
        raise fail(ArgumentError, "serve", f"the model has no product {product!r} for an adapter",
                   "its names are those of model.named_modules()")

    def _check(self, name: str, product: str, a: np.ndarray, b: np.ndarray) -> None:
        module: Any = self._products[product]
        wanted = ((a.shape[0], module.in_features), (module.out_features, a.shape[0]))
        if (a.shape, b.shape) != wanted or a.shape[0] > self.rank:
            raise fail(ArgumentError, "serve", f"adapter {name!r}: matrices {a.shape} and {b.shape} of {product} do "
                                               f"not fit ({module.in_features} -> {module.out_features})",
                       f"their rank is {self.rank} at most")

    @contextmanager
    def applied(self, numbers: mo.Tensor) -> Iterator[None]:
        """While this lasts, products of row b add adapter `numbers[b]`'s part."""
        handles = [self._products[product].register_forward_hook(_adding(first, second, numbers))
                   for product, (first, second) in self._held.items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _adding(first: mo.State, second: mo.State, numbers: mo.Tensor) -> Any:
    def add(module: Module, inputs: Any, result: mo.Tensor) -> mo.Tensor:
        x = inputs[0].astype(mo.float32)  # (rows, n, in)
        a, b = (mo.take(state.value, numbers, axis=0) for state in (first, second))  # (rows, in, rank), ...
        return result + mo.matmul(mo.matmul(x, a), b).astype(result.dtype)
    return add
