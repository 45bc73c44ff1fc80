"""JAX on the CPU, every case one jitted function."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.core.cases import FUNCTIONS
from benchmarks.peers.prepared import Prepared

EPSILON = 1e-5
Array = jax.Array


def load(threads: int) -> dict[str, str]:
    """Versions; the number of threads is set by the environment and the affinity of the worker."""
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # every call is waited for: this is its faster way
    return {"jax": jax.__version__, "jaxlib": jax.lib.__version__}


def gelu(x: Array) -> Array:
    """Exact GELU."""
    return jax.nn.gelu(x, approximate=False)


def chain10(x: Array, y: Array) -> Array:
    """Ten elementwise operations."""
    t = (x * y + x) * 0.5 - y
    return jnp.maximum(jnp.sqrt(t * t + 1.0) * y + x, 0.0)


def chain20(x: Array, y: Array) -> Array:
    """Twenty elementwise operations."""
    t = x
    for _ in range(10):
        t = t * y + x
    return t


def bias_gelu_residual(x: Array, bias: Array, residual: Array) -> Array:
    """gelu(x + bias) + residual."""
    return gelu(x + bias) + residual


def softmax(x: Array) -> Array:
    """Softmax along rows."""
    return jax.nn.softmax(x, axis=-1)


def log_softmax(x: Array) -> Array:
    """Log-softmax along rows."""
    return jax.nn.log_softmax(x, axis=-1)


def layer_norm(x: Array, weight: Array, bias: Array) -> Array:
    """Layer norm along rows."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + EPSILON) * weight + bias


def rms_norm(x: Array, weight: Array) -> Array:
    """RMS norm along rows."""
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight


def mean_variance(x: Array) -> tuple[Array, Array]:
    """Mean and variance of each row."""
    return x.mean(axis=-1), x.var(axis=-1)


def standardise(x: Array) -> Array:
    """Each column to mean 0 and variance 1."""
    return (x - x.mean(axis=0)) * jax.lax.rsqrt(x.var(axis=0) + EPSILON)


def masked_softmax(x: Array, mask: Array) -> Array:
    """Softmax over what the mask lets through."""
    return jax.nn.softmax(jnp.where(mask, x, -jnp.inf), axis=-1)


def cross_entropy(x: Array, labels: Array) -> Array:
    """The loss of each row."""
    picked = jnp.take_along_axis(x, labels[:, None], axis=1)[:, 0]
    return jax.nn.logsumexp(x, axis=-1) - picked


def squared_error(x: Array, target: Array) -> Array:
    """Mean squared error."""
    return jnp.mean(jnp.square(x - target))


def sum_dot_max(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Sum, dot product and maximum."""
    return x.sum(), jnp.vdot(x, y), x.max()


CASES = {function.__name__: function for function in (
    gelu, chain10, chain20, bias_gelu_residual, softmax, log_softmax, layer_norm, rms_norm, mean_variance,
    standardise, masked_softmax, cross_entropy, squared_error, sum_dot_max)}
SEVERAL_RESULTS = ("mean_variance", "sum_dot_max")


def prepare(case: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile, and wait for the result in every call: JAX answers before it has computed."""
    compiled = jax.jit(CASES[case] if case in CASES else getattr(jnp, FUNCTIONS[case.removeprefix("function ")][1]))
    arguments = tuple(jnp.asarray(array) for array in inputs.values())
    jax.block_until_ready(compiled(*arguments))
    if case in SEVERAL_RESULTS:
        return Prepared(lambda *values: jax.block_until_ready(compiled(*values)), arguments)
    return Prepared(compiled, arguments, suffix=".block_until_ready()")


def to_numpy(result: Any) -> tuple[np.ndarray, ...]:
    """Arrays of JAX to arrays of NumPy."""
    results = result if isinstance(result, tuple) else (result,)
    return tuple(np.asarray(array) for array in results)
