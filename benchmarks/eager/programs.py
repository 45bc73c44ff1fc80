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


def text_by_lstm(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    """A training step of an LSTM written out, on 8 texts of 12 letters; Morpho and PyTorch alone."""
    nn, width, letters = lib.nn, 32, 40
    text = np.random.default_rng(6).integers(0, letters, (8, 13))

    class Text(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.letters, self.head = nn.Embedding(letters, width), nn.Linear(width, letters)
            self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(width, 4 * width)

        def forward(self, ids: Any) -> Any:
            x = self.letters(ids)
            h = c = lib.zeros((ids.shape[0], width))
            outputs = []
            for place in range(ids.shape[1]):
                gates = self.inner(x[:, place]) + self.outer(h)
                i, f, g, o = (gates[:, width * k:width * (k + 1)] for k in range(4))
                c = lib.sigmoid(f) * c + lib.sigmoid(i) * lib.tanh(g)
                h = lib.sigmoid(o) * lib.tanh(c)
                outputs.append(self.head(h))
            return lib.stack(outputs, 1)

    model, words, following = Text(), tensor(text[:, :-1]), tensor(text[:, 1:])
    optimiser = lib.optim.Adam(model.parameters(), lr=1e-3)

    def run() -> float:
        optimiser.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(words).reshape(-1, letters), following.reshape(-1))
        loss.backward()
        optimiser.step()
        return float(loss.item())

    return 700, run


def auto_encoder(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    """A training step of a variational auto-encoder; Morpho and PyTorch alone."""
    rng = np.random.default_rng(7)
    x = tensor((rng.random((32, 64)) > 0.5).astype(np.float32))
    noise = [tensor(rng.standard_normal((32, 8)).astype(np.float32)) for _ in range(4)]
    nn = lib.nn
    first, mean, spread = nn.Linear(64, 32), nn.Linear(32, 8), nn.Linear(32, 8)
    back, last = nn.Linear(8, 32), nn.Linear(32, 64)
    weights = [one for layer in (first, mean, spread, back, last) for one in layer.parameters()]
    optimiser = lib.optim.Adam(weights, lr=1e-3)

    def run() -> float:
        total = 0.0
        for eps in noise:
            hidden = lib.relu(first(x))
            mu, log_variance = mean(hidden), spread(hidden)
            code = mu + lib.exp(0.5 * log_variance) * eps
            logits = last(lib.relu(back(code)))
            error = nn.functional.binary_cross_entropy_with_logits(logits, x, reduction="sum")
            loss = error - 0.5 * (1 + log_variance - mu * mu - lib.exp(log_variance)).sum()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.item())
        return total / len(noise)

    return 400, run


def digits(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    """Five batches of a convolutional network, the last one shorter; Morpho and PyTorch alone."""
    rng = np.random.default_rng(8)
    images, labels = rng.standard_normal((144, 1, 8, 8)).astype(np.float32), rng.integers(0, 10, 144)
    nn = lib.nn
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1),
                          nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10))
    optimiser = lib.optim.SGD(model.parameters(), lr=0.01)

    def run() -> float:
        total = 0.0
        for start in range(0, 144, 32):
            x, y = tensor(images[start:start + 32]), tensor(labels[start:start + 32])
            loss = nn.functional.cross_entropy(model(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            total += float(loss.item())
        return total / 5

    return 250, run


def prices(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    """Monte-Carlo: the price of an Asian option over 1,000 paths of 24 months."""
    draws = [tensor(one.astype(np.float32)) for one in np.random.default_rng(9).standard_normal((24, 1000))]

    def run() -> float:
        price = draws[0] * 0.0 + 100.0
        mean = price * 0.0
        for draw in draws:
            price = price * lib.exp(0.001 + 0.04 * draw)
            mean = mean + price / 24.0
        above = mean - 100.0
        return float(lib.where(above > 0.0, above, above * 0.0).sum()) / 1000

    return 150, run


def cells(lib: Any, tensor: Callable[[Any], Any]) -> Program:
    """A notebook session: 200 cells that differ, each with a value that is printed."""
    rng = np.random.default_rng(10)
    x = tensor(rng.standard_normal((30, 4)).astype(np.float32))
    functions = (lib.exp, lib.sqrt, lib.tanh, lib.abs, lib.sin, lib.square)
    plans = [[int(one) for one in rng.integers(0, 9, int(rng.integers(1, 5)))] for _ in range(200)]

    def run() -> float:
        total = 0.0
        for number, plan in enumerate(plans):
            y = x[: 10 + number % 20]
            for one in plan:
                if one < 6:
                    y = functions[one](lib.abs(y))
                else:
                    y = (y - y.mean(0), y * (0.1 * number), y[:, :3] if y.shape[1] > 3 else y + 1.0)[one - 6]
            total += float(y.mean())
        return total

    return 1000, run


PROGRAMS: dict[str, Callable[[Any, Callable[[Any], Any]], Program]] = {
    "one operation and a look": lambda lib, tensor: chain(lib, tensor, 2),
    **{f"chain of {count}": lambda lib, tensor, count=count: chain(lib, tensor, count)  # type: ignore[misc]
       for count in (10, 100, 1000, 10_000)},
    "64 x 64: product, tanh, sum": layers, "20 scalars with if": branches, "Kalman filter, 40 turns": kalman,
    "k-means, 10 turns": k_means, "50 bodies, 20 turns": bodies, "training step with AdamW": training,
    "step of a small GPT": gpt_step, "8 words of a small GPT": gpt_text, "LSTM over text, a step": text_by_lstm,
    "variational auto-encoder, 4 steps": auto_encoder, "CNN on digits, 5 batches": digits,
    "Monte-Carlo, 24 months": prices, "session of 200 cells": cells}
WITHOUT_NUMPY = ("training step with AdamW", "step of a small GPT", "8 words of a small GPT", "LSTM over text, a step",
                 "variational auto-encoder, 4 steps", "CNN on digits, 5 batches")
