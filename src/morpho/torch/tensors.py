"""Tensors both ways, without copies: Morpho borrows PyTorch's memory for a call, and hands its results over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import morpho as mo
from morpho.base.dtypes import DType
from morpho.base.errors import DTypeError, fail
from morpho.runtime.memory.buffer import Buffer, view_memory
from morpho.tensor.core import Tensor

DTYPES: dict[torch.dtype, DType] = {
    torch.bool: mo.bool, torch.int8: mo.int8, torch.int16: mo.int16, torch.int32: mo.int32, torch.int64: mo.int64,
    torch.uint8: mo.uint8, torch.uint16: mo.uint16, torch.uint32: mo.uint32, torch.uint64: mo.uint64,
    torch.float16: mo.float16, torch.bfloat16: mo.bfloat16, torch.float32: mo.float32, torch.float64: mo.float64,
    torch.complex64: mo.complex64, torch.complex128: mo.complex128,
}


def is_plain(tensor: Any) -> bool:
    """Whether Morpho can read this memory: a dense tensor on the CPU, of a dtype that it has."""
    return (tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.dtype in DTYPES
            and not tensor.is_quantized)


def borrow(tensor: torch.Tensor) -> Tensor:
    """A Morpho tensor over PyTorch's memory: it keeps the owner alive, and nothing of it is copied, packed or written.

    >>> import torch
    >>> x = torch.ones(2)
    >>> y = borrow(x)
    >>> _ = x.add_(1)
    >>> y.tolist()
    [2.0, 2.0]
    """
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None:
        raise fail(DTypeError, "from_torch", f"{tensor.dtype} has no tensor dtype", "convert it with .to() first")
    if tensor.is_conj() or tensor.is_neg():  # a view that says "the other sign"
        tensor = tensor.resolve_conj().resolve_neg()
    return Tensor.of_buffer(Buffer(tensor, tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), dtype, False))


def hand_over(results: Sequence[Tensor]) -> list[torch.Tensor]:
    """PyTorch tensors over the memory of results that nobody else holds; memory that two of them share, or that is
    borrowed, is copied."""
    found: list[torch.Tensor] = []
    taken: set[int] = set()
    for result in results:
        buffer = result.elements()
        array = view_memory(buffer.storage, buffer.address, buffer.shape, buffer.strides, buffer.dtype)
        tensor = torch.from_numpy(array)
        if buffer.dtype is mo.bfloat16:
            tensor = tensor.view(torch.bfloat16)
        if not buffer.writable or buffer.address in taken:
            tensor = tensor.clone()
        taken.add(buffer.address)
        found.append(tensor)
    return found
