"""The machine as data, instruction sets, and units: read from made-up `/proc` and `/sys` trees as well as this one."""

from __future__ import annotations

import doctest
import math
import os
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morpho.base import machine as machine_module
from morpho.base import units
from morpho.base.errors import ArgumentError, DeviceError, ValueFault
from morpho.base.machine import (
    ISAS,
    available_isas,
    choose_isa,
    foreign_machine,
    limit_bytes,
    machine,
    quota_cores,
    read_machine,
    usable_cores,
)

AVX2 = frozenset({"avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe", "popcnt"})


def test_this_machine() -> None:
    here = machine()
    assert here is machine()
    assert 1 <= here.cores <= (os.cpu_count() or 1)
    assert here.l1_bytes >= 8 << 10 and here.l2_bytes >= here.l1_bytes
    assert here.memory_bytes > 1 << 28
    assert here.architecture and here.cpu_name
    with pytest.raises(FrozenInstanceError):
        here.cores = 99  # type: ignore[misc]


def test_reading_the_machine_loads_no_llvm() -> None:
    code = (
        "import sys, morpho.base.machine as m\n"
        "m.choose_isa('native', m.machine())\n"
        "assert 'llvmlite' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs an affinity mask")
def test_the_affinity_mask_counts() -> None:
    mask = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(mask)})
        assert read_machine().cores == 1
    finally:
        os.sched_setaffinity(0, mask)


def test_an_empty_system_still_gives_a_machine(tmp_path: Path) -> None:
    bare = read_machine(tmp_path, tmp_path)
    assert bare.cores >= 1 and bare.l1_bytes > 0 and bare.l2_bytes > 0 and bare.features == frozenset()
    assert choose_isa("native", bare).vector_bits == 128


# ------------------------------------------------------------------------------------------------------- cgroups


def _proc(tmp_path: Path, cgroup: str, mounts: list[tuple[str, Path, str]]) -> Path:
    """A `/proc` whose mounts are (root, folder, 'type source options')."""
    folder = tmp_path / "proc" / "self"
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(cgroup)
    lines = [f"36 35 0:30 {root} {place} rw,relatime shared:1 - {kind}" for root, place, kind in mounts]
    (folder / "mountinfo").write_text("\n".join(lines))
    return tmp_path / "proc"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def test_cgroup_2_takes_the_tightest_ancestor(tmp_path: Path) -> None:
    mount = tmp_path / "fs"
    _write(mount / "slice/pod/cpu.max", "max 100000")
    _write(mount / "slice/cpu.max", "250000 100000")
    _write(mount / "cpu.max", "800000 100000")
    _write(mount / "slice/pod/memory.max", "4294967296")
    _write(mount / "slice/memory.max", "max")
    proc = _proc(tmp_path, "0::/slice/pod\n", [("/", mount, "cgroup2 cgroup2 rw")])
    assert quota_cores(proc) == 2.5
    assert usable_cores(16, quota_cores(proc)) == 3
    assert limit_bytes(proc) == 4 << 30


def test_cgroup_2_in_a_container_that_sees_only_its_own_part(tmp_path: Path) -> None:
    mount = tmp_path / "fs"
    _write(mount / "cpu.max", "50000 100000")
    proc = _proc(tmp_path, "0::/\n", [("/", mount, "cgroup2 cgroup2 rw,nsdelegate")])
    assert quota_cores(proc) == 0.5
    assert usable_cores(16, 0.5) == 1


def test_cgroup_1_with_a_mount_below_the_root(tmp_path: Path) -> None:
    cpu, memory = tmp_path / "cpu,cpuacct", tmp_path / "memory"
    _write(cpu / "cpu.cfs_quota_us", "150000")
    _write(cpu / "cpu.cfs_period_us", "100000")
    _write(memory / "memory.limit_in_bytes", "1073741824")
    cgroup = "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n0::/\n"
    mounts = [
        ("/docker/abc", cpu, "cgroup cgroup rw,cpu,cpuacct"),
        ("/docker/abc", memory, "cgroup cgroup rw,memory"),
        ("/", tmp_path / "unified", "cgroup2 cgroup2 rw"),
    ]
    proc = _proc(tmp_path, cgroup, mounts)
    assert quota_cores(proc) == 1.5
    assert limit_bytes(proc) == 1 << 30


@pytest.mark.parametrize("text", ["-1", "", "nonsense", "0"])
def test_no_quota(tmp_path: Path, text: str) -> None:
    _write(tmp_path / "cpu" / "cpu.cfs_quota_us", text)
    _write(tmp_path / "cpu" / "cpu.cfs_period_us", "100000")
    _write(tmp_path / "cpu" / "memory.limit_in_bytes", "9223372036854771712")
    proc = _proc(tmp_path, "3:cpu,memory:/\n", [("/", tmp_path / "cpu", "cgroup cgroup rw,cpu,memory")])
    assert quota_cores(proc) == math.inf
    assert limit_bytes(proc) == 0
    assert usable_cores(4, math.inf) == 4


@given(st.integers(1, 512), st.floats(0.01, 600))
def test_usable_cores_never_exceed_the_mask_nor_fall_to_zero(allowed: int, quota: float) -> None:
    assert 1 <= usable_cores(allowed, quota) <= allowed
    assert usable_cores(allowed, quota) >= min(allowed, quota)


def test_names_features_and_caches_of_a_made_up_machine(tmp_path: Path) -> None:
    proc, cpus = tmp_path / "proc", tmp_path / "cpu"
    _write(proc / "cpuinfo", "model name : Fast 9000\nflags : fma avx2\n\nmodel name : Slow 1")
    for index, (level, kind, size) in enumerate([(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2M")]):
        for name, text in (("level", str(level)), ("type", kind), ("size", size)):
            _write(cpus / "cpu0" / "cache" / f"index{index}" / name, text)
    made_up = read_machine(proc, cpus)
    assert (made_up.cpu_name, made_up.features) == ("Fast 9000", {"fma", "avx2"})
    assert (made_up.l1_bytes, made_up.l2_bytes) == (48 << 10, 2 << 20)


# ---------------------------------------------------------------------------------------------- instruction sets


def test_native_is_the_best_there_is() -> None:
    assert choose_isa("native", foreign_machine("x86_64")).name == "amx"
    assert choose_isa("native", foreign_machine("x86_64", ISAS["avx512"].needs)).name == "avx512"
    assert choose_isa("native", foreign_machine("x86_64", AVX2)).name == "avx2"
    assert choose_isa("native", foreign_machine("x86_64", AVX2 - {"f16c"})).name == "vector128"
    assert choose_isa("native", foreign_machine("aarch64")).name == "neon"
    assert choose_isa("native", foreign_machine("riscv64")).name == "vector128"


def test_lanes() -> None:
    assert [ISAS[name].lanes(4) for name in ("scalar", "neon", "avx2", "avx512")] == [1, 4, 8, 16]
    assert [ISAS["vector256"].lanes(size) for size in (1, 2, 4, 8, 16, 64)] == [32, 16, 8, 4, 2, 1]


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_every_available_isa_is_complete(architecture: str) -> None:
    there = foreign_machine(architecture)
    for name in available_isas(there):
        isa = choose_isa(name, there)
        assert isa.name == name and isa.architecture == architecture and isa.llvm_cpu
        assert isa.vector_bits == ISAS[name].vector_bits
        assert isa.needs <= there.features


def test_what_llvm_is_told() -> None:
    x86, arm = foreign_machine("x86_64", AVX2), foreign_machine("aarch64")
    assert choose_isa("avx2", x86).llvm_features == "+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+popcnt"
    assert choose_isa("avx2", x86).llvm_cpu == choose_isa("vector128", x86).llvm_cpu == "x86-64-v3"
    assert (choose_isa("scalar", x86).llvm_cpu, choose_isa("scalar", x86).llvm_features) == ("x86-64", "+fma,+f16c")
    assert choose_isa("scalar", foreign_machine("x86_64", frozenset())).llvm_features == ""
    assert choose_isa("neon", arm).llvm_features == "+neon,+fullfp16"
    assert choose_isa("neon", foreign_machine("aarch64", frozenset({"asimd"}))).llvm_features == "+neon"


def test_the_object_code_does_not_depend_on_the_model() -> None:
    more = foreign_machine("x86_64", AVX2 | {"gfni", "vaes"})
    assert choose_isa("avx2", more) == choose_isa("avx2", foreign_machine("x86_64", AVX2))


def test_refusals_say_what_there_is() -> None:
    arm, old = foreign_machine("aarch64"), foreign_machine("x86_64", AVX2)
    with pytest.raises(DeviceError, match=r"avx2 is for x86_64.*is aarch64.*has scalar, neon, vector128"):
        choose_isa("avx2", arm)
    with pytest.raises(DeviceError, match=r"avx512 needs avx512bw.*it has scalar, avx2"):
        choose_isa("avx512", old)
    with pytest.raises(ArgumentError, match="'sse' is unknown"):
        choose_isa("sse", old)


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_llvm_knows_every_feature_and_uses_the_registers(architecture: str) -> None:
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    there = foreign_machine(architecture)
    register = {"avx512": "zmm0", "avx2": "ymm0", "neon": ".4s"}
    for name in available_isas(there):
        isa = choose_isa(name, there)
        lanes = isa.lanes(4)
        kind = f"<{lanes} x float>" if lanes > 1 else "float"
        suffix = f"v{lanes}f32" if lanes > 1 else "f32"
        text = (
            f"declare {kind} @llvm.fma.{suffix}({kind}, {kind}, {kind})\n"
            f"define void @f(ptr %a) {{\n %x = load {kind}, ptr %a\n"
            f" %y = call {kind} @llvm.fma.{suffix}({kind} %x, {kind} %x, {kind} %x)\n"
            f" store {kind} %y, ptr %a\n ret void\n}}\n"
        )
        target = llvm.Target.from_triple(f"{architecture}-unknown-linux-gnu")
        builder = target.create_target_machine(cpu=isa.llvm_cpu, features=isa.llvm_features, opt=2)
        assembly = builder.emit_assembly(llvm.parse_assembly(text))
        assert register.get(name, "fm") in assembly, assembly
        assert "fmaf" not in assembly, "fma must be an instruction, not a call"


# --------------------------------------------------------------------------------------------------------- units


@given(st.integers(0, 1 << 62))
def test_sizes_read_back_what_was_written(nbytes: int) -> None:
    for text in (units.format_bytes(nbytes), units.format_binary_bytes(nbytes)):
        assert units.parse_bytes(text) == pytest.approx(nbytes, rel=0.06, abs=1)
    assert units.parse_bytes(str(nbytes)) == units.parse_bytes(f"{nbytes}B") == nbytes


@given(st.floats(1e-9, 59))
def test_times_read_back_what_was_written(seconds: float) -> None:
    assert units.parse_seconds(units.format_seconds(seconds)) == pytest.approx(seconds, rel=0.06)


def test_units_at_their_edges() -> None:
    assert units.format_bytes(999_499) == "999 kB"
    assert units.format_bytes(999_999) == "1 MB"
    assert units.format_bytes(-1500) == "-1.5 kB"
    assert units.format_binary_bytes(1023.99) == "1 KiB"
    assert [units.format_seconds(x) for x in (0, 59.96, 3599.9, 0.99999, -0.002)] == [
        "0 s", "1 min 0 s", "1 h 0 min", "1 s", "-2 ms"
    ]  # fmt: skip
    assert units.format_bytes(math.inf) == "inf B"


@pytest.mark.parametrize("text", ["", "MB", "-5MB", "1 XB", "1.2.3GB", "five", "1e400x"])
def test_nonsense_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueFault):
        units.parse_bytes(text)


@pytest.mark.parametrize("module", [machine_module, units])
def test_examples_in_the_docstrings(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]
