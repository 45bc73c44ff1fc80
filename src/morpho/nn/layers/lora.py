"""LoRA: train a product of two small matrices beside each product of a model, whose own weights stay as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import morpho as mo
from morpho.base.checks import check_sizes
from morpho.base.errors import ArgumentError, fail
from morpho.nn.module import Module
from morpho.tensor.state.variable import Parameter


class LoRALinear(Module):
    """`layer(x) + (x A^T) B^T * alpha / rank`; A (rank, in) is random and B (out, rank) zero, so that it begins as the
    layer, whose own parameters do not learn.

    >>> layer = mo.nn.LoRALinear(mo.nn.Linear(4, 2), rank=2)
    >>> layer(mo.ones((3, 4))).shape, sorted(name for name, p in layer.named_parameters() if p.requires_grad)
    ((3, 2), ['lora_A', 'lora_B'])
    """

    def __init__(self, layer: Module, rank: int = 8, alpha: float | None = None) -> None:
        check_sizes("LoRALinear", rank=rank)
        size: Any = layer
        weight = next(layer.parameters())
        self.in_features = getattr(size, "in_features", getattr(size, "inputs", 0))
        self.out_features = getattr(size, "out_features", getattr(size, "outputs", 0))
        if not self.in_features or not self.out_features:
            raise fail(ArgumentError, "LoRALinear", f"a {type(layer).__name__} is not a product", "wrap a Linear")
        self.rank, self.scale = rank, (rank if alpha is None else alpha) / rank
        self.layer = layer.requires_grad_(False)
        bound = 1 / self.in_features ** 0.5
        self.lora_A = Parameter(mo.nn.init.uniform((rank, self.in_features), bound, weight.dtype))
        self.lora_B = Parameter(mo.zeros((self.out_features, rank), dtype=weight.dtype))

    def forward(self, x: mo.Tensor) -> mo.Tensor:
        low = mo.nn.linear(mo.nn.linear(x, self.lora_A), self.lora_B)
        return self.layer(x) + low * self.scale  # type: ignore[no-any-return]

    def describe(self) -> str:
        return f"{self.in_features}, {self.out_features}, rank={self.rank}"


def add_lora(model: Module, rank: int = 8, alpha: float | None = None,
             targets: Sequence[str] = ("q_proj", "v_proj", "c_attn")) -> list[Parameter]:
    """Wrap the products of a model whose names end in one of `targets`, and return the parameters that learn.

    All other parameters of the model stop learning. `mo.models.save_adapter` writes the result as PEFT does.

    >>> model = mo.models.create("llama", vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    ...                          intermediate_size=8)
    >>> len(mo.nn.add_lora(model, rank=2, targets=["q_proj", "v_proj"]))
    4
    """
    places = [(name, module) for name, module in model.named_modules()
              if name.rpartition(".")[2] in targets and not isinstance(module, LoRALinear)]
    if not places:
        names = sorted({name.rpartition(".")[2] for name, module in model.named_modules()
                        if hasattr(module, "in_features") or hasattr(module, "inputs")})
        raise fail(ArgumentError, "add_lora", f"no product of {type(model).__name__} is called {' or '.join(targets)}",
                   f"its products are called {', '.join(names)}")
    model.requires_grad_(False)
    for name, module in places:
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, LoRALinear(module, rank, alpha))
    return [parameter for _, layer in lora_layers(model) for parameter in (layer.lora_A, layer.lora_B)]


def lora_layers(model: Module) -> Iterator[tuple[str, LoRALinear]]:
    """The wrapped products of a model, by name."""
    for name, module in model.named_modules():
        if isinstance(module, LoRALinear):
            yield name, module
