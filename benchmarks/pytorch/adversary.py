"""``python -m benchmarks.pytorch.adversary``: random small PyTorch functions through Morpho, against eager.

    python -m benchmarks.pytorch.adversary --rounds 500 --seed 1
    python -m benchmarks.pytorch.adversary --family losses --only 37     # one case again

Values, dtypes, shapes, what was written to the arguments, and gradients must agree.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time
import warnings
from collections import Counter
from typing import Any

import torch
from torch.utils import _pytree as pytree

import morpho.torch
from benchmarks.pytorch import adversary_layers
from benchmarks.pytorch.adversary_cases import FAMILIES

assert adversary_layers  # enters its families
TOLERANCE = {torch.float32: 3e-4, torch.float64: 1e-7, torch.float16: 1e-2, torch.bfloat16: 4e-2, torch.complex64: 3e-4}
SLOW_S = 60.0


def difference(ours: Any, theirs: Any) -> str:
    """What is not the same in two trees of tensors, or nothing."""
    ours, theirs = pytree.tree_leaves(ours), pytree.tree_leaves(theirs)
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not isinstance(b, torch.Tensor):
            if a != b:
                return f"result {place}: {a} instead of {b}"
        elif a is None or a.dtype != b.dtype or a.shape != b.shape:
            return f"result {place}: {a if a is None else (a.dtype, a.shape)} instead of {b.dtype} {tuple(b.shape)}"
        elif not torch.allclose(a.detach(), b.detach(), *(2 * [TOLERANCE.get(b.dtype, 0)]), equal_nan=True):
            return " ".join(f"result {place}: {a.detach()} instead of {b.detach()}".split())
    return ""


def called(function: Any, tensors: list[Any], seed: int) -> tuple[Any, list[Any], list[Any]]:
    """Results, the arguments afterwards, and gradients of the arguments and parameters of a weighted sum."""
    torch.manual_seed(seed)
    copies = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_(t.requires_grad) for t in tensors]
    results = function(*copies)
    leaves = [leaf for leaf in pytree.tree_leaves(results)
              if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.dtype.is_floating_point]
    wanted = [t for t in copies if t.requires_grad] + (
        [p for p in function.parameters() if p.requires_grad] if isinstance(function, torch.nn.Module) else [])
    gradients: list[Any] = []
    if leaves and wanted:
        total = sum((leaf.double() * torch.arange(1, leaf.numel() + 1).reshape(leaf.shape).cos()).sum()
                    for leaf in leaves)
        gradients = [g if g is not None else torch.zeros_like(w) for g, w in zip(
            torch.autograd.grad(total, wanted, allow_unused=True), wanted, strict=True)]
    state = [b.clone() for b in function.buffers()] if isinstance(function, torch.nn.Module) else []
    return results, [*copies, *state], gradients


def judge(function: Any, tensors: list[Any], dynamic: bool | None, seed: int) -> tuple[str, str]:
    """`same`, `refused` (eager refuses it too, or its own compiler does), or a fault with its story."""
    compiled_from = copy.deepcopy(function) if isinstance(function, torch.nn.Module) else function
    try:
        expected = called(function, tensors, seed)
    except Exception as error:
        return "refused", str(error)
    torch._dynamo.reset()
    start = time.perf_counter()
    try:
        compiled = torch.compile(compiled_from, backend="morpho", dynamic=dynamic)
        got = called(compiled, tensors, seed)
    except Exception as error:
        try:
            torch._dynamo.reset()
            called(torch.compile(copy.deepcopy(function), backend="aot_eager", dynamic=dynamic), tensors, seed)
        except Exception:
            return "refused by PyTorch's compiler", str(error)
        return "raised", f"{type(error).__name__}: {error}"
    if time.perf_counter() - start > SLOW_S:
        return "slow", f"{time.perf_counter() - start:.0f} s"
    for what, ours, theirs in zip(("value", "argument", "gradient"), got, expected, strict=True):
        if found := difference(ours, theirs):
            return "wrong", f"{what}: {found}"
    return "same", ""


def hunted(seed: int, rounds: int, families: list[str], only: int | None) -> Counter[str]:
    """Counts of verdicts; a line for every fault."""
    counts: Counter[str] = Counter()
    for turn in range(rounds) if only is None else (only,):
        name = families[turn % len(families)]
        draw = random.Random(f"{seed} {turn}")
        function, tensors, story = FAMILIES[name](draw)
        verdict, why = judge(function, tensors, draw.choice((None, None, True)), turn)
        counts[verdict] += 1
        counts[f"{verdict} in {name}"] += verdict != "same"
        if verdict not in ("same", "refused") or only is not None:
            shapes = [(tuple(t.shape), t.stride()) for t in tensors]
            print(f"{verdict} {turn} {name} {story} {shapes}: {why[:900]}", flush=True)
        if only is not None:
            print(tensors, morpho.torch.report())
    return +counts


def main() -> int:
    """Hunt, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=sorted(FAMILIES), action="append")
    parser.add_argument("--only", type=int, help="the number of one round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = hunted(arguments.seed, arguments.rounds, arguments.family or sorted(FAMILIES), arguments.only)
    print(dict(sorted(counts.items())))
    return int(sum(counts[kind] for kind in ("wrong", "raised", "slow")) > 0)


if __name__ == "__main__":
    sys.exit(main())
