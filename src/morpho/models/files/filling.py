"""Putting weights into a model, packed or not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import morpho as mo
from morpho.base.errors import fail, sentence
from morpho.nn.layers.linear import Embedding, Linear
from morpho.nn.layers.quantised import QuantisedEmbedding, QuantisedLinear
from morpho.nn.module import Module
from morpho.weights import FileFault
from morpho.weights.finite import holds_nan

LOG = logging.getLogger("morpho")


def check_depth(config: Mapping[str, Any], tensors: int, file: str) -> None:
    """A model of more layers than the file has tensors is not begun."""
    known = ("n_layer", "num_hidden_layers", "num_layers", "num_decoder_layers", "layers")
    for name in (*known, *(key for key in config if key.endswith(".block_count"))):
        found = config.get(name)
        counts = found if isinstance(found, list) else [found]
        if any(isinstance(count, int) and count > tensors for count in counts):
            raise fail(FileFault, "models.load", f"{file} says {name}={found}, and there are {tensors} tensors")


def wanted(model: Module) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's weights by name."""
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}  # type: ignore[arg-type]


def kept(model: Any, found: dict[str, Any], keep: Callable[[Any], None] | None) -> dict[str, Any]:
    """The weights of what `keep` leaves of a model; none of the others are read."""
    if keep is None:
        return found
    keep(model)
    names = wanted(model)
    return {name: weight for name, weight in found.items() if name in names}


def filled(model: Any, found: Mapping[str, Any], file: str) -> Any:
    """The model with these weights; layers whose weight is packed are replaced by packed ones."""
    plain = {name: weight for name, weight in found.items() if not isinstance(weight, mo.Quantised)}
    packed = {name: weight for name, weight in found.items() if isinstance(weight, mo.Quantised)}
    for name, weight in packed.items():
        packed[name] = _pack(model, name.removesuffix(".weight"), weight, plain)
    model.load_state_dict(plain)
    broken = [name for name, weight in {**packed, **model.state_dict()}.items() if holds_nan(weight)]
    if broken:
        LOG.warning(sentence("models.load", f"{file}: {len(broken)} weights hold NaN, {broken[0]} for one", line=""))
    return model.eval()


def _pack(model: Module, name: str, weight: mo.Quantised, plain: dict[str, Any]) -> mo.Quantised:
    """Put a packed weight where a layer wants it; the copy that the model keeps."""
    *parents, last = name.split(".")
    parent: Any = model
    for part in parents:
        parent = getattr(parent, part)
    layer = getattr(parent, last)
    # Memory of its own: compiled functions pack what they own, and borrow a file's bytes anew at every call.
    weight = mo.Quantised.of_tensor(mo.asarray(weight.data.numpy(), copy=True), weight.shape, weight.kind)
    if isinstance(layer, Embedding):
        setattr(parent, last, QuantisedEmbedding(weight, layer.weight.dtype))
    elif isinstance(layer, Linear):
        setattr(parent, last, QuantisedLinear(weight, plain.get(name + ".bias")))
    else:
        plain[name + ".weight"] = weight.dequantise()
    return weight
