"""The same calls on `torch.distributed` (gloo) and on `mo.distributed`, by the same ranks: what differs is printed."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist

import morpho as mo

theirs, ours = dist, mo.distributed
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
ours.init_process_group("gloo", timeout=timedelta(seconds=60))
rank, size = ours.get_rank(), ours.get_world_size()
assert (rank, size) == (dist.get_rank(), dist.get_world_size())
rng = np.random.default_rng(rank)
x = rng.integers(-9, 9, (size * 2, 3)).astype(np.float32)
differing: list[str] = []


def both(name: str, call: object) -> None:
    """One call on both sides: it gets the library, a function that makes tensors, and returns tensors."""
    expected = call(theirs, lambda array: torch.tensor(array))  # type: ignore[operator]
    result = call(ours, lambda array: mo.asarray(np.array(array)))  # type: ignore[operator]
    for one, other in zip(expected, result, strict=True):
        if not np.array_equal(one.numpy(), other.numpy()):
            differing.append(f"rank {rank} {name}: {one} and {other}")


def run(name: str, *arguments: str, **more: object):  # type: ignore[no-untyped-def]
    """A collective on `x` in place."""
    def call(library, tensor):  # type: ignore[no-untyped-def]
        t = tensor(x)
        options = {key: getattr(library.ReduceOp, value) if key == "op" else value for key, value in more.items()}
        work = getattr(library, name)(t, **options)
        if options.get("async_op"):
            work.wait()
        return [t]
    return call


for op in ("SUM", "MIN", "MAX", "PRODUCT"):
    both(f"all_reduce {op}", run("all_reduce", op=op))
both("all_reduce async", run("all_reduce", async_op=True))
both("broadcast", run("broadcast", src=size - 1))
x_before, x = x, rng.integers(0, 99, (4,))
for op in ("BAND", "BOR", "BXOR", "SUM"):
    both(f"all_reduce {op}", run("all_reduce", op=op))
x = x_before


def gathers(library, tensor):  # type: ignore[no-untyped-def]
    parts = [tensor(np.zeros_like(x)) for _ in range(size)]
    library.all_gather(parts, tensor(x))
    whole = tensor(np.zeros((size * size * 2, 3), np.float32))
    library.all_gather_into_tensor(whole, tensor(x))
    there = [tensor(np.zeros_like(x)) for _ in range(size)] if rank == 1 else None
    library.gather(tensor(x), there, dst=1)
    return [*parts, whole, *(there or [])]


def scatters(library, tensor):  # type: ignore[no-untyped-def]
    part = tensor(np.zeros((2, 3), np.float32))
    library.scatter(part, [tensor(x[2 * r:2 * r + 2]) for r in range(size)] if rank == 0 else None, src=0)
    share = tensor(np.zeros((2, 3), np.float32))
    library.reduce_scatter_tensor(share, tensor(x))
    third = tensor(np.zeros((2, 3), np.float32))
    library.reduce_scatter(third, [tensor(x[2 * r:2 * r + 2]) for r in range(size)], op=library.ReduceOp.MAX)
    return [part, share, third]


def exchanges(library, tensor):  # type: ignore[no-untyped-def]
    out = tensor(np.zeros_like(x))
    library.all_to_all_single(out, tensor(x))
    rows = [rank + 1] * size  # rank r sends r + 1 rows to each
    uneven = tensor(np.zeros((sum(range(1, size + 1)), 2), np.float32))
    library.all_to_all_single(uneven, tensor(np.full((sum(rows), 2), rank, np.float32)),
                              output_split_sizes=list(range(1, size + 1)), input_split_sizes=rows)
    return [out, uneven]


def messages(library, tensor):  # type: ignore[no-untyped-def]
    after, before = (rank + 1) % size, (rank - 1) % size
    came, late = tensor(np.zeros_like(x)), tensor(np.zeros(2, np.float32))
    works = library.batch_isend_irecv([library.P2POp(library.isend, tensor(x), after),
                                       library.P2POp(library.irecv, came, before)])
    for work in works:
        work.wait()
    if rank == 0:
        library.send(tensor(np.ones(2, np.float32)), dst=1)
    elif rank == 1:
        assert library.recv(late, src=0) == 0
    return [came, late]


def groups(library, tensor):  # type: ignore[no-untyped-def]
    pair = library.new_group([0, size - 1])
    t = tensor(x)
    library.all_reduce(t, group=pair)
    library.broadcast(t, src=size - 1, group=pair)
    library.barrier()
    if rank in (0, size - 1):
        assert library.get_group_rank(pair, size - 1) == 1 and library.get_process_group_ranks(pair) == [0, size - 1]
    else:
        assert library.get_rank(pair) == -1
    names = [None] * size
    library.all_gather_object(names, {"rank": rank, "text": "x" * rank})
    assert [row["rank"] for row in names] == list(range(size))
    shared = [rank, "a"] if rank == 1 else [None, None]
    library.broadcast_object_list(shared, src=1)
    assert shared == [1, "a"]
    return [t]


for name, call in (("gather", gathers), ("scatter", scatters), ("send", messages), ("group", groups)):
    both(name, call)
result = exchanges(ours, lambda array: mo.asarray(np.array(array)))  # this gloo has no all_to_all: by the senders' rows
everybody = [np.random.default_rng(r).integers(-9, 9, (size * 2, 3)).astype(np.float32) for r in range(size)]
assert np.array_equal(result[0].numpy(), np.concatenate([each[2 * rank:2 * rank + 2] for each in everybody]))
assert np.array_equal(result[1].numpy()[:, 0], np.repeat(np.arange(size), np.arange(1, size + 1)))


def trained(library, wrap, linear, sgd, tensor):  # type: ignore[no-untyped-def]
    """Parameters after three averaged steps on batches of each rank's own."""
    model = wrap(linear)
    rule = sgd(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = ((model(tensor(x)) - 1.0) ** 2).mean()
        loss.backward()
        rule.step()
        rule.zero_grad()
    return [p.detach().numpy() for p in linear.parameters()]


weight, bias = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.zeros(2, np.float32)
one, other = torch.nn.Linear(3, 2), mo.nn.Linear(3, 2)
one.load_state_dict({"weight": torch.tensor(weight), "bias": torch.tensor(bias)})
other.load_state_dict({"weight": weight, "bias": bias})
expected = trained(theirs, torch.nn.parallel.DistributedDataParallel, one, torch.optim.SGD, torch.tensor)
result = trained(ours, ours.DistributedDataParallel, other, mo.optim.SGD, mo.asarray)
if not all(np.allclose(a, b, rtol=1e-5) for a, b in zip(expected, result, strict=True)):
    differing.append(f"rank {rank} DDP: {expected} and {result}")
third = mo.nn.Linear(3, 2)
third.load_state_dict({"weight": weight, "bias": bias})
whole = ours.FullyShardedDataParallel(third)
rule = mo.optim.SGD(whole.parameters(), lr=0.1)
for _ in range(3):
    ((whole(mo.asarray(x)) - 1.0) ** 2).mean().backward()
    rule.step()
    rule.zero_grad()
state = whole.state_dict()
if not all(np.allclose(a, state[key].numpy(), rtol=1e-5) for a, key in zip(expected, ("weight", "bias"), strict=True)):
    differing.append(f"rank {rank} FSDP: {expected} and {state}")
for line in differing:
    print(line, flush=True)
print(f"rank {rank} compared\n", end="", flush=True)
dist.destroy_process_group()
