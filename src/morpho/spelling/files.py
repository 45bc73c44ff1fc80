"""`mo.save` and `mo.load`: trees of tensors as safetensors, NumPy's files as NumPy's. There is no pickle."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, fail
from morpho.weights.errors import FileFault

KEY = "morpho.tree"


def save_tree(tree: Any, path: Any, **settings: Any) -> None:
    """Write a tensor, or a tree of dicts, lists, numbers and texts with tensors, in one file."""
    if path is None:
        raise fail(ArgumentError, "save", "there is no path", "write mo.save(tree, path), or mo.save(path, array)")
    if hasattr(path, "write"):
        raise fail(ArgumentError, "save", "an open file is not written to", "give a path")
    tensors: dict[str, mo.Tensor] = {}
    text = json.dumps(_described(tree, "", tensors))
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


def load_any(path: Any) -> Any:
    if hasattr(path, "read"):
        raise fail(ArgumentError, "load", "an open file is not read", "give a path")
    with open(os.fspath(path), "rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        return mo.asarray(np.load(path, allow_pickle=False))
    if start[:4] == b"PK\x03\x04":
        with np.load(path, allow_pickle=False) as parts:
            if not parts.files or any(name.endswith(".pkl") for name in parts.files):
                raise fail(FileFault, "load",
                           f"{os.fspath(path)} is a pickle, which may run any program when it is read",
                           "write it anew with safetensors.torch.save_file")
            return {name: mo.asarray(parts[name]) for name in parts.files}
    if start[:1] == b"\x80":
        raise fail(FileFault, "load", f"{os.fspath(path)} is a pickle, which may run any program when it is read",
                   "write it anew with safetensors.torch.save_file")
    weights = mo.weights.load(path)
    described = getattr(weights, "metadata", {}).get(KEY)
    return dict(weights) if described is None else _rebuilt(json.loads(described), weights)
