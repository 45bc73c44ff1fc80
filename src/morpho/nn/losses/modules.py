"""Losses as modules: the functions of this folder with their settings kept, under PyTorch's names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.losses.binary import binary_cross_entropy, binary_cross_entropy_with_logits, focal_loss
from morpho.nn.losses.classes import cross_entropy, multi_margin_loss, nll_loss
from morpho.nn.losses.ctc import ctc_loss
from morpho.nn.losses.distances import (
    cosine_embedding_loss,
    hinge_embedding_loss,
    margin_ranking_loss,
    triplet_margin_loss,
)
from morpho.nn.losses.reduction import check_reduction
from morpho.nn.losses.regression import huber_loss, kl_div, l1_loss, mse_loss, smooth_l1_loss
from morpho.nn.module import Module, Signatures
from morpho.tensor.state.variable import Buffer


class Loss(Module):
    """A function of tensors, and the settings it is called with: attributes of the module, such as `loss.reduction`.

    >>> mo.nn.CrossEntropyLoss(label_smoothing=0.1).ignore_index
    -100
    """

    function: Callable[..., mo.Tensor]
    tensors = 2

    def __init_subclass__(cls, **others: Any) -> None:
        """`help(loss)` and `inspect.signature(loss)` show the settings with their defaults."""
        super().__init_subclass__(**others)
        settings = list(inspect.signature(cls.function).parameters.values())[cls.tensors:]
        cls.__signature__ = Signatures(inspect.Signature(settings))

    def __init__(self, *args: Any, **settings: Any) -> None:
        name, known = type(self).__name__, self._known()
        old = {key: settings.pop(key) for key in ("size_average", "reduce") if key in settings}
        if any(value is not None for value in old.values()):  # what PyTorch had before `reduction`
            settings["reduction"] = "none" if old.get("reduce") is False else (
                "sum" if old.get("size_average") is False else "mean")
        places = [key for key, one in known.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
        unknown = [key for key in settings if key not in known]
        if unknown:
            raise fail(ArgumentError, name, f"there is no setting {unknown[0]!r}", "there are " + ", ".join(known))
        if len(args) > len(places):
            raise fail(ArgumentError, name, f"{len(args)} settings are given by place, and {len(places)} are taken so",
                       "write " + ", ".join(f"{key}=..." for key in known if key not in places))
        given = dict(zip(places, args, strict=False))
        if set(given) & set(settings):
            raise fail(ArgumentError, name, f"{next(iter(set(given) & set(settings)))} is given twice")
        given |= settings
        check_reduction(name, given.get("reduction", "mean"), *(["batchmean"] if "log_target" in known else []))
        for key, one in known.items():
            value = given.get(key, one.default)
            is_array = key.endswith("weight") and value is not None
            setattr(self, key, Buffer(mo.asarray(value)) if is_array else value)

    def _known(self) -> dict[str, inspect.Parameter]:
        return dict(type(self).__signature__.parameters)

    def forward(self, *tensors: Any) -> mo.Tensor:
        if len(tensors) != self.tensors:
            raise fail(ArgumentError, type(self).__name__, f"the loss takes {self.tensors} tensors, not {len(tensors)}")
        return type(self).function(*tensors, **{key: getattr(self, key) for key in self._known()})

    def describe(self) -> str:
        held = {key: (getattr(self, key), one.default) for key, one in self._known().items()}
        return ", ".join(f"{key}={'...' if isinstance(value, mo.Tensor) else repr(value)}"
                         for key, (value, plain) in held.items() if value is not plain and (
                             isinstance(value, mo.Tensor) or value != plain))


def _named(name: str, function: Callable[..., mo.Tensor], tensors: int = 2) -> type[Loss]:
    text = f"`mo.nn.{function.__name__}` as a module with its settings."
    text += f"\n\n    >>> mo.nn.{name}(reduction=\"sum\")\n    {name}(reduction='sum')\n    "
    return type(name, (Loss,), {"function": staticmethod(function), "tensors": tensors, "__doc__": text,
                                "__module__": __name__})


BCELoss = _named("BCELoss", binary_cross_entropy)
BCEWithLogitsLoss = _named("BCEWithLogitsLoss", binary_cross_entropy_with_logits)
CTCLoss = _named("CTCLoss", ctc_loss, 4)
CosineEmbeddingLoss = _named("CosineEmbeddingLoss", cosine_embedding_loss, 3)
CrossEntropyLoss = _named("CrossEntropyLoss", cross_entropy)
FocalLoss = _named("FocalLoss", focal_loss)
HingeEmbeddingLoss = _named("HingeEmbeddingLoss", hinge_embedding_loss)
HuberLoss = _named("HuberLoss", huber_loss)
KLDivLoss = _named("KLDivLoss", kl_div)
L1Loss = _named("L1Loss", l1_loss)
MSELoss = _named("MSELoss", mse_loss)
MarginRankingLoss = _named("MarginRankingLoss", margin_ranking_loss, 3)
MultiMarginLoss = _named("MultiMarginLoss", multi_margin_loss)
NLLLoss = _named("NLLLoss", nll_loss)
SmoothL1Loss = _named("SmoothL1Loss", smooth_l1_loss)
TripletMarginLoss = _named("TripletMarginLoss", triplet_margin_loss, 3)

__all__ = [
    "BCELoss", "BCEWithLogitsLoss", "CTCLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "FocalLoss",
    "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "Loss", "MSELoss", "MarginRankingLoss", "MultiMarginLoss",
    "NLLLoss", "SmoothL1Loss", "TripletMarginLoss",
]
