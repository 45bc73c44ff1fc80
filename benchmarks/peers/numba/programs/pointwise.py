"""Functions of every element and reductions over them."""

from __future__ import annotations

import math

import numpy as np
from numba import prange


def softmax(x):
    rows = x.reshape(-1, x.shape[-1])
    out = np.empty_like(rows)
    for i in prange(len(rows)):
        top = rows[i].max()
        total = np.float32(0.0)
        for j in range(rows.shape[1]):
            out[i, j] = math.exp(rows[i, j] - top)
            total += out[i, j]
        for j in range(rows.shape[1]):
            out[i, j] /= total
    return out.reshape(x.shape)


def arc_distance(theta1, phi1, theta2, phi2):
    out = np.empty_like(theta1)
    for i in prange(len(out)):
        t = (math.sin((theta2[i] - theta1[i]) / 2) ** 2
             + math.cos(theta1[i]) * math.cos(theta2[i]) * math.sin((phi2[i] - phi1[i]) / 2) ** 2)
        out[i] = 2 * math.atan2(math.sqrt(t), math.sqrt(1 - t))
    return out


def go_fast(a):
    trace = 0.0
    for i in range(len(a)):
        trace += math.tanh(a[i, i])
    out = np.empty_like(a)
    for i in prange(len(a)):
        for j in range(a.shape[1]):
            out[i, j] = a[i, j] + trace
    return out


def azimuthal(image, radius, bins):
    total, count = np.zeros(bins), np.zeros(bins)
    for i in range(image.shape[0]):
        for j in range(image.shape[1]):
            ring = min(int(radius[i, j] * bins), bins - 1)
            total[ring] += image[i, j]
            count[ring] += 1
    return total / np.maximum(count, 1)


def histogram(x, weight, bins):
    count, total = np.zeros(bins, np.int64), np.zeros(bins)
    for i in range(len(x)):
        which = min(int(x[i] * bins), bins - 1)
        count[which] += 1
        total[which] += weight[i]
    return count, total


def nbody(position, velocity, mass, steps, h):
    position, velocity = position.copy(), velocity.copy()
    n = len(mass)
    pull, energy = np.zeros((n, 3)), np.zeros(steps)
    for t in range(steps + 1):
        if t > 0:
            for i in range(n):
                for axis in range(3):
                    velocity[i, axis] += h / 2 * pull[i, axis]
                    position[i, axis] += h * velocity[i, axis]
        for i in prange(n):
            x = y = z = 0.0
            for j in range(n):
                dx = position[j, 0] - position[i, 0]
                dy = position[j, 1] - position[i, 1]
                dz = position[j, 2] - position[i, 2]
                square = dx * dx + dy * dy + dz * dz + 0.01
                strength = mass[j] / (square * math.sqrt(square))
                x += strength * dx
                y += strength * dy
                z += strength * dz
            pull[i, 0], pull[i, 1], pull[i, 2] = x, y, z
        if t > 0:
            total = 0.0
            for i in range(n):
                for axis in range(3):
                    velocity[i, axis] += h / 2 * pull[i, axis]
                    total += 0.5 * mass[i] * velocity[i, axis] ** 2
            energy[t - 1] = total
    return position, velocity, energy


def kmeans(points, centres, steps):
    n, width = points.shape
    k = len(centres)
    centres = centres.copy()
    nearest = np.zeros(n, np.int64)
    for _ in range(steps):
        for i in prange(n):
            best = math.inf
            for c in range(k):
                distance = 0.0
                for axis in range(width):
                    distance += (points[i, axis] - centres[c, axis]) ** 2
                if distance < best:
                    best = distance
                    nearest[i] = c
        total, count = np.zeros((k, width)), np.zeros(k)
        for i in range(n):
            count[nearest[i]] += 1
            for axis in range(width):
                total[nearest[i], axis] += points[i, axis]
        for c in range(k):
            for axis in range(width):
                centres[c, axis] = total[c, axis] / max(count[c], 1)
    return centres, nearest


FUNCTIONS = (softmax, arc_distance, go_fast, azimuthal, histogram, nbody, kmeans)
