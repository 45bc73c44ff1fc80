"""Programs as a newcomer writes them: nothing is compiled, values are looked at in the middle of loops.

Each takes a library (Morpho, PyTorch or NumPy), and gives a function without arguments and how many operations it has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Program = tuple[int, Callable[[], Any]]


def chain(lib: Any, tensor: Callable[[Any], Any], count: int) -> Program:
    x = tensor(np.linspace(-1, 1, 64, dtype=np.float32))

    def run() -> Any:
        y = x
        for _ in range(count // 2):
            y = y * 0.999 + 0.001
        return float(y.sum())

    return count, run


def layers(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    x = tensor(np.random.default_rng(0).standard_normal((64, 64), np.float32) / 8)

    def run() -> Any:
        y = x
        for _ in range(27):
            y = lib.tanh(y @ x) + x
        return float(y.sum())

    return 81, run


def branches(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    values = [tensor(np.float32(value)) for value in np.random.default_rng(1).standard_normal(20)]

    def run() -> float:
        total = values[0] * 1.0
        for value in values:
            total = total + value if value > 0.0 else total - value * 0.5
        return float(total)

    return 50, run


def kalman(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    f, h, q = (tensor(np.array(v, np.float32)) for v in ([[1, 0.1], [0, 1]], [[1, 0]], [[0.01, 0], [0, 0.01]]))
    start, one = tensor(np.zeros((2, 1), np.float32)), tensor(np.eye(2, dtype=np.float32))

    def run() -> float:
        x, p, track = start, one, 0.0
        for turn in range(40):
            x, p = f @ x, f @ p @ f.T + q
            gain = p @ h.T / (h @ p @ h.T + 0.5)
            x = x + gain @ (0.1 * turn - h @ x)
            p = (one - gain @ h) @ p
            track += x[0, 0].item()
        return track

    return 800, run


def k_means(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    points = tensor(np.random.default_rng(2).standard_normal((500, 2), np.float32))

    def run() -> float:
        centres = points[:5]
        for _ in range(10):
            nearest = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(-1).argmin(-1)
            members = (nearest[:, None] == lib.arange(5)[None, :]) * 1.0
            centres = (members.T @ (points * 1.0)) / members.sum(0)[:, None]
        return float(centres.sum())

    return 120, run


def bodies(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    rng = np.random.default_rng(3)
    places, speeds = (tensor(rng.standard_normal((50, 3)).astype(np.float32)) for _ in range(2))

    def run() -> float:
        x, v = places, speeds
        for _ in range(20):
            apart = x[None, :, :] - x[:, None, :]
            distance = (apart * apart).sum(-1) + 0.01
            v = v + (apart / (distance * lib.sqrt(distance))[:, :, None]).sum(1) * 0.001
            x = x + v * 0.001
        return float((v * v).sum())

    return 280, run


def training(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    """A multilayer perceptron with AdamW, one step; Morpho and PyTorch alone."""
    rng = np.random.default_rng(4)
    x, y = (tensor(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(2))
    model = lib.nn.Sequential(lib.nn.Linear(64, 64), lib.nn.GELU(), lib.nn.Linear(64, 64))
    optimiser = lib.optim.AdamW(model.parameters(), lr=1e-3)

    def run() -> float:
        optimiser.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimiser.step()
        return float(loss.item())

    return 72, run


PROGRAMS: dict[str, Callable[[Any, Callable[[Any], Any]], Program]] = {
    "one operation and a look": lambda lib, tensor: chain(lib, tensor, 2),
    **{f"chain of {count}": lambda lib, tensor, count=count: chain(lib, tensor, count)  # type: ignore[misc]
       for count in (10, 100, 1000, 10_000)},
    "64 x 64: product, tanh, sum": layers, "20 scalars with if": branches, "Kalman filter, 40 turns": kalman,
    "k-means, 10 turns": k_means, "50 bodies, 20 turns": bodies, "training step with AdamW": training}
WITHOUT_NUMPY = ("training step with AdamW",)
