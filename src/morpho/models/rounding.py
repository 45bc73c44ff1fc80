"""Models whose products round activations to 8 bits: `load(..., activations="int8")`."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.models.gpt2 import TransposedLinear
from morpho.nn.layers.linear import Linear
from morpho.nn.layers.quantised import QuantisedLinear
from morpho.nn.layers.rounded import Int8Linear
from morpho.ops.neural.quantised import BLOCK
from morpho.ops.neural.rounded import ROUNDED

ACTIVATIONS = ("exact", "int8")


def check_activations(given: str) -> str:
    """One of the names, or the user's error."""
    if given not in ACTIVATIONS:
        raise fail(ArgumentError, "models.load", f"activations={given!r} is not known",
                   "use " + " or ".join(ACTIVATIONS))
    return given


def round_activations(model: Any) -> int:
    """Let the linear layers of a model round their activations to 8 bits, and the head that shares the embedding's
    weights. Weights packed as q8_0 or q4_1 stay as they are, others become q8_0; layers whose rows are not whole blocks
    of 32 stay exact. Says how many products it changed.

    >>> model = mo.models.create("llama", vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
    ...                          num_attention_heads=2, num_key_value_heads=2)
    >>> round_activations(model)
    8
    """
    changed = 0
    for module in [*model.modules()]:
        for name, child in [*module.named_children()]:
            rounded = _rounded(child)
            if rounded is not None:
                setattr(module, name, rounded)
                changed += 1
    table = model.tied_embedding() if isinstance(model, LanguageModel) else None
    if table is not None and (weight := _packed(table.weight)) is not None:
        table.rounded = Int8Linear(weight)
        changed += 1
    return changed


def _rounded(layer: Any) -> Int8Linear | None:
    if not isinstance(layer, Linear | QuantisedLinear | TransposedLinear):
        return None
    weight = _packed(layer.weight, isinstance(layer, TransposedLinear))
    return None if weight is None else Int8Linear(weight, None if layer.bias is None else layer.bias.numpy())


def _packed(weight: Any, transposed: bool = False) -> mo.Quantised | None:
    if isinstance(weight, mo.Quantised) and weight.kind in ROUNDED:
        return weight
    given = weight.dequantise() if isinstance(weight, mo.Quantised) else weight
    values = given.numpy().T if transposed else given.numpy()
    return mo.quantise(values, "q8_0") if values.shape[1] % BLOCK == 0 else None
