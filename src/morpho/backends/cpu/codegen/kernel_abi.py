"""What every kernel's function looks like from outside: its C signature, and the status it returns.

`buffers` are the addresses of the operands, `values` the kernel's numbers (sizes, strides, offsets, 64 bits each), the
work is rows `row0..row1` and columns `col0..col1` of its iteration space, `scratch` the memory of the calling thread.
"""

from __future__ import annotations

SIGNATURE = "ptr %buffers, ptr %values, i64 %row0, i64 %row1, i64 %col0, i64 %col1, ptr %scratch"
FAULT_INDEX = 1  # an index lies outside its axis; 0 is no fault
