"""Keys and values of tokens that a model has read, in a file: a text that begins with them goes on from there, with the
bits that it has when all is computed anew.

A file is safetensors with the tokens and the tensors of each layer. Its metadata names the model it is of, by a digest
of configuration and weights, and has a digest of all tensors: a damaged file, and one of another model, is refused by
name. Nothing in it is run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.distribution import version
from morpho.base.errors import ArgumentError, fail
from morpho.models.base import LanguageModel
from morpho.nn.transformer.attention import KeyValueCache
from morpho.tensor.functions.products.rounded import RoundedWeight
from morpho.tensor.state.variable import Variable
from morpho.weights import FileFault, load
from morpho.weights.atomic import atomic_file
from morpho.weights.safetensors import header_of

FORM = "morpho prompt cache 1"
TOKENS = "tokens"
WORD = np.dtype(np.uint64)


def model_digest(model: LanguageModel) -> str:
    """A digest of what a model computes: its configuration, the kinds of its layers, and all of its weights.

    >>> sizes = dict(vocab_size=50, n_embd=8, n_layer=1, n_head=2, n_positions=32)
    >>> first, second = (mo.models.create("gpt2", **sizes) for _ in range(2))
    >>> model_digest(first) == model_digest(first), model_digest(first) == model_digest(second)
    (True, False)
    """
    digest = hashlib.sha256(f"{version()}\n{json.dumps(model.config, sort_keys=True, default=str)}".encode())
    for name, module in model.named_modules():
        weight = module.__dict__.get("weight")
        data = weight.data if isinstance(weight, mo.Quantised) else None
        data = weight.panels if isinstance(weight, RoundedWeight) else data
        digest.update(f"\n{name} {type(module).__name__} {getattr(weight, 'kind', '')} ".encode())
        if data is not None:
            digest.update(_sums(data))
    for name, variable in model._variables(Variable):
        digest.update(f"\n{name} {variable.dtype} {variable.shape} ".encode() + _sums(variable))
    return digest.hexdigest()


def _sums(tensor: Any) -> bytes:
    """Two sums of a tensor's bytes, as words and as words times odd numbers, at the speed of memory: they tell weights
    from others, not from forged ones."""
    raw = _bytes(tensor)
    words = raw[:len(raw) // WORD.itemsize * WORD.itemsize].view(WORD)
    rest = raw[words.nbytes:].tobytes()
    folded, row = 0, 1 << 16
    for number, start in enumerate(range(0, len(words), row)):
        folded += int(np.add.reduce(words[start:start + row])) * (2 * number + 1)
    mixed = np.bitwise_xor.reduce(words, initial=np.uint64(0))
    return (folded % (1 << 64)).to_bytes(8, "little") + int(mixed).to_bytes(8, "little") + rest


def _bytes(tensor: Any) -> np.ndarray:
    value = tensor.value if isinstance(tensor, Variable) else tensor
    array = value.to("cpu").elements().numpy() if value.device != "cpu" else value.elements().numpy()
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def write_cache(path: str | Path, model: str, tensors: Mapping[str, Any],
                notes: Mapping[str, str] | None = None) -> None:
    """Write the tensors of a cache, whole or not at all."""
    named = dict(sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))  # each begins aligned
    metadata = {"form": FORM, "model": model, "digest": _digest(named), **(notes or {})}
    with atomic_file(Path(path)) as file:
        file.write(header_of({name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in named.items()}, metadata))
        for tensor in named.values():
            file.write(_bytes(tensor).data)


def read_cache(path: str | Path, model: str) -> tuple[Any, dict[str, str]]:
    """The tensors and notes of a cache of this model; a file that is damaged, or another's, is an error."""
    path = Path(path)
    if path.is_dir():
        raise fail(FileFault, "prompt_cache", f"{path} is a folder", "name a file")
    found = load(path)
    notes = found.metadata
    if notes.get("form") != FORM:
        raise fail(FileFault, "prompt_cache", f"{path} is not a prompt cache of this version of Morpho",
                   "name another file, or delete this one")
    if notes.get("model") != model:
        raise fail(FileFault, "prompt_cache", f"{path} is of another model, of other weights, or of another version of "
                                              "Morpho", "name another file, or delete this one")
    if notes.get("digest") != _digest({name: found[name] for name in found}):
        raise fail(FileFault, "prompt_cache", f"{path} is damaged: its digest is not that of what it holds",
                   "delete it")
    return found, notes


def _digest(tensors: Mapping[str, Any]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(_bytes(tensor).data)
    return digest.hexdigest()


# -- of one text -------------------------------------------------------------------------------------------------------
class PromptCache:
    """A file with the keys and values of a text's tokens, for `Generator`s of one model.

    Args:
        path: The file; it need not exist yet.
        model: A decoder whose layers keep keys and values for every position.
    """

    def __init__(self, path: str | PathLike[str], model: LanguageModel) -> None:
        self.path = Path(path)
        if hasattr(model, "remember") or getattr(model, "switch", None):
            reason = "it has an encoder" if hasattr(model, "remember") else "its angles depend on a text's length"
            raise fail(ArgumentError, "prompt_cache", f"a {type(model).__name__} like this has no prompt cache: "
                                                      f"{reason}", "leave out prompt_cache")
        self.digest = model_digest(model)
        self.tokens: list[int] = []
        self._tensors: Any = None
        if self.path.exists():
            self._tensors, _ = read_cache(self.path, self.digest)
            self.tokens = [int(token) for token in self._tensors[TOKENS].numpy()]

    def common(self, ids: list[int]) -> int:
        """How many tokens the file and a text begin with alike."""
        pairs = zip(self.tokens, ids, strict=False)
        return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(self.tokens), len(ids)))

    def fill(self, generator: Any, ids: list[int]) -> int:
        """Put what the file has of a text into a generator, unless that holds as much already; the tokens taken."""
        count: int = min(self.common(ids), len(ids) - 1, generator.length)
        own = next((n for n, (a, b) in enumerate(zip(generator.ids, ids, strict=False)) if a != b),
                   min(len(generator.ids), len(ids)))
        if count <= own:
            return 0
        caches = _layers(generator)
        for number, cache in enumerate(caches):
            for name, state in (("keys", cache.keys), ("values", cache.values)):
                lines = self._tensors[f"{name}.{number}"]
                shape = (*state.value.shape[:2], len(self.tokens), state.value.shape[3])
                if tuple(lines.shape) != shape or lines.dtype is not state.value.dtype:
                    raise fail(FileFault, "prompt_cache", f"{self.path}: {name}.{number} is {lines.dtype}"
                               f"{tuple(lines.shape)}, not {state.value.dtype}{shape}", "delete it")
                rest = state.value[:, :, count:]
                state.value = mo.concat([lines[:, :, :count].to(rest.device), rest], axis=2).realise()
        generator.ids = ids[:count]
        return count

    def keep(self, generator: Any) -> None:
        """Write what a generator holds, unless the file has it all."""
        ids = list(generator.ids)
        if not ids or self.tokens[:len(ids)] == ids:
            return
        tensors: dict[str, Any] = {TOKENS: mo.asarray(np.array(ids, np.int64))}
        for number, cache in enumerate(_layers(generator)):
            for name, state in (("keys", cache.keys), ("values", cache.values)):
                tensors[f"{name}.{number}"] = mo.asarray(state.value[:, :, :len(ids)], copy=True).to("cpu").realise()
        write_cache(self.path, self.digest, tensors)
        self.tokens, self._tensors = ids, tensors


def _layers(generator: Any) -> list[KeyValueCache]:
    caches = generator.caches
    if not isinstance(caches, list) or not all(type(cache) is KeyValueCache for cache in caches):
        raise fail(ArgumentError, "prompt_cache", f"a {type(generator.model).__name__} like this has no prompt cache: "
                                                  "its layers keep more than keys and values", "leave out prompt_cache")
    return caches
