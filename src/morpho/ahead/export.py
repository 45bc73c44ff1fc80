"""`mo.export`: a function of tensors as a library with a C header, for programs that have no Python.

The library is the program that `mo.compile` runs, with another entry: the same kernels in the same order, and so the
same bits.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.ahead import objects, wasm
from morpho.ahead.functions import C_NAME, LINE, Lowered, Traced, c_name, largest, lower, name_states, trace
from morpho.ahead.header import Described, header_text, workspace_bytes
from morpho.ahead.targets import ExportTarget, named
from morpho.backends.driver.portable import EntryPlan
from morpho.base.checks import as_whole
from morpho.base.dims import Dim
from morpho.base.distribution import version
from morpho.base.errors import ArgumentError, fail
from morpho.base.units import format_bytes

MOST_INSIDE = 4 << 20  # bytes of weights that lie in the library unless it is told otherwise
MOST_EMBEDDED = 256 << 20
STAMP_WORDS = 8  # words at the start of a weights file that every call looks at
MOST_THREADS = 256


@dataclass(frozen=True)
class Exported:
    """The files that an export wrote, and their figures."""

    target: str
    object: Path | None
    shared: Path | None  # none where no linker fits
    module: Path | None  # of WebAssembly
    header: Path
    weights: Path | None  # none where they lie inside
    states: Path | None  # what states held when the library was written; none where that is zero, or there are none
    manifest: Path
    functions: dict[str, dict[str, Any]]
    seconds: float

    @property
    def files(self) -> list[Path]:
        """All of them."""
        return [path for path in (self.object, self.shared, self.module, self.header, self.weights, self.states,
                                 self.manifest)
                if path is not None]

    def __repr__(self) -> str:
        listed = ", ".join(f"{path.name} {format_bytes(path.stat().st_size)}" for path in self.files if path.exists())
        return f"<exported for {self.target}: {listed}>"


@dataclass(frozen=True)
class Part:
    """One function of a library: its name there, and examples of its arguments."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    dynamic: Mapping[str, Any] | None = None
    inputs: tuple[str, ...] = ()  # names of tensors in the header, where those of the function are not to be taken
    results: tuple[str, ...] = ()


def export(function: Callable[..., Any], *examples: Any, path: Any, target: str = "native",
           name: str | None = None, dynamic: Mapping[str, Any] | None = None, weights: str = "auto", threads: int = 1,
           shared: bool | None = None, **named_examples: Any) -> Exported:
    """Write a function as a library that needs no Python: an object, a shared library where a linker is found, a C
    header, and weights.

    The library computes what `mo.compile(function)` computes, with the same bits. It allocates nothing and calls
    nothing of Morpho's: the caller owns all memory, states (`mo.State`) among it. A call with a wrong size, address or
    bound returns a code, and writes nothing.

    function: a function of tensors, compiled or not, or a module.
    examples: its arguments: tensors or arrays of the shapes and dtypes that the library takes. Numbers and strings are
        constants of the code.
    path: a folder, made if it is not there. Files are there whole or not at all.
    target: "native", "x86_64-avx2", "x86_64-avx512", "x86_64-amx", "x86_64" (AVX2 and AVX-512, chosen at the first
        call), "aarch64-neon", each also with "-macos" or "-windows" behind it, or "wasm32-simd128" (exact),
        "wasm32-relaxed" (the bits of the processor's fused multiply-add) and "wasm32-fast" (other bits).
    name: of the function in C; its own by default.
    dynamic: sizes that a caller chooses within bounds, as `mo.compile` takes them.
    weights: "inside" the library, "beside" it as a safetensors file that is mapped and checked by size and digest, or
        "auto": beside from 4 MB on.
    threads: the most threads that a call may use, which the host's function runs (`morpho_threads` in the header).
    shared: whether to link a shared library; by default where a linker is found.

    >>> import tempfile
    >>> w = mo.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> written = mo.export(lambda x: mo.relu(x @ w), mo.ones((1, 2)), path=tempfile.mkdtemp(), name="dense")
    >>> written.header.name, sorted(written.functions)
    ('dense.h', ['dense'])
    """
    chosen = name if name is not None else c_name(getattr(function, "__name__", type(function).__name__), "f")
    chosen = "f" if chosen == "lambda" else chosen
    part = Part(chosen, function, examples, named_examples, dynamic)
    return export_library([part], chosen, Path(os.fspath(path)), target, weights, threads, shared)


def export_library(parts: Sequence[Part], name: str, path: Path, target: str, weights: str = "auto", threads: int = 1,
                   shared: bool | None = None) -> Exported:
    """Several functions as one library, which share their weights."""
    started = time.perf_counter()
    for each in (name, *(part.name for part in parts)):
        if not C_NAME.match(each) or each.lower().startswith("morpho_"):
            raise fail(ArgumentError, "export", f"{each!r} is no name of a C function",
                       "give name= letters, digits and _, beginning with a letter and not with morpho_")
    if weights not in ("auto", "inside", "beside"):
        raise fail(ArgumentError, "export", f"weights={weights!r} is unknown", "use auto, inside or beside")
    count = as_whole(threads)
    if count is None or not 1 <= count <= MOST_THREADS:
        raise fail(ArgumentError, "export", f"threads={threads!r} is not a whole number from 1 to {MOST_THREADS}")
    where = named(target)
    if where.is_wasm and count > 1:
        raise fail(ArgumentError, "export", "threads are not there in WebAssembly", "leave out threads=")
    if path.exists() and not path.is_dir():
        raise fail(ArgumentError, "export", f"{path} is a file", "give a folder")
    command = objects.linker(where) if shared is not False and not where.is_wasm else None
    if shared and command is None:
        raise fail(ArgumentError, "export", f"no linker for {where.triple} is installed", "leave out shared=True")
    with mo.no_grad():
        traced = [trace(part.function, part.args, part.kwargs, part.name, part.dynamic, part.inputs, part.results)
                  for part in parts]
    states = name_states(traced)
    built = build(traced, name, where, weights, count)
    files = dict(built.files)
    first = _first_states(states)
    if first:
        files[f"{name}.states.safetensors"] = first
    if command is not None:
        made = objects.SHARED_NAMES[where.system].format(name)
        files[made] = objects.link(command, [("object", files[built.object_name])], made)
    described = {"name": name, "states": bool(first), "morpho": version(), "target": where.name, "triple": where.triple,
                 "threads": count, "functions": built.functions}
    files[f"{name}.json"] = (json.dumps(described, indent=1) + "\n").encode()
    write_files(path, files)

    def there(file: str) -> Path | None:
        return path / file if file in files else None

    header, manifest = path / f"{name}.h", path / f"{name}.json"
    return Exported(where.name, None if where.is_wasm else there(built.object_name),
                    there(objects.SHARED_NAMES.get(where.system, "{}").format(name)) if command else None,
                    there(f"{name}.wasm"), header, there(f"{name}.safetensors"),
                    there(f"{name}.states.safetensors"), manifest, built.functions,
                    time.perf_counter() - started)


def _first_states(states: Mapping[str, Any]) -> bytes:
    """Values of states as a safetensors file; nothing where all of them are zero."""
    arrays = {name: np.ascontiguousarray(state._tensor.realise().numpy()) for name, state in states.items()}
    if not any(array.view(np.uint8).any() if array.size else False for array in
               (np.atleast_1d(array) for array in arrays.values())):
        return b""
    entries: dict[str, Any] = {}
    at = 0
    for name, state in states.items():
        tensor = state._tensor
        entries[name] = {"dtype": _SAFE[str(tensor.dtype)], "shape": list(tensor.shape),
                         "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    text = json.dumps(entries, separators=(",", ":")).encode()
    text = text.ljust(-(-(8 + len(text)) // LINE) * LINE - 8)
    return len(text).to_bytes(8, "little") + text + b"".join(array.tobytes() for array in arrays.values())


_SAFE = {"bool": "BOOL", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
         "complex128": "C128", **{f"{kind}int{bits}": f"{kind.upper() or 'I'}{bits}" for kind in ("", "u")
                                  for bits in (8, 16, 32, 64)}}


@dataclass
class Built:
    """A library in memory."""

    files: dict[str, bytes]
    object_name: str
    functions: dict[str, dict[str, Any]]


def build(traced: Sequence[Traced], name: str, target: ExportTarget, weights: str = "auto", threads: int = 1) -> Built:
    """Lower, compile and describe traced functions."""
    several = len(target.isas) > 1
    lowered = [[lower(each, target, isa, threads, f"{each.name}_{isa.name}" if several else each.name)
                for isa in target.isas] for each in traced]
    flat = [one for each in lowered for one in each]
    total = sum({id(c.array): c.array.nbytes for one in flat for c in one.constants}.values())
    beside = weights == "beside" or (weights == "auto" and total > MOST_INSIDE)
    beside = beside and total > 0
    if not beside and total > MOST_EMBEDDED:
        raise fail(ArgumentError, "export", f"{format_bytes(total)} of weights are too many to lie inside",
                   'use weights="beside"')
    store = objects.Weights(beside)
    objects.place_constants(flat, store)
    files: dict[str, bytes] = {}
    data = None
    weights_name = f"{name}.safetensors"
    if beside:
        data, first = _weights_file(store)
        for one in flat:
            for slot, place in one.entry.places.items():
                if place.kind == "weights":
                    one.entry.places[slot] = place._replace(number=first + place.number)
            _beside(one.entry, data)
        files[weights_name] = data.tobytes()
    library = objects.Library(target)
    library.driver(target.isas[0])
    if not beside:
        library.constants(store.arrays)
    for each in lowered:
        for one in each:
            library.function(one)
        if several:
            _make_entries_internal(library, each)
    if data is not None:
        text = objects.check_text(f"{name}_check_weights", data.nbytes, objects.digest(data))
        library.add(text, None, [f"{name}_check_weights"])
        library.public.add(f"{name}_check_weights")
    code = library.finish()
    object_name = objects.OBJECT_NAMES.get(target.system, "{}.o").format(name)
    if target.is_wasm:
        files[f"{name}.wasm"] = wasm.module_of(code, sorted(library.public))
    else:
        files[object_name] = code
    described = Described(name, target, lowered, 0 if data is None else data.nbytes, weights_name, threads, version())
    files[f"{name}.h"] = header_text(described).encode()
    return Built(files, object_name, {each[0].traced.name: _figures(each) for each in lowered})


def _make_entries_internal(library: objects.Library, each: Sequence[Lowered]) -> None:
    """One name for callers, behind which the code of one instruction set is chosen."""
    name = each[0].traced.name
    symbols = [(one.isa, one.entry.name) for one in each]
    library.add(objects.dispatcher_text(name, symbols), None, [name])
    library.public.add(name)
    library.public.difference_update(symbol for _, symbol in symbols)


def _beside(entry: EntryPlan, data: np.ndarray) -> None:
    entry.weights_bytes = data.nbytes
    entry.weights_stamp = data[:8 * STAMP_WORDS].view(np.int64).tolist()


def _weights_file(store: objects.Weights) -> tuple[np.ndarray, int]:
    """A safetensors file of the constants, and the byte where data begin. Its first words hold a digest of the data,
    so that each call tells it from others."""
    body = np.zeros(store.nbytes, np.uint8)
    entries: dict[str, Any] = {}
    at = 0
    for number, array in enumerate(store.arrays):
        body[at:at + array.nbytes] = array
        room = -(-array.nbytes // LINE) * LINE
        entries[f"constant{number}"] = {"dtype": "U8", "shape": [room], "data_offsets": [at, at + room]}
        at += room
    head: dict[str, Any] = {"__metadata__": {"morpho_export": f"{objects.digest(body):016x}"}, **entries}
    text = json.dumps(head, separators=(",", ":")).encode()
    size = -(-(8 + len(text)) // LINE) * LINE - 8
    start = size.to_bytes(8, "little") + text.ljust(size)
    return np.concatenate([np.frombuffer(start, np.uint8), body]), len(start)


def _figures(each: Sequence[Lowered]) -> dict[str, Any]:
    """Sizes and the words of the record in order, for hosts that read no header."""
    traced, entry = each[0].traced, each[0].entry
    fields = [{"name": field.name, "role": field.role, "dtype": str(field.dtype), "bytes": largest(field),
               "shape": [size if isinstance(size, int) else str(size) for size in field.shape],
               "terms": _terms(field.bytes)} for field in traced.fields]
    return {"fields": fields, "weights_bytes": entry.weights_bytes, "workspace_bytes": workspace_bytes(each),
            "symbols": {name: list(traced.symbols[name]) for name in each[0].tables.symbols}, "words": entry.words,
            "kernels": len(each[0].tables.kernels), "steps": len(each[0].program.steps)}


def _terms(size: Any) -> list[list[Any]]:
    """A size as its terms: coefficient and symbols."""
    if not isinstance(size, Dim):
        return [[int(size)]]
    return [[coefficient, *[symbol[0] for symbol in monomial]] for monomial, coefficient in size.terms]


def write_files(path: Path, files: Mapping[str, bytes]) -> None:
    """Files into a folder: all are written under other names, then moved into place."""
    from morpho.weights.atomic import atomic_file, storing

    with storing(path):
        path.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".morpho-export-", dir=path) as folder:
        for file, data in files.items():
            inside = Path(folder) / file
            inside.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(inside) as opened:
                opened.write(data)
        with storing(path):
            for file in files:
                (path / file).parent.mkdir(parents=True, exist_ok=True)
                os.replace(Path(folder) / file, path / file)
