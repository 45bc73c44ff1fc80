"""A digest of the LLVM text of the GPU's kernels for a corpus of programs, and of the functions `@gpu.*` behind them.

    python -m benchmarks.gpu.texts                          # compare with benchmarks/gpu/texts.json
    python -m benchmarks.gpu.texts --save                   # after a change of what kernels are: write it anew
    python -m benchmarks.gpu.texts --folder DIR             # the texts and their PTX, a file each, for diff

No GPU is needed: programs are lowered for one and not run. Two chips: with warpgroups and a copy engine, and without.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import morpho as mo
from morpho.backends.cuda.assembly import ptx
from morpho.backends.cuda.codegen.select import device_kernel
from morpho.backends.cuda.emulator.install import install
from morpho.backends.cuda.lowering import lowered
from morpho.backends.registry import backend_of
from morpho.base.target import Target
from morpho.ir.graph import Graph
from morpho.ir.node import build
from morpho.ops.neural.quantised import LAYOUTS
from morpho.program.program import Step
from morpho.tensor.core import Tensor

KNOWN = Path(__file__).parent / "texts.json"
CHIPS = ("sm_80", "sm_90a")
Case = tuple[str, Callable[..., Any], list[tuple[tuple[int, ...], Any]]]


def _attend(causal: bool) -> Callable[..., Any]:
    return lambda q, k, v: mo.attention(q, k, v, causal=causal)


def _attend_backward(q: Any, k: Any, v: Any, weights: Any) -> Any:
    return mo.grad(lambda *given: mo.sum(mo.attention(*given, causal=True) * weights), argnums=(0, 1, 2))(q, k, v)


def _decode(q: Any, keys: Any, values: Any, key: Any, value: Any, position: Any) -> Any:
    """One query, whose key and value are put into the caches."""
    length = keys.shape[2]
    here = mo.reshape(mo.arange(length), (1, 1, length, 1)) == mo.reshape(position, (-1, 1, 1, 1))
    k, v = mo.where(here, key, keys), mo.where(here, value, values)
    return mo.attention(q, k, v, causal=True, offset=mo.reshape(position, (-1, 1))), k, v


def cases() -> Iterator[Case]:
    """Name, function, and the shapes and dtypes of its arguments."""
    f32, f64, bf16, f16 = mo.float32, mo.float64, mo.bfloat16, mo.float16
    for kind in (f32, f64, bf16):
        wide = [((3, 4097), kind)] * 2
        yield f"map {kind}", lambda x, y: mo.gelu(x * 2 + 1) * mo.exp(y) + mo.sin(x), wide
        yield f"softmax {kind}", mo.softmax, wide[:1]
        yield f"norm {kind}", mo.layer_norm, [((40, 768), kind)]
        yield f"long row {kind}", lambda x: mo.sum(x * x, axis=1), [((2, 1 << 20), kind)]
        yield f"columns {kind}", lambda x: mo.sum(x, axis=0), [((4096, 300), kind)]
        yield f"transpose {kind}", lambda x: x.T + 1, [((300, 200), kind)]
    yield "integers", lambda x, y: (x * y + (x // 7)) % 5, [((1000,), mo.int64)] * 2
    yield "complex", lambda x: mo.abs(x * x), [((1000,), mo.complex64)]
    yield "largest", lambda x: mo.argmax(x, axis=1), [((4, 50257), f32)]
    yield "sums so far", lambda x: mo.cumulative_sum(x, axis=0), [((50, 70), f32)]
    yield "sort", mo.sort, [((3, 1 << 16), f32)]
    yield "order", mo.argsort, [((3, 1 << 16), f32)]
    yield "short sort", mo.sort, [((30, 100), f32)]
    yield "rows at indices", lambda x, i: mo.take(x, i, axis=0), [((500, 64), f32), ((33,), mo.int64)]
    yield "rows added", lambda x, i: mo.grad(lambda x: mo.sum(mo.take(x, i, axis=0) ** 2))(x), [
        ((500, 64), f32), ((33,), mo.int64)]
    for kind in (f32, f64, bf16, f16):
        for m, k, n in ((1, 512, 512), (5, 512, 768), (128, 256, 128), (1000, 768, 512), (130, 257, 80)):
            yield f"product {m} {k} {n} {kind}", lambda a, b: a @ b, [((m, k), kind), ((k, n), kind)]
        yield f"product turned {kind}", lambda a, b: a.T @ b.T, [((256, 512), kind), ((384, 256), kind)]
        yield f"product and more {kind}", lambda a, b, c: mo.gelu(a @ b + c), [
            ((512, 768), kind), ((768, 512), kind), ((512,), kind)]
        yield f"product and the residual {kind}", lambda a, b, c: c + a @ b, [
            ((8192, 768), kind), ((768, 768), kind), ((8192, 768), kind)]
        yield f"convolution {kind}", lambda x, w: mo.relu(mo.conv2d(x, w, padding=1)), [
            ((2, 16, 28, 28), kind), ((32, 16, 3, 3), kind)]
    yield "product in tf32", lambda a, b: a @ b, [((512, 512), f32)] * 2
    for kind in (f32, bf16, f16):
        for depth in (64, 128):
            for causal in (False, True):
                yield f"attention {depth} {causal} {kind}", _attend(causal), [((2, 4, 256, depth), kind)] * 3
            yield f"gradient of attention {depth} {kind}", _attend_backward, [((2, 4, 256, depth), kind)] * 4
        for length in (130, 1030):
            cache, line = ((2, 4, length, 64), kind), ((2, 4, 1, 64), kind)
            yield f"decoding {length} {kind}", _decode, [line, cache, cache, line, line, ((2,), mo.int64)]
    for left in (mo.int8, mo.uint8):
        for m in (3, 64):
            yield f"bytes {left} {m}", lambda a, b: mo.matmul(a, b, dtype=mo.int32), [
                ((m, 128), left), ((128, 96), mo.int8)]
    for layout in ("q8_0", "q4_1", "f8_e4m3"):
        for m, kind in ((1, bf16), (4, bf16), (64, bf16), (4, f32)):
            row_bytes = 768 // 32 * LAYOUTS[layout].block_bytes
            yield f"{layout} {m} {kind}", lambda x, w, layout=layout: x @ mo.Quantised.of_tensor(
                w, (512, 768), layout), [((m, 768), kind), ((512, row_bytes), mo.uint8)]


def kernels(function: Callable[..., Any], arguments: list[tuple[tuple[int, ...], Any]], target: Target) -> list[Any]:
    """The device kernels of a program."""
    given = [Tensor.of_node(build("parameter", index=number, shape=shape, dtype=dtype))
             for number, (shape, dtype) in enumerate(arguments)]
    results = function(*given)
    results = results if isinstance(results, tuple) else (results,)
    program = lowered(Graph(tuple(result.node for result in results)), 3, target)
    return [device_kernel(step) for step in program.steps if isinstance(step, Step)]


def functions() -> set[str]:
    """Names of the functions of a grid that the corpus calls."""
    return set(re.findall(r"@gpu\.(\w+)\(", "".join(text for *_, text in texts())))


def texts() -> Iterator[tuple[str, str, str]]:
    """Chip, program, and the text of each kernel."""
    target: Target = backend_of(install()).target  # type: ignore[attr-defined]
    for chip, features in zip(CHIPS, (frozenset(), target.machine.features), strict=True):
        for name, function, arguments in cases():
            more = features | {"tf32"} if name.endswith("tf32") else features
            one = replace(target, machine=replace(target.machine, features=more))
            for number, kernel in enumerate(kernels(function, arguments, one)):
                yield chip, f"{name}, {number}", kernel.text()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def digests() -> dict[str, str]:
    """By chip and program, and behind these by chip, the functions that kernels call."""
    found, functions = {}, {chip: hashlib.sha256() for chip in CHIPS}
    for chip, name, text in texts():
        found[f"{chip}: {name}"] = digest(text)
        functions[chip].update(ptx.device_text(text, chip).encode())
    return found | {f"{chip}: with functions": one.hexdigest()[:16] for chip, one in functions.items()}


def known() -> dict[str, str]:
    return dict(json.loads(KNOWN.read_text(encoding="utf-8")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    if chosen.folder is not None:
        chosen.folder.mkdir(parents=True, exist_ok=True)
        for chip, name, text in texts():
            stem = f"{chip} {name}".replace(" ", "_").replace(",", "")
            (chosen.folder / f"{stem}.ll").write_text(text, encoding="utf-8")
            (chosen.folder / f"{stem}.ptx").write_text(ptx.assembly(text, chip), encoding="utf-8")
        return 0
    found = digests()
    if chosen.save:
        KNOWN.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    expected = known()
    different = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
    print(f"{len(found)} texts, {len(different)} differ", *different, sep="\n")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
