# ruff: noqa: E501 (lines of LLVM's language)
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
@gpu_shared_memory = external addrspace(3) global [0 x i8], align 1024
define internal ptr @gpu.shared(ptr %c) alwaysinline {
  ret ptr addrspacecast (ptr addrspace(3) @gpu_shared_memory to ptr)
}
declare void @llvm.nvvm.barrier.cta.sync.aligned.all(i32)
define internal void @gpu.barrier(ptr %c) alwaysinline convergent {
  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 0)
  ret void
}
declare void @llvm.nvvm.bar.warp.sync(i32)
define internal void @gpu.warp_barrier(ptr %c) alwaysinline convergent {
  call void @llvm.nvvm.bar.warp.sync(i32 -1)
  ret void
}
declare i32 @llvm.nvvm.shfl.sync.bfly.i32(i32, i32, i32, i32)
define internal i32 @gpu.shuffle_xor(ptr %c, i32 %x, i32 %mask) alwaysinline convergent {
  %r = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 -1, i32 %x, i32 %mask, i32 31)
  ret i32 %r
}

declare void @llvm.nvvm.cp.async.commit.group()
declare void @llvm.nvvm.cp.async.wait.group(i32)
define internal void @gpu.cp_commit(ptr %c) alwaysinline {
  call void @llvm.nvvm.cp.async.commit.group()
  ret void
}
define internal i32 @gpu.shared_at(i32 %offset) alwaysinline {
  %base = ptrtoint ptr addrspace(3) @gpu_shared_memory to i32
  %at = add i32 %base, %offset
  ret i32 %at
}
define internal void @gpu.cp_async(ptr %c, i32 %offset, ptr %source, i32 %bytes) alwaysinline {
  %at = call i32 @gpu.shared_at(i32 %offset)
  %g = addrspacecast ptr %source to ptr addrspace(1)
  call void asm sideeffect "cp.async.cg.shared.global [$0], [$1], 16, $2;", "r,l,r,~{memory}"(i32 %at, ptr addrspace(1) %g, i32 %bytes)
  ret void
}
define internal void @gpu.prefetch(ptr %c, ptr %source) alwaysinline {
  %g = addrspacecast ptr %source to ptr addrspace(1)
  call void asm sideeffect "prefetch.global.L2 [$0];", "l"(ptr addrspace(1) %g)
  ret void
}
define internal { i32, i32, i32, i32 } @gpu.ldmatrix(ptr %c, i32 %offset) alwaysinline convergent {
  %at = call i32 @gpu.shared_at(i32 %offset)
  %r = call { i32, i32, i32, i32 } asm sideeffect "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];", "=r,=r,=r,=r,r,~{memory}"(i32 %at)
  ret { i32, i32, i32, i32 } %r
}
define internal { i32, i32, i32, i32 } @gpu.ldmatrix_trans(ptr %c, i32 %offset) alwaysinline convergent {
  %at = call i32 @gpu.shared_at(i32 %offset)
  %r = call { i32, i32, i32, i32 } asm sideeffect "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {$0,$1,$2,$3}, [$4];", "=r,=r,=r,=r,r,~{memory}"(i32 %at)
  ret { i32, i32, i32, i32 } %r
}
""" + "".join(f"""
define internal void @gpu.cp_wait_{n}(ptr %c) alwaysinline {{
  call void @llvm.nvvm.cp.async.wait.group(i32 {n})
  ret void
}}
""" for n in range(16)) + "".join(f"""
define internal {{ float, float, float, float }} @gpu.mma_{kind}(ptr %c, i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, i32 %b1, float %c0, float %c1, float %c2, float %c3) alwaysinline convergent {{
  %r = call {{ float, float, float, float }} asm "mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};", "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f"(i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, i32 %b1, float %c0, float %c1, float %c2, float %c3)
  ret {{ float, float, float, float }} %r
}}
""" for kind in ("bf16", "f16")) + "".join(f"""
define internal {{ i32, i32, i32, i32 }} @gpu.mma_{a}8_{b}8(ptr %c, i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, i32 %b1, i32 %c0, i32 %c1, i32 %c2, i32 %c3) alwaysinline convergent {{
  %r = call {{ i32, i32, i32, i32 }} asm "mma.sync.aligned.m16n8k32.row.col.s32.{a}8.{b}8.s32 {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};", "=r,=r,=r,=r,r,r,r,r,r,r,r,r,r,r"(i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, i32 %b1, i32 %c0, i32 %c1, i32 %c2, i32 %c3)
  ret {{ i32, i32, i32, i32 }} %r
}}
""" for a in "su" for b in "su") + """
define internal { float, float, float, float } @gpu.mma_tf32(ptr %c, i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, i32 %b1, float %c0, float %c1, float %c2, float %c3) alwaysinline convergent {
  %r = call { float, float, float, float } asm "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};", "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f"(i32 %a0, i32 %a1, i32 %a2, i32 %a3, i32 %b0, i32 %b1, float %c0, float %c1, float %c2, float %c3)
  ret { float, float, float, float } %r
}
define internal i32 @gpu.to_tf32(ptr %c, float %x) alwaysinline {
  %r = call i32 asm "cvt.rna.tf32.f32 $0, $1;", "=r,f"(float %x)
  ret i32 %r
}
define internal float @gpu.exp2(ptr %c, float %x) alwaysinline {
  %r = call float asm "ex2.approx.ftz.f32 $0, $1;", "=f,f"(float %x)
  ret float %r
}
define internal float @gpu.reciprocal(ptr %c, float %x) alwaysinline {
  %r = call float asm "rcp.approx.ftz.f32 $0, $1;", "=f,f"(float %x)
  ret float %r
}
define internal float @gpu.log2(ptr %c, float %x) alwaysinline {
  %r = call float asm "lg2.approx.f32 $0, $1;", "=f,f"(float %x)
  ret float %r
}
""" + "".join(f"""
define internal i32 @gpu.pack_{kind}(ptr %c, float %low, float %high) alwaysinline {{
  %r = call i32 asm "cvt.rn.{kind}x2.f32 $0, $1, $2;", "=r,f,f"(float %high, float %low)
  ret i32 %r
}}
""" for kind in ("bf16", "f16"))
