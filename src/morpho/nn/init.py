"""Initial values: draws from `nn.random`, scaled by the number of inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.nn.random import next_key
from morpho.tensor.functions.indexing.parts import reaching
from morpho.tensor.state.variable import unfilled

_zeros: ContextVar[dict[Any, mo.Tensor]] = ContextVar("morpho_undrawn")  # inside `undrawn`, by shape and dtype


@contextmanager
def undrawn() -> Iterator[None]:
    """Inside, weights are zeros that take no memory, and no key is used: for a model whose weights come from a file. A
    compiled function refuses them until they have values.

    >>> with mo.nn.init.undrawn():
    ...     layer = mo.nn.Linear(2, 1)
    >>> layer.weight.numpy()
    array([[0., 0.]], dtype=float32)
    """
    token, zeros = unfilled.set(True), _zeros.set({})
    try:
        yield
    finally:
        unfilled.reset(token)
        _zeros.reset(zeros)


def _unfilled(shape: tuple[int, ...], dtype: Any) -> mo.Tensor:
    """Zeros, which layers of one model share: they are values, of which each state makes its own."""
    known = _zeros.get()
    if (shape, dtype) not in known:
        known[shape, dtype] = mo.zeros(shape, dtype=dtype)
    return known[shape, dtype]


def uniform(shape: tuple[int, ...], bound: float, dtype: Any = mo.float32) -> mo.Tensor:
    """Evenly between -bound and bound.

    >>> mo.nn.init.uniform((2, 3), 0.5).shape
    (2, 3)
    """
    if unfilled.get():
        return _unfilled(shape, dtype)
    drawn: mo.Tensor = mo.random.uniform(next_key(), shape, dtype=dtype)
    return (drawn * 2 - 1) * bound


def normal(shape: tuple[int, ...], std: float = 0.02, mean: float = 0.0, dtype: Any = mo.float32) -> mo.Tensor:
    """Around a mean with a standard deviation.

    >>> mo.nn.init.normal((2, 3)).shape
    (2, 3)
    """
    if unfilled.get():
        return _unfilled(shape, dtype)
    drawn: mo.Tensor = mo.random.normal(next_key(), shape, dtype=dtype)
    return drawn * std + mean


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of one unit for a weight (outputs, inputs, window...).

    >>> mo.nn.init.fans((8, 4, 3, 3))
    (36, 72)
    """
    window = math.prod(shape[2:])
    return (shape[1] if len(shape) > 1 else shape[0]) * window, shape[0] * window


def kaiming_uniform(shape: tuple[int, ...], gain: float = math.sqrt(1 / 3), dtype: Any = mo.float32) -> mo.Tensor:
    """Uniform with the variance gain^2 / inputs; the default gain is that of PyTorch's Linear and Conv.

    >>> weight = mo.nn.init.kaiming_uniform((8, 4))
    >>> weight.shape, mo.max(mo.abs(weight)).item() <= 0.5
    ((8, 4), True)
    """
    return uniform(shape, gain * math.sqrt(3 / max(fans(shape)[0], 1)), dtype)


def kaiming_normal(shape: tuple[int, ...], gain: float = math.sqrt(2), dtype: Any = mo.float32) -> mo.Tensor:
    """Normal with the variance gain^2 / inputs.

    >>> mo.nn.init.kaiming_normal((8, 4)).shape
    (8, 4)
    """
    return normal(shape, gain / math.sqrt(max(fans(shape)[0], 1)), dtype=dtype)


def xavier_uniform(shape: tuple[int, ...], gain: float = 1.0, dtype: Any = mo.float32) -> mo.Tensor:
    """Uniform with the variance 2 gain^2 / (inputs + outputs).

    >>> mo.nn.init.xavier_uniform((8, 4)).shape
    (8, 4)
    """
    return uniform(shape, gain * math.sqrt(6 / sum(fans(shape))), dtype)


def xavier_normal(shape: tuple[int, ...], gain: float = 1.0, dtype: Any = mo.float32) -> mo.Tensor:
    """Normal with the variance 2 gain^2 / (inputs + outputs).

    >>> mo.nn.init.xavier_normal((8, 4)).shape
    (8, 4)
    """
    return normal(shape, gain * math.sqrt(2 / sum(fans(shape))), dtype=dtype)


# -- PyTorch's names: they assign to a tensor and return it ----------------------------------------------------------
def _assigned(tensor: Any, value: mo.Tensor) -> Any:
    value = value.astype(tensor.dtype)
    if hasattr(tensor, "assign"):
        tensor.assign(value)
    else:
        tensor[...] = value
    return tensor


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Evenly between a and b.

    >>> mo.nn.init.uniform_(mo.nn.Linear(2, 3).weight, -1, 1).shape
    (3, 2)
    """
    key = next_key() if generator is None else generator.next_key()
    return _assigned(tensor, mo.random.uniform(key, tensor.shape) * (b - a) + a)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """Around a mean with a standard deviation.

    >>> mo.nn.init.normal_(mo.nn.Linear(2, 3).weight, std=0.02).shape
    (3, 2)
    """
    key = next_key() if generator is None else generator.next_key()
    return _assigned(tensor, mo.random.normal(key, tensor.shape) * std + mean)


def trunc_normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                  generator: Any = None) -> Any:
    """As `normal_`, with values between a and b alone.

    >>> mo.nn.init.trunc_normal_(mo.nn.Linear(2, 3).weight, std=0.02).shape
    (3, 2)
    """
    key = next_key() if generator is None else generator.next_key()
    return _assigned(tensor, mo.random.truncated_normal(key, (a - mean) / std, (b - mean) / std, tensor.shape) * std
                     + mean)


def constant_(tensor: Any, val: float) -> Any:
    """One value everywhere.

    >>> mo.nn.init.constant_(mo.nn.Linear(2, 1).weight, 0.5).tolist()
    [[0.5, 0.5]]
    """
    return _assigned(tensor, mo.full(tensor.shape, val, dtype=tensor.dtype))


def ones_(tensor: Any) -> Any:
    """Ones everywhere.

    >>> mo.nn.init.ones_(mo.nn.Linear(2, 1).weight).tolist()
    [[1.0, 1.0]]
    """
    return constant_(tensor, 1)


def zeros_(tensor: Any) -> Any:
    """Zeros everywhere.

    >>> mo.nn.init.zeros_(mo.nn.Linear(2, 1).weight).tolist()
    [[0.0, 0.0]]
    """
    return constant_(tensor, 0)


def eye_(tensor: Any) -> Any:
    """Ones on the diagonal of a matrix.

    >>> mo.nn.init.eye_(mo.nn.Linear(2, 2).weight).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return _assigned(tensor, mo.eye(*tensor.shape))


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """The weight of a convolution that keeps its input.

    >>> mo.nn.init.dirac_(mo.nn.Conv1d(2, 2, 3).weight).shape
    (2, 2, 3)
    """
    value = np.zeros(tensor.shape, np.float32)
    count = tensor.shape[0] // groups
    for group in range(groups):
        for channel in range(min(count, tensor.shape[1])):
            value[(group * count + channel, channel, *[size // 2 for size in tensor.shape[2:]])] = 1
    return _assigned(tensor, mo.asarray(value))


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which PyTorch scales first values for an activation.

    >>> round(mo.nn.init.calculate_gain("relu"), 4)
    1.4142
    """
    gains = {"tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}
    if nonlinearity == "leaky_relu":
        return math.sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    plain = ("linear", "sigmoid", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
             "conv_transpose3d")
    if nonlinearity not in gains and nonlinearity not in plain:
        raise fail(ArgumentError, "calculate_gain", f"{nonlinearity!r} is unknown")
    return gains.get(nonlinearity, 1.0)


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Uniform with the variance 2 gain^2 / (inputs + outputs).

    >>> mo.nn.init.xavier_uniform_(mo.nn.Linear(2, 3).weight).shape
    (3, 2)
    """
    bound = gain * math.sqrt(6 / sum(fans(tuple(tensor.shape))))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Normal with the variance 2 gain^2 / (inputs + outputs).

    >>> mo.nn.init.xavier_normal_(mo.nn.Linear(2, 3).weight).shape
    (3, 2)
    """
    return normal_(tensor, 0.0, gain * math.sqrt(2 / sum(fans(tuple(tensor.shape)))), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise fail(ArgumentError, "kaiming", f"mode {mode!r} is neither 'fan_in' nor 'fan_out'")
    fan = fans(tuple(tensor.shape))[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(max(fan, 1))


def kaiming_uniform_(tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Any = None) -> Any:
    """Uniform with the variance gain^2 / inputs, or outputs as `mode` says.

    >>> mo.nn.init.kaiming_uniform_(mo.nn.Linear(2, 3).weight).shape
    (3, 2)
    """
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor: Any, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Any = None) -> Any:
    """Normal with the variance gain^2 / inputs, or outputs as `mode` says.

    >>> mo.nn.init.kaiming_normal_(mo.nn.Linear(2, 3).weight).shape
    (3, 2)
    """
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """Rows, or columns, that are orthogonal to each other and of length `gain`.

    >>> mo.nn.init.orthogonal_(mo.nn.Linear(4, 2).weight).shape
    (2, 4)
    """
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    key = next_key() if generator is None else generator.next_key()
    drawn = mo.random.normal(key, (max(rows, columns), min(rows, columns)))
    q, r = mo.linalg.qr(drawn)
    q = q * mo.sign(mo.linalg.diagonal(r))
    return _assigned(tensor, mo.reshape(mo.matrix_transpose(q) if rows < columns else q, tensor.shape) * gain)


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """Normal values, of which a share of each column is zero.

    >>> mo.nn.init.sparse_(mo.nn.Linear(4, 2).weight, 0.5).shape
    (2, 4)
    """
    rows, columns = tensor.shape
    normal_(tensor, 0.0, std, generator)
    rank = mo.argsort(mo.argsort(mo.random.uniform(next_key(), (rows, columns)), axis=0), axis=0)
    return _assigned(tensor, mo.where(rank < math.ceil(sparsity * rows), 0.0, tensor))


for _name in [name for name in globals() if name.endswith("_") and not name.startswith("_")]:  # nn.init.zeros_(w[0])
    globals()[_name] = reaching(globals()[_name], first=True)
