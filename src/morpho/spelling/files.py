"""`mo.save` and `mo.load`: trees of tensors as safetensors, NumPy's files as NumPy's. There is no pickle."""

from __future__ import annotations

import json
import lzma
import os
import struct
import tokenize
import zipfile
import zlib
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.base.trees import refuse_depth
from morpho.weights.errors import FileFault

KEY = "morpho.tree"
# What NumPy raises for files that are cut short or changed: of zip archives, headers in Python's syntax, sizes.
DAMAGE = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, tokenize.TokenError,
          SyntaxError, MemoryError, OverflowError, LookupError, TypeError, AttributeError, NotImplementedError,
          RecursionError, struct.error, RuntimeError)


def save_tree(tree: Any, path: Any, **settings: Any) -> None:
    """Write a tensor, or a tree of dicts, lists, numbers and texts with tensors, in one file."""
    if path is None:
        raise fail(ArgumentError, "save", "there is no path", "write mo.save(tree, path), or mo.save(path, array)")
    if hasattr(path, "write"):
        raise fail(ArgumentError, "save", "an open file is not written to", "give a path")
    tensors: dict[str, mo.Tensor] = {}
    try:
        text = json.dumps(_described(tree, "", tensors))
    except RecursionError:
        refuse_depth(tree, "save")
        raise
    target = os.fspath(path)
    part = f"{target}.{os.getpid()}.safetensors"  # by this ending one file is written, not a folder
    try:
        mo.weights.save(part, tensors or {"none": mo.zeros(1)}, metadata={KEY: text})
        os.replace(part, target)
    finally:
        if os.path.exists(part):
            os.unlink(part)


def _described(tree: Any, name: str, tensors: dict[str, mo.Tensor]) -> Any:
    if isinstance(tree, mo.Tensor | np.ndarray):
        tensors[name] = mo.asarray(tree.value if hasattr(tree, "value") and isinstance(tree, mo.Tensor) else tree)
        return {"tensor": name}
    if isinstance(tree, dict):
        items = []
        for key, value in tree.items():
            if not isinstance(key, str | int):
                raise fail(ArgumentError, "save", f"key {key!r} is neither a text nor an integer")
            items.append([key, _described(value, f"{name}.{key}" if name else str(key), tensors)])
        return {"dict": items}
    if isinstance(tree, list | tuple):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [_described(value, f"{name}.{i}" if name else str(i), tensors) for i, value in enumerate(tree)]}
    if tree is None or isinstance(tree, bool | int | float | str):
        return {"value": tree}
    raise fail(ArgumentError, "save",
               f"{type(tree).__name__} is neither a tensor, a number, a text nor a tree of these",
               "save module.state_dict(), and make the module anew before load_state_dict")


def _rebuilt(text: Any, tensors: dict[str, Any]) -> Any:
    ((kind, held),) = text.items()
    if kind == "tensor":
        return tensors[held]
    if kind == "dict":
        return {key: _rebuilt(value, tensors) for key, value in held}
    if kind in ("list", "tuple"):
        parts = [_rebuilt(value, tensors) for value in held]
        return parts if kind == "list" else tuple(parts)
    return held


def read_arrays(path: Any) -> Any:
    """The array of an .npy file, or those of an .npz file by name; damaged ones raise one of `DAMAGE`."""
    arrays = np.load(path, allow_pickle=False)
    if not hasattr(arrays, "files"):
        return arrays
    with arrays:
        return {name: arrays[name] for name in arrays.files}


def why(error: BaseException) -> str:
    """The reason in brackets, where there is one. NumPy takes whatever it does not know for a pickle, and advises to
    load it: that is no advice to pass on."""
    reason = next(iter((getattr(error, "message", "") or str(error)).splitlines()), "").rstrip(".")
    reason = reason if len(reason) <= 120 else reason[:117] + "..."  # zipfile quotes what it read, all of it
    return f" ({reason})" if reason and "pickle" not in reason else ""


def load_any(path: Any) -> Any:
    if hasattr(path, "read"):
        raise fail(ArgumentError, "load", "an open file is not read", "give a path")
    with open(os.fspath(path), "rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        try:
            return mo.asarray(read_arrays(path))
        except DAMAGE as error:
            raise fail(FileFault, "load", f"{os.fspath(path)} is no .npy file of numbers{why(error)}") from None
    if start[:4] == b"PK\x03\x04":
        try:
            with zipfile.ZipFile(path) as archive:
                names = archive.namelist()
            if names and not any(name.endswith(".pkl") for name in names):
                return {name: mo.asarray(array) for name, array in read_arrays(path).items()}
        except DAMAGE as error:
            raise fail(FileFault, "load", f"{os.fspath(path)} is no .npz file of numbers{why(error)}") from None
        raise fail(FileFault, "load", f"{os.fspath(path)} is a pickle, which may run any program when it is read",
                   "write it anew with safetensors.torch.save_file")
    if start[:1] == b"\x80":
        raise fail(FileFault, "load", f"{os.fspath(path)} is a pickle, which may run any program when it is read",
                   "write it anew with safetensors.torch.save_file")
    weights = mo.weights.load(path)
    described = getattr(weights, "metadata", {}).get(KEY)
    return dict(weights) if described is None else _rebuilt(json.loads(described), weights)
