# ruff: noqa: E501
"""``python -m benchmarks.pytorch.adversary_doors``: random programs through `mo.from_torch`, `mo.to_torch` and, with
random numbers, `torch.compile(backend="morpho")`.

    python -m benchmarks.pytorch.adversary_doors --rounds 300 --seed 1
    python -m benchmarks.pytorch.adversary_doors --door to_torch --only 37

`from_torch` gets the functions that `adversary` compiles; `to_torch` programs drawn here, which PyTorch can compute
too; dropout and the distributions are judged by what must hold of every draw: seeds repeat them, gradients have the
mask of the forward pass, moments are within six standard errors.
"""

from __future__ import annotations

import argparse
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

import morpho as mo
import morpho.torch
from benchmarks.pytorch import adversary_layers
from benchmarks.pytorch.adversary import difference
from benchmarks.pytorch.adversary_cases import FAMILIES, tensor_of
from morpho.base.errors import MorphoError
from morpho.torch.tensors import borrow

assert adversary_layers  # enters its families
Verdict = tuple[str, str]


# -- from_torch --------------------------------------------------------------------------------------------------------
class Wrapped(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.inner = function

    def forward(self, *tensors: Any) -> Any:
        return self.inner(*tensors)


def exported(draw: random.Random) -> tuple[Verdict, str]:
    """A function or module of `adversary`, exported and called without PyTorch."""
    name = draw.choice(sorted(FAMILIES))
    function, tensors, story = FAMILIES[name](draw)
    story = f"{name} {story} {[(tuple(t.shape), t.stride()) for t in tensors]}"
    module = Wrapped(function).eval()
    if isinstance(function, torch.nn.Module) and draw.random() < 0.3:
        module.train()
    copies = [[t.detach().clone(memory_format=torch.preserve_format) for t in tensors] for _ in range(2)]
    try:
        with torch.no_grad():
            expected = module(*copies[0])
    except Exception as error:
        return ("refused", str(error)), story
    try:
        made = mo.from_torch(module, tuple(copies[1]))
        found = made(*[borrow(t) for t in copies[1]])
    except MorphoError as error:
        return ("refused by a sentence", str(error)), story
    except Exception as error:
        try:
            torch.export.export(module, tuple(copies[1])).run_decompositions()
        except Exception as refusal:
            return ("refused by torch.export", f"{type(refusal).__name__}: {refusal}"), story
        return ("raised", f"{type(error).__name__}: {error}"), story
    ours = pytree.tree_map(lambda part: torch.from_dlpack(part.realise()).clone() if isinstance(part, mo.Tensor) else part,
                           found)
    if text := difference(ours, expected):
        return ("wrong", text), story
    text = difference(copies[1], copies[0])
    return (("wrong", f"argument: {text}") if text else ("same", "")), story


# -- to_torch ----------------------------------------------------------------------------------------------------------
UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tanh": (torch.tanh, mo.tanh), "sin": (torch.sin, mo.sin), "square": (torch.square, mo.square),
    "sigmoid": (torch.sigmoid, mo.sigmoid), "relu": (torch.relu, mo.relu), "abs": (torch.abs, mo.abs),
    "softmax": (lambda x: x.softmax(-1), mo.softmax), "exp": (lambda x: x.tanh().exp(), lambda x: mo.exp(mo.tanh(x))),
    "cumsum": (lambda x: x.cumsum(0), lambda x: mo.cumulative_sum(x, axis=0)),
    "flip": (lambda x: x.flip(0), lambda x: mo.flip(x, axis=0)), "roll": (lambda x: x.roll(1, 1), lambda x: mo.roll(x, 1, axis=1)),
    "centre": (lambda x: x - x.mean(1, keepdim=True), lambda x: x - mo.mean(x, axis=1, keepdims=True)),
    "sort": (lambda x: x.sort(1)[0], lambda x: mo.sort(x, axis=1)), "half": (lambda x: torch.cat((x[:, ::2], x[:, 1::2]), 1),
                                                                          lambda x: mo.concat([x[:, ::2], x[:, 1::2]], axis=1)),
    "turn": (lambda x: (x @ x.T) @ x, lambda x: (x @ x.T) @ x), "detached": (lambda x: x * x.detach(), lambda x: x * mo.stop_gradient(x)),
    "same": (lambda x: x, lambda x: x), "positive": (lambda x: x.clamp(min=0.1).log(), lambda x: mo.log(mo.maximum(x, 0.1))),
}
BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (torch.add, mo.add), "mul": (torch.mul, mo.multiply), "sub": (torch.sub, mo.subtract),
    "maximum": (torch.maximum, mo.maximum), "where": (lambda x, y: torch.where(x > y, x, y * 2), lambda x, y: mo.where(x > y, x, y * 2)),
    "div": (lambda x, y: x / (y * y + 1), lambda x, y: x / (y * y + 1)), "outer": (lambda x, y: (x @ y.T) @ y, lambda x, y: (x @ y.T) @ y),
}


def given(draw: random.Random) -> tuple[Verdict, str]:
    """A drawn program: values, gradients, and what is done with the results afterwards."""
    rows, columns, dtype = draw.randint(1, 5), draw.randint(2, 6), draw.choice((torch.float64, torch.float64, torch.float32))
    count = draw.randint(1, 3)
    steps = [(draw.choice(sorted(UNARY)), draw.randrange(99)) if draw.random() < 0.6 else
             (draw.choice(sorted(BINARY)), draw.randrange(99), draw.randrange(99)) for _ in range(draw.randint(1, 6))]
    outputs = [draw.randrange(99) for _ in range(draw.randint(1, 3))]
    tensors = [tensor_of(draw, (rows, columns), dtype) * 0.3 for _ in range(count)]
    if draw.random() < 0.2:
        tensors[0] = tensors[0][:1].expand(rows, columns)
    wanted = [draw.random() < 0.8 for _ in tensors]
    number = draw.choice((None, 2, 0.5))

    def program(side: int) -> Callable[..., Any]:
        def run(*values: Any) -> Any:
            held = list(values[:count])
            if number is not None:
                held[0] = held[0] * values[count]
            for name, *places in steps:
                table: Any = UNARY if name in UNARY else BINARY
                held.append(table[name][side](*[held[place % len(held)] for place in places]))
            found = tuple(held[-1 - place % len(held)] for place in outputs)
            return found if len(found) > 1 else found[0]

        return run

    story = f"{steps} {outputs} {rows}x{columns} {dtype} {wanted} {number}"

    def called(function: Any) -> list[Any]:
        copies = [t.detach().clone() if t.stride(0) else t.detach() for t in tensors]
        leaves = [t.requires_grad_(w) for t, w in zip(copies, wanted, strict=True)]
        results = pytree.tree_leaves(function(*[t * 1 if w else t for t, w in zip(leaves, wanted, strict=True)],
                                              *([] if number is None else [number])))
        used = [r for r in results if r.requires_grad][:2]
        total = sum((r.T * torch.arange(1.0, r.numel() + 1, dtype=r.dtype).reshape(r.T.shape).cos()).sum() for r in used)
        asked = [t for t in leaves if t.requires_grad]
        gradients = torch.autograd.grad(total, asked, allow_unused=True) if used and asked else ()
        return [*[r.detach() for r in results], *[torch.zeros(()) if g is None else g for g in gradients], *copies]

    expected = called(program(0))
    try:
        found = called(mo.to_torch(program(1)))
    except Exception as error:
        return ("raised", f"{type(error).__name__}: {error}"), story
    # A gradient of nothing is None in eager PyTorch and zeros here.
    pairs = [(a, b if b.shape == a.shape or b.numel() != 1 else torch.zeros_like(a)) for a, b in zip(found, expected, strict=True)]
    text = difference([a for a, _ in pairs], [b for _, b in pairs])
    return (("wrong", text) if text else ("same", "")), story


# -- random numbers ----------------------------------------------------------------------------------------------------
DISTRIBUTIONS: dict[str, tuple[Callable[[Any], Any], float, float]] = {  # with mean and variance
    "rand": (torch.rand_like, 0.5, 1 / 12), "randn": (torch.randn_like, 0.0, 1.0),
    "bernoulli": (lambda x: torch.bernoulli(torch.full_like(x, 0.3)), 0.3, 0.21),
    "uniform": (lambda x: torch.empty_like(x).uniform_(-1, 3), 1.0, 16 / 12),
    "normal": (lambda x: torch.empty_like(x).normal_(2.0, 0.5), 2.0, 0.25),
    "exponential": (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.25),
    "randint": (lambda x: torch.randint(0, 4, x.shape).to(x.dtype), 1.5, 1.25),
    "randint_like": (lambda x: torch.randint_like(x, 1, 3), 1.5, 0.25),
    "randperm": (lambda x: torch.randperm(x.numel()).to(x.dtype) / x.numel(), 0.5, 1 / 12),
}


def drawn(draw: random.Random) -> tuple[Verdict, str]:
    """Dropout of several kinds and the distributions, inside a compiled function."""
    torch._dynamo.reset()
    kind = draw.choice(("dropout", "dropout", "feature", "alpha", *DISTRIBUTIONS))
    x = torch.ones(64, 8, 32, dtype=draw.choice((torch.float32, torch.float64)))
    seed = draw.randrange(1 << 30)
    if kind not in ("dropout", "feature", "alpha"):
        return _distribution(kind, x, seed)
    share = draw.choice((0.1, 0.5, 0.8))
    f: Any = {"dropout": torch.nn.functional.dropout, "feature": torch.nn.functional.dropout1d,
              "alpha": torch.nn.functional.alpha_dropout}[kind]
    compiled = torch.compile(lambda x: f(x * 2.0, share, training=True), backend="morpho")
    story = f"{kind} {share} {x.dtype}"

    def once(seed: int) -> tuple[Any, Any]:
        torch.manual_seed(seed)
        leaf = x.clone().requires_grad_()
        out = compiled(leaf)
        out.sum().backward()
        return out.detach(), leaf.grad

    try:
        (out, gradient), (again, _), (other, _) = once(seed), once(seed), once(seed + 1)
    except Exception as error:
        return ("raised", f"{type(error).__name__}: {error}"), story
    if not torch.equal(out, again) or torch.equal(out, other):
        return ("wrong", "a seed does not repeat, or another seed does"), story
    if kind == "alpha":
        return ("same", ""), story
    kept = out != 0
    if not torch.allclose(out[kept], torch.tensor(2 / (1 - share), dtype=x.dtype)) or not torch.allclose(gradient, out):
        return ("wrong", "values or gradients are not those of the mask"), story
    if kind == "feature" and not bool((kept.all(2) | ~kept.any(2)).all()):
        return ("wrong", "a feature is dropped in part"), story
    draws = kept.numel() // (32 if kind == "feature" else 1)
    if abs(kept.double().mean() - (1 - share)) > 6 * (share * (1 - share) / draws) ** 0.5:
        return ("wrong", f"kept {kept.double().mean():.4f} of {1 - share}"), story
    return ("same", ""), story


def _distribution(kind: str, x: Any, seed: int) -> tuple[Verdict, str]:
    function, mean, variance = DISTRIBUTIONS[kind]
    compiled = torch.compile(lambda x: function(x * 1.0) + 0.0, backend="morpho")
    story = f"{kind} {x.dtype}"
    made = []
    try:
        for number in (seed, seed, seed + 1):
            torch.manual_seed(number)
            made.append(compiled(x))
    except Exception as error:
        return ("raised", f"{type(error).__name__}: {error}"), story
    out = made[0].double()
    if not torch.equal(made[0], made[1]) or torch.equal(made[0], made[2]):
        return ("wrong", "a seed does not repeat, or another seed does"), story
    if made[0].dtype != x.dtype or made[0].numel() != x.numel():
        return ("wrong", f"{made[0].dtype} {tuple(made[0].shape)}"), story
    if abs(out.mean() - mean) > 6 * (variance / out.numel()) ** 0.5 or abs(out.var() / variance - 1) > 0.15:
        return ("wrong", f"mean {out.mean():.4f} of {mean:.4f}, variance {out.var():.4f} of {variance:.4f}"), story
    return ("same", ""), story


DOORS: dict[str, Callable[[random.Random], tuple[Verdict, str]]] = {
    "from_torch": exported, "to_torch": given, "random": drawn}


def hunted(seed: int, rounds: int, doors: list[str], only: int | None = None) -> Counter[str]:
    """Counts of verdicts; a line for every fault."""
    counts: Counter[str] = Counter()
    for turn in range(rounds) if only is None else (only,):
        door = doors[turn % len(doors)]
        (verdict, why), story = DOORS[door](random.Random(f"{seed} {turn}"))
        counts[f"{door}: {verdict}"] += 1
        if verdict in ("wrong", "raised") or only is not None:
            print(f"{verdict} {turn} {door} {story}: {why[:900]}", flush=True)
    return counts


def main() -> int:
    """Hunt, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--door", choices=sorted(DOORS), action="append")
    parser.add_argument("--only", type=int, help="the number of one round")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts = hunted(options.seed, options.rounds, options.door or sorted(DOORS), options.only)
    print(dict(sorted(counts.items())))
    return int(any(name.endswith(("wrong", "raised")) for name in counts))


if __name__ == "__main__":
    sys.exit(main())
