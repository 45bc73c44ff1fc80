"""Random programs that nobody compiled, equal to the same programs without recording and at other levels."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.tensor import recording

UNARY = ("tanh", "exp", "abs", "negative", "sin", "square", "sign", "floor")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "where", "greater")


def program(seed: int, turns: int, sizes: tuple[int, int]) -> list[bytes]:
    """A random program: branches on values, aliases, deletions, assignments to parts, errors half-way, gradients. All
    that it looked at, as bytes."""
    rng = np.random.default_rng(seed)
    rows, columns = sizes
    values = np.random.default_rng(seed + 1)
    pool: list[Any] = [mo.asarray(values.standard_normal((rows, columns), np.float32)) for _ in range(3)]
    weight = mo.nn.Parameter(values.standard_normal((rows, columns), np.float32))
    seen: list[bytes] = []

    def look(x: Any) -> None:
        array = x.numpy()
        seen.append(str(array.dtype).encode() + str(array.shape).encode() + array.tobytes())

    def whole(x: Any) -> Any:
        """A result of other sizes as one of those in the pool."""
        return mo.tanh(x) + mo.zeros((rows, columns))

    for _ in range(turns):
        kind = int(rng.integers(16))
        x, y = (pool[int(rng.integers(len(pool)))] for _ in range(2))
        if kind < 3:
            pool.append(mo.tanh(getattr(mo, UNARY[int(rng.integers(len(UNARY)))])(x)))
        elif kind < 6:
            name = BINARY[int(rng.integers(len(BINARY)))]
            made = mo.where(x > 0.0, y, x) if name == "where" else getattr(mo, name)(x, y).astype(mo.float32)
            pool.append(mo.tanh(made))
        elif kind == 6:
            number = [0.5, -0.0, 3, 1e-3, float(rng.standard_normal())][int(rng.integers(5))]
            pool.append(x * number if rng.integers(2) else number - x)
        elif kind == 7:
            axis = int(rng.integers(2))
            pool.append(whole([mo.sum, mo.max, mo.mean][int(rng.integers(3))](x, axis=axis, keepdims=True)))
        elif kind == 8:
            number = float(x[0, int(rng.integers(columns))])
            seen.append(str(number).encode())
            pool.append(y + 1.0 if number > 0 else y - x)
        elif kind == 9:
            pool.append(x)  # another name
            x += 0.25
            pool.append(x)
        elif kind == 10 and len(pool) > 3:
            del pool[int(rng.integers(len(pool)))]
        elif kind == 11:
            other = x * 1.0
            view, copy = other[0], other + 0.0
            other[int(rng.integers(rows)), :] = 0.5
            other[:, int(rng.integers(columns))] = y[:, 0]
            pool += [other, copy]
            look(view)
        elif kind == 12:
            try:
                pool.append(x + mo.ones((rows + 1, columns + 2)))
            except ValueError:
                seen.append(b"refused")
        elif kind == 13:
            weight.grad = None
            loss = ((x * weight - y) ** 2).mean()
            if rng.integers(2):
                look(loss)
            loss.backward()
            look(weight.grad)
            with mo.no_grad():
                weight.assign(weight - 0.1 * weight.grad)
        elif kind == 14:
            pool.append(whole((x @ y.T).reshape(rows * rows)[:rows].reshape(rows, 1)))
        else:
            key, own = mo.random.split(mo.random.key(int(rng.integers(3))))
            pool.append(x + mo.random.normal(own, (rows, columns)))
        if rng.integers(6) == 0:
            look(pool[-1])
        if len(pool) > 8:
            pool = pool[-6:]
    for x in pool:
        look(x)
    look(weight)
    return seen


@pytest.mark.parametrize("number", range(2))
def test_random_programs_have_the_bits_of_any_other_way(number: int, seed: int) -> None:
    recording.flush()
    for inner in range(2):
        own = (seed + 1000 * number + inner) % 2**31
        results = {}
        for sizes in ((3, 4), (5, 4), (6, 4)):  # the last one by a program for symbols, where there is one
            results[sizes] = program(own, 25, sizes)
            assert program(own, 25, sizes) == results[sizes], (own, sizes)
        with mo.settings(record=False):
            for sizes, seen in results.items():
                assert program(own, 25, sizes) == seen, (own, sizes)
        with mo.settings(level=0):
            assert program(own, 25, (6, 4)) == results[6, 4], own


def test_threads_with_programs_of_their_own(seed: int) -> None:
    own = [seed + number for number in range(3)]
    wanted = [program(one, 20, (4, 4)) for one in own]
    results: dict[int, Any] = {}
    workers = [threading.Thread(target=lambda n=n: results.update({n: program(own[n], 20, (4, 4))})) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [results[n] for n in range(3)] == wanted
