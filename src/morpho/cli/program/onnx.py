"""`morpho run model.onnx`, `morpho explain model.onnx`, `morpho profile model.onnx`; the card of `morpho plan`.

    morpho run model.onnx --input x=x.npy --output y.npz
    morpho explain model.onnx --input x.npy           # what was fused and planned, for these inputs
    morpho profile model.onnx                         # the time of every step; without --input: zeros
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import numpy as np
import typer

from morpho.base.errors import ArgumentError, MorphoError, fail
from morpho.spelling.files import DAMAGE, read_arrays, why
from morpho.weights.atomic import atomic_file

SUFFIX = ".onnx"
SHOWN = 8  # numbers of a result
Inputs = Annotated[list[str] | None, typer.Option("--input", metavar="[NAME=]FILE", help="An input of an ONNX model: a "
                                                  ".npy file, or .npz for several; may be repeated.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="An ONNX file.")]


def is_model(words: Sequence[str] | None) -> bool:
    """Whether the first word of a command is an ONNX file."""
    return bool(words) and str(words[0]).endswith(SUFFIX)  # type: ignore[index]


def run(words: Sequence[str], inputs: Sequence[str], output: Path | None) -> None:
    """Run a model on arrays of files, and show or write what comes out."""
    if len(words) > 1:
        raise fail(ArgumentError, "run", f"{words[1]!r} stands after an ONNX model", "use --input NAME=FILE.npy")
    network = _loaded(words[0])
    results = network.run(_arrays(network, inputs))
    from morpho.onnx import to_numpy

    arrays = {name: to_numpy(value) for name, value in results.items()}
    if output is not None:
        _write(output, arrays)
    for name, array in arrays.items():
        print(f"{name}: {_shown(array)}")


def explain(model: Model, inputs: Inputs = None) -> None:
    """Show what Morpho makes of an ONNX model: kernels, fusion, memory, what runs on the host."""
    network = _loaded(model)
    network.run(_arrays(network, inputs or (), zeros=True))
    print(network.explain())
    counts = {name: count for name, count in network.stats.items() if count}
    print("onnx: " + ", ".join(f"{name} {count}" for name, count in counts.items()))


def profile(model: Path, inputs: Sequence[str] = (), out: Sequence[Path] = (), repeats: int = 5) -> None:
    """Time every step of an ONNX model, beside the machine's limit; without inputs, on zeros. The least time of each
    step counts; files get the trace of some more runs."""
    network = _loaded(model)
    arrays = _arrays(network, inputs, zeros=True)
    network.run(arrays)
    if network.program is None:
        raise fail(ArgumentError, "profile", f"the model is not one compiled function: {network.stats['reason']}")
    network.measure(arrays, repeats=repeats)
    print(network.explain())
    if out:
        import morpho as mo

        with mo.profile(model.name) as recorded:
            for _ in range(repeats):
                network.run(arrays)
        for path in out:
            print(f"written: {recorded.save(path)}")


def card(model: str | Path, inputs: Sequence[str] = (), given: Mapping[str, Any] | None = None) -> Any:
    """The model card of `morpho plan model.onnx`: the model's layers for these inputs, or for zeros. `given` are the
    options that the file and its inputs answer themselves."""
    from morpho.plan import ModelCard

    if said := [name for name, value in (given or {}).items() if value is not None]:
        raise fail(ArgumentError, "plan", f"--{said[0]} is not for an ONNX file, whose sizes come from its inputs",
                   "give --input NAME=FILE.npy for other sizes")
    network = _loaded(model)
    arrays = _arrays(network, inputs, zeros=True)
    try:
        return ModelCard.from_onnx(network, arrays)
    except MorphoError as error:
        if inputs or all(isinstance(size, int) for value in network.inputs if value.type and value.type.shape
                         for size in value.type.shape):
            raise
        raise fail(ArgumentError, "plan", f"with sizes of 1 where {network.name} leaves them open: {error.message}",
                   f"give --input NAME=FILE.npy; the model takes {_signature(network)}") from None


def _loaded(path: str | Path) -> Any:
    import morpho as mo

    return mo.onnx.load(path)


def _arrays(network: Any, inputs: Sequence[str], zeros: bool = False) -> dict[str, Any]:
    """The inputs by name; zeros for those that are not given, where that is wanted."""
    found: dict[str, Any] = {}
    for word in inputs:
        name, mark, file = word.partition("=")
        if not mark:
            name, file = "", word
        array = _read(Path(file))
        if isinstance(array, dict):
            found.update(array)
            continue
        name = name or next((each for each in network.input_names if each not in found), "")
        found[name] = array
    if unknown := [name for name in found if name not in network.input_names]:
        raise fail(ArgumentError, "run", f"there is no input {unknown[0]!r}; the model takes {_signature(network)}"
                   if unknown[0] else f"{len(inputs)} inputs are given; the model takes {_signature(network)}")
    if zeros:
        found = {**network.zeros(), **found}
    if missing := [name for name in network.input_names if name not in found]:
        raise fail(ArgumentError, "run", f"the input {missing[0]!r} is missing; the model takes {_signature(network)}",
                   f"give --input {missing[0]}=FILE.npy")
    return found


def _read(path: Path) -> Any:
    try:
        return read_arrays(path)
    except FileNotFoundError:
        raise fail(ArgumentError, "run", f"there is no file {str(path)!r}") from None
    except DAMAGE as error:
        raise fail(ArgumentError, "run", f"{path.name} is no .npy or .npz file of numbers{why(error)}",
                   "write one with np.save(name, array)") from None


def _signature(network: Any) -> str:
    from morpho.onnx.proto.dtypes import element_type

    parts = []
    for value in network.inputs:
        kind = value.type
        shape = "?" if kind is None or kind.shape is None else ", ".join(
            "?" if size is None or size == -1 else str(size) for size in kind.shape)
        parts.append(f"{value.name} {element_type(kind.element).name if kind and kind.element else '?'}({shape})")
    return "; ".join(parts)


def _write(path: Path, arrays: dict[str, Any]) -> None:
    plain = {name: array for name, array in arrays.items()
             if isinstance(array, np.ndarray) and array.dtype.kind in "biufc"}
    if len(plain) != len(arrays):
        raise fail(ArgumentError, "run", "an output is a text, a sequence, or of a type that NumPy does not have: "
                                         "--output cannot hold it")
    if path.suffix == ".npy" and len(plain) == 1:
        with atomic_file(path) as file:  # by its method alone: NumPy's own writing hides why the system refuses
            np.save(SimpleNamespace(write=file.write), next(iter(plain.values())))
    elif path.suffix == ".npz":
        with atomic_file(path) as file:
            np.savez(file, **plain)  # type: ignore[arg-type]
    else:
        raise fail(ArgumentError, "run", f"--output {path.name} is neither .npz nor, for one output, .npy")


def _shown(array: Any) -> str:
    if not isinstance(array, np.ndarray):
        return str(array)
    flat = array.reshape(-1)
    if flat.size <= SHOWN:
        return f"{array.dtype}{list(array.shape)} {array.tolist()}"
    values = " ".join(f"{number:.5g}" if array.dtype.kind == "f" else str(number) for number in flat[:SHOWN])
    return f"{array.dtype}{list(array.shape)} {values} ..."
