"""Frequencies of rotary positions, and the ways they are stretched over longer texts than the model was trained on.

| type | frequencies | cosines and sines |
|---|---|---|
| `linear` | divided by `factor` | |
| `llama3` | long waves divided by `factor`, short ones kept, those between blended | |
| `factors` | each divided by its own number | |
| `yarn` | as llama3, blended along the pairs between `beta_fast` and `beta_slow` turns | times `attention_factor` |
| `dynamic` | of a larger theta, the larger the longer the text is beyond the model's positions | |
| `longrope` | divided by `short_factor`, or `long_factor` beyond the original length | times `attention_factor` |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from morpho.base.errors import ArgumentError, fail

KINDS = ("default", "linear", "llama3", "factors", "yarn", "dynamic", "longrope")


def kind_of(scaling: Mapping[str, Any] | None) -> str:
    """The type of a scaling, "default" for none.

    >>> from morpho.nn.transformer.rope_scaling import kind_of
    >>> kind_of({"type": "linear", "factor": 2.0}), kind_of(None)
    ('linear', 'default')
    """
    if not scaling:
        return "default"
    return str(scaling.get("rope_type") or scaling.get("type") or "default")


def original_length(scaling: Mapping[str, Any], length: int) -> int:
    """How long the texts were that the model was first trained on."""
    return int(scaling.get("original_max_position_embeddings") or length)


def frequencies(depth: int, theta: float, scaling: Mapping[str, Any] | None, length: int,
                reach: int) -> tuple[np.ndarray, float]:
    """Angles per position of each pair, in float32, and what cosines and sines are multiplied by. `length` is how many
    positions the model has, `reach` how many the text has.

    >>> from morpho.nn.transformer.rope_scaling import frequencies
    >>> frequencies(4, 100.0, {"rope_type": "linear", "factor": 2.0}, 16, 16)[0]
    array([0.5 , 0.05], dtype=float32)
    """
    kind = kind_of(scaling)
    if kind == "dynamic":
        assert scaling is not None
        theta = _dynamic_theta(depth, theta, float(scaling["factor"]), length, reach)
    powers = _powers(depth, theta)
    found = np.float32(1) / powers
    if kind in ("default", "dynamic"):
        return np.asarray(found), 1.0
    assert scaling is not None
    if kind == "linear":
        return np.asarray(found / np.float32(scaling["factor"])), 1.0
    if kind == "factors":
        return np.asarray(found / np.asarray(scaling["factors"], np.float32), np.float32), 1.0
    if kind == "llama3":
        return _llama3(found, scaling), 1.0
    if kind == "yarn":
        return _yarn(depth, theta, scaling, length), _yarn_factor(scaling, length)
    if kind == "longrope":
        original = original_length(scaling, length)
        factors = np.asarray(scaling["long_factor" if reach > original else "short_factor"], np.float32)
        return np.asarray(np.float32(1) / (factors * powers), np.float32), \
            _longrope_factor(scaling, length)
    raise fail(ArgumentError, "RotaryPositions", f"scaling of type {kind!r} is unknown", "one of " + ", ".join(KINDS))


def _powers(depth: int, theta: float) -> np.ndarray:
    """theta ** (2 i / depth) of each pair, rounded once: NumPy's float32 powers have several units of the last place,
    another number of them on another processor, and an angle has the error times its position."""
    places = np.arange(0, depth, 2, dtype=np.float32) / np.float32(depth)
    return np.power(np.float64(np.float32(theta)), places.astype(np.float64)).astype(np.float32)


def _dynamic_theta(depth: int, theta: float, factor: float, length: int, reach: int) -> float:
    grown = factor * max(reach, length) / length - (factor - 1)
    return float(theta * grown ** (depth / (depth - 2)))


def _llama3(found: np.ndarray, scaling: Mapping[str, Any]) -> np.ndarray:
    """Long waves are stretched by `factor`, short ones kept, those between blended."""
    context = scaling["original_max_position_embeddings"]
    low, high, factor = (scaling[name] for name in ("low_freq_factor", "high_freq_factor", "factor"))
    waves = 2 * math.pi / found
    blend = np.clip((context / waves - low) / (high - low), 0, 1)
    return np.asarray((1 - blend) * found / factor + blend * found, np.float32)


def _yarn(depth: int, theta: float, scaling: Mapping[str, Any], length: int) -> np.ndarray:
    """YaRN: pairs that turn often over the original length are kept, those that turn less than once are stretched."""
    original, factor = original_length(scaling, length), _factor(scaling, length)
    ends = [depth * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))
            for turns in (scaling.get("beta_fast") or 32, scaling.get("beta_slow") or 1)]
    if scaling.get("truncate", True):
        ends = [math.floor(ends[0]), math.ceil(ends[1])]
    low, high = max(ends[0], 0), min(ends[1], depth - 1)
    high += 0.001 if low == high else 0
    stretched = np.clip((np.arange(depth // 2, dtype=np.float32) - low) / (high - low), 0, 1).astype(np.float32)
    powers = _powers(depth, theta)
    inner = np.float32(1) / (np.float32(factor) * powers)
    return np.asarray(inner * stretched + np.float32(1) / powers * (1 - stretched), np.float32)


def _factor(scaling: Mapping[str, Any], length: int) -> float:
    given = scaling.get("factor")
    return float(given) if given is not None else length / original_length(scaling, length)


def _yarn_factor(scaling: Mapping[str, Any], length: int) -> float:
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    factor = _factor(scaling, length)

    def magnitude(share: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * share * math.log(factor) + 1.0

    one, all_dims = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return magnitude(one) / magnitude(all_dims) if one and all_dims else magnitude(1.0)


def _longrope_factor(scaling: Mapping[str, Any], length: int) -> float:
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    factor = _factor(scaling, length)
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original_length(scaling, length)))
