"""The functions `@gpu.*` of a grid on an NVIDIA GPU: intrinsics and pieces of PTX."""

from __future__ import annotations


def _number(name: str, register: str) -> str:
    return f"""
define internal i64 @gpu.{name}(ptr %c) alwaysinline {{
  %x = call i32 @llvm.nvvm.read.ptx.sreg.{register}.x()
  %w = zext i32 %x to i64
  ret i64 %w
}}
declare i32 @llvm.nvvm.read.ptx.sreg.{register}.x()
"""


RUNTIME = "".join(_number(name, register) for name, register in
                  (("thread", "tid"), ("block", "ctaid"), ("threads", "ntid"), ("blocks", "nctaid"))) + """
@gpu.shared_memory = external addrspace(3) global [0 x i8], align 128
define internal ptr @gpu.shared(ptr %c) alwaysinline {
  ret ptr addrspacecast (ptr addrspace(3) @gpu.shared_memory to ptr)
}
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
define internal void @gpu.barrier(ptr %c) alwaysinline convergent {
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  ret void
}
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
define internal i32 @gpu.shuffle_xor(ptr %c, i32 %x, i32 %mask) alwaysinline convergent {
  %r = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %x, i32 %mask, i32 31)
  ret i32 %r
}
"""
