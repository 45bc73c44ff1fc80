"""Elementwise programs, sums by index, complex numbers, integers, the ocean's straight-line ones."""

from __future__ import annotations

import torch

from benchmarks.programs import ocean as o


def arc_distance(theta1, phi1, theta2, phi2):
    t = torch.sin((theta2 - theta1) / 2) ** 2 + (
        torch.cos(theta1) * torch.cos(theta2) * torch.sin((phi2 - phi1) / 2) ** 2)
    return 2 * torch.atan2(torch.sqrt(t), torch.sqrt(1 - t))


def go_fast(a):
    return a + torch.tanh(torch.diagonal(a)).sum()


def azimuthal(image, radius, bins):
    ring = (radius * bins).long().clamp(max=bins - 1).ravel()
    return torch.bincount(ring, image.ravel(), bins) / torch.bincount(ring, minlength=bins).clamp(min=1)


def histogram(x, weight, bins):
    which = (x * bins).long().clamp(max=bins - 1)
    return torch.bincount(which, minlength=bins), torch.bincount(which, weight, bins)


def acceleration(position, mass):
    d = position[None] - position[:, None]
    strength = ((d * d).sum(dim=-1) + 0.01) ** -1.5 * mass
    return (strength[..., None] * d).sum(dim=1)


def nbody(position, velocity, mass, steps, h):
    energy = torch.empty(steps, dtype=torch.float64)
    pull = acceleration(position, mass)
    for t in range(steps):
        velocity = velocity + h / 2 * pull
        position = position + h * velocity
        pull = acceleration(position, mass)
        velocity = velocity + h / 2 * pull
        energy[t] = 0.5 * (mass[:, None] * velocity**2).sum()
    return position, velocity, energy


def kmeans(points, centres, steps):
    squares = (points**2).sum(dim=1)[:, None]
    for _ in range(steps):
        nearest = (squares - 2 * points @ centres.T + (centres**2).sum(dim=1)).argmin(dim=1)
        total = torch.zeros_like(centres).index_add_(0, nearest, points)
        centres = total / torch.bincount(nearest, minlength=len(centres)).clamp(min=1)[:, None]
    return centres, nearest


def spmv(values, rows, columns, x):
    return torch.zeros_like(x).index_add_(0, rows, values * x[columns])


def conjugate_gradients(values, rows, columns, b, steps):
    x, r, p = torch.zeros_like(b), b, b
    rr = r @ r
    found = torch.empty(steps, dtype=torch.float64)
    for t in range(steps):
        q = spmv(values, rows, columns, p)
        alpha = rr / (p @ q)
        x, r = x + alpha * p, r - alpha * q
        new = r @ r
        found[t] = new
        p, rr = r + new / rr * p, new
    return x, found


def mesh(state, first, second, area, steps):
    for _ in range(steps):
        flow = area * (state[first] - state[second])
        state = state.index_add(0, first, flow, alpha=-1).index_add_(0, second, flow)
    return state


def pagerank(rows, columns, share, steps):
    n = len(share)
    rank = torch.full((n,), 1 / n, dtype=torch.float64)
    for _ in range(steps):
        rank = 0.15 / n + 0.85 * torch.zeros_like(rank).index_add_(0, rows, (rank * share)[columns])
    return rank


def mandelbrot(c, steps):
    z, count = torch.zeros_like(c), torch.zeros(c.shape, dtype=torch.int64)
    for _ in range(steps):
        inside = z.real**2 + z.imag**2 < 4
        z = torch.where(inside, z * z + c, z)
        count += inside
    return z, count


def stockham_fft(x, roots):
    n, stride = len(x), 1
    while n > 1:
        n //= 2
        pair = x.reshape(2, n, stride)
        x = torch.stack([pair[0] + pair[1], (pair[0] - pair[1]) * roots[::stride, None]], dim=1)
        stride *= 2
    return x.reshape(-1)


def contour_integral(a, b, y, z, weight):
    point = z[:, None, None]
    systems = point * point * torch.eye(len(a), dtype=a.dtype) + point * a + b
    found = weight[:, None, None] * torch.linalg.solve(systems, y.expand(len(z), *y.shape))
    return found.sum(dim=0), (point * found).sum(dim=0)


def life(board, steps):
    for _ in range(steps):
        rows = board + board.roll(1, 0) + board.roll(-1, 0)
        count = rows + rows.roll(1, 1) + rows.roll(-1, 1)
        board = ((count == 3) | ((count == 4) & (board == 1))).to(board.dtype)
    return board


def compute(a, b):
    return a.clamp(2, 10) * 5 + b * 3 + 9


def collatz(start, steps):
    count = torch.zeros_like(start)
    for _ in range(steps):
        going = start > 1
        start = torch.where(going, torch.where(start % 2 == 0, start // 2, 3 * start + 1), start)
        count += going
    return start, count


def floyd_warshall(path):
    path = path.clone()
    for k in range(len(path)):
        torch.minimum(path, path[:, k, None] + path[k], out=path)
    return path


def equation_of_state(s, t, p):
    root = torch.sqrt(s)
    surface = o.horner(t, o.PURE) + s * (o.horner(t, o.SALT) + root * o.horner(t, o.SALT_15) + o.SALT_2 * s)
    bulk = o.horner(t, o.BULK) + s * (o.horner(t, o.BULK_SALT) + root * o.horner(t, o.BULK_SALT_15))
    linear = o.horner(t, o.PRESSURE) + s * (o.horner(t, o.PRESSURE_SALT) + o.PRESSURE_SALT_15 * root)
    square = o.horner(t, o.PRESSURE_2) + s * o.horner(t, o.PRESSURE_2_SALT)
    return surface / (1 - p / (bulk + p * (linear + p * square)))


FUNCTIONS = (arc_distance, go_fast, azimuthal, histogram, nbody, kmeans, spmv, conjugate_gradients, mesh, pagerank,
             mandelbrot, stockham_fft, contour_integral, life, compute, collatz, floyd_warshall, equation_of_state)
