"""The families, in the order of the documentation."""

from __future__ import annotations

from morpho.onnx.operators import control
from morpho.onnx.operators.arrays import casting, indexing, linear, pointwise, reduce, sequences, shape
from morpho.onnx.operators.domains import classical, microsoft, microsoft_attention, microsoft_quantised, training
from morpho.onnx.operators.media import images, randomness, signals, texts
from morpho.onnx.operators.neural import (
    activations,
    attention,
    convolution,
    losses,
    norms,
    pooling,
    quantised,
    recurrent,
)
from morpho.onnx.operators.registry import Family

FAMILIES: tuple[Family, ...] = tuple(room.FAMILY for room in (
    pointwise, casting, shape, indexing, reduce, linear, activations, convolution, pooling, norms, attention, recurrent,
    quantised, losses, images, signals, texts, randomness, sequences, control, microsoft,
    microsoft_attention, microsoft_quantised, classical, training))
