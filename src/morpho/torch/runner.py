"""A lowered graph as a callable of PyTorch tensors: stages in order, each one native call, then what PyTorch keeps."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule, Node

import morpho as mo
from morpho.base.errors import MorphoError
from morpho.tensor.core import Tensor
from morpho.torch import report
from morpho.torch.lowering import Lowered, Stage, expressions, is_symbolic, lower, size_of
from morpho.torch.places import aliases, share, sharing
from morpho.torch.program import Size, StepFault, evaluated
from morpho.torch.tensors import borrow, hand_over

log = logging.getLogger("morpho")
_KEYS = 1 << 62
_ROOM, _LEAST = 4, 16  # a dynamic size may grow to so many times the first one, and to this, before code is made anew


def fresh_key() -> np.ndarray:
    """A key for Morpho's random numbers, drawn from PyTorch's default generator: `torch.manual_seed` repeats it."""
    seed = int(torch.randint(_KEYS, (), dtype=torch.int64).item())
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)


class NativeStage:
    """The program of a stage, compiled."""

    def __init__(self, stage: Stage) -> None:
        self.program = stage.program
        self.inputs, self.outputs = stage.inputs, stage.outputs
        self._kept: list[tuple[Any, int, Tensor] | None] = [None] * len(stage.inputs)
        self._is_static = [_is_lasting(node) for node in stage.inputs]
        self._inverse = [None if order is None else tuple(np.argsort(order).tolist()) for order in self.program.orders]
        self._strides = [_odd_strides(node) for node in stage.outputs]
        self.is_dynamic, self._is_random = self.program.is_dynamic, self.program.is_random
        self._bounds = stage.bounds
        self._most: dict[str, int] = {}  # the largest sizes that the compiled function takes
        self.compiled: Any = None
        report.report().functions += 1

    def _compile(self, symbols: dict[str, int]) -> None:
        """Compile for sizes around these: memory is planned for the largest, so that is not PyTorch's bound."""
        dynamic = None
        if self.is_dynamic:
            self._most = {name: min(high, max(_ROOM * symbols[name], _LEAST, self._most.get(name, 0)))
                          for name, (_, high) in self._bounds.items()}
            try:
                dynamic = self.program.dims({name: (low, self._most[name]) for name, (low, _) in self._bounds.items()})
            except MorphoError as error:
                self._settle(error)
        self.compiled = mo.compile(self.program.function(), dynamic=dynamic)
        report.report().compiled.append(self.compiled)

    def _settle(self, error: Exception) -> None:
        """Compile for each size instead: counted, and said once."""
        self.is_dynamic, self._most = False, {}
        reason = error.reason if isinstance(error, StepFault) else str(error).split(". Hint")[0].split(". At ")[0]
        report.report().static[reason] += 1
        log.warning("a dynamic graph is compiled for each size: %s", reason)

    def _borrowed(self, number: int, tensor: torch.Tensor) -> Tensor:
        """The tensor over this memory; that of a parameter or buffer is kept for the next call."""
        kept = self._kept[number]
        if kept is not None and kept[0] is tensor and kept[1] == tensor.data_ptr():
            return kept[2]
        found = borrow(tensor)
        if isinstance(tensor, torch.nn.Parameter) or self._is_static[number]:
            self._kept[number] = (tensor, tensor.data_ptr(), found)
        return found

    def __call__(self, tensors: Sequence[torch.Tensor], symbols: dict[str, int]) -> list[torch.Tensor]:
        arguments: list[Any] = [self._borrowed(number, tensor) for number, tensor in enumerate(tensors)]
        arguments += [symbols[name] for name in self.program.symbols]
        if self._is_random:
            arguments.append(mo.asarray(fresh_key()))
        try:
            if self.compiled is None or any(symbols[name] > most for name, most in self._most.items()):
                self._compile(symbols)
            results = self.compiled(*arguments)
        except MorphoError as error:
            if not self.is_dynamic:
                raise
            self._settle(error)
            self._compile(symbols)
            results = self.compiled(*arguments)
        found = hand_over(results)
        for number, inverse in enumerate(self._inverse):
            if inverse is not None:
                found[number] = found[number].permute(inverse)
            strides = self._strides[number]
            if strides is not None:
                found[number] = torch.empty_strided(found[number].shape, strides, dtype=found[number].dtype).copy_(
                    found[number])
        return found


def _is_lasting(node: Node) -> bool:
    return node.op == "get_attr"


def _odd_strides(node: Node) -> tuple[int, ...] | None:
    """The strides PyTorch expects where they are neither contiguous nor a permutation of that."""
    value = node.meta["val"]
    if any(is_symbolic(step) for step in (*value.stride(), *value.shape)) or 0 in value.shape or value.ndim == 0:
        return None
    expected = 1
    for size, step in sorted(zip(value.shape, value.stride(), strict=True), key=lambda pair: pair[1]):
        if size != 1 and step != expected:
            return None if 0 in value.stride() else tuple(value.stride())
        expected *= size
    return None


class Runner:
    """Call it as the graph: with PyTorch tensors and numbers, for a list of PyTorch tensors and numbers."""

    def __init__(self, module: GraphModule, kind: str) -> None:
        report.report().graphs[kind] += 1
        self._module, self._kind = module, kind
        self._kept: dict[Node, str] = {}  # nodes that Morpho turned out not to have, and why
        self._make(lower(module))

    def _make(self, lowered: Lowered) -> None:
        self.lowered = lowered
        self.stages: list[tuple[NativeStage | None, list[Node]]] = [
            (NativeStage(stage) if stage.outputs else None, stage.left) for stage in lowered.stages]
        report.report().operations.update(lowered.operations())
        self._bind: Callable[[Sequence[Any]], dict[str, int]] = expressions(lowered)
        self._has_symbols = bool(lowered.bounds)
        self._aliases = aliases(lowered)
        self._shared = sharing(lowered.results, self._kind == "inference", {place.number for place in self._aliases})

    def _leave(self, fault: StepFault) -> None:
        """Make the stages anew, with an operation in PyTorch that Morpho has not for these dtypes."""
        node = self.lowered.node_of(fault.step)
        if node is None or node in self._kept:
            raise fault
        self._kept[node] = fault.reason
        held = report.report()
        held.functions -= sum(native is not None for native, _ in self.stages)
        held.operations.subtract(self.lowered.operations())
        report.leave(fault.step.entry.name, fault.reason)
        self._make(lower(self._module, lambda name, reason: None, self._kept))
        held.operations += Counter()  # without those that are none any more

    def __call__(self, *arguments: Any) -> list[Any]:
        report.report().calls += 1
        while True:
            try:
                return self._run(arguments)
            except StepFault as fault:
                self._leave(fault)

    def _run(self, arguments: Sequence[Any]) -> list[Any]:
        values: dict[Node, Any] = dict(zip(self.lowered.placeholders, arguments, strict=True))
        values.update(self.lowered.attributes)
        symbols = self._bind(arguments) if self._has_symbols else {}
        for native, left in self.stages:
            if native is not None:
                values.update(zip(native.outputs, native([values[node] for node in native.inputs], symbols),
                                  strict=True))
            for node in left:
                values[node] = _in_pytorch(node, values, symbols)
                if self._has_symbols:
                    _learn(node, values[node], symbols)
        results = [self._result(part, values, symbols) for part in self.lowered.results]
        for place in self._aliases:
            results[place.number] = place.of(arguments[place.source], symbols)
        for group in self._shared:
            share(results, group, symbols)
        return results

    def _result(self, part: Any, values: dict[Node, Any], symbols: dict[str, int]) -> Any:
        if isinstance(part, Node):
            return values[part]
        return evaluated(part, symbols) if isinstance(part, Size) else part


def _learn(node: Node, value: Any, symbols: dict[str, int]) -> None:
    """Sizes that only the data decide, such as the number of non-zero elements, are known from here on."""
    foreseen = node.meta.get("val")
    pairs = zip(foreseen.shape, value.shape, strict=True) if isinstance(foreseen, torch.Tensor) else [(foreseen, value)]
    for size, actual in pairs:
        found = size_of(size) if is_symbolic(size) else None
        if isinstance(found, Size) and found.text.isidentifier():
            symbols.setdefault(found.text, actual)


def _in_pytorch(node: Node, values: dict[Node, Any], symbols: dict[str, int]) -> Any:
    """An operation that Morpho leaves to PyTorch."""
    def value(n: Node) -> Any:
        return values[n] if n in values else evaluated(size_of(n.meta["val"]), symbols)

    args = torch.fx.map_arg(node.args, value)
    kwargs = torch.fx.map_arg(node.kwargs, value)
    return node.target(*args, **kwargs)
