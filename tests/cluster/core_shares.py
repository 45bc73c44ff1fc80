"""Shares of a core for emulated machines, by control groups: whoever starts in one gets no more of its processors'
time."""

from __future__ import annotations

from pathlib import Path

PERIOD_US = 100_000
OLD, NEW = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")  # a hierarchy for processors alone; one for everything


def place() -> Path | None:
    """Where control groups for processors are made, if there are any."""
    if OLD.is_dir():
        return OLD
    controllers = NEW / "cgroup.subtree_control"
    return NEW if controllers.is_file() and "cpu" in controllers.read_text().split() else None


def make(name: str, share: float) -> Path:
    """A group whose processes have so much of one core together; OSError where the kernel refuses."""
    root = place()
    if root is None:
        raise FileNotFoundError("there are no control groups for processors")
    folder, quota = root / name, int(share * PERIOD_US)
    folder.mkdir()
    if root == OLD:
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(quota))
    else:
        (folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
    return folder


def share(folder: Path) -> float:
    """What a group has."""
    if (folder / "cpu.cfs_quota_us").exists():
        return int((folder / "cpu.cfs_quota_us").read_text()) / int((folder / "cpu.cfs_period_us").read_text())
    quota, period = (folder / "cpu.max").read_text().split()
    return int(quota) / int(period)


def holds(folder: Path, process: int) -> bool:
    """Whether a process is in a group."""
    return str(process) in (folder / "cgroup.procs").read_text().split()
