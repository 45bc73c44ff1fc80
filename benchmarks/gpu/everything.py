"""What only emulators and fakes have run, on a GPU: a line of PASS or FAIL for each part, and the figures behind it.

`python -m benchmarks.gpu.everything [device] [words of names]`. Without a GPU: `cuda_emulated:0`, where parts that need
the driver or PyTorch say so.
"""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho import nn
from morpho.backends.auto.backend import AutoExecutable
from morpho.backends.auto.choice import Choice
from morpho.backends.registry import backend_of
from morpho.base.errors import IndexFault, MemoryLimit, MorphoError
from morpho.runtime.memory.device_memory import part as part_of
from morpho.runtime.plans import on_device

PARTS: list[Callable[[str], str]] = []
RNG = np.random.default_rng(0)


class Absent(Exception):
    """A part that this machine has not got."""


def part(function: Callable[[str], str]) -> Callable[[str], str]:
    """Among those that are run: it returns what it saw, or fails."""
    PARTS.append(function)
    return function


def numbers(*shape: int) -> np.ndarray:
    """Random float32."""
    return RNG.standard_normal(shape, dtype=np.float32)


def seconds(work: Callable[[], Any], times: int = 5) -> float:
    """The best of several."""
    work()
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def real(device: str) -> Any:
    """The driver's device; an emulated one has not got what is asked for."""
    if device.startswith("cuda_emulated"):
        raise Absent("an emulated device")
    found: Any = backend_of(device)
    return found.gpu


def command(*words: str) -> str:
    """What a command of `morpho` prints."""
    done = subprocess.run([sys.executable, "-m", "morpho", *words], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"morpho {' '.join(words)} ended with {done.returncode}: {done.stderr[-600:]}"
    return done.stdout


class Filled:
    """All of a device's memory but `left` bytes is held for a while."""

    def __init__(self, device: str, left: int) -> None:
        self.device, self.left, self.held = device, left, None

    def __enter__(self) -> None:
        gc.collect()
        free = backend_of(self.device).memory_now()[0]  # type: ignore[attr-defined]
        self.held = mo.zeros((max(free - self.left, 1),), dtype="uint8", device=self.device).realise()

    def __exit__(self, *error: Any) -> None:
        self.held = None
        gc.collect()
        pool = getattr(backend_of(self.device).gpu, "pool", None)  # type: ignore[attr-defined]
        if pool is not None:
            pool.trim()  # other libraries of this process need memory too


# -- commands ---------------------------------------------------------------------------------------------------------
@part
def doctor(device: str) -> str:
    """`morpho doctor` names the GPU, its driver and the libraries."""
    real(device)
    lines = [line.strip() for line in command("doctor").splitlines() if device in line or "libraries" in line]
    assert any(device in line for line in lines), lines
    return " | ".join(lines)


@part
def plan_measure(device: str) -> str:
    """`morpho plan measure` writes a node for the GPU and the link to it, which the planner reads."""
    real(device)
    text = command("plan", "measure", "--name", "here", "--anew")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "c.toml").write_text(text)
        found = mo.plan.Cluster.load(Path(folder) / "c.toml")
    assert [node.name for node in found.nodes] == ["here", "here-cuda0"], text
    return text.replace("\n", " ")


@part
def train_and_run(device: str) -> str:
    """`morpho train --device`, then `morpho run --device`: the text that the CPU writes."""
    real(device)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        text.write_text("the quick brown fox jumps over the lazy dog. " * 400)
        shape = ["--layers", "2", "--width", "64", "--heads", "2", "--vocabulary", "300", "--context", "64"]
        started = time.perf_counter()
        command("train", "--data", str(text), "--out", f"{folder}/m", *shape, "--steps", "60", "--sample-every", "0",
                "--device", device)
        middle = time.perf_counter()
        there = command("run", f"{folder}/m", "the quick", "--tokens", "24", "--temperature", "0", "--device", device)
        here = command("run", f"{folder}/m", "the quick", "--tokens", "24", "--temperature", "0")
    assert there == here, (there, here)
    return f"60 steps {middle - started:.1f} s; {there.strip()[:60]!r}"


# -- CPU or GPU -------------------------------------------------------------------------------------------------------
@part
def auto(device: str) -> str:
    """The choice of `auto` is the faster one, or near it; the table of crossovers."""
    real(device)
    backend: Any = backend_of("auto")
    mo.compile(abs)  # everything that measuring needs is there
    measured = {name: backend.measured(name) for name in ("cpu", device)}
    rows, late = [], []
    cases: list[tuple[str, Callable[[Any], Any], tuple[int, ...]]] = [
        *((f"product {n}", lambda a: a @ a, (n, n)) for n in (64, 128, 256, 384, 512, 1024, 2048)),
        *((f"gelu of {n}", lambda a: mo.gelu(a * 2 + 1), (n,)) for n in (1 << 12, 1 << 16, 1 << 20, 1 << 24)),
        *((f"20 products {n}", chain, (n, n)) for n in (128, 256, 512)),
        *((f"softmax {n}x{n}", lambda a: mo.softmax(a, axis=-1), (n, n)) for n in (256, 1024, 4096)),
    ]
    for said, work, shape in cases:
        given = mo.asarray(numbers(*shape))
        with mo.device("auto"):
            f = mo.compile(lambda a, work=work: work(a))
            result = f(given).realise()
            chosen = "cpu" if "auto: runs on cpu" in f.explain() else device
            graph = f.current.plan.graph
        times = {}
        for where in ("cpu", device):
            inner: Any = backend_of(where)
            run = AutoExecutable(backend, graph, Choice(where, {}, 0, 0, 0.0),
                                 inner.load(inner.compile(inner.lower(graph))))
            buffers = [part_of(given.elements())], [part_of(result.elements())]
            times[where] = seconds(lambda run=run, buffers=buffers: run.enqueue(*buffers, {}))
        best = min(times.values())
        rows.append(f"| {said} | {1e6 * times['cpu']:.0f} us | {1e6 * times[device]:.0f} us | {chosen} |")
        if times[chosen] > 2 * best:
            late.append(f"{said}: {chosen} takes {times[chosen] / best:.1f} times the other")
    print("\n".join(["| float32 | CPU | GPU with transfers | chosen |", "|---|---|---|---|", *rows]), flush=True)
    print({name: str(found) for name, found in measured.items()}, flush=True)
    assert not late, "; ".join(late)
    return f"{len(rows)} cases"


def chain(a: Any) -> Any:
    """Products one after another: much work on what was moved once."""
    for _ in range(20):
        a = (a @ a) * 1e-2
    return a


@part
def fallback(device: str) -> str:
    """A program that finds no memory is the CPU's with `fallback`, and an error without."""
    small = device.startswith("cuda_emulated")
    x = mo.asarray(numbers(*((64, 512) if small else (512, 4096))), device=device)
    f = mo.compile(lambda a: mo.sum(mo.exp(a)[:, None, :64] * mo.abs(a)[:, :, None], axis=(1, 2)))  # 512 MiB between
    want = f(mo.asarray(x.numpy())).numpy()
    g = mo.compile(lambda a: mo.cumulative_sum(a.T, axis=0) @ a)  # 64 MiB of result
    wanted = g(mo.asarray(x.numpy())).numpy()
    mo.cumulative_sum(x.T, axis=0).numpy(), (x @ x.T).numpy()  # kernels are loaded
    with Filled(device, (16 << 20) if not small else (1 << 19)):
        try:
            g(x).numpy()
            raise AssertionError("there was memory left")
        except MemoryLimit as error:
            said = str(error)
        before = on_device.counts["fallbacks"]
        with mo.settings(fallback=True):
            total = mo.compile(lambda a: mo.sum(mo.cumulative_sum(a.T, axis=0) @ a, axis=0))
            got = total(x)
            assert got.device == device and on_device.counts["fallbacks"] == before + 1
            here = mo.sum(mo.cumulative_sum(mo.asarray(x.numpy()).T, axis=0) @ mo.asarray(x.numpy()), axis=0).numpy()
            np.testing.assert_array_equal(got.numpy(), here)
    assert np.array_equal(f(x).numpy(), want) and np.allclose(g(x).numpy(), wanted, rtol=1e-4, atol=1e-3)
    return said[:200]


# -- data on its way --------------------------------------------------------------------------------------------------
@part
def pinned(device: str) -> str:
    """`mo.pin`: how fast 64 MiB go to the GPU and come back."""
    x = RNG.integers(0, 255, 64 << (20 if not device.startswith("cuda_emulated") else 10), dtype=np.uint8)
    fast = mo.pin(x, device=device)
    backend: Any = backend_of(device)

    def there(array: np.ndarray) -> Any:
        made = mo.asarray(array, device=device).realise()
        backend.synchronize()
        return made

    rates = [x.nbytes / seconds(lambda array=array: there(array)) / (1 << 30) for array in (x, fast)]
    held = there(fast)
    assert np.array_equal(held.numpy(), x)
    back = x.nbytes / seconds(held.numpy) / (1 << 30)
    return f"pageable {rates[0]:.1f}, pinned {rates[1]:.1f}, back {back:.1f} GiB/s"


@part
def streamed(device: str) -> str:
    """`mo.nn.stream`: layers that do not fit what is left of the GPU's memory, overlapped."""
    side, count = (4096, 12) if not device.startswith("cuda_emulated") else (64, 3)
    layers = [nn.Linear(side, side, bias=False) for _ in range(count)]
    x = mo.asarray(numbers(64, side))
    want = x
    for layer in layers:
        want = layer(want)
    run = nn.stream(layers, device=device)
    run(x).numpy()  # kernels are loaded: code and stacks take device memory too
    left = 5 * 4 * side * side + (32 << 20)
    with Filled(device, left):
        got = run(x)
        assert np.array_equal(got.numpy(), want.numpy()), float(mo.max(mo.abs(mo.asarray(got.numpy()) - want)))
        taken = seconds(lambda: run(x).numpy(), 2)
    return f"{count} layers of {4 * side * side >> 20} MiB with {left >> 20} MiB left: {1e3 * taken:.1f} ms"


@part
def loader(device: str) -> str:
    """Batches that are copied ahead."""
    from morpho.data import DataLoader

    rows = numbers(64, 1000)
    total = sum(float(mo.sum(x)) for x, _ in DataLoader([(row, n) for n, row in enumerate(rows)], batch_size=8,
                                                        device=device))
    assert abs(total - rows.sum()) < 1e-2 * abs(rows).sum(), total
    return f"sum {total:.3f}"


@part
def checkpoints(device: str) -> str:
    """Files and states go straight to a model's device; an optimiser's state follows; so does a generator's."""
    with tempfile.TemporaryDirectory() as folder:
        here = nn.Linear(300, 200)
        mo.weights.save(Path(folder) / "w.safetensors", here.state_dict())
        there = nn.Linear(300, 200).to(device)
        there.load_state_dict(mo.weights.load(Path(folder) / "w.safetensors"))
        assert there.weight.device == device, there.weight.device
        assert np.array_equal(there.weight.numpy(), here.weight.numpy())
        straight = mo.weights.load(Path(folder) / "w.safetensors", device=device)["weight"]
        assert straight.device == device and np.array_equal(straight.numpy(), here.weight.numpy())
        losses = []
        for model in (here, there):
            optimiser = mo.optim.AdamW(model.parameters(), lr=1e-2)
            x = mo.ones((4, 300), device=model.weight.device)
            for _ in range(3):
                loss = mo.mean(model(x) ** 2)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            losses.append(float(mo.mean(model(x) ** 2)))
            saved = optimiser.state_dict()
            optimiser.load_state_dict(saved)
            optimiser.step()
        assert abs(losses[0] - losses[1]) <= 1e-5 * abs(losses[0]), losses
        draws = []
        for where in ("cpu", device):
            with mo.device(where):
                draws.append(mo.random.normal(mo.random.key(7), (1000,)).numpy())
        assert np.array_equal(*draws)
    return f"losses {losses}"


# -- others -----------------------------------------------------------------------------------------------------------
@part
def clock(device: str) -> str:
    """Runs in a profile carry the GPU's own times, and its trace has a row of the device."""
    f = mo.compile(lambda a: mo.softmax(a @ a, axis=-1))
    x = mo.asarray(numbers(1024, 1024), device=device)
    f(x).numpy()
    with mo.profile() as p:
        for _ in range(3):
            f(x).numpy()
        mo.sum(x * 2).numpy()
    spans = [span for span in p.trace.spans if span.detail.get("on_device")]
    assert len(spans) >= 4 and all(span.detail["clock"] == "device" and span.seconds > 0 for span in spans), spans
    with tempfile.TemporaryDirectory() as folder:
        p.save(Path(folder) / "trace.json")
        text = (Path(folder) / "trace.json").read_text()
    assert device in text
    return f"{len(spans)} runs, {[round(1e6 * span.seconds, 1) for span in spans]} us"


@part
def nccl(device: str) -> str:
    """A group of one rank over NCCL itself."""
    real(device)
    group = mo.cluster.init("nccl")
    x = numbers(1 << 20)
    total = x.copy()
    group.all_reduce(total)
    gathered = np.empty((1, *x.shape), x.dtype)
    group.all_gather(x, gathered)
    group.broadcast(total)
    group.barrier()
    assert np.array_equal(total, x) and np.array_equal(gathered[0], x)
    taken = seconds(lambda: group.all_reduce(total))
    group.close()
    return f"size {group.size}, 4 MiB summed in {1e3 * taken:.2f} ms"


class Lent:
    """PyTorch takes no memory that is said to be read-only, as a tensor's is: it promises not to write."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        found = dict(self.tensor.__cuda_array_interface__)
        return {**found, "data": (found["data"][0], False)}


@part
def exchanged(device: str) -> str:
    """DLPack and the array interface with PyTorch, both ways, on streams of its own."""
    real(device)
    try:
        import torch
    except ImportError as error:
        raise Absent("no PyTorch") from error
    for turn in range(20):
        stream = torch.cuda.Stream() if turn % 2 else torch.cuda.current_stream()
        with torch.cuda.stream(stream):
            theirs = torch.randn(1 << 20, device="cuda") * 3
            ours = mo.from_dlpack(theirs)
            assert ours.elements().address == theirs.data_ptr()
            back = torch.from_dlpack(ours * 2 + 1)
            by_interface = torch.as_tensor(Lent(ours + 1), device="cuda")
            assert bool((back == theirs * 2 + 1).all()), f"turn {turn}: DLPack"
            assert bool((by_interface == theirs + 1).all()), f"turn {turn}: the array interface"
            again = mo.asarray(theirs)  # whatever protocol it takes
            assert np.array_equal(again.numpy(), theirs.cpu().numpy()), f"turn {turn}: asarray"
    return "20 turns, half of them on streams of their own"


@part
def nvml(device: str) -> str:
    """The monitor's samples have the GPU."""
    real(device)
    sampler = mo.monitor.sample(every_s=30.0)
    found = sampler.tick()["gpus"]
    sampler.stop()
    assert found and found[0]["total_bytes"] > 1 << 30, found
    return str(found)


@part
def errors(device: str) -> str:
    """A wrong index is told at its line; a NaN where it is asked for."""
    x = mo.asarray(numbers(100, 8), device=device)
    try:
        mo.take(x, mo.asarray(np.array([500]), device=device), axis=0).numpy()
        raise AssertionError("a wrong index was not found")
    except IndexFault as error:
        said = str(error)
    try:
        with mo.settings(nans="results"):
            mo.log(mo.asarray(numbers(1000), device=device)).numpy()
        raise AssertionError("a NaN was not found")
    except MorphoError as error:
        said += " | " + str(error)
    return said[:300]


@part
def asked_for(device: str) -> str:
    """The device manager, and tensors of two devices in one operation."""
    states = mo.device_states()
    assert any(state.device == device and 0 < state.free_bytes <= state.total_bytes for state in states)
    kind = device.partition(":")[0]
    assert mo.choose_device(1 << 20, kind).startswith(kind)
    try:
        (mo.ones(3, device=device) + mo.asarray(np.ones(3, "f"))).numpy()
        raise AssertionError("two devices were mixed")
    except MorphoError as error:
        return str(error)[:200]


@part
def explained(device: str) -> str:
    """The share of the operations on the GPU, in `explain()`."""
    f = mo.compile(lambda a: mo.linalg.svdvals(a @ a))
    f(mo.asarray(numbers(64, 64), device=device)).numpy()
    line = next(line.strip() for line in f.explain().splitlines() if "of the operations on the GPU" in line)
    return line


def main(device: str = "cuda:0", only: str = "") -> int:
    """Run them; how many failed."""
    if device.startswith("cuda_emulated"):
        from morpho.backends.cuda.emulator.install import install

        install()
    logging.getLogger("morpho").setLevel(logging.ERROR)
    from benchmarks.gpu import everything_inference, everything_kernels, everything_sparse  # noqa: F401  each adds parts

    failed = 0
    for work in PARTS:
        if only and not any(word in work.__name__ for word in only.split(",")):
            continue
        started = time.perf_counter()
        try:
            said, state = work(device), "PASS"
        except Absent as error:
            said, state = str(error), "NONE"
        except Exception as error:
            failed += 1
            said, state = f"{type(error).__name__}: {error}", "FAIL"
            traceback.print_exc()
        print(f"{state} {work.__name__} ({time.perf_counter() - started:.1f} s): {said}", flush=True)
        gc.collect()
    print(f"{failed} failed", flush=True)
    return failed


if __name__ == "__main__":
    from benchmarks.gpu import everything  # one list of parts, whatever name this file runs under

    sys.exit(bool(everything.main(*sys.argv[1:])))
