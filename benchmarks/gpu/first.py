"""A first look at a GPU: what it is, transfers, errors, and that the seam works. `python -m benchmarks.gpu.first`."""

from __future__ import annotations

import itertools
import sys
import time
import traceback
from typing import Any

import numpy as np

import morpho as mo
from morpho.backends.registry import backend_of


def main(device: str = "cuda:0") -> None:
    """Say what is there and try everything small."""
    started = time.perf_counter()
    backend: Any = backend_of(device)
    print("devices", mo.devices(), backend.gpu.properties, f"{time.perf_counter() - started:.2f} s", flush=True)
    x = np.random.default_rng(0).standard_normal((1000, 768)).astype("f")
    for _ in range(2):
        started = time.perf_counter()
        a = mo.asarray(x, device=device)
        y = mo.gelu(a * 2 + 1)
        same = np.array_equal(y.numpy(), mo.gelu(mo.asarray(x) * 2 + 1).numpy())
        print(f"gelu has the CPU's bits: {same}, {1e3 * (time.perf_counter() - started):.1f} ms", flush=True)
    try:
        mo.take(a, mo.asarray(np.array([5000]), device=device), axis=0).numpy()
        print("a wrong index was not found")
    except Exception as error:
        print("a wrong index:", type(error).__name__, error, flush=True)
    try:
        mo.zeros((1 << 40,), device=device).realise()
        print("a terabyte was found")
    except Exception as error:
        print("too much memory:", type(error).__name__, error, flush=True)
    big = np.random.default_rng(0).integers(0, 255, 64 << 20, dtype=np.uint8)
    for _ in range(3):
        started = time.perf_counter()
        held = mo.asarray(big, device=device)
        backend.synchronize()
        middle = time.perf_counter()
        back = held.numpy()
        ended = time.perf_counter()
    print(f"64 MiB: in {64 / 1024 / (middle - started):.1f} GiB/s, out {64 / 1024 / (ended - middle):.1f} GiB/s, "
          f"equal {np.array_equal(back, big)}", flush=True)
    four = big[:4_000_000]
    held = mo.asarray(four, device=device)
    backend.synchronize()
    started = time.perf_counter()
    for _ in range(20):
        held = mo.asarray(four, device=device)
    backend.synchronize()
    middle = time.perf_counter()
    for _ in range(20):
        back = held.numpy()
    print(f"4 MB: in {5e4 * (middle - started):.0f} us, out {5e4 * (time.perf_counter() - middle):.0f} us", flush=True)
    small = mo.ones((1024,), device=device)
    small.realise()
    f = mo.compile(lambda t: t * 2 + 1)
    f(small)
    backend.synchronize()
    started = time.perf_counter()
    for _ in range(1000):
        f(small)
    queued = time.perf_counter()
    backend.synchronize()
    print(f"a compiled call of one kernel: {1e3 * (queued - started):.1f} us to queue, "
          f"{1e3 * (time.perf_counter() - started):.1f} us each with the end", flush=True)


def exchange(device: str) -> None:
    """DLPack both ways and the array interface, with PyTorch and CuPy where they are."""
    import torch

    theirs = torch.arange(12, device="cuda", dtype=torch.float32).reshape(3, 4)
    ours = mo.from_dlpack(theirs)
    back = torch.from_dlpack(ours * 2)
    print("DLPack with PyTorch:", ours.device, bool((back == theirs * 2).all()),
          ours.elements().address == theirs.data_ptr(), flush=True)
    for _ in range(50):  # work of both in turn, each after the other's
        x = torch.randn(1 << 20, device="cuda")
        y = torch.from_dlpack(mo.from_dlpack(x) * 2 + 1)
        z = y.sum()
        assert abs(float(z - (x * 2 + 1).sum())) < 1e-2 * (1 << 10), "streams are not handed over"
    import cupy

    print("CuPy:", float(cupy.asarray(mo.asarray(np.arange(5, dtype="f"), device=device)).sum()),
          mo.from_dlpack(cupy.arange(4)).tolist(), flush=True)


def training(device: str) -> None:
    """Steps of a small network, and a language model's forward pass and step."""
    from morpho import nn, optim

    for name, sizes, rows in (("MLP 64-64-64", (64, 64, 64), 32), ("MLP 784-1024-1024-10", (784, 1024, 1024, 10), 256)):
        layers: list[Any] = []
        for before, after in itertools.pairwise(sizes):
            layers += [nn.Linear(before, after), nn.GELU()]
        model = nn.Sequential(*layers[:-1]).to(device)
        optimiser = optim.AdamW(model.parameters(), lr=1e-3)

        def step(x: Any, y: Any, model: Any = model, optimiser: Any = optimiser) -> Any:
            loss = nn.cross_entropy(model(x), y)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return loss

        run = mo.compile(step)
        x = mo.asarray(np.random.default_rng(0).standard_normal((rows, sizes[0])).astype("f"), device=device)
        y = mo.asarray(np.arange(rows) % sizes[-1], device=device)
        started = time.perf_counter()
        losses = [float(run(x, y))]
        first = time.perf_counter() - started
        timed(device, lambda run=run, x=x, y=y: run(x, y), f"step of {name}, first {first:.2f} s,", 100)
        losses.append(float(run(x, y)))
        print("   loss", losses, flush=True)


def language_model(device: str) -> None:
    """GPT-2's sizes with random weights in bfloat16: forward passes."""
    model = mo.models.create("gpt2", **GPT2).astype(mo.bfloat16).to(device)
    for rows, length in ((1, 128), (8, 1024)):
        tokens = mo.asarray(np.random.default_rng(0).integers(0, GPT2["vocab_size"], (rows, length)), device=device)
        run = mo.compile(lambda t: model(t))
        started = time.perf_counter()
        result = run(tokens)
        backend_of(device).synchronize()
        timed(device, lambda run=run, tokens=tokens: run(tokens),
              f"GPT-2 forward {rows}x{length} {result.dtype}, first {time.perf_counter() - started:.2f} s,", 10)


GPT2 = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}


def timed(device: str, work: Any, said: str, times: int) -> None:
    """Print the time of one of so many, queueing and altogether."""
    backend: Any = backend_of(device)
    work()
    backend.synchronize()
    before, started = backend.gpu.launches, time.perf_counter()
    for _ in range(times):
        work()
    queued = time.perf_counter()
    backend.synchronize()
    ended = time.perf_counter()
    print(f"{said} {1e6 * (queued - started) / times:.0f} us to queue, {1e6 * (ended - started) / times:.0f} us each, "
          f"{(backend.gpu.launches - before) / times:.0f} launches, {backend.host_steps} steps on the host",
          flush=True)


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
    if chosen.startswith("cuda_emulated"):
        from morpho.backends.cuda.emulator.install import install

        install()
    for part in (main, exchange, training, language_model):
        try:
            part(chosen)
        except Exception:
            traceback.print_exc()
