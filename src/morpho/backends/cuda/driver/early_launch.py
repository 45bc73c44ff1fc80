# ruff: noqa: E501 (lines of LLVM's language)
"""`cuLaunchKernel` for kernels that wait themselves for those before them: by `cuLaunchKernelEx`, with the attribute that
lets them come early where the last argument is not null; or the plain function, where a driver or a chip has none."""

from __future__ import annotations

import ctypes

from morpho.backends.code.compiler import llvm
from morpho.base.target import isa_named

LEAST_DRIVER = 12040  # graphs hold such launches from CUDA 12.3 on
PROGRAMMATIC = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION

TEXT = f"""
@early_function = global ptr null
define void @early_set(ptr %function) {{
  store ptr %function, ptr @early_function
  ret void
}}
define i32 @early_launch(ptr %function, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %shared, ptr %stream, ptr %arguments, ptr %early) {{
  %attribute = alloca [18 x i32], align 8
  call void @llvm.memset.p0.i64(ptr %attribute, i8 0, i64 72, i1 false)
  store i32 {PROGRAMMATIC}, ptr %attribute
  %value = getelementptr i32, ptr %attribute, i64 2
  store i32 1, ptr %value
  %config = alloca [7 x i64], align 8
  store i32 %gx, ptr %config
  %p1 = getelementptr i32, ptr %config, i64 1
  store i32 %gy, ptr %p1
  %p2 = getelementptr i32, ptr %config, i64 2
  store i32 %gz, ptr %p2
  %p3 = getelementptr i32, ptr %config, i64 3
  store i32 %bx, ptr %p3
  %p4 = getelementptr i32, ptr %config, i64 4
  store i32 %by, ptr %p4
  %p5 = getelementptr i32, ptr %config, i64 5
  store i32 %bz, ptr %p5
  %p6 = getelementptr i32, ptr %config, i64 6
  store i32 %shared, ptr %p6
  %p7 = getelementptr i64, ptr %config, i64 4
  store ptr %stream, ptr %p7
  %p8 = getelementptr i64, ptr %config, i64 5
  store ptr %attribute, ptr %p8
  %some = icmp ne ptr %early, null
  %count = zext i1 %some to i64
  %p9 = getelementptr i64, ptr %config, i64 6
  store i64 %count, ptr %p9
  %call = load ptr, ptr @early_function
  %status = call i32 %call(ptr %config, ptr %function, ptr %arguments, ptr null)
  ret i32 %status
}}
@plain_function = global ptr null
define void @plain_set(ptr %function) {{
  store ptr %function, ptr @plain_function
  ret void
}}
define i32 @plain_launch(ptr %function, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %shared, ptr %stream, ptr %arguments, ptr %early) {{
  %call = load ptr, ptr @plain_function
  %status = call i32 %call(ptr %function, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %shared, ptr %stream, ptr %arguments, ptr null)
  ret i32 %status
}}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
"""


def launch_function(plain: int, extended: int) -> int:
    """The address of what launches, given those of `cuLaunchKernel` and, 0 where kernels do not wait themselves, of
    `cuLaunchKernelEx`."""
    isa = isa_named("native")
    names = ["early_set", "early_launch"] if extended else ["plain_set", "plain_launch"]
    setter, launch = llvm.load(llvm.compile_text(TEXT, isa), isa, names)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(setter)(extended or plain)
    return int(launch)
