"""Groups by number, for collectives in programs: a compiled function knows no objects. After a rank died the same
number means the group of those that live.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import threading
import time
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from morpho.base.dtypes import BY_NAME, DType
from morpho.base.errors import GroupError, PeerLost, fail
from morpho.ir.op import Attributes
from morpho.ops import collective
from morpho.runtime.groups.group import Group, Work
from morpho.runtime.groups.reducing import narrow, widen
from morpho.runtime.metrics import metrics
from morpho.runtime.trace import spans

_numbers = itertools.count(1)  # 0: the group of one, which needs no object
_groups: dict[int, Group] = {}
_buckets: dict[tuple[int, int], tuple[np.ndarray, Work | None]] = {}  # (group, bucket) -> what travels
_lock = threading.Lock()


def number_of(group: Group) -> int:
    """The number of a group, the same every time; 0 for a group of one process."""
    if group.size == 1 and group.kind == "one":
        return 0
    with _lock:
        found = getattr(group, "_number", None)
        if found is None:
            found = group._number = next(_numbers)  # type: ignore[attr-defined]
            _groups[found] = group
        return int(found)


def set_alone(group: Group) -> None:
    """Say which group the number 0 is: that of this process alone."""
    _groups[0] = group


def group_of(number: int) -> Group:
    """The group of a number."""
    found = _groups.get(number)
    if found is None:
        raise fail(GroupError, "group", f"there is no group {number}", "import morpho.cluster")
    return found


def rebind(old: Group, new: Group) -> None:
    """Have programs that were written for a group run on another one."""
    number = number_of(old)
    if number == 0:
        return
    with _lock:
        _groups[number] = new
        new._number = number  # type: ignore[attr-defined]
        for key in [key for key in _buckets if key[0] == number]:
            del _buckets[key]


def forget_buckets(group: Group, names: Collection[int]) -> None:
    """Let go of the memory of buckets that nobody fills any more; one that travels lives until it has come."""
    with _lock:
        for name in names:
            _buckets.pop((getattr(group, "_number", 0), name), None)


def _stored(array: Any, dtype: DType) -> np.ndarray:
    """An array of a program as a buffer of its own that can travel."""
    return np.array(narrow(np.asarray(array), dtype), dtype.numpy, order="C", copy=True)


def run(name: str, attributes: Attributes, arrays: Sequence[Any]) -> Any:
    """One collective of a program."""
    with spans.step():
        return _run(name, attributes, arrays)


def _run(name: str, attributes: Attributes, arrays: Sequence[Any]) -> Any:
    group = group_of(attributes["group"])
    if name in _BUCKETS_BY:
        return _BUCKETS_BY[name](group, attributes, arrays)
    dtype: DType = attributes["dtype"]
    axis = attributes.get("axis", 0)
    buffer = _stored(np.moveaxis(np.asarray(arrays[0]), axis, 0) if axis else arrays[0], dtype)
    found = _DONE_BY[name](group, attributes, buffer, dtype)
    found = widen(found, dtype)
    return np.moveaxis(found, 0, axis) if axis and name != "all_to_all" else found


def _reduce(group: Group, attributes: Attributes, buffer: np.ndarray, dtype: DType) -> np.ndarray:
    group.all_reduce(buffer, attributes["op"], dtype=dtype)
    return buffer


def _gather(group: Group, attributes: Attributes, buffer: np.ndarray, dtype: DType) -> np.ndarray:
    _check_size(group, attributes)
    into = np.empty((group.size * buffer.shape[0], *buffer.shape[1:]), buffer.dtype)
    group.all_gather(buffer, into)
    return into


def _scatter(group: Group, attributes: Attributes, buffer: np.ndarray, dtype: DType) -> np.ndarray:
    _check_size(group, attributes)
    into = np.empty((buffer.shape[0] // group.size, *buffer.shape[1:]), buffer.dtype)
    group.reduce_scatter(buffer, into, attributes["op"], dtype=dtype)
    return into


def _exchange(group: Group, attributes: Attributes, buffer: np.ndarray, dtype: DType) -> np.ndarray:
    _check_size(group, attributes)
    into = np.empty_like(buffer)
    group.all_to_all(buffer, into)
    parts = [np.moveaxis(part, 0, attributes["axis"]) for part in np.split(into, group.size)]
    return np.concatenate(parts, attributes["joined"])


def _broadcast(group: Group, attributes: Attributes, buffer: np.ndarray, dtype: DType) -> np.ndarray:
    group.broadcast(buffer, attributes["root"])
    return buffer


def _check_size(group: Group, attributes: Attributes) -> None:
    """Shapes are those of the group that the program was written for."""
    if group.size != attributes["size"]:
        raise fail(PeerLost, "group", f"the program was compiled for {attributes['size']} ranks and there are "
                   f"{group.size}", "trace the function again")


_DONE_BY = {"all_reduce": _reduce, "all_gather": _gather, "reduce_scatter": _scatter, "all_to_all": _exchange,
            "broadcast_from": _broadcast}


# -- buckets -----------------------------------------------------------------------------------------------------------
def _bucket(group: Group, key: tuple[int, int], count: int, wire: DType) -> np.ndarray:
    """The memory of a bucket, which nobody reduces now."""
    buffer, before = _buckets.get(key, (None, None))
    if before is not None:  # of a step that did not come to its end
        _end_quietly(before)
    if buffer is None or buffer.size != count or buffer.dtype != wire.numpy:
        buffer = group.buffer(count, wire.numpy)
        buffer[...] = 0  # also between the parts
    _buckets[key] = buffer, None
    return buffer


def _check_same(group: Group, what: list[Any]) -> None:
    """That all ranks fill the buckets that they are about to make with the same: else they would wait for each other
    for ever, or add what does not belong together."""
    mine = int.from_bytes(hashlib.sha256(repr(what).encode()).digest()[:8], "little", signed=True)
    found = np.empty(group.size, np.int64)
    group.all_gather(np.array([mine]), found)
    other = next((rank for rank, said in enumerate(found.tolist()) if said != found[0]), None)
    if other is not None:
        raise fail(GroupError, "DistributedDataParallel", f"rank {other} has gradients of other parameters than rank 0",
                   "all ranks train the same parameters in every step; add 0 * sum of one that a rank does not use")


def _memory(group: Group, attributes: Attributes, arrays: Sequence[Any]) -> np.ndarray:
    """Where buckets lie, for a program that writes gradients there and reads their averages there."""
    asked = attributes["buckets"]
    if any((attributes["group"], name) not in _buckets for name, *_ in asked):
        _check_same(group, [what for _, *what in asked])
    found = [_bucket(group, (attributes["group"], name), count, BY_NAME[wire]) for name, count, wire, _ in asked]
    return np.array([buffer.ctypes.data for buffer in found], np.int64)


def _start(group: Group, attributes: Attributes, arrays: Sequence[Any]) -> None:
    key = attributes["group"], attributes["bucket"]
    wire = BY_NAME[attributes["wire"]]
    if attributes["count"]:
        places, count = collective.bucket_places([array.shape for array in arrays], attributes["wire"])
        if key not in _buckets:
            _check_same(group, [count, attributes["wire"], attributes["which"]])
        buffer = _bucket(group, key, count, wire)
        for array, place in zip(arrays, places, strict=True):
            np.copyto(buffer[place:place + array.size].reshape(array.shape), narrow(array, wire))
            copied.add(array.size * wire.itemsize, "in")
    else:
        buffer = _buckets[key][0]
    _buckets[key] = buffer, group.all_reduce(buffer, attributes["op"], dtype=wire, wait=False)
    buckets_in_flight.append(len([work for _, work in _buckets.values() if work is not None]))
    del buckets_in_flight[:-64]


copied = metrics.counter("morpho_bucket_copied_bytes", "Bytes copied into buckets of gradients and out of them by the "
                         "host: none where kernels write and read them.", ("way",))
stood_still = metrics.counter("morpho_bucket_wait_seconds",
                              "Seconds that programs stood still for buckets of gradients.")
buckets_in_flight: list[int] = []  # how many were under way after each of the last starts: what tests look at


def _end_quietly(work: Work) -> None:
    try:
        work.wait()
    except GroupError:
        pass


def _wait(group: Group, attributes: Attributes, arrays: Sequence[Any]) -> list[np.ndarray]:
    key = attributes["group"], attributes["bucket"]
    buffer, work = _buckets[key]
    if work is not None:
        _buckets[key] = buffer, None
        began = time.perf_counter()
        work.wait()
        stood_still.add(time.perf_counter() - began)
    if not attributes["shapes"]:
        return []
    numbers = widen(buffer, BY_NAME["bfloat16"]) if buffer.dtype == np.uint16 else buffer.astype(
        attributes["dtype"].compute.numpy, copy=False)
    places, count = collective.bucket_places(attributes["shapes"], attributes["wire"])
    copied.add(count * buffer.itemsize, "out")
    return [numbers[place:place + math.prod(shape)].reshape(shape)
            for place, shape in zip(places, attributes["shapes"], strict=True)]


_BUCKETS_BY = {"all_reduce_memory": _memory, "all_reduce_start": _start, "all_reduce_wait": _wait}


collective.set_runner(run)
