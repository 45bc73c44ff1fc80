"""LoRA adapters on disk, as PEFT writes them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from morpho.base.errors import ArgumentError, fail
from morpho.nn.layers.lora import lora_layers
from morpho.nn.module import Module
from morpho.weights.atomic import atomic_file
from morpho.weights.files import save


def save_adapter(model: Module, folder: str | Path) -> None:
    """Write the matrices of a model's LoRA layers to a folder as PEFT does: `morpho serve --adapter` reads it.

    >>> import tempfile
    >>> from pathlib import Path
    >>> model = mo.nn.Sequential(mo.nn.LoRALinear(mo.nn.Linear(4, 4), rank=2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     mo.models.save_adapter(model, folder); sorted(path.name for path in Path(folder).iterdir())
    ['adapter_config.json', 'adapter_model.safetensors']
    """
    layers = dict(lora_layers(model))
    if not layers:
        raise fail(ArgumentError, "save_adapter", f"{type(model).__name__} has no LoRA layers", "call mo.nn.add_lora")
    ranks = {layer.rank for layer in layers.values()}
    if len(ranks) > 1:
        raise fail(ArgumentError, "save_adapter", f"the layers have ranks {sorted(ranks)}", "use one rank")
    first = next(iter(layers.values()))
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    weights = {f"base_model.model.{name}.lora_{kind}.weight": np.asarray(getattr(layer, f"lora_{kind}").numpy())
               for name, layer in layers.items() for kind in "AB"}
    save(target / "adapter_model.safetensors", weights)
    config = {"peft_type": "LORA", "r": first.rank, "lora_alpha": first.scale * first.rank,
              "target_modules": sorted({name.rpartition(".")[2] for name in layers})}
    with atomic_file(target / "adapter_config.json") as file:
        file.write(json.dumps(config, indent=1).encode())
