"""Resident memory of this process, now and at its peak."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def status_bytes(field: str) -> int | None:
    """A field of /proc/self/status, such as VmRSS or VmHWM, in bytes; None where it does not exist."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return None


def reset_peak() -> None:
    """Let the peak (VmHWM) start anew from what is resident now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_above(base: int | None) -> int | None:
    """Bytes by which the peak is above ``base``."""
    peak = status_bytes("VmHWM")
    return None if peak is None or base is None else max(0, peak - base)
