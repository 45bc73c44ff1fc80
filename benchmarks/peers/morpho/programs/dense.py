"""Straight-line programs of products and reductions."""

from __future__ import annotations

import morpho as mo
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


def lower(n):
    return mo.arange(n)[:, None] >= mo.arange(n)


def syrk(a, c):
    return mo.where(lower(c.shape[0]), ALPHA * (a @ a.T) + BETA * c, c)


def syr2k(a, b, c):
    return mo.where(lower(c.shape[0]), ALPHA * (a @ b.T + b @ a.T) + BETA * c, c)


def covariance(data):
    centred = data - mo.mean(data, axis=0)
    return centred.T @ centred / (data.shape[0] - 1.0)


def correlation(data):
    deviation = mo.std(data, axis=0)
    scaled = (data - mo.mean(data, axis=0)) / (data.shape[0] ** 0.5 * mo.where(deviation <= 0.1, 1.0, deviation))
    return scaled.T @ scaled


def doitgen(a, c):
    return a @ c


def softmax(x):
    return mo.softmax(x, axis=-1)


def mlp(x, w1, b1, w2, b2, w3, b3):
    x = mo.relu(x @ w1 + b1)
    x = mo.relu(x @ w2 + b2)
    return mo.softmax(x @ w3 + b3, axis=-1)


def correlate(x, weight, bias=None, padding=0):
    """Images with channels last, through the convolution with channels first."""
    found = mo.conv2d(mo.permute_dims(x, (0, 3, 1, 2)), mo.permute_dims(weight, (3, 2, 0, 1)), bias, padding=padding)
    return mo.permute_dims(found, (0, 2, 3, 1))


def conv2d(x, weight, bias):
    return correlate(x, weight, bias)


def normalised(x):
    return (x - mo.mean(x, axis=(0, 1, 2))) / mo.sqrt(mo.var(x, axis=(0, 1, 2)) + 1e-5)


def resnet(x, w1, w2, w3):
    t = mo.relu(normalised(x @ w1[0, 0]))
    t = mo.relu(normalised(correlate(t, w2, padding=1)))
    return mo.relu(normalised(t @ w3[0, 0]) + x)


FUNCTIONS = (gemm, two_mm, three_mm, atax, bicg, mvt, gesummv, syrk, syr2k, covariance, correlation, doitgen, softmax,
             mlp, conv2d, resnet)
