"""`morpho plan measure`: this machine as a [[node]] of a cluster file, measured once and kept.

FLOP/s are those of Morpho's own matrix products, all threads at work, in each type a model's weights may have: what a
prompt is limited by. The memory bandwidth is that of a plain sweep: what a token is limited by.
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.backends.auto.measure import node_rates
from morpho.backends.registry import backend_of, devices
from morpho.base import settings
from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.base.machine import machine, other_load
from morpho.cli.planning.measure_layers import best_of, layer_times
from morpho.plan.cluster.files import NAME
from morpho.plan.model.card import ModelCard
from morpho.runtime.measure import machine_profile
from morpho.weights.atomic import write_text
from morpho.weights.errors import StorageError

ROWS, INNER, COLUMNS = 512, 1024, 1024
TYPES = ("f32", "f16", "bf16", "int8", "q4")


def show(name: str = "", anew: bool = False, card: ModelCard | None = None, history: bool = True) -> None:
    """Print the node, with the bandwidth that runs of it had where the ledger has some; what is said beside goes to
    standard error, so that `>> office.toml` takes the node alone."""
    name = name or platform.node() or "this-machine"
    if not NAME.fullmatch(name):
        raise fail(ArgumentError, "plan", f"{name!r} cannot be the name of a node",
                   "use letters, digits, hyphens, dots and underscores")
    load = other_load()
    if load > 0.2:
        print(f"# other programs want {100 * load:.0f} % of the cores now: what is measured beside them is too low, so "
              "measure again when the machine is quiet", file=sys.stderr)
    print(node_block(name, corrected(name, profile(anew)) if history else profile(anew)), end="")
    if card is not None:
        print(measured_line(layers(card, anew)), end="")
    for block in gpu_blocks(name):
        print(block, end="")
    print("# append this to a cluster file, on every machine, and add [network] or [[link]]", file=sys.stderr)


def corrected(name: str, found: dict[str, float]) -> dict[str, float]:
    """A profile with the memory bandwidth of the runs in the prediction ledger, where there are enough of this node."""
    from morpho.cluster.frontend.history import effective, rows

    rate, runs = effective(rows()).get(name, (0.0, 0))
    if not runs:
        return found
    swept = found["memory_bytes_per_s"]
    print(f"# {runs} runs on {name} had a memory bandwidth of {rate / 1e9:.3g} GB/s, and the sweep {swept / 1e9:.3g}: "
          "the runs' is taken (--no-history takes the sweep's)", file=sys.stderr)
    return {**found, "memory_bytes_per_s": rate}


def node_block(name: str, found: dict[str, float]) -> str:
    """A profile as TOML.

    >>> print(node_block("a", {"memory_bytes": 64e9, "memory_bytes_per_s": 4e10, "f32": 1.25e12}))
    [[node]]
    name = "a"
    memory = "64.0GB"
    memory_bandwidth = "40.0GB/s"
    flops = { f32 = "1250.0GFLOP/s" }
    <BLANKLINE>
    """
    rates = ", ".join(f'{dtype} = "{found[dtype] / 1e9:.1f}GFLOP/s"' for dtype in TYPES if dtype in found)
    return (f'[[node]]\nname = "{name}"\nmemory = "{found["memory_bytes"] / 1e9:.1f}GB"\n'
            f'memory_bandwidth = "{found["memory_bytes_per_s"] / 1e9:.1f}GB/s"\nflops = {{ {rates} }}\n')


def gpu_blocks(host: str) -> list[str]:
    """Every GPU of this machine as a node, and the link between it and the host."""
    found = []
    for device in devices():
        if device.startswith("cuda:"):
            rates = node_rates(backend_of(device))
            name = f"{host}-{device.replace(':', '')}"
            found.append(node_block(name, rates) + link_block(host, name, rates["link_bytes_per_s"], rates["call_s"]))
    return found


def link_block(first: str, second: str, bytes_per_s: float, latency_s: float) -> str:
    """A line between two nodes as TOML.

    >>> print(link_block("a", "a-cuda0", 2.5e10, 1.2e-5), end="")
    [[link]]
    between = ["a", "a-cuda0"]
    bandwidth = "25.0GB/s"
    latency = "12.0us"
    """
    return (f'[[link]]\nbetween = ["{first}", "{second}"]\nbandwidth = "{bytes_per_s / 1e9:.1f}GB/s"\n'
            f'latency = "{latency_s * 1e6:.1f}us"\n')


def measured_line(times: dict[str, tuple[float, float]]) -> str:
    """Times of layers as the field `measured` of a node.

    >>> print(measured_line({"a": (0.012, 0.0008)}), end="")
    measured = { "a" = ["12000us", "800us"] }
    """
    rows = ", ".join(f'"{key}" = ["{prompt * 1e6:.6g}us", "{token * 1e6:.6g}us"]'
                     for key, (prompt, token) in times.items())
    return f"measured = {{ {rows} }}\n" if times else ""


def layers(card: ModelCard, anew: bool = False) -> dict[str, tuple[float, float]]:
    """Times of a model's layers on this machine; those measured before are taken from disk."""
    path, name = settings.get().cache_path / "plan_layers.json", machine_profile().name
    kept = _kept(path)
    row = kept.get(name)
    known = {} if anew or not isinstance(row, dict) else {
        key: (float(pair[0]), float(pair[1])) for key, pair in row.items()
        if isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, float) for part in pair)}
    found = layer_times(card, known)
    _keep(path, {**kept, name: {**known, **found}})
    return found


def _keep(path: Path, data: dict[str, Any]) -> None:
    """Write to the cache, where there is one."""
    if settings.get().cache:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_text(path, json.dumps(data, indent=1))
        except (OSError, StorageError) as error:
            print(f"# not kept: {error}", file=sys.stderr)


def profile(anew: bool = False) -> dict[str, float]:
    """Rates of this machine with the threads in force; from disk where they have been measured before."""
    mo.compile(abs)  # the tensor floor tells the runtime how Python's objects lie in memory when this is loaded
    peak = machine_profile(anew)
    path = settings.get().cache_path / "plan_profile.json"
    kept = _kept(path)
    row = kept.get(peak.name)
    if anew or not _usable(row):
        row = {"memory_bytes": float(machine().memory_bytes), "memory_bytes_per_s": peak.bytes_per_s, **product_rates()}
        _keep(path, {**kept, peak.name: row})
    return dict(row)  # type: ignore[arg-type]


def _kept(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _usable(row: Any) -> bool:
    wanted = {"memory_bytes", "memory_bytes_per_s", "f32"}
    return isinstance(row, dict) and wanted <= row.keys() and all(
        isinstance(value, float) and value > 0 for value in row.values())


def product_rates() -> dict[str, float]:
    """FLOP/s of a matrix product in each type; a type that Morpho does not multiply on this machine is left out."""
    rng = np.random.default_rng(0)
    left = mo.asarray(rng.standard_normal((ROWS, INNER), dtype=np.float32))
    right = mo.asarray(rng.standard_normal((INNER, COLUMNS), dtype=np.float32))
    rates = {}
    for dtype in TYPES:
        try:
            rates[dtype] = 2.0 * ROWS * INNER * COLUMNS / best_of(_product(dtype, left, right))
        except MorphoError as error:
            if dtype == "f32":
                raise
            print(f"# {dtype}: {error}", file=sys.stderr)
    return rates


def _product(dtype: str, left: Any, right: Any) -> Callable[[], Any]:
    """A call that multiplies once, everything prepared."""
    if dtype == "int8":
        a, b = (mo.asarray((side * 20).astype(mo.int8)) for side in (left, right))
        function = mo.compile(lambda x, y: mo.matmul(x, y, dtype=mo.int32))
    elif dtype == "q4":
        weight = mo.quantise(right.T.numpy().copy(), "q4_1")
        quantised = mo.compile(lambda x: x @ weight.T)
        quantised(left)
        return lambda: quantised(left)
    else:
        kind = {"f32": mo.float32, "f16": mo.float16, "bf16": mo.bfloat16}[dtype]
        a, b = (mo.asarray(side.astype(kind)) for side in (left, right))
        function = mo.compile(lambda x, y: x @ y)
    function(a, b)
    return lambda: function(a, b)
