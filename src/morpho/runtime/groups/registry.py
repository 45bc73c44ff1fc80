"""Groups by number, for collectives in programs: a compiled function knows no objects. After a rank died the same
number means the group of those that live.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence
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


def _stored(array: Any, dtype: DType) -> np.ndarray:
    """An array of a program as a buffer of its own that can travel."""
    return np.array(narrow(np.asarray(array), dtype), dtype.numpy, order="C", copy=True)


def run(name: str, attributes: Attributes, arrays: Sequence[Any]) -> Any:
    """One collective of a program."""
    with spans.step():
        return _run(name, attributes, arrays)


def _run(name: str, attributes: Attributes, arrays: Sequence[Any]) -> Any:
    group = group_of(attributes["group"])
    if name in ("all_reduce_start", "all_reduce_wait"):
        return (_start if name == "all_reduce_start" else _wait)(group, attributes, arrays)
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
def _start(group: Group, attributes: Attributes, arrays: Sequence[Any]) -> None:
    key = attributes["group"], attributes["bucket"]
    wire = BY_NAME[attributes["wire"]]
    count = sum(array.size for array in arrays)
    buffer, before = _buckets.get(key, (None, None))
    if before is not None:  # of a step that did not come to its end
        _end_quietly(before)
    if buffer is None or buffer.size != count or buffer.dtype != wire.numpy:
        buffer = group.buffer(count, wire.numpy)
    place = 0
    for array in arrays:
        np.copyto(buffer[place:place + array.size].reshape(array.shape), narrow(array, wire))
        place += array.size
    _buckets[key] = buffer, group.all_reduce(buffer, attributes["op"], dtype=wire, wait=False)
    buckets_in_flight.append(len([work for _, work in _buckets.values() if work is not None]))
    del buckets_in_flight[:-64]


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
    numbers = widen(buffer, BY_NAME["bfloat16"]) if buffer.dtype == np.uint16 else buffer.astype(
        attributes["dtype"].compute.numpy, copy=False)
    found, place = [], 0
    for shape in attributes["shapes"]:
        count = int(np.prod(shape, dtype=np.int64))
        found.append(numbers[place:place + count].reshape(shape))
        place += count
    return found


collective.set_runner(run)
