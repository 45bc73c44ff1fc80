"""WebAssembly as a second proof that the target is data: kernels lowered for wasm32 with simd128, run by wasmtime.

LLVM writes relocatable objects without exports; `module_of` adds an export for every function, which is all that a
single object without data of others needs to be a module. WebAssembly has no fused multiply-add: LLVM calls `fma` and
`fmaf`, which the host computes exactly.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import wasmtime

from morpho.backends.kernels.generators import generate
from morpho.backends.lowering.lower_graph import build_program
from morpho.base.dims import evaluate
from morpho.base.machine import Isa, foreign_machine
from morpho.base.target import Target
from morpho.cost.dispatch_thresholds import defaults_for
from morpho.ir.graph import Graph
from morpho.passes.pipeline import optimise
from morpho.program.plan_memory import plan_memory
from morpho.program.program import Program, Step

TRIPLE = "wasm32-unknown-unknown"
ISA = Isa("wasm_simd128", "wasm32", 128, "generic", "+simd128", frozenset())
TARGET = Target("wasm", ISA, foreign_machine("wasm32", frozenset()), 1)
PAGE = 1 << 16
STACK_BYTES = 1 << 18


def lowered(graph: Graph, inputs: int) -> Program:
    """The program of a graph for that target."""
    optimised, _ = optimise(graph, 3, "")
    program = build_program(optimised, True, inputs, TARGET, (), defaults_for(TARGET.vector_bits))
    plan_memory(program, reuse=True, apart=False)
    return program


@cache
def _machine(triple: str, cpu: str, features: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features, opt=2, reloc="static",
                                                                 codemodel="default")


def object_code(text: str, triple: str = TRIPLE, cpu: str = "generic", features: str = "+simd128") -> bytes:
    """The object of a module of LLVM text."""
    machine = _machine(triple, cpu, features)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.verify()
    return bytes(machine.emit_object(module))


# -- from an object to a module ----------------------------------------------------------------------------------------
def _number(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned LEB128 number, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _leb(value: int) -> bytes:
    found = bytearray()
    while True:
        byte, value = value & 127, value >> 7
        found.append(byte | (128 if value else 0))
        if not value:
            return bytes(found)


def _sections(data: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 8
    while at < len(data):
        kind = data[at]
        size, at = _number(data, at + 1)
        found.append((kind, data[at:at + size]))
        at += size
    return found


def _functions(linking: bytes) -> dict[str, int]:
    """Names and numbers of the functions that an object defines."""
    at, found = 1, {}  # behind the version
    while at < len(linking):
        kind = linking[at]
        size, at = _number(linking, at + 1)
        end = at + size
        if kind == 8:  # the table of symbols
            count, at = _number(linking, at)
            for _ in range(count):
                what = linking[at]
                flags, at = _number(linking, at + 1)
                there = not flags & 0x10
                if what == 1:  # data
                    length, at = _number(linking, at)
                    at += length
                    for _ in range(3 if there else 0):
                        _, at = _number(linking, at)
                    continue
                index, at = _number(linking, at)
                if what != 3 and (there or flags & 0x40):
                    length, at = _number(linking, at)
                    name, at = linking[at:at + length].decode(), at + length
                    if what == 0 and there:
                        found[name] = index
        at = end
    return found


def module_of(data: bytes) -> bytes:
    """An object with its functions exported."""
    sections = _sections(data)
    named = next(body for kind, body in sections if kind == 0 and body[1:8] == b"linking")
    functions = _functions(named[8:])
    exports = b"".join(_leb(len(name)) + name.encode() + b"\0" + _leb(index) for name, index in functions.items())
    body = _leb(len(functions)) + exports
    out, done = bytearray(data[:8]), False
    for kind, content in sections:
        if kind == 0:
            continue
        if not done and kind in (8, 9, 10, 11, 12):
            out += bytes([7]) + _leb(len(body)) + body
            done = True
        out += bytes([kind]) + _leb(len(content)) + content
    return bytes(out)


# -- running -----------------------------------------------------------------------------------------------------------
def _exact(a: float, b: float, c: float, single: bool) -> float:
    """a * b + c, rounded once."""
    kind = np.float32 if single else np.float64
    with np.errstate(all="ignore"):
        plain = kind(a) * kind(b) + kind(c)
        if not np.isfinite(plain) and not all(map(np.isfinite, (a, b, c))):
            return float(plain)
        total = Fraction(a) * Fraction(b) + Fraction(c)
        if total == 0:
            return float(plain)
        return _rounded(total, 24 if single else 53, -149 if single else -1074)


def _rounded(value: Fraction, bits: int, least: int) -> float:
    """The nearest number of so many bits, ties to even; infinity above the largest."""
    sign, value = (-1.0, -value) if value < 0 else (1.0, value)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= value < Fraction(2) ** exponent
    unit = max(exponent - bits + 1, least)
    scaled = value / Fraction(2) ** unit
    whole = round(scaled)  # Python rounds halves to even
    top = 128 if bits == 24 else 1024
    if Fraction(whole) * Fraction(2) ** unit >= Fraction(2) ** top:
        return sign * float("inf")
    return sign * float(Fraction(whole) * Fraction(2) ** unit)


class Instance:
    """One kernel in a memory of its own."""

    def __init__(self, code: bytes, nbytes: int) -> None:
        engine = wasmtime.Engine()
        self.store = wasmtime.Store(engine)
        pages = -(-(nbytes + STACK_BYTES) // PAGE) + 2
        self.memory = wasmtime.Memory(self.store, wasmtime.MemoryType(wasmtime.Limits(pages, None)))
        module = wasmtime.Module(engine, module_of(code))
        given = [self._import(wanted) for wanted in module.imports]
        self.exports = wasmtime.Instance(self.store, module, given).exports(self.store)

    def _import(self, wanted: Any) -> Any:
        store, kind = self.store, wanted.type
        if wanted.name == "__linear_memory":
            return self.memory
        if wanted.name == "__stack_pointer":
            return wasmtime.Global(store, kind, wasmtime.Val.i32(STACK_BYTES))
        if wanted.name == "__indirect_function_table":
            return wasmtime.Table(store, kind, None)
        functions = {"fma": lambda a, b, c: _exact(a, b, c, False), "fmaf": lambda a, b, c: _exact(a, b, c, True)}
        assert wanted.name in functions, f"kernels call {wanted.name}"
        return wasmtime.Func(store, kind, functions[wanted.name])

    def write(self, at: int, data: bytes) -> None:
        self.memory.write(self.store, data, at)

    def read(self, at: int, nbytes: int) -> bytes:
        return bytes(self.memory.read(self.store, at, at + nbytes))


def run(program: Program, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
    """The results of a program of loop kernels, on contiguous arrays."""
    at = STACK_BYTES + PAGE  # behind the stack and the constants of the modules
    places: dict[int, int] = {}
    for number, slot in enumerate(program.slots):
        places[number] = at
        at += -(-(evaluate(slot.elements, sizes) * slot.dtype.itemsize + 128) // 64) * 64
    tables, scratch = at, at + (1 << 14)
    memory = {places[i]: arrays[slot.index].tobytes() for i, slot in enumerate(program.slots) if slot.kind == "input"
              and slot.index < len(arrays)}
    for step in program.steps:
        assert isinstance(step, Step) and step.epilogue is None, f"{step.label} is no loop"
        code = object_code(generate(step.kernel, ISA, "kernel"))
        instance = Instance(code, scratch + step.scratch_bytes(1, lambda size: evaluate(size, sizes)) + PAGE)
        for address, data in memory.items():
            instance.write(address, data)
        pointers = [0 if p is None else places[p.slot] + evaluate(p.offset, sizes) * p.dtype.itemsize
                    for p in step.views]
        instance.write(tables, struct.pack(f"<{len(pointers)}I", *pointers))
        numbers = [evaluate(size, sizes) for size in step.values]
        instance.write(tables + 4096, struct.pack(f"<{len(numbers)}q", *numbers))
        rows, columns = evaluate(step.rows, sizes), evaluate(step.columns, sizes)
        status = instance.exports["kernel"](instance.store, tables, tables + 4096, 0, rows, 0, columns, scratch)
        assert status == 0, f"{step.label} returned {status}"
        for place in step.written:
            slot = program.slots[place.slot]
            nbytes = evaluate(slot.elements, sizes) * slot.dtype.itemsize
            memory[places[place.slot]] = instance.read(places[place.slot], nbytes)
    found = []
    for place in program.outputs:
        shape = tuple(evaluate(size, sizes) for size in place.shape)
        count = int(np.prod(shape, dtype=np.int64))
        data = memory.get(places[place.slot], b"")[:count * place.dtype.itemsize]
        found.append(np.frombuffer(data, place.dtype.numpy).reshape(shape))
    return found
