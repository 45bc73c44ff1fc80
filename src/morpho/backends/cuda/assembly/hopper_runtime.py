# ruff: noqa: E501 (lines of LLVM's language and of PTX)
"""The functions `@gpu.*` that only Hopper has: barriers with a count of bytes, the copy engine (TMA), warpgroups.

They are added to kernels that call them: older chips do not assemble them.
"""

from __future__ import annotations

import re

_WGMMA = re.compile(r"@gpu\.wgmma_(bf16|f16)_(\d+)_([01])([01])\(")
_WEIGHTED = re.compile(r"@gpu\.wgmma_rs_(bf16|f16)_(\d+)_(\d+)\(")
_SCORES = re.compile(r"@gpu\.scores_(bf16|f16)_(\d+)_(\d+)_(\d+)_(\d+)\(")
_WEIGHTED_TWO = re.compile(r"@gpu\.wgmma_rs_two_(bf16|f16)_(\d+)_(\d+)_(\d+)\(")
_SCORES_TWO = re.compile(r"@gpu\.scores_two_(bf16|f16)_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)\(")
_ATTEND = re.compile(r"@gpu\.attend_(bf16|f16)_(\d+)_(\d+)_(\d+)_(\d+)_(\d+)\(")
_TMA = re.compile(r"@gpu\.tma_load_(\d)\(")
_REGISTERS = re.compile(r"@gpu\.registers_(up|down)_(\d+)\(")
STEP = 16  # values of k of an instruction
STEPS = 4  # instructions of a slice
TURNED_STEP, STRAIGHT_STEP = 2048 >> 4, 32 >> 4  # 16 bytes from one step of k to the next
LINES, PART = 1024 >> 4, 8192 >> 4  # 16 bytes from eight lines to the next ones; to the next 64 columns
SWIZZLED = 1 << 62  # lines of 128 bytes

# Programmatic dependent launch: the next grid may come to the multiprocessors now; go on when those before are over.
GRID_WAIT = """
define internal void @gpu.grid_early(ptr %c) alwaysinline {
  call void asm sideeffect "griddepcontrol.launch_dependents;", "~{memory}"()
  ret void
}
define internal void @gpu.grid_wait(ptr %c) alwaysinline {
  call void asm sideeffect "griddepcontrol.launch_dependents; griddepcontrol.wait;", "~{memory}"()
  ret void
}
"""
NO_GRID_WAIT = """
define internal void @gpu.grid_early(ptr %c) alwaysinline {
  ret void
}
define internal void @gpu.grid_wait(ptr %c) alwaysinline {
  ret void
}
"""

BARRIERS = """
define internal void @gpu.mbarrier_init(ptr %c, i32 %offset, i32 %count) alwaysinline {
  %at = call i32 @gpu.shared_at(i32 %offset)
  call void asm sideeffect "mbarrier.init.shared::cta.b64 [$0], $1;", "r,r,~{memory}"(i32 %at, i32 %count)
  ret void
}
define internal void @gpu.mbarrier_ready(ptr %c) alwaysinline {
  call void asm sideeffect "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;", "~{memory}"()
  ret void
}
define internal void @gpu.mbarrier_arrive(ptr %c, i32 %offset) alwaysinline {
  %at = call i32 @gpu.shared_at(i32 %offset)
  call void asm sideeffect "mbarrier.arrive.shared::cta.b64 _, [$0];", "r,~{memory}"(i32 %at)
  ret void
}
define internal void @gpu.mbarrier_expect(ptr %c, i32 %offset, i32 %bytes) alwaysinline {
  %at = call i32 @gpu.shared_at(i32 %offset)
  call void asm sideeffect "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r,~{memory}"(i32 %at, i32 %bytes)
  ret void
}
define internal void @gpu.mbarrier_wait(ptr %c, i32 %offset, i32 %phase) alwaysinline {
  %at = call i32 @gpu.shared_at(i32 %offset)
  call void asm sideeffect "{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra DONE; bra WAIT; DONE: }", "r,r,~{memory}"(i32 %at, i32 %phase)
  ret void
}
"""


def descriptor(turned: bool, part: int = PART) -> int:
    """What `wgmma` must know of an operand besides its address: its strides in units of 16 bytes, and its swizzle.

    >>> hex(descriptor(False)), hex(descriptor(True))
    ('0x4000004000010000', '0x4000004002000000')
    """
    return SWIZZLED | LINES << 32 | (part if turned else 1) << 16


def _tma_load(rank: int) -> str:
    """A box of an operand of so many axes, whose map lies among the words of the launch."""
    axes = [f"%x{n}" for n in range(rank)]
    places = ", ".join(f"${n + 2}" for n in range(rank))
    letters = ",".join(["r", "l", *["r"] * rank, "r", "~{memory}"])
    return f"""
define internal void @gpu.tma_load_{rank}(ptr %c, i32 %map, i32 %offset, i32 %barrier, {', '.join(f'i32 {x}' for x in axes)}) alwaysinline {{
  %at = call i32 @gpu.shared_at(i32 %offset)
  %b = call i32 @gpu.shared_at(i32 %barrier)
  %first = call i64 asm "{{ .reg .b64 t; mov.b64 t, kernel_main_param_0; cvta.param.u64 $0, t; }}", "=l"()
  %wide = zext i32 %map to i64
  %m = add i64 %first, %wide
  call void asm sideeffect "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [$0], [$1, {{{places}}}], [${rank + 2}];", "{letters}"(i32 %at, i64 %m, {', '.join(f'i32 {x}' for x in axes)}, i32 %b)
  ret void
}}
"""


def _weighted(kind: str, columns: int, keys: int) -> str:
    """Results with so many keys' values, weighted: A from registers, lines of B are keys."""
    count, weights = columns // 2, keys // 4
    struct = "{ " + ", ".join(["float"] * count) + " }"
    registers = "{" + ", ".join(f"${n}" for n in range(count)) + "}"
    b = f"${2 * count + weights}"
    lines = ["{ .reg .pred p; .reg .b64 b; setp.ne.b32 p, 1, 0;", "wgmma.fence.sync.aligned;"]
    for step in range(keys // STEP):
        four = ", ".join(f"${2 * count + 4 * step + n}" for n in range(4))
        lines.append(f"add.s64 b, {b}, {step * TURNED_STEP};")
        lines.append(f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {registers}, {{{four}}}, b, p, 1, 1, 1;")
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }")
    letters = ",".join([*["=f"] * count, *map(str, range(count)), *["r"] * weights, "l", "~{memory}"])
    given = ", ".join([*(f"float %x{n}" for n in range(count)), *(f"i32 %w{n}" for n in range(weights))])
    return f"""
define internal {struct} @gpu.wgmma_rs_{kind}_{columns}_{keys}(ptr %c, i32 %right, {given}) alwaysinline convergent {{
  %b0 = call i32 @gpu.shared_at(i32 %right)
  %b1 = lshr i32 %b0, 4
  %b2 = zext i32 %b1 to i64
  %b = or i64 %b2, {descriptor(True, 8 * keys)}
  %r = call {struct} asm sideeffect "{' '.join(lines)}", "{letters}"({given}, i64 %b)
  ret {struct} %r
}}
"""


def _wgmma(kind: str, columns: int, left: bool, right: bool) -> str:
    """A slice of k for 64 rows and so many columns: fence, instructions, and their end in one piece of assembly, so that
    nobody touches the registers in between."""
    count = columns // 2
    struct = "{ " + ", ".join(["float"] * count) + " }"
    registers = "{" + ", ".join(f"${n}" for n in range(count)) + "}"
    a, b = f"${2 * count}", f"${2 * count + 1}"
    lines = ["{ .reg .pred p; .reg .b64 a, b; setp.ne.b32 p, 1, 0;", "wgmma.fence.sync.aligned;"]
    for step in range(STEPS):
        first, second = (step * (TURNED_STEP if turned else STRAIGHT_STEP) for turned in (left, right))
        lines.append(f"add.s64 a, {a}, {first}; add.s64 b, {b}, {second};")
        lines.append(f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {registers}, a, b, p, 1, 1, "
                     f"{int(left)}, {int(right)};")
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }")
    letters = ",".join([*["=f"] * count, *map(str, range(count)), "l", "l", "~{memory}"])
    given = ", ".join(f"float %x{n}" for n in range(count))
    return f"""
define internal {struct} @gpu.wgmma_{kind}_{columns}_{int(left)}{int(right)}(ptr %c, i32 %left, i32 %right, {given}) alwaysinline convergent {{
  %a0 = call i32 @gpu.shared_at(i32 %left)
  %a1 = lshr i32 %a0, 4
  %a2 = zext i32 %a1 to i64
  %a = or i64 %a2, {descriptor(left)}
  %b0 = call i32 @gpu.shared_at(i32 %right)
  %b1 = lshr i32 %b0, 4
  %b2 = zext i32 %b1 to i64
  %b = or i64 %b2, {descriptor(right)}
  %r = call {struct} asm sideeffect "{' '.join(lines)}", "{letters}"({given}, i64 %a, i64 %b)
  ret {struct} %r
}}
"""


def _scores(kind: str, keys: int, parts: int, left_part: int, right_part: int) -> str:
    """Scores of 64 queries and so many keys over all parts of their depth, from nothing on: lines of both run along it."""
    count = keys // 2
    struct = "{ " + ", ".join(["float"] * count) + " }"
    registers = "{" + ", ".join(f"${n}" for n in range(count)) + "}"
    lines = ["{ .reg .pred p; .reg .b64 a, b; setp.ne.b32 p, 0, 0;", "wgmma.fence.sync.aligned;"]
    for part in range(parts):
        for step in range(STEPS):
            first, second = (part * (size >> 4) + step * STRAIGHT_STEP for size in (left_part, right_part))
            lines.append(f"add.s64 a, ${count}, {first}; add.s64 b, ${count + 1}, {second};")
            lines.append(f"wgmma.mma_async.sync.aligned.m64n{keys}k16.f32.{kind}.{kind} {registers}, a, b, p, 1, 1, 0, 0;")
            if part == step == 0:
                lines.append("setp.eq.b32 p, 0, 0;")
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }")
    letters = ",".join([*["=&f"] * count, "l", "l", "~{memory}"])
    return f"""
define internal {struct} @gpu.scores_{kind}_{keys}_{parts}_{left_part}_{right_part}(ptr %c, i32 %left, i32 %right) alwaysinline convergent {{
  %a0 = call i32 @gpu.shared_at(i32 %left)
  %a1 = lshr i32 %a0, 4
  %a2 = zext i32 %a1 to i64
  %a = or i64 %a2, {descriptor(False)}
  %b0 = call i32 @gpu.shared_at(i32 %right)
  %b1 = lshr i32 %b0, 4
  %b2 = zext i32 %b1 to i64
  %b = or i64 %b2, {descriptor(False)}
  %r = call {struct} asm sideeffect "{' '.join(lines)}", "{letters}"(i64 %a, i64 %b)
  ret {struct} %r
}}
"""


def _place(name: str, given: str, bits: int) -> str:
    """The descriptor of an operand at an offset of shared memory."""
    return f"""  %{name}0 = call i32 @gpu.shared_at(i32 %{given})
  %{name}1 = lshr i32 %{name}0, 4
  %{name}2 = zext i32 %{name}1 to i64
  %{name} = or i64 %{name}2, {bits}
"""


def _scores_two(kind: str, keys: int, first: int, second: int, left_part: int, right_part: int) -> str:
    """Two products like those of `_scores`, of other operands, in flight at the same time."""
    count = keys // 2
    struct = "{ " + ", ".join(["float"] * (2 * count)) + " }"
    lines = ["{ .reg .pred p, q; .reg .b64 a, b; setp.ne.b32 p, 0, 0; setp.eq.b32 q, 0, 0;", "wgmma.fence.sync.aligned;"]
    for which, parts in enumerate((first, second)):
        registers = "{" + ", ".join(f"${which * count + n}" for n in range(count)) + "}"
        for step in range(parts * STEPS):
            part, within = divmod(step, STEPS)
            left, right = (part * (size >> 4) + within * STRAIGHT_STEP for size in (left_part, right_part))
            lines.append(f"add.s64 a, ${2 * count + 2 * which}, {left}; add.s64 b, ${2 * count + 2 * which + 1}, {right};")
            lines.append(f"wgmma.mma_async.sync.aligned.m64n{keys}k16.f32.{kind}.{kind} {registers}, a, b, {'q' if step else 'p'}, 1, 1, 0, 0;")
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }")
    letters = ",".join([*["=&f"] * (2 * count), "l", "l", "l", "l", "~{memory}"])
    places = "".join(_place(name, f"p{name}", descriptor(False)) for name in "abcd")
    return f"""
define internal {struct} @gpu.scores_two_{kind}_{keys}_{first}_{second}_{left_part}_{right_part}(ptr %ctx_, i32 %pa, i32 %pb, i32 %pc, i32 %pd) alwaysinline convergent {{
{places}  %r = call {struct} asm sideeffect "{' '.join(lines)}", "{letters}"(i64 %a, i64 %b, i64 %c, i64 %d)
  ret {struct} %r
}}
"""


def _weighted_two(kind: str, first: int, second: int, keys: int) -> str:
    """Two sums like those of `_weighted`, of other operands, in flight at the same time: their lines lie one part after
    another."""
    counts = first // 2, second // 2
    total, weights = sum(counts), keys // 4
    struct = "{ " + ", ".join(["float"] * total) + " }"
    lines = ["{ .reg .pred p; .reg .b64 b; setp.ne.b32 p, 1, 0;", "wgmma.fence.sync.aligned;"]
    for which, columns in enumerate((first, second)):
        start = which * counts[0]
        registers = "{" + ", ".join(f"${start + n}" for n in range(counts[which])) + "}"
        for step in range(keys // STEP):
            four = ", ".join(f"${2 * total + which * weights + 4 * step + n}" for n in range(4))
            lines.append(f"add.s64 b, ${2 * total + 2 * weights + which}, {step * TURNED_STEP};")
            lines.append(f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {registers}, {{{four}}}, b, p, 1, 1, 1;")
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }")
    letters = ",".join([*["=f"] * total, *map(str, range(total)), *["r"] * (2 * weights), "l", "l", "~{memory}"])
    given = ", ".join([*(f"float %x{n}" for n in range(total)), *(f"i32 %w{n}" for n in range(2 * weights))])
    places = "".join(_place(name, f"p{name}", descriptor(True, 8 * keys)) for name in "ab")
    return f"""
define internal {struct} @gpu.wgmma_rs_two_{kind}_{first}_{second}_{keys}(ptr %ctx_, i32 %pa, i32 %pb, {given}) alwaysinline convergent {{
{places}  %r = call {struct} asm sideeffect "{' '.join(lines)}", "{letters}"({given}, i64 %a, i64 %b)
  ret {struct} %r
}}
"""


def _attend(kind: str, keys: int, parts: int, left_part: int, right_part: int, columns: int) -> str:
    """Scores of the next keys (`_scores`) and results with the values of these (`_weighted`), in flight together."""
    count, held, weights = keys // 2, columns // 2, keys // 4
    struct = "{ " + ", ".join(["float"] * (count + held)) + " }"
    first = count + 2 * held + weights  # of the places
    lines = ["{ .reg .pred p, q; .reg .b64 a, b; setp.ne.b32 p, 0, 0; setp.eq.b32 q, 0, 0;", "wgmma.fence.sync.aligned;"]
    scores, results = ("{" + ", ".join(f"${start + n}" for n in range(size)) + "}" for start, size in ((0, count), (count, held)))
    for step in range(parts * STEPS):
        part, within = divmod(step, STEPS)
        left, right = (part * (size >> 4) + within * STRAIGHT_STEP for size in (left_part, right_part))
        lines.append(f"add.s64 a, ${first}, {left}; add.s64 b, ${first + 1}, {right};")
        lines.append(f"wgmma.mma_async.sync.aligned.m64n{keys}k16.f32.{kind}.{kind} {scores}, a, b, {'q' if step else 'p'}, 1, 1, 0, 0;")
    for step in range(keys // STEP):
        four = ", ".join(f"${count + 2 * held + 4 * step + n}" for n in range(4))
        lines.append(f"add.s64 b, ${first + 2}, {step * TURNED_STEP};")
        lines.append(f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{kind}.{kind} {results}, {{{four}}}, b, q, 1, 1, 1;")
    lines.append("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0; }")
    letters = ",".join([*["=&f"] * count, *["=&f"] * held, *(str(count + n) for n in range(held)), *["r"] * weights,
                        "l", "l", "l", "~{memory}"])
    given = ", ".join([*(f"float %x{n}" for n in range(held)), *(f"i32 %w{n}" for n in range(weights))])
    places = _place("a", "pa", descriptor(False)) + _place("b", "pb", descriptor(False)) + _place("d", "pd", descriptor(True, 8 * keys))
    return f"""
define internal {struct} @gpu.attend_{kind}_{keys}_{parts}_{left_part}_{right_part}_{columns}(ptr %ctx_, i32 %pa, i32 %pb, i32 %pd, {given}) alwaysinline convergent {{
{places}  %r = call {struct} asm sideeffect "{' '.join(lines)}", "{letters}"({given}, i64 %a, i64 %b, i64 %d)
  ret {struct} %r
}}
"""


def _registers(way: str, count: str) -> str:
    name = "inc" if way == "up" else "dec"
    return f"""
define internal void @gpu.registers_{way}_{count}(ptr %c) alwaysinline convergent {{
  call void asm sideeffect "setmaxnreg.{name}.sync.aligned.u32 {count};", "~{{memory}}"()
  ret void
}}
"""


ADD_BF16 = """
define internal i32 @gpu.add_bf16(ptr %c, i32 %a, i32 %b) alwaysinline {
  %r = call i32 asm "add.rn.bf16x2 $0, $1, $2;", "=r,r,r"(i32 %a, i32 %b)
  ret i32 %r
}
"""


def functions(text: str) -> str:
    """Those that a kernel's text calls."""
    found = BARRIERS if "@gpu.mbarrier_" in text else ""
    found += ADD_BF16 if "@gpu.add_bf16(" in text else ""
    for kind, columns, left, right in sorted(set(_WGMMA.findall(text))):
        found += _wgmma(kind, int(columns), left == "1", right == "1")
    for kind, columns, keys in sorted(set(_WEIGHTED.findall(text))):
        found += _weighted(kind, int(columns), int(keys))
    for kind, *sizes in sorted(set(_SCORES.findall(text))):
        found += _scores(kind, *map(int, sizes))
    for kind, *sizes in sorted(set(_WEIGHTED_TWO.findall(text))):
        found += _weighted_two(kind, *map(int, sizes))
    for kind, *sizes in sorted(set(_SCORES_TWO.findall(text))):
        found += _scores_two(kind, *map(int, sizes))
    for kind, *sizes in sorted(set(_ATTEND.findall(text))):
        found += _attend(kind, *map(int, sizes))
    for rank in sorted(set(_TMA.findall(text))):
        found += _tma_load(int(rank))
    for way, count in sorted(set(_REGISTERS.findall(text))):
        found += _registers(way, count)
    return found
