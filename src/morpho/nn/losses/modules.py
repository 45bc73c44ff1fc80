"""Losses as modules: the functions of `functions.py` with their settings kept."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.losses import functions as losses
from morpho.nn.module import Module


class Loss(Module):
    """A function of predictions and targets, and the settings it is called with."""

    function: Callable[..., mo.Tensor]
    tensors = 2

    def __init__(self, **settings: Any) -> None:
        name = type(self).__name__
        known = list(inspect.signature(type(self).function).parameters)[self.tensors:]
        unknown = [key for key in settings if key not in known]
        if unknown:
            raise fail(ArgumentError, name, f"there is no setting {unknown[0]!r}", "there are " + ", ".join(known))
        reduction = settings.get("reduction", "mean")
        if reduction not in (*losses.REDUCTIONS, *(["batchmean"] if self.function is losses.kl_div else [])):
            raise fail(ArgumentError, name, f"reduction {reduction!r} is unknown", "use 'mean', 'sum' or 'none'")
        self.settings = settings

    def forward(self, *tensors: Any) -> mo.Tensor:
        if len(tensors) != self.tensors:
            raise fail(ArgumentError, type(self).__name__, f"the loss takes {self.tensors} tensors, not {len(tensors)}")
        return type(self).function(*tensors, **self.settings)

    def describe(self) -> str:
        return ", ".join(f"{name}={'...' if isinstance(value, mo.Tensor) else repr(value)}"
                         for name, value in self.settings.items())


def _named(name: str, function: Callable[..., mo.Tensor], tensors: int = 2) -> type[Loss]:
    text = f"`mo.nn.{function.__name__}` as a module; its settings are given by name."
    text += f"\n\n    >>> mo.nn.{name}(reduction=\"sum\")\n    {name}(reduction='sum')\n    "
    return type(name, (Loss,), {"function": staticmethod(function), "tensors": tensors, "__doc__": text,
                                "__module__": __name__})


BCELoss = _named("BCELoss", losses.binary_cross_entropy)
BCEWithLogitsLoss = _named("BCEWithLogitsLoss", losses.binary_cross_entropy_with_logits)
CosineEmbeddingLoss = _named("CosineEmbeddingLoss", losses.cosine_embedding_loss, 3)
CrossEntropyLoss = _named("CrossEntropyLoss", losses.cross_entropy)
FocalLoss = _named("FocalLoss", losses.focal_loss)
HuberLoss = _named("HuberLoss", losses.huber_loss)
KLDivLoss = _named("KLDivLoss", losses.kl_div)
L1Loss = _named("L1Loss", losses.l1_loss)
MSELoss = _named("MSELoss", losses.mse_loss)
NLLLoss = _named("NLLLoss", losses.nll_loss)
SmoothL1Loss = _named("SmoothL1Loss", losses.smooth_l1_loss)
TripletMarginLoss = _named("TripletMarginLoss", losses.triplet_margin_loss, 3)

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "FocalLoss", "HuberLoss", "KLDivLoss",
    "L1Loss", "Loss", "MSELoss", "NLLLoss", "SmoothL1Loss", "TripletMarginLoss",
]
