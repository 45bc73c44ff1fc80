"""cuBLASLt's functions over the emulated device's memory, by NumPy: matrices by columns, as in its reference. What it
is not told (a transpose, a batch) it does not see."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from morpho.backends.cuda.emulator.addresses import on_host

TYPES: dict[int, Any] = {0: np.float32, 1: np.float64, 2: np.float16, 14: np.uint16}


def _number(value: Any) -> int:
    return int(getattr(value, "value", value) or 0)


MATMUL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 14, ctypes.c_size_t, ctypes.c_void_p)


class FakeBlas:
    """Attributes are its functions; things are numbers of a list."""

    def __init__(self, ways: int = 1, device: Any = None) -> None:
        self.device = device  # one that records what is launched while a graph is captured
        self.things: list[dict[Any, int]] = [{}]
        self.ways = ways  # that the heuristics find
        self.products = 0
        self.cublasLtMatmul = MATMUL(self._matmul)  # an address for native code, as the library's functions have

    def _make(self, out: Any, **given: int) -> int:
        self.things.append({3: 0, 4: 0, 5: 1, 6: 0, **given})
        out._obj.value = len(self.things) - 1
        return 0

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> int:
            if name.endswith("SetAttribute"):
                thing, attribute, value, size = given
                assert ctypes.sizeof(value._obj) == _number(size)
                self.things[_number(thing)][attribute] = _number(value._obj)
                return 0
            return 0 if name.endswith("Destroy") else self._make(given[0])

        return call

    def cublasLtMatmulDescCreate(self, out: Any, compute: int, scale: int) -> int:
        assert (compute, scale) in ((68, 0), (70, 1))
        return self._make(out, scale=scale)

    def cublasLtMatrixLayoutCreate(self, out: Any, kind: int, rows: Any, columns: Any, step: Any) -> int:
        assert _number(step) >= _number(rows)
        return self._make(out, kind=kind, rows=_number(rows), columns=_number(columns), step=_number(step))

    def cublasLtMatmulAlgoGetHeuristic(self, *given: Any) -> int:
        given[-1]._obj.value = self.ways
        return 0

    def _matrix(self, address: Any, layout: dict[Any, int], number: int) -> np.ndarray:
        kind = TYPES[layout["kind"]]
        item = np.dtype(kind).itemsize
        start = on_host(_number(address)) + number * layout[6] * item
        count = (layout["columns"] - 1) * layout["step"] + layout["rows"]
        flat = np.frombuffer((ctypes.c_uint8 * (count * item)).from_address(start), kind)
        return np.lib.stride_tricks.as_strided(flat, (layout["rows"], layout["columns"]), (item, layout["step"] * item))

    @staticmethod
    def _wide(x: np.ndarray) -> np.ndarray:
        return (x.astype(np.uint32) << 16).view(np.float32) if x.dtype == np.uint16 else x

    def _matmul(self, *given: Any) -> int:
        if self.device is not None and self.device.recorded is not None:
            self.device.recorded.append(lambda: self._product(*given))
            return 0
        return self._product(*given)

    def _product(self, context: Any, description: Any, one: Any, a: Any, la: Any, b: Any, lb: Any, none: Any,
                 c: Any, lc: Any, *rest: Any) -> int:
        self.products += 1
        told = self.things[_number(description)]
        sides = [self.things[_number(layout)] for layout in (la, lb, lc)]
        for number in range(sides[0][5]):
            left, right, result = (self._matrix(place, layout, number)
                                   for place, layout in zip((a, b, c), sides, strict=True))
            left, right = (self._wide(x).astype(np.float64) for x in (left, right))
            value = (left.T if told[3] else left) @ (right.T if told[4] else right)
            if result.dtype == np.uint16:
                bits = value.astype(np.float32).view(np.uint32)
                value = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
            result[...] = value
        return 0
