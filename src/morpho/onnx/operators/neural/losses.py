"""Losses."""

from __future__ import annotations

from typing import Any

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import cast, scalar, tensor

FAMILY = Family("losses")


def _negative_log_likelihood(call: Call, scores: Any, target: Any, weight: Any) -> Any:
    """Scores of classes along axis 1, each picked by its target."""
    ignored = call.get("ignore_index")
    target = cast(tensor(target), mo.int64)
    kept = mo.ones(target.shape, dtype=mo.bool) if ignored is None else target != ignored
    places = mo.where(kept, target, mo.zeros(target.shape, dtype=mo.int64))
    picked = -mo.squeeze(mo.take_along_axis(scores, mo.expand_dims(places, axis=1), axis=1), axis=1)
    share = mo.ones(target.shape, dtype=scores.dtype)
    if weight is not None:
        share = mo.reshape(mo.take(tensor(weight), mo.reshape(places, (-1,)), axis=0), target.shape)
    share = mo.where(kept, share, scalar(0, scores))
    how = call.choice("reduction", "mean", ("none", "sum", "mean"))
    loss = picked * share
    if how == "none":
        return loss
    total = mo.sum(loss)
    return total if how == "sum" else total / mo.sum(share)


@FAMILY.op("NegativeLogLikelihoodLoss")
def negative_log_likelihood(call: Call, scores: Any, target: Any, weight: Any = None) -> Any:
    return _negative_log_likelihood(call, tensor(scores), target, weight)


@FAMILY.op("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(call: Call, scores: Any, target: Any, weight: Any = None) -> Any:
    logs = mo.log_softmax(tensor(scores), axis=1)
    return _negative_log_likelihood(call, logs, target, weight), logs
