"""A card from an ONNX file: the model is traced, and its graph cut as that of any function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.plan.model.graphs import MOST_CROSSING, layers_of

FLOATS = {"float16": "f16", "bfloat16": "bf16"}  # everything else computes in float32


def card_fields(model: Any, inputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The fields of `ModelCard.from_onnx`."""
    network = model if isinstance(model, mo.onnx.Network) else mo.onnx.load(model)
    function, arguments = network.function(inputs)
    layers = layers_of(function, tuple(arguments))
    if len(layers) < 2:
        raise fail(ArgumentError, "plan", f"{network.name} cannot be cut: there is no place between two of its "
                   f"products, convolutions or look-ups where at most {MOST_CROSSING} values cross",
                   "it runs on one machine: morpho run")
    shown = ", ".join(f"{name} {tuple(array.shape)}" for name, array in zip(network.input_names, arguments))
    return {"name": network.name, "layers": layers, "batch": 1, "context": 1, "phase": "prefill",
            "dtype": _dtype(network), "notes": (f"one pass is one call with {shown}",)}


def _dtype(network: Any) -> str:
    """The type that most weights have."""
    held: Counter[str] = Counter()
    for constant in network.model.graph.initializers.values():
        held[str(constant.kind.name)] += int(constant.array.nbytes)
    most = held.most_common(1)
    return FLOATS.get(most[0][0], "f32") if most else "f32"
