"""A graph of ONNX nodes being built: names, constants, sizes that are computed when it runs."""

from __future__ import annotations

from typing import Any

import numpy as np

from morpho.base.dims import Dim
from morpho.onnx.export.message import attribute_message, kind_of, tensor_message
from morpho.onnx.proto.dtypes import BFLOAT16, OF_DTYPE, ElementType
from morpho.onnx.run.coded import bfloat16_array
from morpho.tensor.core import Tensor


class Builder:
    """Nodes and initializers of one graph; a body has the names of its surroundings behind it."""

    def __init__(self, outer: Builder | None = None) -> None:
        self.outer = outer
        self.nodes: list[dict[str, Any]] = []
        self.initializers: list[dict[str, Any]] = []
        self.symbols: dict[str, str] = {} if outer is None else outer.symbols  # size -> name of its value, shape (1,)
        self._constants: dict[Any, str] = {}
        self._counter: list[int] = [0] if outer is None else outer._counter

    def fresh(self, hint: str) -> str:
        """A name that nothing has."""
        self._counter[0] += 1
        return f"{hint}_{self._counter[0]}"

    def node(self, op: str, inputs: list[str], count: int = 1, name: str = "", **attributes: Any) -> Any:
        """Add a node; the name of its output, or the names where there are several."""
        outputs = [name] if name else [self.fresh(op.lower()) for _ in range(count)]
        self.nodes.append({"input": inputs, "output": outputs, "name": outputs[0], "op_type": op,
                           "attribute": [attribute_message(key, value) for key, value in attributes.items()]})
        return outputs[0] if count == 1 else outputs

    def array(self, array: np.ndarray[Any, Any], kind: ElementType | None = None, name: str = "") -> str:
        """An initializer; equal small ones are one."""
        from morpho.base.dtypes import as_dtype

        kind = kind or OF_DTYPE[as_dtype(array.dtype)]
        key = (kind.code, array.shape, array.tobytes()) if array.size <= 64 and not name else None
        if key in self._constants:
            return self._constants[key]
        name = name or self.fresh("constant")
        self.initializers.append(tensor_message(array, kind, name))
        if key is not None:
            self._constants[key] = name
        return name

    def tensor(self, value: Tensor, name: str = "") -> str:
        """An initializer from a tensor."""
        if kind_of(value.dtype) is BFLOAT16:
            return self.array(bfloat16_array(value).view(np.uint16), BFLOAT16, name)
        return self.array(np.asarray(value.numpy()), kind_of(value.dtype), name)

    def scalar(self, value: Any, dtype: Any) -> str:
        """A constant without axes."""
        if kind_of(dtype) is BFLOAT16:
            bits = np.asarray(np.float32(value)).view(np.uint32) >> 16
            return self.array(bits.astype(np.uint16), BFLOAT16)
        return self.array(np.asarray(value, dtype.numpy))

    def sizes(self, shape: Any) -> str:
        """A shape as a tensor of int64: a constant, or put together from sizes that are known when it runs."""
        if all(isinstance(size, int) for size in shape):
            return self.array(np.asarray([*shape], np.int64))
        return str(self.node("Concat", [self.size(size) for size in shape], axis=0))

    def size(self, size: Any) -> str:
        """One size as a tensor of shape (1,): a polynomial of the symbols."""
        if isinstance(size, int):
            return self.array(np.asarray([size], np.int64))
        total = ""
        for monomial, coefficient in size.terms:
            part = self.array(np.asarray([coefficient], np.int64))
            for symbol in monomial:
                part = self.node("Mul", [part, self.symbols[symbol[0]]])
            total = self.node("Add", [total, part]) if total else part
        return total

    def know_symbols(self, name: str, shape: Any) -> None:
        """Take the values of symbols from the shape of an input."""
        for axis, size in enumerate(shape):
            if isinstance(size, Dim) and len(size.terms) == 1 and len(size.terms[0][0]) == 1:
                (symbol, _, _), = size.terms[0][0]
                if symbol in self.symbols:
                    continue
                found = self.node("Slice", [self.node("Shape", [name]), *(self.array(np.asarray([each], np.int64))
                                                                          for each in (axis, axis + 1))])
                if size.terms[0][1] != 1:
                    found = self.node("Div", [found, self.array(np.asarray([size.terms[0][1]], np.int64))])
                self.symbols[symbol] = found
