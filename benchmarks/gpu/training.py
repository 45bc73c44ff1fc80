"""Training steps beside PyTorch's: GPT-2 124M, 8x1024, autocast to bfloat16, and where the step's time goes.

`python -m benchmarks.gpu.training [device] [rows] [length] [layers] [parts]`. Parts: attention, step, kernels,
torch, compiled.
"""

from __future__ import annotations

import collections
import sys
import time
import traceback
from typing import Any

import numpy as np

import morpho as mo
from benchmarks.gpu.first import GPT2
from morpho import nn, optim
from morpho.backends.registry import backend_of


def compiled_step(device: str, layers: int, low: str = "bfloat16") -> Any:
    """A step of AdamW over GPT-2's sizes, and the model."""
    model = mo.models.create("gpt2", **{**GPT2, "n_layer": layers}).to(device)
    optimiser = optim.AdamW(model.parameters(), lr=1e-4)

    def step(tokens: Any, targets: Any) -> Any:
        with mo.amp.autocast(low):
            loss = nn.cross_entropy(model(tokens), targets, dim=-1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    return mo.compile(step), model


def data(device: str, rows: int, length: int) -> tuple[Any, Any]:
    """Tokens and what follows them."""
    tokens = np.random.default_rng(0).integers(0, GPT2["vocab_size"], (rows, length + 1))
    return mo.asarray(tokens[:, :-1].copy(), device=device), mo.asarray(tokens[:, 1:].copy(), device=device)


def ours(device: str, rows: int, length: int, layers: int, kernels: bool) -> None:
    """Print the first step's time, a step's, its launches and memory."""
    backend: Any = backend_of(device)
    taken, single = collections.Counter[str](), collections.defaultdict[str, list[float]](list)
    for name in ("build", "load"):  # from text to PTX; from PTX to the driver's code
        setattr(backend.gpu, name, watched(getattr(backend.gpu, name), name, taken, single))
    run, _ = compiled_step(device, layers)
    given = data(device, rows, length)
    started = time.perf_counter()
    losses = [float(run(*given))]
    first = time.perf_counter() - started
    print("of the first step:", {name: f"{seconds:.2f} s" for name, seconds in taken.items()}, "the longest:",
          {name: [f"{seconds:.2f}" for seconds in sorted(each)[-6:]] for name, each in single.items()}, flush=True)
    losses += [float(run(*given)) for _ in range(2)]
    before, times = backend.gpu.launches, []
    for _ in range(5):
        started = time.perf_counter()
        run(*given)
        backend.synchronize()
        times.append(time.perf_counter() - started)
    print(f"morpho: first step {first:.2f} s, a step {1e3 * min(times):.2f} to {1e3 * max(times):.2f} ms, "
          f"{(backend.gpu.launches - before) / 5:.0f} launches, {backend.host_steps} steps on the host, "
          f"losses {losses}, memory {getattr(getattr(backend.gpu, 'pool', None), 'peak_bytes', 0) / 1e9:.2f} GB",
          flush=True)
    if kernels:
        by_kernel(device, run)


def watched(function: Any, name: str, taken: collections.Counter[str], single: dict[str, list[float]]) -> Any:
    """A function whose seconds are added up."""
    def call(*given: Any) -> Any:
        started = time.perf_counter()
        try:
            return function(*given)
        finally:
            single[name].append(time.perf_counter() - started)
            taken[name] += single[name][-1]  # type: ignore[assignment]

    return call


def attention(device: str) -> None:
    """Attention forward and backward beside PyTorch's."""
    import torch

    from benchmarks.gpu.timing import morpho_seconds, torch_seconds
    from morpho.ir.node import build
    from morpho.runtime.memory.device_memory import upload

    for shape, causal in (((8, 12, 2048, 64), False), ((4, 32, 4096, 128), False), ((8, 12, 1024, 64), True)):
        theirs = [torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=n < 3) for n in range(4)]
        buffers = [upload(x.detach().view(torch.int16).cpu().numpy().view(np.uint16), mo.bfloat16, device)
                   for x in theirs]
        given = [mo.Tensor.of_node(build("parameter", index=n, shape=shape, dtype=mo.bfloat16)) for n in range(4)]

        def loss(q: Any, k: Any, v: Any, ct: Any = given[3], causal: bool = causal) -> Any:
            return mo.sum(mo.attention(q, k, v, causal=causal) * ct)

        def both(causal: bool = causal, theirs: Any = theirs) -> Any:
            q, k, v, ct = theirs
            result = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
            return torch.autograd.grad(result, (q, k, v), ct)

        gradients = mo.grad(loss, argnums=(0, 1, 2))(*given[:3])
        ours, others = morpho_seconds(device, gradients, buffers), torch_seconds(both)
        flops = 14.0 * shape[0] * shape[1] * shape[2] ** 2 * shape[3] / (2 if causal else 1)
        print(f"attention forward + backward {shape} causal={causal}: morpho {1e6 * ours:.0f} us "
              f"{flops / ours / 1e12:.0f} TFLOP/s, PyTorch {1e6 * others:.0f} us {flops / others / 1e12:.0f} TFLOP/s",
              flush=True)


def by_kernel(device: str, run: Any, times: int = 3, most: int = 70) -> None:
    """Print the time of each kind of launch of a compiled function, each repeated by itself."""
    from benchmarks.gpu.steps import gpu_words
    from benchmarks.gpu.timing import Clock
    from morpho.backends.cuda.driver.interface import Geometry
    from morpho.runtime.plans import on_device

    gpu: Any = backend_of(device).gpu  # type: ignore[attr-defined]
    plan = run.current.plan
    executable: Any = on_device.executable(plan.graph, plan.device)
    table, clock, found = run.current.served.executable.call.table, Clock(device), collections.defaultdict(list)
    for place, (number, _) in enumerate(executable._prepare({}).launches):
        step = executable.program.steps[number]
        function, blocks, threads, shared, words = table.entry(place)[:5]
        given = gpu_words(words), Geometry(blocks, threads, shared)
        handle = type(gpu.context)(function)
        taken = clock.seconds(lambda handle=handle, given=given: gpu.launch(handle, given[1], given[0], 0), times)
        kind = type(executable.kernels[number][0]).__name__
        found[f"{kind} {step.label} {step.choice} {[v.shape for v in step.views if v is not None][-1]}"].append(taken)
    total = sum(sum(taken) for taken in found.values())
    print(f"{total * 1e3:.2f} ms in {sum(map(len, found.values()))} launches")
    for name, taken in sorted(found.items(), key=lambda item: -sum(item[1]))[:most]:
        print(f"{1e6 * sum(taken):9.1f} us  {len(taken):3} x {1e6 * sum(taken) / len(taken):8.1f}  {name[:150]}",
              flush=True)


def theirs(rows: int, length: int, layers: int, compiled: bool) -> None:
    """PyTorch's, by transformers' GPT-2."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=layers, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(0, 50257, (rows, length), device="cuda")

    def step() -> Any:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens, labels=tokens).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    run = torch.compile(step) if compiled else step
    started = time.perf_counter()
    float(run())
    first = time.perf_counter() - started
    for _ in range(2):
        float(run())
    times = []
    for _ in range(7):
        torch.cuda.synchronize()
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    print(f"PyTorch {'compiled' if compiled else 'eager'}: first step {first:.2f} s, a step {1e3 * min(times):.2f} to "
          f"{1e3 * max(times):.2f} ms, memory {torch.cuda.max_memory_allocated() / 1e9:.2f} GB", flush=True)


def main(device: str = "cuda:0", rows: str = "8", length: str = "1024", layers: str = "12",
         parts: str = "step,kernels,torch") -> None:
    """Print all parts."""
    if device.startswith("cuda_emulated"):
        from morpho.backends.cuda.emulator.install import install

        install()
    sizes, wanted = (int(rows), int(length), int(layers)), parts.split(",")
    for part, work in (("attention", lambda: attention(device)),
                       ("step", lambda: ours(device, *sizes, "kernels" in wanted)),
                       ("torch", lambda: theirs(*sizes, False)), ("compiled", lambda: theirs(*sizes, True))):
        if part in wanted:
            try:
                work()
            except Exception:
                traceback.print_exc()


if __name__ == "__main__":
    main(*sys.argv[1:6])
