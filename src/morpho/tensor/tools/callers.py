"""Uses of the result of a call, from the bytecode of the line that made it: PyTorch's `values, indices = x.max(1)`
is no call of NumPy's."""

from __future__ import annotations

import dis
import functools
import sys
from types import CodeType, FrameType
from typing import Any

from morpho.base.errors import ArgumentError, fail

_PASSED = frozenset({"CACHE", "EXTENDED_ARG", "PRECALL", "NOP"})


@functools.lru_cache(maxsize=4096)
def _use_at(code: CodeType, place: int) -> str:
    for instruction in dis.get_instructions(code):
        if instruction.offset <= place or instruction.opname in _PASSED:
            continue
        if instruction.opname == "UNPACK_SEQUENCE":
            return "pair" if instruction.arg == 2 else ""
        if instruction.opname == "LOAD_ATTR" and instruction.argval in ("values", "indices"):
            return "field"
        return ""
    return ""


def use_of_result(frame: FrameType) -> str:
    """How a line uses the result of the call it is at: "pair" where it unpacks two, "field" where it reads `.values`
    or `.indices` of it, "" for any other."""
    return _use_at(frame.f_code, frame.f_lasti)


def caller_outside(*files: str) -> FrameType:
    """The innermost frame of none of these files."""
    frame: Any = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in files:
        frame = frame.f_back
    return frame  # type: ignore[no-any-return]


def wants_pair(name: str, use: str, shape: Any, axis: Any) -> bool:
    """Whether a call with an axis by place means PyTorch's pair of values and indices. NumPy's result of two lines may
    be unpacked too: that is an error."""
    if not use or type(axis) is not int or not -len(shape) <= axis < len(shape):
        return False
    rest = [size for number, size in enumerate(shape) if number != axis % len(shape)] if name != "sort" else shape
    if use == "pair" and rest and rest[0] == 2:
        raise fail(ArgumentError, name, "two are unpacked: NumPy's result has two lines here, and PyTorch's is the "
                                        "pair of values and indices",
                   f"write mo.{name}(x, axis={axis}) for NumPy's meaning, mo.{name}(x, dim={axis}) for PyTorch's")
    return True
