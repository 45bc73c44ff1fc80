"""Exchange with other libraries: DLPack both ways, `__array__`, the buffer protocol.

Imports borrow: the owner is kept alive and its memory never written. Exports are read-only, which DLPack can say only
since version 1.0; a consumer that asks for an older capsule gets a copy of its own.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from morpho.backends.registry import backend_of, canonical
from morpho.backends.registry import devices as all_devices
from morpho.base.dtypes import bfloat16
from morpho.base.errors import ArgumentError, DeviceError, DTypeError, MorphoError, ValueFault, fail
from morpho.runtime.memory.buffer import Buffer, allocate
from morpho.tensor.core import Tensor, check_device, copied
from morpho.tensor.interop import on_device
from morpho.tensor.interop.capsule import CPU, IS_COPIED, READ_ONLY, VERSION, make_capsule, open_capsule

_DEVICES = {1: "cpu", 2: "cuda", 3: "pinned host memory", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm",
            13: "managed memory", 14: "oneapi"}


class ExportError(MorphoError, BufferError):
    """Memory that cannot be shown to another library in the way it asks for."""


class ImportRefused(DeviceError, ValueError, BufferError):
    """Memory of another library that cannot be had where it is asked for, or not without the copy that is forbidden."""


class NoExchange(ArgumentError, AttributeError):
    """An object that does not speak DLPack."""


def dlpack_device(self: Tensor) -> tuple[int, int]:
    """DLPack's numbers of the device: (1, 0) is the CPU, (2, n) a GPU."""
    if self.device == "cpu":
        return (CPU, 0)
    found = on_device.place_of(self.device)
    if found is None:
        raise fail(ExportError, "__dlpack_device__", f"other libraries cannot address the memory of {self.device}",
                   "use tensor.to('cpu')")
    return found


def dlpack(self: Tensor, /, *, stream: Any = None, max_version: tuple[int, int] | None = None,
           dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
    """The elements as a DLPack capsule: read-only without a copy, or a copy of the consumer's own. A consumer that asks
    for neither a version nor a copy (`copy=False`) gets memory that it must not write, and is not told."""
    if dl_device is not None and not (isinstance(dl_device, tuple | list) and len(dl_device) == 2):
        raise fail(ExportError, "__dlpack__", f"dl_device is {dl_device!r}",
                   "a device is two numbers: the CPU is (1, 0)")
    if self.device != "cpu":
        return _from_device(self, stream, max_version, dl_device, copy)
    if dl_device is not None and tuple(dl_device) != (CPU, 0):
        raise fail(ExportError, "__dlpack__", f"device {tuple(dl_device)} is not there", "the CPU is (1, 0)")
    if stream is not None:
        raise fail(ExportError, "__dlpack__", f"stream {stream!r} means nothing on the CPU", "leave it out")
    versioned = max_version is not None and max_version[0] >= 1
    buffer = self.elements()
    if copy or (copy is None and not versioned):  # a capsule before DLPack 1.0 cannot say that it is read-only
        array = np.array(buffer.numpy(), order="C")
        strides = tuple(step // array.itemsize for step in array.strides)
        return make_capsule(array, array.ctypes.data, array.shape, strides, self.dtype, IS_COPIED, versioned)
    return make_capsule(buffer.storage, buffer.address, buffer.shape, buffer.strides, self.dtype, READ_ONLY, versioned)


def _from_device(tensor: Tensor, stream: Any, max_version: tuple[int, int] | None, dl_device: tuple[int, int] | None,
                 copy: bool | None) -> Any:
    """Device memory as a capsule, or a copy on the host where that is asked for."""
    place = on_device.place_of(tensor.device) if dl_device is not None else dlpack_device(tensor)
    if place is None or (dl_device is not None and tuple(dl_device) != place):
        if tuple(dl_device or ()) == (CPU, 0) and copy is not False:
            if stream is not None:
                raise fail(ExportError, "__dlpack__", f"stream {stream!r} means nothing for a copy on the CPU",
                           "leave it out: the elements are there when the call returns")
            return dlpack(tensor.to("cpu"), max_version=max_version, copy=True)  # says that it is the consumer's own
        raise fail(ExportError, "__dlpack__", f"the elements lie on {tensor.device}, not on device {dl_device}",
                   "move them first")
    versioned = max_version is not None and max_version[0] >= 1
    if copy is False and not versioned:
        raise fail(ExportError, "__dlpack__", "a capsule before DLPack 1.0 cannot say that it is read-only",
                   "ask for max_version=(1, 0), or let it copy")
    copies = bool(copy) or not versioned
    buffer = (copied(tensor) if copies else tensor).elements()
    owner = on_device.lent(buffer, tensor.device, stream)
    return make_capsule(owner, buffer.address, buffer.shape, buffer.strides, tensor.dtype,
                        IS_COPIED if copies else READ_ONLY, versioned, place)


def _onto_device(x: Any, place: tuple[int, int], device: Any, copy: bool | None) -> Tensor:
    """Another library's device memory as a tensor there; copied where another device is asked for."""
    name = on_device.device_of(place)
    options = {"stream": backend_of(name).stream_handle(), "max_version": VERSION}  # type: ignore[attr-defined]
    if not _takes(x.__dlpack__, options):
        del options["max_version"]
    tensor = Tensor.of_buffer(on_device.borrowed(open_capsule(x.__dlpack__(**options)), name))
    wanted = name if device is None else canonical(device, "from_dlpack")
    if wanted != name:
        if copy is False:
            raise fail(ImportRefused, "from_dlpack", f"the elements lie on {name}, and copy=False", f"use {name!r}")
        return tensor.to(wanted)
    return copied(tensor) if copy else tensor


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over another library's memory, without a copy unless asked for one.

    >>> mo.from_dlpack(np.arange(3)).tolist()
    [0, 1, 2]
    """
    check_device(device, "from_dlpack")
    if isinstance(x, Tensor):
        return copied(x) if copy else x
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise fail(NoExchange, "from_dlpack", f"a {type(x).__name__} does not speak DLPack", "use mo.asarray")
    if getattr(x, "is_neg", bool)():  # PyTorch exports the memory, and says nothing
        raise fail(ImportRefused, "from_dlpack", "the tensor is a view with the other sign, which DLPack cannot say",
                   "use x.resolve_neg()")
    kind, number = x.__dlpack_device__()
    if int(kind) == on_device.CUDA and f"cuda:{number}" in all_devices():
        return _onto_device(x, (int(kind), int(number)), device, copy)
    moved = int(kind) != CPU
    if moved and (device is None or copy is False):
        name = _DEVICES.get(int(kind), f"device {int(kind)}")
        raise fail(ImportRefused, "from_dlpack", f"the elements lie on {name}:{number}, not on the CPU",
                   "move them first, or pass device='cpu' to let the owner copy")
    found = open_capsule(_ask(x, moved, copy))
    if found.device[0] != CPU:
        raise fail(DeviceError, "from_dlpack", f"the capsule lies on device {found.device}, not on the CPU")
    if found.dtype is None:
        raise fail(DTypeError, "from_dlpack", f"DLPack dtype ({found.described}) has no tensor dtype")
    if 0 in found.shape:  # others have no memory then, address 0 and any strides
        return Tensor.of_buffer(allocate(found.shape, found.dtype))
    tensor = Tensor.of_buffer(Buffer(found.owner, found.address, found.shape, found.strides, found.dtype, False))
    if found.address % found.dtype.itemsize:
        raise fail(ValueFault, "from_dlpack", f"the memory is not aligned to {found.dtype.itemsize} bytes",
                   "copy it with its own library first")
    return copied(tensor) if copy else tensor


def _ask(x: Any, moved: bool, copy: bool | None) -> Any:
    """A capsule of the newest kind the producer knows; older ones take no keyword at all."""
    options: dict[str, Any] = {"max_version": VERSION}
    if moved:
        options["dl_device"] = (CPU, 0)
    if copy is False:
        options["copy"] = False
    if not _takes(x.__dlpack__, options):
        if moved:
            raise fail(ImportRefused, "from_dlpack", f"{type(x).__name__} cannot copy itself to the CPU")
        return x.__dlpack__()
    return x.__dlpack__(**options)


def _takes(method: Any, options: dict[str, Any]) -> bool:
    try:
        names = inspect.signature(method).parameters
    except (TypeError, ValueError):  # a method in C does not always tell: NumPy's own knows them since 2.1
        old = np.lib.NumpyVersion(np.__version__) < "2.1.0"
        return not (old and isinstance(getattr(method, "__self__", None), np.ndarray))
    return any(p.kind is p.VAR_KEYWORD for p in names.values()) or set(options) <= set(names)


# -- NumPy and buffers -----------------------------------------------------------------------------------------------
def array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    """NumPy's view of the elements, read-only; converted or copied where asked. bfloat16 comes as float32, or as the
    dtype of `ml_dtypes` where that is asked for."""
    if self.dtype is bfloat16 and dtype is not None and getattr(np.dtype(dtype), "name", "") == "bfloat16":
        found = self.elements().numpy().view(np.dtype(dtype))
        return np.asarray(found.copy() if copy else found)
    found = self.numpy()
    converts = dtype is not None and np.dtype(dtype) != found.dtype
    if copy is False and (converts or self.dtype is bfloat16):
        raise fail(ValueFault, "__array__", f"{self.dtype} does not become {dtype or 'float32'} without a copy")
    if converts:
        return found.astype(dtype)
    return found.copy() if copy else found


def buffer(self: Tensor, flags: int, /) -> memoryview:
    """The elements as a read-only buffer: what `memoryview(tensor)` asks for (on Python 3.11 by `buffer_slot.py`)."""
    if flags & 1:  # PyBUF_WRITABLE
        raise fail(ExportError, "__buffer__", "a tensor's memory is read-only", "take tensor.numpy(copy=True)")
    if self.dtype is bfloat16:  # NumPy asks here first, and goes on to `__array__` then
        raise fail(ExportError, "__buffer__", "a buffer has no format for bfloat16", "take tensor.numpy(), or DLPack")
    return self.numpy().data
