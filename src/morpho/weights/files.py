"""`load` and `save`: a safetensors file, or a folder with one or with shards and their index."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from morpho.backends.registry import canonical
from morpho.base.errors import ArgumentError, DTypeError, fail
from morpho.tensor.convert import borrowed
from morpho.tensor.core import Tensor
from morpho.tensor.functions.products.quantised import Quantised
from morpho.weights.atomic import atomic_file, storing, sync_folder
from morpho.weights.errors import FileFault, MissingFile
from morpho.weights.safetensors import DTYPES, METADATA, MappedFile, Weights, header_of, open_regular
from morpho.weights.scanner import Malformed, Scanner, is_text, shortened

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
SAVED = "write mo.weights.save(path, model.state_dict())"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
MOST_INDEX_BYTES = 64 << 20
_SHARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*\.safetensors")  # a bare file name: no folder, no way up


def load(path: str | os.PathLike[str], *, device: str = "") -> Weights:
    """The weights of a safetensors file, or of a folder with `model.safetensors` or shards and
    `model.safetensors.index.json`, whose path will do too. Nothing is copied: tensors borrow the file's memory. With a
    `device` each goes from the file's memory to that device when it is asked for.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> mo.weights.save(folder, {"w": mo.arange(4)}, shard_bytes=1 << 20)
    >>> mo.weights.load(folder)["w"].tolist()
    [0, 1, 2, 3]
    """
    place = Path(path)
    if device:
        return load(path).on(canonical(device, "load"))
    if place.name == INDEX and place.is_file():
        return _load_shards(place.parent)
    if not place.is_dir():
        file = MappedFile(place)
        return Weights({name: (file, entry) for name, entry in file.entries.items()}, file.metadata)
    if (place / SINGLE).exists():
        return load(place / SINGLE)
    if (place / INDEX).exists():
        return _load_shards(place)
    others = sorted(file.name for file in place.iterdir() if file.suffix in (SUFFIX, *PICKLES))
    if any(name.endswith(PICKLES) for name in others):
        hint = f"{others[0]} is a pickle, which is never read: save it as {SINGLE} with the safetensors library"
    else:
        hint = "give the path of the file itself if it has another name" + (f": {others[0]}" if others else "")
    raise fail(MissingFile, "load", f"the folder {place} holds neither {SINGLE} nor {INDEX}", hint)


def _load_shards(folder: Path) -> Weights:
    try:
        shard_of = _read_index(folder / INDEX)
    except Malformed as error:
        raise fail(FileFault, "load", f"{INDEX} is not an index of shards: {error}") from None
    missing = sorted(shard for shard in {*shard_of.values()} if not (folder / shard).exists())
    if missing:
        raise fail(MissingFile, "load", f"{len(missing)} of the shards in {INDEX} are not there, the first is "
                                        f"{missing[0]}", "fetch the rest of the checkpoint")
    files = {shard: MappedFile(folder / shard) for shard in sorted({*shard_of.values()})}
    places, metadata = {}, {}
    for name, shard in shard_of.items():
        if name not in files[shard].entries:
            raise fail(FileFault, "load", f"{shard} does not hold {shortened(name)}, which {INDEX} says it does")
        places[name] = (files[shard], files[shard].entries[name])
    for file in files.values():
        metadata.update(file.metadata)
    return Weights(places, metadata)


def _read_index(path: Path) -> dict[str, str]:
    """Name of every tensor -> name of its shard, a bare file name."""
    with open_regular(path) as file:
        raw = file.read(MOST_INDEX_BYTES + 1)
    if len(raw) > MOST_INDEX_BYTES:
        raise Malformed(f"it has more than {MOST_INDEX_BYTES} bytes")
    try:
        scanner = Scanner(raw.decode("utf-8"), most_keys=1 << 20)
    except UnicodeDecodeError:
        raise Malformed("it is not UTF-8") from None
    found: dict[str, str] | None = None
    for key in scanner.keys():  # noqa: SIM118 (a scanner is no dict)
        if key == "weight_map":
            found = scanner.texts()
        elif key == "metadata":  # sums over the shards: nothing that is not looked at here
            scanner.record()
        else:
            raise Malformed(f"it has the key {shortened(key)}, neither weight_map nor metadata")
    scanner.finish()
    if found is None:
        raise Malformed("it has no weight_map")
    for name, shard in found.items():
        if not _SHARD.fullmatch(shard):
            raise Malformed(f"{shortened(name)} lies in {shortened(shard)}, which is not a file name such as {SINGLE}")
    return found


def save(path: str | os.PathLike[str], weights: Mapping[str, Any], *, metadata: Mapping[str, str] | None = None,
         shard_bytes: int | None = None) -> None:
    """Write tensors (or arrays) by name: to a file if `path` ends with `.safetensors`, else to a folder, as
    `model.safetensors` or, with `shard_bytes`, as shards of at most that many bytes and their index.

    What stood there before is replaced at once, when all is written and on the disk: whoever reads meanwhile, or after
    a power cut, finds the old weights or the new ones. `metadata` maps texts to texts.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "small.safetensors")
    >>> mo.weights.save(path, {"layer.weight": mo.ones((2, 2), dtype="bfloat16")}, metadata={"made by": "me"})
    """
    if not isinstance(path, str | os.PathLike):
        raise fail(ArgumentError, "save", f"{type(path).__name__} is not a path", SAVED)
    place, tensors = Path(path), _checked(weights)
    notes = _checked_metadata(metadata)
    if shard_bytes is not None and (not isinstance(shard_bytes, int) or shard_bytes < 1):
        raise fail(ArgumentError, "save", f"shard_bytes={shard_bytes!r} is not a positive number")
    with storing(place):
        if place.suffix == SUFFIX:
            if shard_bytes is not None:
                raise fail(ArgumentError, "save", f"one file, {place.name}, cannot hold shards", "give a folder")
            _write(place, tensors, notes)
        elif shard_bytes is None:
            place.mkdir(parents=True, exist_ok=True)
            old = _old_shards(place)
            _write(place / SINGLE, tensors, notes)  # from here on the index is not looked at
            _remove(place, [INDEX, *old])
        else:
            place.mkdir(parents=True, exist_ok=True)
            _save_shards(place, tensors, notes, shard_bytes)


def _checked(weights: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors, the widest dtypes first: without gaps each then begins aligned."""
    if not isinstance(weights, Mapping):
        raise fail(ArgumentError, "save", f"a {type(weights).__name__} does not map names to tensors", SAVED)
    found = {}
    for name, value in weights.items():
        if not is_text(name) or name == METADATA:
            raise fail(ArgumentError, "save", f"{shortened(name)} cannot be the name of a tensor")
        if isinstance(value, Quantised):
            raise fail(DTypeError, "save", f"{shortened(name)} is quantised, for which safetensors has no dtype",
                       "save its .data, bytes, and note its .kind and .shape in the metadata")
        tensor = borrowed(value)  # written before anybody else can
        if tensor.dtype not in DTYPES.values():
            raise fail(DTypeError, "save", f"{shortened(name)} has {tensor.dtype}, which safetensors does not")
        found[name] = tensor
    return dict(sorted(found.items(), key=lambda item: (-item[1].itemsize, item[0])))


def _checked_metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    found = dict(metadata or {})
    for key, value in found.items():
        if not is_text(key) or not is_text(value):
            raise fail(ArgumentError, "save", f"the metadata {shortened(key)}: {shortened(value)} is not two texts")
    return found


def _write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    header = header_of({name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}, metadata)  # type: ignore[misc]
    with atomic_file(path) as file:
        file.write(header)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor.elements().numpy()).reshape(-1).view(np.uint8))  # type: ignore[call-overload]


def _save_shards(folder: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], shard_bytes: int) -> None:
    """The shards under names of their own, then the index, then what it replaced goes."""
    groups = list(_groups(tensors, shard_bytes))
    names = [f"model-{number + 1:05d}-of-{len(groups):05d}{SUFFIX}" for number in range(len(groups))]
    old = _old_shards(folder)
    if any((folder / name).exists() for name in names):  # the old weights stay whole until the index is replaced
        tag = secrets.token_hex(4)
        names = [name.replace(SUFFIX, f"-{tag}{SUFFIX}") for name in names]
    for name, group in zip(names, groups):
        _write(folder / name, group, metadata)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total},
             "weight_map": {key: name for name, group in zip(names, groups) for key in group}}
    with atomic_file(folder / INDEX) as file:
        file.write(json.dumps(index, indent=1, ensure_ascii=False).encode())
    _remove(folder, [SINGLE, *(name for name in old if name not in names)])


def _groups(tensors: Mapping[str, Tensor], shard_bytes: int) -> Iterator[dict[str, Tensor]]:
    """In order, as many in each as fit; a larger tensor has a shard to itself."""
    group: dict[str, Tensor] = {}
    size = 0
    for name, tensor in tensors.items():
        if group and size + tensor.nbytes > shard_bytes:
            yield group
            group, size = {}, 0
        group[name] = tensor
        size += tensor.nbytes
    yield group


def _old_shards(folder: Path) -> list[str]:
    try:
        return sorted({*_read_index(folder / INDEX).values()})
    except (Malformed, MissingFile, FileFault):  # none, or one that names no files of ours
        return []


def _remove(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).unlink(missing_ok=True)
    sync_folder(folder)
