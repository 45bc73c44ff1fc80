"""Sharded checkpoints: every rank writes its share of the tensors, and any number of ranks reads them again.

The files are Hugging Face's: `model-00001-of-0000N-TAG.safetensors` and `model.safetensors.index.json`, which readers
of safetensors take. A layer is gathered for a moment, on its way to the rank that writes it; no rank has the whole
model. When it is read, each rank reads only the bytes of its own parts from the memory-mapped files.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.errors import ArgumentError, GroupError, MorphoError, ShapeError, fail
from morpho.cluster.parallel.data_parallel import DistributedDataParallel as Averaged
from morpho.cluster.parallel.replicas import states_of
from morpho.cluster.parallel.sharded_model import ShardedModule, _Unit
from morpho.distributed.collectives import broadcast_object_list
from morpho.distributed.groups import chosen
from morpho.runtime.groups.group import Group
from morpho.tensor.state.state import assign
from morpho.weights.atomic import atomic_file
from morpho.weights.files import INDEX, SINGLE

OPTIMIZER = "optimizer"
Item = tuple[list[str], Callable[[], list[mo.Tensor]], bool]  # names, what gathers their tensors, equal on all ranks
RULE = "morpho_optimizer"  # in the metadata of its files: what is no tensor


class Saving:
    """A checkpoint that is being written; `wait()` makes it the folder's.

    >>> import tempfile
    >>> mo.distributed.init_process_group()
    >>> saving = mo.distributed.save_checkpoint(mo.nn.Linear(2, 1), tempfile.mkdtemp(), async_op=True)
    >>> saving.wait()
    """

    def __init__(self, group: Group, write: Callable[[], None], publish: Callable[[], None], folder: Path) -> None:
        self._group, self._publish, self._folder = group, publish, folder
        self._error: Exception | None = None
        self._over = False

        def run() -> None:
            try:
                write()
            except Exception as error:
                self._error = error

        self._thread = threading.Thread(target=run, name="morpho-checkpoint")
        self._thread.start()

    def done(self) -> bool:
        """Whether this rank's files are written."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Return when the files of all ranks are there and the index names them; called by all ranks. If one could not
        write, all raise, and the folder keeps its old checkpoint."""
        if self._over:
            return
        self._thread.join()
        self._over = True
        failed = np.asarray([self._error is not None], np.int64)
        self._group.all_reduce(failed)
        if self._error is not None:
            raise self._error
        if failed[0]:
            raise fail(GroupError, "save_checkpoint", f"{failed[0]} of {self._group.size} ranks could not write into "
                       f"{self._folder}", "their errors say why; the old checkpoint is still there")
        if self._group.rank == 0:
            self._publish()
        self._group.barrier()


def save_checkpoint(model: Any, folder: Any, optimizer: Any = None, group: Group | None = None,
                    async_op: bool = False) -> Saving | None:
    """Write a model, and the state of its optimiser, in shards; called by all ranks.

    Args:
        model: of `FullyShardedDataParallel`, `cluster.shard`, `DistributedDataParallel`, or a module that is the same
            on all ranks.
        folder: on a disk that all ranks see.
        optimizer: of the parameters of a sharded model.
        async_op: return a `Saving` as soon as the tensors are copied. Training goes on while they are written; the old
            checkpoint stays until `wait()`.

    >>> import tempfile
    >>> mo.distributed.init_process_group()
    >>> model, folder = mo.nn.Linear(2, 1), tempfile.mkdtemp()
    >>> mo.distributed.save_checkpoint(model, folder)
    >>> sorted(mo.weights.load(folder))
    ['bias', 'weight']
    """
    of, place = _group_of(model, group, "save_checkpoint"), Path(folder)
    if optimizer is not None and not isinstance(model, ShardedModule):
        raise fail(ArgumentError, "save_checkpoint", f"the optimiser of a {type(model).__name__} is not in shards",
                   "save its state_dict() on rank 0")
    tag = [secrets.token_hex(4)]
    broadcast_object_list(tag, group=of, group_src=0)  # new names: the old files stay whole until the index
    parts = [_Part(place, of, _tensors(model), {}, tag[0])]
    if optimizer is not None:
        rest = {key: value for key, value in optimizer.state_dict().items() if key != "slots"}
        within = place / f"{OPTIMIZER}-{tag[0]}"
        parts.append(_Part(within, of, _slots(model, optimizer), {RULE: json.dumps(rest)}, tag[0]))
        parts[0].notes = {OPTIMIZER: within.name}

    def write() -> None:
        for part in parts:
            part.write()

    def publish() -> None:
        for part in reversed(parts):  # the model's index is the last, and names the optimiser's folder
            part.publish()
        for old in place.glob(f"{OPTIMIZER}-*"):
            if old.name != parts[0].notes.get(OPTIMIZER):
                shutil.rmtree(old, ignore_errors=True)

    saving = Saving(of, write, publish, place)
    if async_op:
        return saving
    saving.wait()
    return None


class _Part:
    """Tensors of a folder, each of which one rank writes."""

    def __init__(self, folder: Path, group: Group, items: Iterator[Item],
                 metadata: dict[str, str], tag: str) -> None:
        self.folder, self.group, self.metadata = folder, group, metadata
        self.notes: dict[str, str] = {}
        self.mine: dict[str, np.ndarray | mo.Tensor] = {}
        groups = list(items)
        sizes: list[int] = []
        held: list[tuple[list[str], list[mo.Tensor]]] = []
        loads = [0] * group.size
        self.owners: dict[str, int] = {}
        for names, fetch, is_equal in groups:
            tensors = fetch()  # of all ranks together
            owner = loads.index(min(loads)) if is_equal else 0
            nbytes = sum(tensor.nbytes for tensor in tensors)
            loads[owner] += nbytes
            sizes.append(nbytes)
            self.owners |= dict.fromkeys(names, owner)
            if owner == group.rank:
                held.append((names, [mo.asarray(tensor, copy=True).realise() for tensor in tensors]))
        self.mine = {name: tensor for names, tensors in held for name, tensor in zip(names, tensors, strict=True)}
        self.total = sum(sizes)
        writers = sorted({*self.owners.values()})
        self.files = {rank: f"model-{number + 1:05d}-of-{len(writers):05d}-{tag}.safetensors"
                      for number, rank in enumerate(writers)}

    def write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.mine:
            mo.weights.save(self.folder / self.files[self.group.rank], self.mine,
                            metadata={"format": "pt", **self.metadata})

    def publish(self) -> None:
        """Write the index, and remove the shards and the single file that it replaces."""
        index = {"metadata": {"total_size": self.total, **self.notes},
                 "weight_map": {name: self.files[owner] for name, owner in self.owners.items()}}
        with atomic_file(self.folder / INDEX) as file:
            file.write(json.dumps(index, indent=1, ensure_ascii=False).encode())
        for old in [*self.folder.glob("model-*-of-*.safetensors"), self.folder / SINGLE]:
            if old.name not in self.files.values():
                old.unlink(missing_ok=True)


def _group_of(model: Any, group: Group | None, name: str) -> Group:
    if isinstance(model, ShardedModule):
        return model.group
    if not isinstance(model, mo.nn.Module):
        raise fail(ArgumentError, name, f"a {type(model).__name__} is no model", "give a module")
    return chosen(group, name)


def _plain(model: Any) -> Any:
    return model.module if isinstance(model, Averaged) else model


def _tensors(model: Any) -> Iterator[Item]:
    """Names, what gathers their tensors, and whether all ranks have the same: of running statistics each has its own,
    and rank 0's are saved."""
    if isinstance(model, ShardedModule):
        for unit in model._units:
            yield unit.names, lambda unit=unit: unit.whole(unit.part.value), True  # type: ignore[misc]
        model = model.module
    equal = {name for name, _ in _plain(model).named_parameters()}
    for name, tensor in _plain(model).state_dict().items():
        yield [name], lambda tensor=tensor: [tensor], name in equal  # type: ignore[misc]


def _slots(model: ShardedModule, optimizer: Any) -> Iterator[Item]:
    """The same for the optimiser's state, by `NAME:SLOT`."""
    for key, tensor in optimizer.state_dict()["slots"].items():
        number, _, slot = key.partition(".")
        unit = model._units[int(number)]
        names = [f"{name}:{slot}" for name in unit.names]
        if tensor.shape == unit.part.shape:
            yield names, lambda unit=unit, tensor=tensor: unit.whole(tensor), True  # type: ignore[misc]
        else:
            yield names, lambda unit=unit, tensor=tensor: [tensor] * len(unit.names), True  # type: ignore[misc]


def load_checkpoint(model: Any, folder: Any, optimizer: Any = None,
                    names: Mapping[str, str] | Callable[[str], str] | None = None) -> None:
    """Read a checkpoint, or any sharded safetensors, into a model on any number of ranks. A rank of a sharded model
    reads only the bytes of its own parts.

    Args:
        folder: with `model.safetensors` or shards and their index.
        optimizer: of the parameters of a sharded model; its state was saved beside.
        names: from the model's names to those in the files, where they differ.

    >>> import tempfile
    >>> mo.distributed.init_process_group()
    >>> model, folder = mo.distributed.fully_shard(mo.nn.Linear(2, 1)), tempfile.mkdtemp()
    >>> mo.distributed.save_checkpoint(model, folder)
    >>> mo.distributed.load_checkpoint(model, folder)
    """
    of = _group_of(model, None, "load_checkpoint")
    if optimizer is not None and not isinstance(model, ShardedModule):
        raise fail(ArgumentError, "load_checkpoint", f"the optimiser of a {type(model).__name__} is not in shards")
    error: MorphoError | None = None
    try:  # all files are looked at before anything is changed, and no rank goes on alone
        read = _read(model, Path(folder), names)
        slots = None if optimizer is None else _read_slots(model, optimizer, Path(folder))
    except MorphoError as failure:
        error = failure
    failed = np.asarray([error is not None], np.int64)
    of.all_reduce(failed)
    if error is not None:
        raise error
    if failed[0]:
        raise fail(GroupError, "load_checkpoint", f"{failed[0]} of {of.size} ranks could not read {folder}")
    assign(read)
    if slots is not None:
        optimizer.load_state_dict(slots)


def _read(model: Any, folder: Path, names: Mapping[str, str] | Callable[[str], str] | None) -> list[tuple[Any, Any]]:
    """Values of all states of the model, of a sharded one this rank's parts."""
    weights = mo.weights.load(folder)
    found: list[tuple[Any, Any]] = []

    def name_of(name: str) -> str:
        return names(name) if callable(names) else (names or {}).get(name, name)

    whole = model
    if isinstance(model, ShardedModule):
        _check({name: shape for unit in model._units for name, shape in zip(unit.names, unit.shapes, strict=True)},
               weights, name_of, folder)
        found += [(unit.part.state, _part(unit, model.group, [name_of(name) for name in unit.names], weights))
                  for unit in model._units]
        whole = model.module
    whole = _plain(whole)
    states = dict(zip(whole.state_dict(), states_of(whole), strict=True))
    _check({name: tuple(state.value.shape) for name, state in states.items()}, weights, name_of, folder)
    return found + [(state, weights[name_of(name)].astype(state.value.dtype)) for name, state in states.items()]


def _check(shapes: Mapping[str, tuple[int, ...]], weights: Any, name_of: Callable[[str], str], folder: Path) -> None:
    known = weights.shapes
    missing = [name for name in shapes if name_of(name) not in known]
    if missing:
        raise fail(ArgumentError, "load_checkpoint", f"{folder} has no {', '.join(map(name_of, missing[:5]))}"
                   + (f" and {len(missing) - 5} more" if len(missing) > 5 else ""), "names= says how they are called")
    for name, shape in shapes.items():
        if tuple(known[name_of(name)]) != tuple(shape):
            raise fail(ShapeError, "load_checkpoint", f"{name_of(name)} has the shape {known[name_of(name)]} in "
                       f"{folder}, and {tuple(shape)} in the model")


def _part(unit: _Unit, group: Group, names: list[str], weights: Any) -> mo.Tensor:
    """This rank's part of a layer's parameters: only its bytes are read."""
    share = int(unit.part.size)
    start, stop = group.rank * share, (group.rank + 1) * share
    pieces, at = [], 0
    for name, size in zip(names, unit.sizes, strict=True):
        low, high = max(start, at), min(stop, at + size)
        if low < high:
            pieces.append(weights[name].reshape((-1,))[low - at:high - at].astype(unit.part.dtype))
        at += size
    if stop > at:  # the last rank's part is filled up
        pieces.append(mo.zeros((stop - max(start, at),), dtype=unit.part.dtype))
    return mo.concat(pieces)


def _read_slots(model: ShardedModule, optimizer: Any, folder: Path) -> dict[str, Any]:
    try:
        name = json.loads((folder / INDEX).read_text(encoding="utf-8"))["metadata"][OPTIMIZER]
    except (OSError, ValueError, KeyError, TypeError):
        name = None
    if not isinstance(name, str) or not re.fullmatch(f"{OPTIMIZER}-[0-9a-f]+", name):
        raise fail(ArgumentError, "load_checkpoint", f"{folder} holds no optimiser that save_checkpoint wrote")
    folder /= name
    weights = mo.weights.load(folder)
    slots = {}
    for key, tensor in optimizer.state_dict()["slots"].items():
        number, _, slot = key.partition(".")
        unit = model._units[int(number)]
        names = [f"{name}:{slot}" for name in unit.names]
        is_shared = tensor.shape == unit.part.shape
        shapes = unit.shapes if is_shared else [tuple(tensor.shape)] * len(names)
        _check(dict(zip(names, shapes, strict=True)), weights, lambda name: name, folder)
        slots[key] = _part(unit, model.group, names, weights) if is_shared else weights[names[0]]
    rule = weights.metadata.get(RULE)
    if rule is None:
        raise fail(ArgumentError, "load_checkpoint", f"{folder} holds no optimiser that save_checkpoint wrote")
    return {**json.loads(rule), "slots": slots}
