"""`morpho export`: a model or a function as files that need no Python.

    morpho export shipped --target web -o site/                 # a page that talks; morpho serve --static site/
    morpho export model.onnx -o library/ --target aarch64-neon
    morpho export script.py:f -o library/ --shape x=float32:n<=64,4
    morpho export smollm2 -o library/                           # prefill and decode, for C
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from morpho.base.errors import ArgumentError, fail
from morpho.base.units import format_bytes

WEB = "web"
SHIPPED = "shipped"
_SIZE = re.compile(r"(\w+)<=(\d+)\Z")
EPILOG = "Targets: web (a page), native, x86_64, x86_64-avx2, x86_64-avx512, aarch64-neon, wasm32-simd128, ..."


def export(
    model: Annotated[str, typer.Argument(metavar="MODEL|FILE.py:NAME|MODEL.onnx",
                                         help="A language model (a folder, or a name from `morpho models`; `shipped` "
                                              "is the one that comes with Morpho), a function of a Python file, or an "
                                              "ONNX file.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where files go.")],
    target: Annotated[str, typer.Option(metavar="T", help="What runs it; docs/export.md has the table.")] = "native",
    name: Annotated[str | None, typer.Option(help="Of the library and its function in C.")] = None,
    inputs: Annotated[list[str] | None, typer.Option("--input", metavar="[NAME=]FILE", help="An example of an input: a "
                                                     ".npy file.")] = None,
    shape: Annotated[list[str] | None, typer.Option(metavar="NAME=DTYPE:SIZES", help="An input by its dtype and sizes, "
                                                    "such as x=float32:2,4; n<=64 is a size that callers choose.")
                     ] = None,
    weights: Annotated[str, typer.Option(help="inside, beside, or auto.")] = "auto",
    threads: Annotated[int, typer.Option(min=1, help="Most threads of a call, which the host runs.")] = 1,
    context: Annotated[int | None, typer.Option(min=1, help="Most tokens of a text, for a language model.")] = None,
) -> None:
    """Write a model or a function as files that need no Python."""
    place, colon, function = model.rpartition(":")
    if colon and place.endswith(".py"):
        written = _of_file(place, function, output, target, name, inputs or (), shape or (), weights, threads)
    elif model.endswith(".onnx"):
        written = _of_onnx(model, output, target, name, inputs or (), weights, threads)
    elif model.endswith(".py"):
        raise fail(ArgumentError, "export", f"{model} has many names", f"say which one: {model}:f")
    else:
        if inputs or shape:
            raise fail(ArgumentError, "export", "--input and --shape are for functions and ONNX files",
                       "leave them out: a language model takes tokens")
        folder = _folder(model)
        if target == WEB:
            from morpho.ahead.site import export_site

            made = export_site(folder, output, context)
            for file, size in made["files"].items():
                print(f"{output / file}  {format_bytes(size)}")
            print(f"{made['seconds']:.1f} s; open it with: morpho serve --static {output}")
            return
        from morpho.ahead.site import export_model

        written = export_model(folder, output, target, name or "model", context, weights, threads)
    for path in written.files:
        print(f"{path}  {format_bytes(path.stat().st_size)}")
    print(f"{written.seconds:.1f} s for {written.target}")


def _folder(model: str) -> Path:
    import morpho as mo
    from morpho.cli.text.run import find

    return Path(mo.models.SHIPPED if model == SHIPPED and not Path(model).exists() else find(model, "export"))


def _no_page(target: str) -> None:
    if target == WEB:
        raise fail(ArgumentError, "export", "a page is written for language models",
                   "use --target wasm32-relaxed, and see docs/tutorials/ship_page.md for a page around a function")


def _of_file(file: str, function: str, output: Path, target: str, name: str | None, inputs: Sequence[str],
             shapes: Sequence[str], weights: str, threads: int) -> Any:
    import runpy

    import morpho as mo
    from morpho.cli.program import script

    _no_page(target)
    script.check(file, "export")
    found = runpy.run_path(file, run_name="__export__").get(function)
    if not callable(found):
        raise fail(ArgumentError, "export", f"{file} has no function {function!r}")
    examples: dict[str, Any] = {}
    dynamic: dict[str, dict[int, Any]] = {}
    for word in shapes:
        _described(word, examples, dynamic)
    for word in inputs:
        key, mark, path = word.partition("=")
        if not mark:
            raise fail(ArgumentError, "export", f"--input {word} names no argument", "write --input x=FILE.npy")
        examples[key] = _array(path)
    return mo.export(found, path=output, target=target, name=name or function, dynamic=dynamic or None, weights=weights,
                     threads=threads, **examples)


def _array(path: str) -> Any:
    from morpho.spelling.files import DAMAGE, read_arrays, why

    try:
        return read_arrays(Path(path))
    except FileNotFoundError:
        raise fail(ArgumentError, "export", f"there is no file {path!r}") from None
    except DAMAGE as error:
        raise fail(ArgumentError, "export", f"{path} is no .npy file of numbers{why(error)}",
                   "write one with np.save(name, array)") from None


def _described(word: str, examples: dict[str, Any], dynamic: dict[str, dict[int, Any]]) -> None:
    """`x=float32:n<=64,4` as an example and its dynamic axes."""
    import morpho as mo

    key, mark, rest = word.partition("=")
    kind, colon, text = rest.partition(":")
    dtype = getattr(mo, kind, None)
    try:
        if not mark or not key.isidentifier() or not isinstance(dtype, mo.float32.__class__):
            raise ValueError
        sizes = []
        for axis, size in enumerate(part.strip() for part in text.split(",") if part.strip()):
            if match := _SIZE.match(size):
                dynamic.setdefault(key, {})[axis] = mo.Dim(match[1], 1, int(match[2]))
                sizes.append(min(2, int(match[2])))
            else:
                sizes.append(int(size))
        examples[key] = mo.zeros(tuple(sizes), dtype=dtype) if min(sizes, default=0) >= 0 else None
    except ValueError:
        examples[key] = None
    if examples.get(key) is None:
        raise fail(ArgumentError, "export", f"--shape {word} is no input", "write NAME=DTYPE:SIZES, such as "
                                                                           "x=float32:n<=64,4")


def _of_onnx(file: str, output: Path, target: str, name: str | None, inputs: Sequence[str], weights: str,
             threads: int) -> Any:
    import morpho as mo
    from morpho.ahead.export import Part, export_library
    from morpho.ahead.functions import c_name
    from morpho.cli.program.onnx import _arrays

    _no_page(target)
    network = mo.onnx.load(file)
    given = {key: np.asarray(value) for key, value in _arrays(network, inputs, zeros=True).items()}
    function, arguments = network.function(given)
    chosen = name or c_name(Path(file).stem, "model")
    static = set(network.input_names) if len(arguments) != len(network.input_names) else set()
    names = [] if static else [c_name(each, "x") for each in network.input_names]
    results = [c_name(each, "out") for each in network.output_names]
    part = Part(chosen, function, tuple(arguments), {}, None, tuple(names), tuple(results))
    return export_library([part], chosen, output, target, weights, threads)
