"""Activations and their gradients at the ends of the number line: the limits, never NaN of a number."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from morpho import nn

# name -> (its limit, and that of its slope, at -infinity and at +infinity)
LIMITS = {
    "ReLU": ((0, np.inf), (0, 1)), "ReLU6": ((0, 6), (0, 0)), "SELU": ((-1.7580993, np.inf), (0, 1.050701)),
    "ELU": ((-1, np.inf), (0, 1)), "SiLU": ((0, np.inf), (0, 1)), "Mish": ((0, np.inf), (0, 1)),
    "GELU": ((0, np.inf), (0, 1)), "Sigmoid": ((0, 1), (0, 0)), "Tanh": ((-1, 1), (0, 0)),
    "LogSigmoid": ((-np.inf, 0), (1, 0)), "Softplus": ((0, np.inf), (0, 1)), "Hardsigmoid": ((0, 1), (0, 0)),
    "LeakyReLU": ((-np.inf, np.inf), (0.01, 1)), "Hardswish": ((0, np.inf), (0, 1)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", [*LIMITS, "GELU tanh"])
def test_limits(name: str, dtype: str) -> None:
    layer = nn.GELU("tanh") if name == "GELU tanh" else getattr(nn, name)()
    values, slopes = LIMITS[name.split()[0]]
    most = float(mo.finfo(dtype).max)
    x = mo.asarray(np.array([-np.inf, np.inf, -most, most, -most / 2, most / 2, -200, 200], dtype))
    np.testing.assert_allclose(layer(x).numpy()[:2], values, rtol=2e-3)
    found = mo.grad(lambda x: layer(x).sum())(x).numpy()
    np.testing.assert_allclose(found, np.tile(slopes, 4), rtol=2e-3, atol=1e-80)


# PyTorch's slopes at the corners; where NaN goes in, a slope of 0 would hide it.
CORNERS = {"ReLU": {0.0: 0}, "ReLU6": {0.0: 0, 6.0: 0}, "Hardswish": {-3.0: 0, 3.0: 1},
           "Hardsigmoid": {-3.0: 0, 3.0: 0}, "LeakyReLU": {0.0: 0.01}, "ELU": {0.0: 1}, "SELU": {0.0: 1.7580993}}


@pytest.mark.parametrize("name", CORNERS)
def test_corners_and_nan(name: str) -> None:
    layer = getattr(nn, name)()
    found = mo.grad(lambda x: layer(x).sum())(mo.asarray([*CORNERS[name], np.nan])).tolist()
    assert found[:-1] == pytest.approx([*CORNERS[name].values()]) and found[-1] != 0
    assert np.isnan(layer(mo.asarray([np.nan])).item())
