"""Straight-line programs of products and reductions."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from benchmarks.programs.dense import ALPHA, BETA


def gemm(a, b, c):
    return ALPHA * (a @ b) + BETA * c


def two_mm(a, b, c, d):
    return ALPHA * (a @ b) @ c + BETA * d


def three_mm(a, b, c, d):
    return (a @ b) @ (c @ d)


def atax(a, x):
    return (a @ x) @ a


def bicg(a, p, r):
    return r @ a, a @ p


def mvt(x1, x2, y1, y2, a):
    return x1 + a @ y1, x2 + y2 @ a


def gesummv(a, b, x):
    return ALPHA * (a @ x) + BETA * (b @ x)


def syrk(a, c):
    return jnp.where(jnp.tri(len(c), dtype=bool), ALPHA * (a @ a.T) + BETA * c, c)


def syr2k(a, b, c):
    return jnp.where(jnp.tri(len(c), dtype=bool), ALPHA * (a @ b.T + b @ a.T) + BETA * c, c)


def covariance(data):
    centred = data - data.mean(axis=0)
    return centred.T @ centred / (len(data) - 1.0)


def correlation(data):
    deviation = data.std(axis=0)
    scaled = (data - data.mean(axis=0)) / (len(data) ** 0.5 * jnp.where(deviation <= 0.1, 1.0, deviation))
    return scaled.T @ scaled


def doitgen(a, c):
    return a @ c


def softmax(x):
    return jax.nn.softmax(x, axis=-1)


def mlp(x, w1, b1, w2, b2, w3, b3):
    x = jax.nn.relu(x @ w1 + b1)
    x = jax.nn.relu(x @ w2 + b2)
    return jax.nn.softmax(x @ w3 + b3, axis=-1)


def correlate(x, weight, padding="VALID"):
    return jax.lax.conv_general_dilated(x, weight, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def conv2d(x, weight, bias):
    return correlate(x, weight) + bias


def normalised(x):
    return (x - x.mean(axis=(0, 1, 2))) / jnp.sqrt(x.var(axis=(0, 1, 2)) + 1e-5)


def resnet(x, w1, w2, w3):
    t = jax.nn.relu(normalised(correlate(x, w1)))
    t = jax.nn.relu(normalised(correlate(t, w2, "SAME")))
    return jax.nn.relu(normalised(correlate(t, w3)) + x)


FUNCTIONS = (gemm, two_mm, three_mm, atax, bicg, mvt, gesummv, syrk, syr2k, covariance, correlation, doitgen, softmax,
             mlp, conv2d, resnet)
