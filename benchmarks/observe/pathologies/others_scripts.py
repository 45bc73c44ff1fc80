"""Five scripts of other fields, shortened. Their verdicts were written down before the first run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.observe.pathologies import Program, pathology


@pathology("a table converted for every mini-batch", "transfers")
def converted_again() -> Program:
    """The change: converted once, before the loop."""
    table, weights = np.random.default_rng(0).random((200_000, 32)), mo.ones(32)
    score = mo.compile(lambda rows, weights: mo.sigmoid(rows @ weights).mean())

    def bad() -> None:
        for start in range(0, 20_000, 2_000):
            score(mo.asarray(table, dtype=mo.float32)[start:start + 2_000], weights).item()

    def good() -> None:
        narrow = mo.asarray(table, dtype=mo.float32)
        for start in range(0, 20_000, 2_000):
            score(narrow[start:start + 2_000], weights).item()

    return Program(bad, good)


def _laplacian(u: Any) -> Any:
    return mo.roll(u, 1, axis=0) + mo.roll(u, -1, axis=0) + mo.roll(u, 1, axis=1) + mo.roll(u, -1, axis=1) - 4.0 * u


@pathology("a time step in four compiled functions", "memory")
def four_functions() -> Program:
    """The change: one function for the step."""
    parts: tuple[Callable[..., Any], ...] = (
        _laplacian, lambda curvature, speed: curvature * speed,
        lambda u, before, force: 2.0 * u - before + force, lambda u, edge: u * edge)

    def step(parts: tuple[Callable[..., Any], ...], u: Any, before: Any, speed: Any, edge: Any) -> Any:
        curved, forced, advanced, damped = parts
        return damped(advanced(u, before, forced(curved(u), speed)), edge)

    compiled, whole = tuple(map(mo.compile, parts)), mo.compile(lambda *arrays: step(parts, *arrays))
    speed, edge, start = (mo.full((2400, 3000), value).realise() for value in (0.1, 0.99, 1.0))

    def run(once: Callable[..., Any]) -> None:
        u = before = start
        for _ in range(8):
            u, before = once(u, before, speed, edge), u

    return Program(lambda: run(lambda *arrays: step(compiled, *arrays)), lambda: run(whole))


@pathology("a Fourier transform of every length", "host")
def every_length() -> Program:
    """The change: padded to a length that is known."""
    sound = np.random.default_rng(0).standard_normal(80_000, dtype=np.float32)

    def loudest(call: Any) -> Any:
        return mo.argmax(mo.abs(mo.fft.fft(call - call.mean())) ** 2)

    dynamic, fixed = mo.compile(loudest, dynamic={"call": {0: mo.Dim("n", 1, 100_000)}}), mo.compile(loudest)

    def bad() -> None:
        for size in range(60_000, 60_020):
            dynamic(sound[:size]).item()

    def good() -> None:
        for size in range(60_000, 60_020):
            fixed(np.pad(sound[:size], (0, 65_536 - size))).item()

    return Program(bad, good)


@pathology("a posterior of one run more each time", "recompiles", cold=True)
def one_run_more() -> Program:
    """The change: the number of runs as a `mo.Dim`."""
    def search(runs: int, **options: Any) -> None:
        def posterior(tried: Any, results: Any, candidates: Any) -> Any:
            near = mo.exp(-mo.abs(tried[:, None] - candidates[None, :]))
            return (near * results[:, None]).sum(axis=0) / near.sum(axis=0)

        function = mo.compile(posterior, **options)
        candidates = np.linspace(0.0, 1.0, 200)
        for count in range(3, 3 + runs):
            function(candidates[:count] * 0.7, candidates[:count], candidates).numpy()

    n = mo.Dim("n", 1, 64)
    return Program(lambda: search(12), lambda: search(12, dynamic={"tried": {0: n}, "results": {0: n}}))


@pathology("a resonator for every band of a recording", "imbalance")
def every_band() -> Program:
    """The change: the bands as rows of one batch."""
    samples = mo.asarray(np.random.default_rng(0).standard_normal(400_000, dtype=np.float32))
    bands = np.random.default_rng(1).uniform(0.1, 0.4, (8, 2)).astype(np.float32)

    def energy(samples: Any, band: Any) -> Any:
        def turn(state: Any, x: Any) -> Any:
            y = band[0] * x + state
            return band[1] * y, y

        return (mo.scan(turn, mo.asarray(0.0), samples)[1] ** 2).mean()

    single, beside = mo.compile(energy), mo.compile(mo.vmap(energy, in_axes=(None, 0)))
    return Program(lambda: [single(samples, band).item() for band in bands], lambda: beside(samples, bands).numpy())
