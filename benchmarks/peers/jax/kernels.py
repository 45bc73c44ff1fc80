"""JAX on the CPU, every case one jitted function of all its inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.kernels import cases
from benchmarks.peers.jax import core as jax_peer
from benchmarks.peers.prepared import Prepared

CASES_MODULE = "benchmarks.kernels.cases"
Array = jax.Array
load, to_numpy, gelu = jax_peer.load, jax_peer.to_numpy, jax_peer.gelu


def conv_bn_relu(x: Array, weight: Array, mean: Array, variance: Array, scale: Array, shift: Array) -> Array:
    """Convolution, batch norm with stored statistics, ReLU."""
    image = jax.lax.conv_general_dilated(x, weight, (1, 1), "SAME")
    factor = scale * jax.lax.rsqrt(variance + cases.EPSILON)
    return jax.nn.relu(image * factor[:, None, None] + (shift - mean * factor)[:, None, None])


def attention(q: Array, k: Array, v: Array, causal: bool = False) -> Array:
    """JAX's own attention; it wants heads behind positions."""
    turned = (jnp.swapaxes(array, 1, 2) for array in (q, k, v))
    return jnp.swapaxes(jax.nn.dot_product_attention(*turned, is_causal=causal), 1, 2)


FUNCTIONS = {
    "matmul": lambda x, weight: x @ weight,
    "linear": lambda x, weight: x @ weight,
    "linear_gelu": lambda x, weight, bias: gelu(x @ weight + bias),
    "linear_relu": lambda x, weight, bias: jax.nn.relu(x @ weight + bias),
    "norm_linear": lambda x, weight, bias, scale, shift: jax_peer.layer_norm(x, scale, shift) @ weight + bias,
    "conv_bn_relu": conv_bn_relu,
    "attention": attention,
    "attention_causal": lambda q, k, v: attention(q, k, v, causal=True),
    "mlp": lambda x, weight1, weight2, bias1, bias2: gelu(x @ weight1 + bias1) @ weight2 + bias2,
}


def prepare(name: str, inputs: dict[str, np.ndarray]) -> Prepared:
    """Compile, and wait for the result in every call."""
    compiled = jax.jit(FUNCTIONS[name])
    arguments = tuple(jnp.asarray(array) for array in inputs.values())
    compiled(*arguments).block_until_ready()
    return Prepared(compiled, arguments, suffix=".block_until_ready()")
