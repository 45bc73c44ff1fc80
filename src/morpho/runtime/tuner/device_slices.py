"""One problem of a device's program by itself, timed by the device's own clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from morpho.backends.registry import backend_of
from morpho.base.dims import upper
from morpho.cost.tuned_choices import NO_CHOICES, Choice, Problem
from morpho.ir.views import is_view, look_through
from morpho.runtime.tuner import slices
from morpho.runtime.tuner.slices import MOST_BYTES, Slice, Unsliced


class DeviceSlice(Slice):
    """A problem on a device, which can be run with any choice. What is timed lies between two marks of its queue."""

    def __init__(self, problem: Problem, device: str) -> None:
        self.problem = problem
        self.backend: Any = backend_of(device)
        self.graph, _ = slices.slice_graph(problem, ())
        self.specs = [(node.shape, node.dtype, slices._elements(node)) for node in self.graph.parameters]
        self.sizes = [upper(slices._count(spec.shape)) * spec.dtype.itemsize for spec in problem.node.outputs]
        if sum(self.sizes) + sum(count * dtype.itemsize for _, dtype, count in self.specs) > MOST_BYTES:
            raise Unsliced("it takes more memory than tuning may")
        self.given: list[Any] = []
        self.made = [self.backend.allocate(max(size, 1)) for size in self.sizes]
        for number, (_, dtype, count) in enumerate(self.specs):
            values = self._numbers(number, dtype, count)
            buffer = self.backend.allocate(max(values.nbytes, 1))
            self.backend.copy_in(buffer, memoryview(values.view(np.uint8))).wait()  # type: ignore[arg-type]
            self.given.append(buffer)
        self.runs: dict[Choice, Any] = {}

    def _numbers(self, number: int, dtype: Any, count: int) -> np.ndarray:
        """Small numbers; of a sparse operand rows of equal length, and indices inside the axis."""
        node = self.graph.outputs[0]
        if dtype.numpy.kind in "iu" and dtype.name != "bfloat16" and node.op.name == "spmm":
            place = next((n for n, child in enumerate(node.inputs)
                          if look_through(child, is_view)[0].attributes.get("index") == number), 0)
            limit, elements = upper(node.inputs[0].shape[0]), upper(node.inputs[3].shape[0])
            found = np.linspace(0, elements, count) if place == 2 else np.arange(count) * 7919 % limit
            return found.astype(dtype.numpy)
        if dtype.name == "bfloat16":
            return np.resize((slices.SMALL_NUMBERS.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16), count)
        if dtype.numpy.kind in "fc":
            return np.resize(slices.SMALL_NUMBERS.astype(dtype.numpy), count)
        return np.zeros(count, dtype.numpy)

    def call(self, choice: Choice) -> Callable[[], Any]:
        """The compiled call of a choice; it queues."""
        found = self.runs.get(choice)
        if found is None:
            found = self.runs[choice] = self.backend.slice_executable(
                self.graph, NO_CHOICES.with_choice(self.problem.key, choice))
            if self.problem.key not in found.program.problems:
                raise Unsliced("by itself it is another problem")
        return lambda: found.enqueue(self.given, self.made, {})

    def bits(self, choice: Choice) -> list[bytes]:
        """Result of a choice, byte for byte."""
        self.call(choice)().wait()
        found = []
        for buffer, size in zip(self.made, self.sizes, strict=True):
            room = bytearray(size)
            self.backend.copy_out(buffer, memoryview(room)).wait()
            found.append(bytes(room))
        return found

    def seconds(self, choice: Choice, least_s: float) -> float:
        """Of one call, by the device's clock."""
        call = self.call(choice)
        count = 1
        while True:
            first = self.backend.clock_mark()
            for _ in range(count):
                event = call()
            taken: float = self.backend.clock_seconds(first, self.backend.clock_mark())
            event.wait()
            if taken >= least_s or count >= 1024:
                return max(taken / count, 1e-9)
            count = min(1024, max(2 * count, int(1.2 * count * least_s / max(taken, 1e-7))))

    def __del__(self) -> None:
        for buffer in (*getattr(self, "given", ()), *getattr(self, "made", ())):
            self.backend.release(buffer)
