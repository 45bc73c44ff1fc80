"""Collectives by the names and arguments of `torch.distributed`: in place, on tensors of Morpho and arrays of NumPy.

What a rank receives is written into the tensor it gives. With `async_op=True` a `Work` is returned; the tensor has its
new value after `wait()`. For a group that this process is not in nothing happens.
"""

from __future__ import annotations

import enum
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np

import morpho as mo
from morpho.base.dtypes import DType, as_dtype
from morpho.base.errors import ArgumentError, GroupError, ShapeError, fail
from morpho.cluster.parallel.replicas import from_buffer, to_buffer
from morpho.distributed.groups import NonMember, chosen, get_group_rank, seconds_of
from morpho.runtime.groups.group import Group
from morpho.runtime.groups.group import Work as Started
from morpho.tensor.state.trace import current_trace

_LOOK_EVERY_S = 0.0005


class ReduceOp(enum.Enum):
    """Reductions. `PREMUL_SUM` is not here: multiply first.

    >>> mo.distributed.ReduceOp.SUM.value
    'sum'
    """

    SUM = "sum"
    AVG = "mean"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "and"
    BOR = "or"
    BXOR = "xor"


_BITS: dict[str, Any] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


class Work:
    """A collective or message under way.

    >>> mo.distributed.init_process_group()
    >>> work = mo.distributed.all_reduce(mo.ones(2), async_op=True)
    >>> work.wait(), work.is_completed()
    (True, True)
    """

    def __init__(self, started: Started, finish: Callable[[], None], name: str) -> None:
        self._started, self._finish, self._name, self._over = started, finish, name, False

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Return True when it is done and its tensor has the new value. `timeout` bounds this wait alone: after it a
        `GroupError` is raised, and the collective goes on."""
        if self._over:
            return True
        seconds = seconds_of(timeout, "wait")
        limit = None if seconds is None else time.monotonic() + seconds
        while limit is not None and not self._started.done():
            if time.monotonic() > limit:
                raise fail(GroupError, self._name, f"it was not done after {seconds:g} s")
            time.sleep(_LOOK_EVERY_S)
        self._started.wait()
        self._finish()
        self._over = True
        return True

    def is_completed(self) -> bool:
        """Whether `wait()` would return at once."""
        return self._over or self._started.done()


def _buffer(tensor: Any, name: str) -> tuple[np.ndarray, DType]:
    """A copy of a tensor's elements, and their type."""
    if isinstance(tensor, mo.Tensor):
        return to_buffer(tensor), tensor.dtype
    if isinstance(tensor, np.ndarray):
        return np.array(tensor, order="C", copy=True), as_dtype(tensor.dtype)
    raise fail(ArgumentError, name, f"a {type(tensor).__name__} is no tensor", "give a tensor or an array of NumPy")


def _write(tensor: Any, buffer: np.ndarray, dtype: DType) -> None:
    """Give a tensor the elements of a buffer."""
    if isinstance(tensor, np.ndarray):
        np.copyto(tensor, buffer.reshape(tensor.shape))
    else:
        with mo.no_grad():
            tensor[...] = from_buffer(buffer.reshape(tensor.shape), dtype)


def _check_writable(tensor: Any, name: str) -> None:
    if current_trace() is not None:
        raise fail(ArgumentError, name, "it writes into its argument, which a compiled function cannot",
                   f"call mo.cluster.{name} there, which returns a new tensor")
    if isinstance(tensor, np.ndarray) and not tensor.flags.writeable:
        raise fail(ArgumentError, name, "the array is read-only", "give a copy")


def _same(tensors: Sequence[Any], like: Any, count: int, name: str) -> None:
    """A list has a tensor for each rank, all of one shape and type."""
    if len(tensors) != count:
        raise fail(ShapeError, name, f"the list has {len(tensors)} tensors, and the group {count} ranks")
    for each in tensors:
        if tuple(each.shape) != tuple(like.shape) or as_dtype(each.dtype) != as_dtype(like.dtype):
            raise fail(ShapeError, name, f"a tensor of {each.dtype} of shape {tuple(each.shape)} is beside one of "
                       f"{like.dtype} of shape {tuple(like.shape)}", "all have one shape and type")


def _given(work: Started, finish: Callable[[], None], name: str, async_op: bool) -> Work | None:
    made = Work(work, finish, name)
    if async_op:
        return made
    made.wait()
    return None


def _op(op: Any, name: str) -> str:
    if isinstance(op, ReduceOp):
        return str(op.value)
    raise fail(ArgumentError, name, f"op={op!r} is no reduction", "use ReduceOp.SUM, AVG, PRODUCT, MIN, MAX, BAND, ...")


def _reduced(group: Group, buffer: np.ndarray, op: str, dtype: DType, async_op: bool,
             name: str) -> tuple[Started, Callable[[], np.ndarray]]:
    """A reduction over all ranks: started, and the function that gives its result."""
    if op in _BITS:
        if buffer.dtype.kind not in "iub":
            raise fail(ArgumentError, name, f"bits of {dtype} are not reduced", "use integers")
        parts = np.empty((group.size, *buffer.shape), buffer.dtype)
        return group.all_gather(buffer, parts, wait=not async_op), lambda: _BITS[op].reduce(parts, 0)
    return group.all_reduce(buffer, op, dtype=dtype, wait=not async_op), lambda: buffer


def all_reduce(tensor: Any, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Reduce over all ranks, in place.

    >>> mo.distributed.init_process_group()
    >>> x = mo.ones(2)
    >>> mo.distributed.all_reduce(x)
    >>> x.numpy()
    array([1., 1.], dtype=float32)
    """
    if isinstance(group, NonMember):
        return None
    of, kind = chosen(group, "all_reduce"), _op(op, "all_reduce")
    _check_writable(tensor, "all_reduce")
    buffer, dtype = _buffer(tensor, "all_reduce")
    work, result = _reduced(of, buffer, kind, dtype, async_op, "all_reduce")
    return _given(work, lambda: _write(tensor, result(), dtype), "all_reduce", async_op)


def reduce(tensor: Any, dst: int | None = None, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """Reduce over all ranks, into the tensor of rank `dst` (of the default group); others keep theirs.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.reduce(mo.ones(2), 0)
    """
    if isinstance(group, NonMember):
        return None
    of, kind = chosen(group, "reduce"), _op(op, "reduce")
    root = _root(of, dst, group_dst, "reduce")
    _check_writable(tensor, "reduce")
    buffer, dtype = _buffer(tensor, "reduce")
    work, result = _reduced(of, buffer, kind, dtype, async_op, "reduce")
    return _given(work, lambda: _write(tensor, result(), dtype) if of.rank == root else None, "reduce", async_op)


def _root(group: Group, rank: int | None, group_rank: int | None, name: str) -> int:
    """A rank of the group, from its number in the default group or in this one."""
    if (rank is None) == (group_rank is None):
        raise fail(ArgumentError, name, "the other rank is not named, or twice", "give its number in the default group")
    if group_rank is not None:
        if not 0 <= group_rank < group.size:
            raise fail(ArgumentError, name, f"rank {group_rank} is not in a group of {group.size}")
        return group_rank
    assert rank is not None
    return get_group_rank(group, rank)


def broadcast(tensor: Any, src: int | None = None, group: Any = None, async_op: bool = False,
              group_src: int | None = None) -> Work | None:
    """Give every rank the tensor of rank `src` (of the default group), in place.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.broadcast(mo.ones(2), src=0)
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "broadcast")
    root = _root(of, src, group_src, "broadcast")
    _check_writable(tensor, "broadcast")
    buffer, dtype = _buffer(tensor, "broadcast")
    work = of.broadcast(buffer, root, wait=not async_op)
    return _given(work, lambda: _write(tensor, buffer, dtype) if of.rank != root else None, "broadcast", async_op)


def all_gather_into_tensor(output_tensor: Any, input_tensor: Any, group: Any = None,
                           async_op: bool = False) -> Work | None:
    """Every rank's tensor in the order of ranks, in one tensor: joined along axis 0, or stacked.

    >>> mo.distributed.init_process_group()
    >>> both = mo.zeros(2)
    >>> mo.distributed.all_gather_into_tensor(both, mo.ones(2))
    >>> both.numpy()
    array([1., 1.], dtype=float32)
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "all_gather_into_tensor")
    _check_writable(output_tensor, "all_gather")
    buffer, dtype = _buffer(input_tensor, "all_gather_into_tensor")
    _check_size(output_tensor, buffer.size * of.size, dtype, "all_gather_into_tensor")
    into = np.empty((of.size, *buffer.shape), buffer.dtype)
    work = of.all_gather(buffer, into, wait=not async_op)
    return _given(work, lambda: _write(output_tensor, into, dtype), "all_gather_into_tensor", async_op)


def _check_size(tensor: Any, count: int, dtype: DType, name: str) -> None:
    size = int(np.prod(tensor.shape, dtype=np.int64))
    if size != count or as_dtype(tensor.dtype) != dtype:
        raise fail(ShapeError, name, f"a tensor of {size} {as_dtype(tensor.dtype)} does not take {count} {dtype}")


def all_gather(tensor_list: Sequence[Any], tensor: Any, group: Any = None, async_op: bool = False) -> Work | None:
    """Every rank's tensor, into a list of tensors, one for each rank.

    >>> mo.distributed.init_process_group()
    >>> parts = [mo.zeros(2)]
    >>> mo.distributed.all_gather(parts, mo.ones(2))
    >>> parts[0].numpy()
    array([1., 1.], dtype=float32)
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "all_gather")
    _same(tensor_list, tensor, of.size, "all_gather")
    for each in tensor_list:
        _check_writable(each, "all_gather")
    buffer, dtype = _buffer(tensor, "all_gather")
    into = np.empty((of.size, *buffer.shape), buffer.dtype)
    work = of.all_gather(buffer, into, wait=not async_op)
    return _given(work, lambda: _write_all(tensor_list, into, dtype), "all_gather", async_op)


def _write_all(tensors: Sequence[Any], parts: np.ndarray, dtype: DType) -> None:
    for each, part in zip(tensors, parts, strict=True):
        _write(each, part, dtype)


def gather(tensor: Any, gather_list: Sequence[Any] | None = None, dst: int | None = None, group: Any = None,
           async_op: bool = False, group_dst: int | None = None) -> Work | None:
    """Every rank's tensor, into a list on rank `dst` (0 by default); others give none.

    >>> mo.distributed.init_process_group()
    >>> parts = [mo.zeros(2)]
    >>> mo.distributed.gather(mo.ones(2), parts)
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "gather")
    root = _root(of, 0 if dst is None and group_dst is None else dst, group_dst, "gather")
    if (gather_list is not None) != (of.rank == root):
        raise fail(ArgumentError, "gather", f"gather_list is for rank {root} alone, and this is rank {of.rank}")
    if gather_list is not None:
        _same(gather_list, tensor, of.size, "gather")
    buffer, dtype = _buffer(tensor, "gather")
    into = np.empty((of.size, *buffer.shape), buffer.dtype)
    work = of.all_gather(buffer, into, wait=not async_op)
    return _given(work, lambda: None if gather_list is None else _write_all(gather_list, into, dtype), "gather",
                  async_op)


def scatter(tensor: Any, scatter_list: Sequence[Any] | None = None, src: int | None = None, group: Any = None,
            async_op: bool = False, group_src: int | None = None) -> Work | None:
    """Each rank its tensor of a list on rank `src` (0 by default); others give none.

    >>> mo.distributed.init_process_group()
    >>> x = mo.zeros(2)
    >>> mo.distributed.scatter(x, [mo.ones(2)])
    >>> x.numpy()
    array([1., 1.], dtype=float32)
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "scatter")
    root = _root(of, 0 if src is None and group_src is None else src, group_src, "scatter")
    if (scatter_list is not None) != (of.rank == root):
        raise fail(ArgumentError, "scatter", f"scatter_list is for rank {root} alone, and this is rank {of.rank}")
    _check_writable(tensor, "scatter")
    buffer, dtype = _buffer(tensor, "scatter")
    whole = np.zeros((of.size, *buffer.shape), buffer.dtype)
    if scatter_list is not None:
        _same(scatter_list, tensor, of.size, "scatter")
        for place, each in enumerate(scatter_list):
            whole[place] = _buffer(each, "scatter")[0]
    work = of.broadcast(whole, root, wait=not async_op)
    return _given(work, lambda: _write(tensor, whole[of.rank], dtype), "scatter", async_op)


def reduce_scatter_tensor(output: Any, input: Any, op: ReduceOp = ReduceOp.SUM, group: Any = None,
                          async_op: bool = False) -> Work | None:
    """The reduction over all ranks of a tensor with as many equal parts as there are ranks, each rank its part.

    >>> mo.distributed.init_process_group()
    >>> part = mo.zeros(2)
    >>> mo.distributed.reduce_scatter_tensor(part, mo.ones(2))
    >>> part.numpy()
    array([1., 1.], dtype=float32)
    """
    if isinstance(group, NonMember):
        return None
    of, kind = chosen(group, "reduce_scatter_tensor"), _op(op, "reduce_scatter_tensor")
    _check_writable(output, "reduce_scatter")
    buffer, dtype = _buffer(input, "reduce_scatter_tensor")
    into, _ = _buffer(output, "reduce_scatter_tensor")
    _check_size(input, into.size * of.size, as_dtype(output.dtype), "reduce_scatter_tensor")
    if kind in _BITS:
        work, result = _reduced(of, buffer, kind, dtype, async_op, "reduce_scatter_tensor")
        return _given(work, lambda: _write(output, result().reshape(of.size, -1)[of.rank], dtype),
                      "reduce_scatter_tensor", async_op)
    work = of.reduce_scatter(buffer, into, kind, dtype=dtype, wait=not async_op)
    return _given(work, lambda: _write(output, into, dtype), "reduce_scatter_tensor", async_op)


def reduce_scatter(output: Any, input_list: Sequence[Any], op: ReduceOp = ReduceOp.SUM, group: Any = None,
                   async_op: bool = False) -> Work | None:
    """The reduction over all ranks of a list with a tensor for each rank, each rank its own.

    >>> mo.distributed.init_process_group()
    >>> part = mo.zeros(2)
    >>> mo.distributed.reduce_scatter(part, [mo.ones(2)])
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "reduce_scatter")
    _same(input_list, output, of.size, "reduce_scatter")
    whole = [_buffer(each, "reduce_scatter") for each in input_list]
    dtype = as_dtype(output.dtype)
    joined = np.stack([buffer for buffer, _ in whole])
    stacked = from_buffer(joined, dtype) if isinstance(output, mo.Tensor) else joined
    return reduce_scatter_tensor(output, stacked, op, of, async_op)


def all_to_all_single(output: Any, input: Any, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None,
                      async_op: bool = False) -> Work | None:
    """Part r of the input goes to rank r, along axis 0; parts arrive in the order of their senders.

    >>> mo.distributed.init_process_group()
    >>> x = mo.zeros(2)
    >>> mo.distributed.all_to_all_single(x, mo.ones(2))
    >>> x.numpy()
    array([1., 1.], dtype=float32)
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "all_to_all_single")
    _check_writable(output, "all_to_all")
    buffer, dtype = _buffer(input, "all_to_all_single")
    parts = _parted(buffer, input_split_sizes, of.size, "input")
    into = np.empty(tuple(output.shape), buffer.dtype)
    if as_dtype(output.dtype) != dtype:
        raise fail(ShapeError, "all_to_all_single", f"{dtype} is not written into {as_dtype(output.dtype)}")
    wanted = _parted(into, output_split_sizes, of.size, "output")
    return _exchange(of, parts, wanted, lambda: _write(output, np.concatenate(wanted), dtype), async_op)


def _parted(buffer: np.ndarray, sizes: Sequence[int] | None, ranks: int, what: str) -> list[np.ndarray]:
    rows = buffer.shape[0] if buffer.ndim else 0
    if sizes is None:
        if not buffer.ndim or rows % ranks:
            raise fail(ShapeError, "all_to_all_single", f"the {what}'s {rows} rows do not part into {ranks}",
                       f"give {what}_split_sizes")
        sizes = [rows // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != rows or min(sizes) < 0:
        raise fail(ShapeError, "all_to_all_single", f"{what}_split_sizes={list(sizes)} do not part {rows} rows "
                   f"for {ranks} ranks")
    return [part.copy() for part in np.split(buffer, np.cumsum(sizes)[:-1])]


def _exchange(group: Group, parts: list[np.ndarray], wanted: list[np.ndarray], finish: Callable[[], None],
              async_op: bool) -> Work | None:
    """Messages from every rank to every rank, of sizes of their own."""
    wanted[group.rank][...] = parts[group.rank].reshape(wanted[group.rank].shape)
    others = [rank for rank in range(group.size) if rank != group.rank]
    works = [group.recv(wanted[rank], rank, _EXCHANGE, wait=False) for rank in others if wanted[rank].size]
    works += [group.send(parts[rank], rank, _EXCHANGE, wait=False) for rank in others if parts[rank].size]
    return _given(_All(works), finish, "all_to_all", async_op)


_EXCHANGE = 0x7A11  # the tag of messages of all_to_all


class _All(Started):
    """Several messages under way."""

    def __init__(self, works: Sequence[Started]) -> None:
        self._works = works

    def wait(self) -> None:
        for work in self._works:
            work.wait()

    def done(self) -> bool:
        return all(work.done() for work in self._works)


def all_to_all(output_tensor_list: Sequence[Any], input_tensor_list: Sequence[Any], group: Any = None,
               async_op: bool = False) -> Work | None:
    """Tensor r of the input list goes to rank r; tensor r of the output list comes from rank r. Shapes may differ.

    >>> mo.distributed.init_process_group()
    >>> parts = [mo.zeros(2)]
    >>> mo.distributed.all_to_all(parts, [mo.ones(2)])
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "all_to_all")
    if len(output_tensor_list) != of.size or len(input_tensor_list) != of.size:
        raise fail(ShapeError, "all_to_all", f"lists of {len(output_tensor_list)} and {len(input_tensor_list)} tensors "
                   f"are not for {of.size} ranks")
    parts = [_buffer(each, "all_to_all") for each in input_tensor_list]
    wanted = [_buffer(each, "all_to_all") for each in output_tensor_list]
    for each in output_tensor_list:
        _check_writable(each, "all_to_all")

    def finish() -> None:
        for tensor, (buffer, dtype) in zip(output_tensor_list, wanted, strict=True):
            _write(tensor, buffer, dtype)

    return _exchange(of, [buffer for buffer, _ in parts], [buffer for buffer, _ in wanted], finish, async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Return when all ranks have come here.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.barrier()
    """
    if isinstance(group, NonMember):
        return None
    work = chosen(group, "barrier").barrier(wait=not async_op)
    return _given(work, lambda: None, "barrier", async_op)


def monitored_barrier(group: Any = None, timeout: timedelta | float | None = None,
                      wait_all_ranks: bool = False) -> None:
    """A barrier with a timeout of its own; its error names the ranks that did not come.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.monitored_barrier(timeout=5)
    """
    if isinstance(group, NonMember):
        return
    of, seconds = chosen(group, "monitored_barrier"), seconds_of(timeout, "monitored_barrier")
    before = of.timeout_s
    if seconds is not None:
        of.set_timeout(seconds)
    try:
        of.barrier()
    finally:
        if seconds is not None:
            of.set_timeout(before)


def isend(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0,
          group_dst: int | None = None) -> Work | None:
    """Start sending a tensor to a rank of the default group.

    >>> mo.distributed.init_process_group()
    >>> work = mo.distributed.isend(mo.ones(2), 0)
    >>> mo.distributed.recv(mo.zeros(2), 0)
    0
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "send")
    buffer, _ = _buffer(tensor, "send")
    work = of.send(buffer, _root(of, dst, group_dst, "send"), tag, wait=False)
    return Work(work, lambda: None, "send")


def irecv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0,
          group_src: int | None = None) -> Work | None:
    """Start receiving a tensor from a rank of the default group, which must be named.

    >>> mo.distributed.init_process_group()
    >>> _ = mo.distributed.isend(mo.ones(2), 0)
    >>> x = mo.zeros(2)
    >>> mo.distributed.irecv(x, 0).wait()
    True
    """
    if isinstance(group, NonMember):
        return None
    of = chosen(group, "recv")
    _check_writable(tensor, "recv")
    buffer, dtype = _buffer(tensor, "recv")
    work = of.recv(buffer, _root(of, src, group_src, "recv"), tag, wait=False)
    return Work(work, lambda: _write(tensor, buffer, dtype), "recv")


def send(tensor: Any, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to a rank of the default group.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.send(mo.ones(2), 0)
    >>> mo.distributed.recv(mo.zeros(2), 0)
    0
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(tensor: Any, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor from a rank of the default group; its number is returned, -1 outside the group.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.send(mo.ones(2), 0)
    >>> mo.distributed.recv(mo.zeros(2), 0)
    0
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return int(src if src is not None else group_src if group_src is not None else -1)


@dataclass
class P2POp:
    """A message for `batch_isend_irecv`: `op` is `isend` or `irecv`.

    >>> mo.distributed.P2POp(mo.distributed.isend, mo.ones(2), 0).peer
    0
    """

    op: Callable[..., Work | None]
    tensor: Any
    peer: int | None = None
    group: Any = None
    tag: int = 0
    group_peer: int | None = None


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Start several messages.

    >>> mo.distributed.init_process_group()
    >>> ops = [mo.distributed.P2POp(mo.distributed.isend, mo.ones(2), 0)]
    >>> [work.wait() for work in mo.distributed.batch_isend_irecv(ops)]
    [True]
    >>> mo.distributed.recv(mo.zeros(2), 0)
    0
    """
    for each in p2p_op_list:
        if each.op not in (isend, irecv):
            raise fail(ArgumentError, "batch_isend_irecv", f"op={each.op!r} is neither isend nor irecv")
    works = [each.op(each.tensor, each.peer, each.group, each.tag, each.group_peer) for each in p2p_op_list]
    return [work for work in works if work is not None]


def _text_of(value: Any, name: str) -> np.ndarray:
    """An object as bytes of JSON; an error where it would come back as another one."""
    try:
        text = json.dumps(value)
        same = json.loads(text) == value
    except (TypeError, ValueError) as error:
        raise fail(ArgumentError, name, f"{error}", "objects travel as JSON: numbers, texts, lists and dicts of texts; "
                   "send arrays as tensors") from None
    if not same:
        raise fail(ArgumentError, name, f"{value!r} is another object as JSON",
                   "use lists instead of tuples, and texts as keys")
    return np.frombuffer(text.encode(), np.uint8).copy()


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Every rank's object, into a list with a place for each rank. Objects travel as JSON: nothing is pickled.

    >>> mo.distributed.init_process_group()
    >>> names = [None]
    >>> mo.distributed.all_gather_object(names, {"host": "a"})
    >>> names
    [{'host': 'a'}]
    """
    if isinstance(group, NonMember):
        return
    of = chosen(group, "all_gather_object")
    if len(object_list) != of.size:
        raise fail(ShapeError, "all_gather_object", f"the list has {len(object_list)} places, and the group {of.size} "
                   "ranks")
    mine = _text_of(obj, "all_gather_object")
    sizes = np.empty(of.size, np.int64)
    of.all_gather(np.asarray([mine.size], np.int64), sizes)
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[:mine.size] = mine
    whole = np.empty((of.size, padded.size), np.uint8)
    of.all_gather(padded, whole)
    object_list[:] = [json.loads(bytes(row[:size])) for row, size in zip(whole, sizes, strict=True)]


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
                          group_src: int | None = None) -> None:
    """Give every rank the objects of rank `src` (0 by default), in place. They travel as JSON: nothing is pickled.

    >>> mo.distributed.init_process_group()
    >>> mo.distributed.broadcast_object_list([1, "a"])
    """
    if isinstance(group, NonMember):
        return
    of = chosen(group, "broadcast_object_list")
    root = _root(of, 0 if src is None and group_src is None else src, group_src, "broadcast_object_list")
    text = _text_of(object_list, "broadcast_object_list") if of.rank == root else np.empty(0, np.uint8)
    size = np.asarray([text.size], np.int64)
    of.broadcast(size, root)
    if of.rank != root:
        text = np.empty(int(size[0]), np.uint8)
    of.broadcast(text, root)
    values = json.loads(bytes(text))
    if len(values) != len(object_list):
        raise fail(ShapeError, "broadcast_object_list", f"{len(values)} objects came, and the list has "
                   f"{len(object_list)} places")
    object_list[:] = values
