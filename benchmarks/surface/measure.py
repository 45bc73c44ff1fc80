"""Run cases in this process, one after another, each beside its peers in turn; a line of JSON each.

    python -m benchmarks.surface.measure RESULTS.jsonl --threads 1 [--only NAME] [--within SECONDS]

With one thread a time is the processor's, which other programs on the machine do not lengthen; with more it is the
clock's. The rounds alternate, and both the least and the median of them are stored.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

BLOCK_S, CASE_S, LIMIT_S, ROUNDS = 3e-4, 0.07, 20, 9
TOLERANCES = {"float32": 2e-3, "float64": 1e-7, "bfloat16": 6e-2, "complex64": 2e-3, "complex128": 1e-7}


class TooLong(Exception):
    """A case took longer than `LIMIT_S`."""


def _alarm(*_: Any) -> None:
    raise TooLong


def leaves(value: Any) -> list[Any]:
    if isinstance(value, tuple | list) or (hasattr(value, "_fields") and not hasattr(value, "dtype")):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if value is None else [value]


class Libraries:
    """How each library makes an array, a gradient, and a NumPy array of a result; and waits for it."""

    def __init__(self, names: Sequence[str], threads: int, device: str) -> None:
        import numpy as np

        import morpho as mo

        self.np, self.mo, self.device = np, mo, device
        self.names = names
        self.clock: Callable[[], float] = time.process_time if threads == 1 and device == "cpu" else time.perf_counter
        if "torch" in names:
            import torch

            torch.set_num_threads(threads)
            self.torch = torch

    def to(self, library: str, array: Any, dtype: str) -> Any:
        if library == "morpho":
            x = self.mo.asarray(array, device=self.device)
            return (
                self.mo.realise(x.astype(self.mo.bfloat16)) or x.astype(self.mo.bfloat16)
                if dtype == "bfloat16" and array.dtype == "float32"
                else x
            )
        if library == "torch":
            x = self.torch.from_numpy(array.copy()).to(self.device.replace("cpu:0", "cpu"))
            return x.to(self.torch.bfloat16) if dtype == "bfloat16" and array.dtype == "float32" else x
        return array

    def wait(self, library: str, value: Any) -> None:
        if library == "torch" and self.device != "cpu":
            self.torch.cuda.synchronize()
        elif library == "morpho" and self.device != "cpu":
            self.mo.realise(*[leaf for leaf in leaves(value) if isinstance(leaf, self.mo.Tensor)])
            self.mo.synchronize(self.device)

    def numpy(self, value: Any) -> Any:
        if isinstance(value, self.mo.Tensor):
            return (value.astype(self.mo.float32) if value.dtype is self.mo.bfloat16 else value).numpy()
        if "torch" in self.names and isinstance(value, self.torch.Tensor):
            value = value.detach().cpu().resolve_conj().resolve_neg()
            return (value.float() if value.dtype is self.torch.bfloat16 else value).numpy()
        return self.np.asarray(value)


def calls_of(case: Any, libraries: Libraries) -> dict[str, tuple[Callable[..., Any], list[Any]]]:
    """The call of each library and its arguments."""
    form, mo, arrays = case.form, libraries.mo, case.arrays()
    found: dict[str, tuple[Callable[..., Any], list[Any]]] = {}
    for library in ("morpho", *libraries.names):
        if (call := form.own if library == "morpho" else form.peers.get(library)) is None:
            continue
        if library in ("numpy", "scipy") and (case.dtype == "bfloat16" or case.slope or libraries.device != "cpu"):
            continue
        arguments = [
            libraries.to(library, array, case.dtype if draw.kind == "same" else "")
            for array, draw in zip(arrays, form.draws, strict=True)
        ]
        if case.slope and library == "morpho":
            found[library] = _own_gradient(call, form.slopes, arguments, mo)
        elif case.slope:
            found[library] = _torch_gradient(call, form.slopes, arguments, libraries.torch)
        elif library == "morpho" and not form.options.get("lazy"):
            found[library] = mo.compile(call), arguments
        elif library == "morpho":

            def realised(*given: Any, call: Callable[..., Any] = call) -> Any:
                value = call(*given)
                mo.realise(*leaves(value))
                return value

            found[library] = realised, arguments
        else:
            found[library] = call, arguments
    return found


def _own_gradient(call: Callable[..., Any], slopes: Sequence[int], arguments: list[Any], mo: Any) -> Any:
    def values(*given: Any) -> Any:
        every = list(arguments)
        for place, value in zip(slopes, given, strict=True):
            every[place] = value
        return leaves(call(*every))[0]

    others = [value for place, value in enumerate(arguments) if place not in slopes]

    def gradient(cotangent: Any, moved: Any, fixed: Any) -> Any:
        def inner(*given: Any) -> Any:
            every, rest = [], iter(fixed)
            by_place = dict(zip(slopes, given, strict=True))
            for place in range(len(arguments)):
                every.append(by_place[place] if place in by_place else next(rest))
            return leaves(call(*every))[0]

        value, pull = mo.vjp(inner, *moved)
        return value, *leaves(pull(cotangent))

    moved = [arguments[place] for place in slopes]
    cotangent = mo.asarray(_cotangent(values(*moved).shape), device=moved[0].device).astype(values(*moved).dtype)
    mo.realise(cotangent)
    compiled = mo.compile(gradient)
    return (lambda *_: compiled(cotangent, moved, others)), []


def _cotangent(shape: tuple[int, ...]) -> Any:
    import numpy as np

    return np.asarray(np.random.default_rng(7).uniform(0.5, 1.5, shape), np.float32)


def _torch_gradient(call: Callable[..., Any], slopes: Sequence[int], arguments: list[Any], torch: Any) -> Any:
    every = [value.clone().requires_grad_() if place in slopes else value for place, value in enumerate(arguments)]
    moved = [every[place] for place in slopes]
    value = leaves(call(*every))[0]
    cotangent = torch.from_numpy(_cotangent(tuple(value.shape))).to(value.dtype)

    def gradient(*_: Any) -> Any:
        value = leaves(call(*every))[0]
        return value, *torch.autograd.grad(value, moved, cotangent, allow_unused=True)

    return gradient, []


def differs(case: Any, libraries: Libraries, values: dict[str, Any], library: str) -> str:
    """How the result of a peer differs from Morpho's; empty where it does not, or where results are not unique."""
    np = libraries.np
    own, other = ([libraries.numpy(leaf) for leaf in leaves(values[name])] for name in ("morpho", library))
    if case.form.rough:
        return ""
    for first, second in zip(own, other, strict=False):
        if first.shape != second.shape:
            return f"shape {first.shape}, not {second.shape}"
        if first.dtype.kind in "biu" and second.dtype.kind in "biu":
            if not np.array_equal(first, second):
                return f"{np.mean(first != second):.2%} of elements differ"
            continue
        limit = TOLERANCES.get(case.dtype, 2e-3)
        with np.errstate(all="ignore"):
            scale = np.nanmax(np.abs(np.where(np.isfinite(second), second, 0)), initial=0.0) if second.size else 0.0
            close = np.isclose(
                first, second, rtol=limit, atol=limit * max(float(scale), 1e-6) * 0.1 + 1e-30, equal_nan=True
            )
        if not close.all():
            return f"{np.mean(~close):.2%} of elements differ"
    return ""


def measure(case: Any, libraries: Libraries) -> dict[str, Any]:
    """One line of the results."""
    row: dict[str, Any] = {"key": case.key, "name": case.form.name, "family": case.form.family}
    calls = calls_of(case, libraries)
    values: dict[str, Any] = {}
    blocks: dict[str, int] = {}
    for library, (call, arguments) in list(calls.items()):
        try:
            started = time.perf_counter()
            values[library] = call(*arguments)
            libraries.wait(library, values[library])
            first = time.perf_counter() - started
            if library == "morpho":
                row["first_ms"] = round(first * 1e3, 2)
            started = libraries.clock()
            libraries.wait(library, call(*arguments))
            once = max(libraries.clock() - started, 1e-7)
            if once < 1e-4:
                started = libraries.clock()
                for _ in range(20):
                    call(*arguments)
                once = (libraries.clock() - started) / 20
            blocks[library] = max(1, int(BLOCK_S / max(once, 1e-8)))
        except TooLong:
            raise
        except Exception as error:
            if library == "morpho":
                return {**row, "refused": f"{type(error).__name__}: {str(error)[:160]}"}
            del calls[library]
    for library in list(calls)[1:]:
        if problem := differs(case, libraries, values, library):
            row.setdefault("differs", {})[library] = problem
    values.clear()
    times: dict[str, list[float]] = {library: [] for library in calls}
    ended = time.perf_counter() + CASE_S * len(calls)
    for number in range(ROUNDS):
        for library, (call, arguments) in calls.items():
            count, clock = blocks[library], libraries.clock
            started = clock()
            for _ in range(count):
                value = call(*arguments)
            libraries.wait(library, value)
            times[library].append((clock() - started) / count)
            del value
        if number >= 2 and time.perf_counter() > ended:
            break
    row["us"] = {library: round(min(rounds) * 1e6, 4) for library, rounds in times.items()}
    row["median_us"] = {library: round(statistics.median(rounds) * 1e6, 4) for library, rounds in times.items()}
    if hasattr(call := calls["morpho"][0], "stats"):
        stats = call.stats
        predicted = stats.get("predicted_bytes", {})
        row["temporary_bytes"] = predicted.get("arena", 0) + predicted.get("scratch", 0)
        row["kernels"], row["host_steps"] = stats["kernels"], stats["host_steps"]
    return row


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("results", type=Path)
    for name, default in (
        ("only", ""),
        ("dtypes", ""),
        ("sizes", ""),
        ("against", "torch,numpy,scipy"),
        ("device", "cpu"),
    ):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--within", type=float, default=0.0)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    from benchmarks.surface.cases import cases

    libraries = Libraries(options.against.split(","), options.threads, options.device)
    lines = (
        [json.loads(line) for line in options.results.read_text().splitlines()] if options.results.exists() else []
    )
    done = {line["key"] for line in lines}
    chosen = [case for case in cases() if case.key not in done and selected(case, options)]
    signal.signal(signal.SIGALRM, _alarm)
    ends = time.perf_counter() + options.within if options.within else float("inf")
    with options.results.open("a") as results:
        for number, case in enumerate(chosen):
            if time.perf_counter() > ends:
                print(f"{len(chosen) - number} cases are left for --resume", flush=True)
                return 3
            results.write(json.dumps({"key": case.key, "begun": True}) + "\n")  # what a crash was in
            results.flush()
            signal.alarm(LIMIT_S)
            try:
                row = measure(case, libraries)
            except TooLong:
                row = {
                    "key": case.key,
                    "name": case.form.name,
                    "family": case.form.family,
                    "refused": f"took over {LIMIT_S} s",
                }
            except Exception as error:
                row = {
                    "key": case.key,
                    "name": case.form.name,
                    "family": case.form.family,
                    "refused": f"{type(error).__name__}: {error}"[:200],
                }
            finally:
                signal.alarm(0)
            results.write(json.dumps(row) + "\n")
    return 0


def is_quick(case: Any) -> bool:
    """Whether a look at the surface has the case: float32 and one size, and two dtypes more of 1M elements."""
    if not case.form.quick or case.dtype not in ("float32", "int64", "complex64"):
        return False
    return case.dtype == "float32" or case.form.label in ("1M", "1024x1024, axis 0")


def selected(case: Any, options: Any) -> bool:
    """Whether the options ask for a case."""
    names = [name for name in options.only.split(",") if name]
    dtypes = [name for name in options.dtypes.split(",") if name]
    sizes = [name for name in options.sizes.split(",") if name]
    exact = [name[1:] for name in names if name.startswith("=")]
    return (
        (not options.quick or is_quick(case))
        and (
            not names
            or case.form.name in exact
            or any(name in case.form.name or name == case.form.family for name in names if not name.startswith("="))
        )
        and (not dtypes or case.dtype in dtypes)
        and (not sizes or any(case.form.label.startswith(size) for size in sizes))
    )


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", os.environ.get("MORPHO_THREADS", "1"))
    sys.exit(main(sys.argv[1:]))
