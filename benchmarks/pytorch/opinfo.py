"""``python -m benchmarks.pytorch.opinfo``: PyTorch's own operation database through the `morpho` backend.

Every sample of every operation is traced as `torch.compile` would trace it, run by Morpho, and compared with eager
PyTorch, values and gradients. A call is right, wrong, or left: some of its operations stayed in PyTorch. The last lines
count core ATen operations: right, wrong, missing, each missing one by name.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import morpho.torch
from benchmarks.pytorch.direct import calls, graph_of
from morpho.torch.aten import TABLE
from morpho.torch.backend import decompositions
from morpho.torch.runner import Runner

TOLERANCES = {torch.float32: (2e-4, 2e-5), torch.float64: (1e-7, 1e-9), torch.bfloat16: (2e-2, 2e-2),
              torch.float16: (4e-3, 4e-3), torch.complex64: (2e-4, 2e-5), torch.complex128: (1e-7, 1e-9)}
# Sizes and mutation: taken out of the graph before the table is asked, by the lowering and by functionalisation.
HANDLED = {"aten.sym_size.int": "lowering", "aten.sym_numel.default": "lowering", "aten.sym_stride.int": "lowering",
           "aten.sym_storage_offset.default": "lowering", "aten.sym_is_contiguous.default": "lowering",
           "aten._native_batch_norm_legit.default": "aten._native_batch_norm_legit_functional.default",
           "aten.atan2.out": "aten.atan2.default"}


@dataclass
class Outcome:
    """What became of the calls of all operations."""

    seen: str = "none"  # entries of the database
    calls: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)  # ATen operations in calls with right answers
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    left: Counter[str] = field(default_factory=Counter)
    suspects: Counter[str] = field(default_factory=Counter)  # ATen operations in calls with wrong answers
    dtypes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # kinds of outcomes by dtype
    core_left: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))  # core operations, dtypes

    def count(self, kind: str, name: str) -> None:
        """One call of an operation, whose name ends with a dtype."""
        self.calls[kind] += 1
        self.dtypes[name.rpartition(" ")[2]][kind] += 1


@cache
def core_operations() -> list[str]:
    """The names of all operations tagged as core ATen."""
    found = []
    names = {schema.name.partition("::")[2] for schema in torch._C._jit_get_all_schemas()
             if schema.name.startswith("aten::")}  # torch.ops.aten lists only those that were asked for
    for packet in (getattr(torch.ops.aten, name, None) for name in names):
        for overload in packet.overloads() if packet is not None else ():
            operation = getattr(packet, overload)
            if torch.Tag.core in operation.tags:
                found.append(str(operation))
    return sorted(found)


def cases(operation: Any, dtype: torch.dtype, most: int, gradients: bool) -> Iterator[tuple[str, Callable[..., Any],
                                                                                            list[Any]]]:
    """Functions of tensors alone, with their tensors: values of up to `most` samples, and gradients of the first."""
    samples = list(operation.sample_inputs("cpu", dtype, requires_grad=False))
    step = max(len(samples) // most, 1)
    for number, sample in enumerate(samples[::step][:most]):
        flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [i for i, leaf in enumerate(flat) if isinstance(leaf, torch.Tensor)]

        def call(*tensors: Any, flat: Any = flat, spec: Any = spec, places: Any = places) -> Any:
            filled = list(flat)
            for place, tensor in zip(places, tensors, strict=True):
                filled[place] = tensor
            value, args, kwargs = pytree.tree_unflatten(filled, spec)
            return [leaf for leaf in pytree.tree_leaves(operation.op(value, *args, **kwargs))
                    if isinstance(leaf, torch.Tensor)]

        tensors = [flat[i].detach() for i in places]
        yield f"sample {number}", call, tensors
        if gradients and number == 0 and operation.supports_autograd:
            wanted = [i for i, t in enumerate(tensors) if t.is_floating_point()]

            def backward(*tensors: Any, call: Any = call, wanted: Any = wanted) -> Any:
                held = [t.detach().requires_grad_(i in wanted) for i, t in enumerate(tensors)]
                out = [o for o in call(*held) if o.requires_grad]
                total = sum(((o.abs() if o.is_complex() else o) * 0.5).sum() for o in out)
                found = torch.autograd.grad(total, [held[i] for i in wanted], allow_unused=True)
                return [g for g in found if g is not None]

            if wanted:
                yield "gradient", backward, tensors


def compare(name: str, case: str, function: Callable[..., Any], tensors: list[Any], outcome: Outcome) -> None:
    """One call: traced, run by Morpho, compared."""
    outcome.count("all", name)
    try:
        expected = function(*[t.clone() for t in tensors])
        if case == "gradient":  # autograd first, then the writes inside its rules are taken out
            function = make_fx(function, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
        traced = make_fx(torch.func.functionalize(function), decomposition_table=decompositions(),
                         tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    except Exception as error:  # an operation that PyTorch itself cannot trace
        outcome.count("not traced by PyTorch", name)
        logging.debug("%s %s: %s", name, case, error)
        return
    judge(name, case, traced, tensors, expected, outcome)


def judge(name: str, case: str, traced: GraphModule, tensors: list[Any], expected: list[Any], outcome: Outcome) -> None:
    """One graph: run by Morpho, compared with what PyTorch made."""
    used = [str(n.target) for n in traced.graph.nodes if n.op == "call_function" and str(n.target).startswith("aten")]
    morpho.torch.reset()
    try:
        found = Runner(traced, "opinfo")(*tensors)
        undefined = "empty" in name or any(
            torch.Tag.nondeterministic_seeded in getattr(n.target, "tags", ()) for n in traced.graph.nodes)
        if name.startswith(("topk", "sort", "argsort")):  # the order of equal elements is not said
            found, expected = ([] if name.startswith("argsort") else values[:1] for values in (found, expected))
        for value, wanted in zip(found, expected, strict=True):
            rtol, atol = TOLERANCES.get(wanted.dtype, (0.0, 0.0))
            if undefined:
                assert value.shape == wanted.shape and value.dtype == wanted.dtype
            else:
                torch.testing.assert_close(value, wanted, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except Exception as error:
        outcome.count("wrong", name)
        print(f"WRONG {name} {case}", flush=True)
        outcome.wrong[name].append(f"{case}: {type(error).__name__}: " + " ".join(str(error).split())[:240])
        outcome.suspects.update(used)
        return
    left = morpho.torch.report().left
    outcome.left.update(left)
    outcome.count("left" if left else "right", name)
    for kept in set(left).intersection(core_operations()):
        outcome.core_left[kept][name.rpartition(" ")[2]] += left[kept]
    outcome.right.update(set(used) - set(left))


def run(options: argparse.Namespace) -> Outcome:
    """All operations that the options ask for."""
    from torch.testing._internal.common_methods_invocations import op_db

    outcome = Outcome()
    core = {name.split(".")[1].strip("_") for name in core_operations()}
    chosen = [operation for operation in op_db
              if not options.only or any(word in operation.name for word in options.only.split(","))]
    chosen.sort(key=lambda operation: not is_core(operation, core))  # core operations first
    if options.core:
        chosen = [operation for operation in chosen if is_core(operation, core)]
    try:
        for number, operation in enumerate(chosen, 1):
            one(operation, options, outcome)
            outcome.seen = f"{number} of {len(chosen)}"
        for dtype in options.dtypes.split(","):
            directly(getattr(torch, dtype), options.only, outcome)
    except KeyboardInterrupt:
        print(f"stopped after {outcome.seen} entries of the database")
    return outcome


def is_core(operation: Any, core: set[str]) -> bool:
    """Whether an entry of the database is named as a core operation, or calls one by its own name."""
    names = {operation.name.rpartition(".")[2], operation.aten_name, operation.name.replace(".", "_")}
    return any(name.strip("_") in core for name in names if name)


def directly(dtype: torch.dtype, only: str, outcome: Outcome) -> None:
    """The operations that the database does not reach."""
    for name, args, kwargs in calls(dtype):
        if only and not any(word in name for word in only.split(",")):
            continue
        torch.manual_seed(0)
        full = f"{name} {str(dtype)[6:]}"
        outcome.count("all", full)
        try:
            graph, tensors, expected = graph_of(name, args, kwargs)
        except (RuntimeError, NotImplementedError) as error:  # a dtype that PyTorch has not
            outcome.count("not traced by PyTorch", full)
            logging.debug("%s: %s", full, error)
            continue
        judge(full, "alone", graph, tensors, expected, outcome)


def one(operation: Any, options: argparse.Namespace, outcome: Outcome) -> None:
    """All samples of one entry of the database, in every dtype that is asked for and that it has."""
    for dtype in (getattr(torch, word) for word in options.dtypes.split(",")):
        if dtype not in operation.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        name = f"{operation.name}{'.' + operation.variant_test_name if operation.variant_test_name else ''}"
        try:
            for case, function, tensors in cases(operation, dtype, options.samples, options.gradients):
                compare(f"{name} {str(dtype)[6:]}", case, function, tensors, outcome)
        except Exception as error:
            outcome.count("no sample", f"{name} {str(dtype)[6:]}")
            logging.debug("%s: %s", name, error)


def summary(outcome: Outcome) -> list[str]:
    """The report, most telling lines last."""
    lines = [f"WRONG {name}: {text}" for name, texts in sorted(outcome.wrong.items()) for text in texts]
    lines += [f"left in PyTorch: {name} x {count}" for name, count in outcome.left.most_common()]
    core = core_operations()
    entered = [name for name in core if name in TABLE or name in HANDLED]
    missing = [name for name in core if name not in entered]
    checked = [name for name in entered if outcome.right[name] or outcome.right[HANDLED.get(name, "")]]
    lines.append(f"entries of the database: {outcome.seen}")
    lines += [f"{dtype}: " + ", ".join(f"{count} {kind}" for kind, count in found.most_common())
              for dtype, found in outcome.dtypes.items()]
    lines.append("calls: " + ", ".join(f"{count} {kind}" for kind, count in outcome.calls.most_common()))
    lines.append(f"core ATen: {len(entered)} of {len(core)} in the table ({100 * len(entered) / len(core):.1f} %), "
                 f"{len(checked)} of them seen with right answers here")
    lines += [f"core, but left in PyTorch in some calls: {name} x " + ", ".join(
        f"{count} {dtype}" for dtype, count in found.items()) for name, found in sorted(outcome.core_left.items())]
    lines += [f"missing: {name} x {outcome.left[name]}" for name in missing]
    lines += [f"not seen: {name}" for name in entered if name not in checked and not name.startswith("aten.sym_")]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pytorch.opinfo", description=__doc__)
    parser.add_argument("--only", default="", help="operations whose names hold one of these words: conv,pool")
    parser.add_argument("--core", action="store_true", help="only entries that are named as core ATen operations")
    parser.add_argument("--samples", type=int, default=4, help="samples of each operation and dtype (4)")
    parser.add_argument("--dtypes", default="float32", help="dtypes: float32,int64,bool,bfloat16,complex64 (float32)")
    parser.add_argument("--gradients", action=argparse.BooleanOptionalAction, default=True, help="backward graphs too")
    parser.add_argument("--log", type=Path, default=None, help="write the report to this file too")
    parser.add_argument("--json", type=Path, default=None, help="write the counts to this file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("morpho").setLevel(logging.ERROR)
    outcome = run(options)
    text = "\n".join(summary(outcome))
    print(text)
    if options.log is not None:
        options.log.write_text(text + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps({"calls": outcome.calls, "left": outcome.left, "wrong": outcome.wrong}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
