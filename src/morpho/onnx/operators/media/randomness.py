"""Random numbers: they follow from the seed, or from the node's name where there is none, the same at every call."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

import morpho as mo
from morpho.onnx.operators.registry import Family
from morpho.onnx.proto.dtypes import element_type
from morpho.onnx.run.call import Call
from morpho.onnx.run.values import bounded, cast, dtype_of, tensor

FAMILY = Family("random")


def _key(call: Call) -> Any:
    seed = call.get("seed")
    if seed is None:
        return mo.random.key(zlib.crc32(call.node.outputs[0].encode()))
    return mo.random.key(struct.unpack("<I", struct.pack("<f", seed))[0])


def _drawn(call: Call, shape: Any, dtype: Any) -> Any:
    shape = bounded(shape, call.op)
    work = dtype if dtype is mo.float64 else mo.float32
    if "Normal" in call.node.op:
        values = mo.random.normal(_key(call), shape, dtype=work)
        values = values * call.get("scale", 1.0) + call.get("mean", 0.0)
    else:
        low, high = call.get("low", 0.0), call.get("high", 1.0)
        values = mo.random.uniform(_key(call), shape, dtype=work) * (high - low) + low
    return cast(values, dtype)


@FAMILY.op("RandomNormal", "RandomUniform")
def random_of_shape(call: Call) -> Any:
    return _drawn(call, call.need("shape"), element_type(call.get("dtype", 1)).dtype)


@FAMILY.op("RandomNormalLike", "RandomUniformLike")
def random_like(call: Call, x: Any) -> Any:
    dtype = element_type(call.get("dtype")).dtype if call.get("dtype") else dtype_of(x)
    return _drawn(call, x.shape, dtype)


@FAMILY.op("Bernoulli")
def bernoulli(call: Call, x: Any) -> Any:
    x = tensor(x)
    dtype = element_type(call.get("dtype")).dtype if call.get("dtype") else x.dtype
    return cast(mo.random.uniform(_key(call), x.shape) < cast(x, mo.float32), dtype or x.dtype)


@FAMILY.op("Multinomial")
def multinomial(call: Call, x: Any) -> Any:
    x = cast(tensor(x), mo.float32)
    count = call.get("sample_size", 1)
    bounded([*x.shape, count], call.op)
    noise = mo.random.uniform(_key(call), (x.shape[0], count, x.shape[1]))
    found = mo.argmax(mo.expand_dims(x, axis=1) - mo.log(-mo.log(noise)), axis=-1)
    return cast(found, element_type(call.get("dtype", 6)).dtype or mo.int32)


def legacy_mask(seed: int, shape: Any, share: float) -> Any:
    """Which elements dropout keeps: the draws of ONNX's own reference for a seed."""
    return np.random.RandomState(seed).uniform(0, 1, [int(size) for size in shape]) >= share
