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


def small_gpt(lib: Any, vocabulary: int = 65, width: int = 64, heads: int = 4, length: int = 32) -> Any:
    """A GPT of two layers, written with what both libraries have."""
    nn, functional = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
            self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            rows, words, _ = x.shape
            q, k, v = [part.reshape(rows, words, heads, -1).swapaxes(1, 2)
                       for part in lib.chunk(self.attend(self.before(x)), 3, -1)]
            scores = q @ k.mT / (width / heads) ** 0.5
            hidden = lib.tril(lib.ones((words, words))) == 0
            weights = lib.softmax(lib.where(hidden, float("-inf"), scores), -1)
            x = x + self.project((weights @ v).swapaxes(1, 2).reshape(rows, words, width))
            return x + self.narrow(functional.gelu(self.wide(self.between(x))))

    class GPT(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.first, self.second, self.norm = Block(), Block(), nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, ids: Any) -> Any:
            x = self.words(ids) + self.places(lib.arange(ids.shape[1]))
            return self.head(self.norm(self.second(self.first(x))))

    return GPT()


def gpt_step(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    """A training step on 8 texts of 32 words; Morpho and PyTorch alone."""
    text = np.random.default_rng(5).integers(0, 65, (8, 33))
    model, words, following = small_gpt(lib), tensor(text[:, :-1]), tensor(text[:, 1:])
    optimiser = lib.optim.AdamW(model.parameters(), lr=1e-3)

    def run() -> float:
        loss = lib.nn.functional.cross_entropy(model(words).reshape(-1, 65), following.reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.item())

    return 250, run


def gpt_text(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    """Eight words of text, each from all before it; Morpho and PyTorch alone."""
    model, start = small_gpt(lib), tensor(np.zeros((1, 1), np.int64))

    def run() -> float:
        words = start
        with lib.no_grad():
            for _ in range(8):
                words = lib.concat([words, model(words)[:, -1, :].argmax(-1)[:, None]], -1)
        return float(words[0, -1].item())

    return 500, run


PROGRAMS: dict[str, Callable[[Any, Callable[[Any], Any]], Program]] = {
    "one operation and a look": lambda lib, tensor: chain(lib, tensor, 2),
    **{f"chain of {count}": lambda lib, tensor, count=count: chain(lib, tensor, count)  # type: ignore[misc]
       for count in (10, 100, 1000, 10_000)},
    "64 x 64: product, tanh, sum": layers, "20 scalars with if": branches, "Kalman filter, 40 turns": kalman,
    "k-means, 10 turns": k_means, "50 bodies, 20 turns": bodies, "training step with AdamW": training,
    "step of a small GPT": gpt_step, "8 words of a small GPT": gpt_text}
WITHOUT_NUMPY = ("training step with AdamW", "step of a small GPT", "8 words of a small GPT")
