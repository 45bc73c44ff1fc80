"""The emulated GPU as a kind of device, for tests and for a look without a GPU."""

from __future__ import annotations

from morpho.backends import registry
from morpho.backends.cuda.backend import CudaBackend
from morpho.backends.cuda.emulator.device import EmulatedDevice
from morpho.base import settings

KIND = "cuda_emulated"


def install() -> str:
    """Make `cuda_emulated:0`, a Hopper, and `cuda_emulated:1`, an Ampere, known to this process; the first's name."""
    if KIND not in settings.device_kinds:
        chips = (9, 0), (8, 0)
        registry.register(KIND, lambda number: CudaBackend(
            f"{KIND}:{number}", EmulatedDevice(number, chips[number]), registry.cpu_program), count=lambda: 2,
            numbered=True)
    return f"{KIND}:0"
