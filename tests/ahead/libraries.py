"""Callers of exported libraries: through ctypes, from C, in node."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SECONDS = 120


def needs(*programs: str) -> None:
    """Skip where a program is missing."""
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def aligned(nbytes: int) -> np.ndarray:
    """Bytes at a multiple of 64."""
    room = np.zeros(nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start:start + nbytes]


def weights_of(path: Path) -> np.ndarray:
    data = np.fromfile(path, np.uint8)
    found = aligned(data.nbytes)
    found[:] = data
    return found


class Caller:
    """One exported function in this process. `call` fills the record that the header describes."""

    def __init__(self, written: Any, name: str = "") -> None:
        self.name = name or next(iter(written.functions))
        self.figures = written.functions[self.name]
        self.library = ctypes.CDLL(str(written.shared))
        self.weights = weights_of(written.weights) if written.weights else None
        self.workspace = aligned(self.figures["workspace_bytes"])

    def record(self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], threads: int = 0) -> np.ndarray:
        words: list[int] = []
        for field in self.figures["fields"]:
            words += [arrays[field["name"]].ctypes.data, arrays[field["name"]].nbytes]
        if self.weights is not None:
            words += [self.weights.ctypes.data, self.weights.nbytes]
        words += [self.workspace.ctypes.data, self.workspace.nbytes]
        words += [sizes[name] for name in self.figures["symbols"]]
        words.append(threads)
        assert len(words) == self.figures["words"]
        return np.array(words, np.int64)

    def run(self, record: np.ndarray) -> int:
        return int(getattr(self.library, self.name)(ctypes.c_void_p(record.ctypes.data)))

    def call(self, arrays: Mapping[str, np.ndarray], threads: int = 0, **sizes: int) -> int:
        return self.run(self.record(arrays, sizes, threads))


def compiled(sources: Sequence[Path], program: Path, include: Path, compiler: str = "cc", extra: Sequence[str] = ()
             ) -> None:
    """Build a C program, warnings as errors."""
    words = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-o", str(program), *map(str, sources),
             f"-I{include}", *extra]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr


NODE = """
const fs = require("fs");
const [folder, name, job] = process.argv.slice(2);
const figures = JSON.parse(fs.readFileSync(`${folder}/${name}.json`)).functions[name];
const wasm = new WebAssembly.Instance(new WebAssembly.Module(fs.readFileSync(`${folder}/${name}.wasm`)), {}).exports;
let heap = wasm.__heap_base.value;
function take(bytes) {
    const at = Math.ceil(heap / 64) * 64;
    heap = at + bytes;
    const more = heap - wasm.memory.buffer.byteLength;
    if (more > 0) wasm.memory.grow(Math.ceil(more / 65536));
    return at;
}
const words = [], places = [];
for (const field of figures.fields) {
    const at = take(field.bytes);
    if (field.role !== "output")
        new Uint8Array(wasm.memory.buffer, at, field.bytes).set(fs.readFileSync(`${job}/${field.name}`));
    words.push(at, field.bytes);
    places.push(at);
}
words.push(take(figures.workspace_bytes), figures.workspace_bytes, 0);
const record = take(8 * words.length);
new BigInt64Array(wasm.memory.buffer, record, words.length).set(words.map(BigInt));
const status = wasm[name](record);
figures.fields.forEach((field, i) => {
    if (field.role !== "input")
        fs.writeFileSync(`${job}/${field.name}`, new Uint8Array(wasm.memory.buffer, places[i], field.bytes));
});
console.log(status);
"""


def in_node(written: Any, arrays: Mapping[str, np.ndarray], folder: Path, flags: Sequence[str] = ()) -> int:
    """Run a module of WebAssembly in node; arrays of results are filled."""
    name = next(iter(written.functions))
    folder.mkdir(exist_ok=True)
    roles = {field["name"]: field["role"] for field in written.functions[name]["fields"]}
    for key, array in arrays.items():
        (folder / key).write_bytes(array.tobytes())
    (folder / "run.cjs").write_text(NODE)
    done = subprocess.run(["node", *flags, str(folder / "run.cjs"), str(written.header.parent), name, str(folder)],
                          capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    for key, array in arrays.items():
        if roles[key] != "input":
            array[...] = np.frombuffer((folder / key).read_bytes(), array.dtype).reshape(array.shape)
    return int(json.loads(done.stdout))
