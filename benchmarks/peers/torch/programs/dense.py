"""Straight-line programs of products and reductions."""

from __future__ import annotations

import torch
from torch.nn import functional

from benchmarks.programs.dense import ALPHA, BETA


def gemm(a, b, c):
    return torch.addmm(c, a, b, beta=BETA, alpha=ALPHA)


def two_mm(a, b, c, d):
    return torch.addmm(d, a @ b, c, beta=BETA, alpha=ALPHA)


def three_mm(a, b, c, d):
    return (a @ b) @ (c @ d)


def atax(a, x):
    return (a @ x) @ a


def bicg(a, p, r):
    return r @ a, a @ p


def mvt(x1, x2, y1, y2, a):
    return torch.addmv(x1, a, y1), torch.addmv(x2, a.T, y2)


def gesummv(a, b, x):
    return torch.addmv(BETA * (b @ x), a, x, alpha=ALPHA)


def syrk(a, c):
    return torch.tril(torch.addmm(c, a, a.T, beta=BETA, alpha=ALPHA)) + torch.triu(c, 1)


def syr2k(a, b, c):
    return torch.tril(ALPHA * (a @ b.T + b @ a.T) + BETA * c) + torch.triu(c, 1)


def covariance(data):
    centred = data - data.mean(dim=0)
    return centred.T @ centred / (len(data) - 1.0)


def correlation(data):
    deviation = data.std(dim=0, correction=0)
    scaled = (data - data.mean(dim=0)) / (len(data) ** 0.5 * torch.where(deviation <= 0.1, 1.0, deviation))
    return scaled.T @ scaled


def doitgen(a, c):
    return a @ c


def softmax(x):
    return functional.softmax(x, dim=-1)


def mlp(x, w1, b1, w2, b2, w3, b3):
    x = functional.relu(torch.addmm(b1, x, w1))
    x = functional.relu(torch.addmm(b2, x, w2))
    return functional.softmax(torch.addmm(b3, x, w3), dim=-1)


def correlate(x, weight, bias=None, padding=0):
    """Channels last in memory: a view with channels first, which PyTorch knows as channels_last."""
    return functional.conv2d(x.permute(0, 3, 1, 2), weight.permute(3, 2, 0, 1), bias, padding=padding)


def conv2d(x, weight, bias):
    return correlate(x, weight, bias).permute(0, 2, 3, 1)


def normalised(x):
    return functional.batch_norm(x, None, None, training=True, eps=1e-5)


def resnet(x, w1, w2, w3):
    image = x.permute(0, 3, 1, 2)
    weights = [w.permute(3, 2, 0, 1) for w in (w1, w2, w3)]
    t = functional.relu(normalised(functional.conv2d(image, weights[0])))
    t = functional.relu(normalised(functional.conv2d(t, weights[1], padding=1)))
    return functional.relu(normalised(functional.conv2d(t, weights[2])) + image).permute(0, 2, 3, 1)


FUNCTIONS = (gemm, two_mm, three_mm, atax, bicg, mvt, gesummv, syrk, syr2k, covariance, correlation, doitgen, softmax,
             mlp, conv2d, resnet)
