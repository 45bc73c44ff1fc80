"""Exchange with other libraries: DLPack both ways, `__array__`, the buffer protocol.

Imports borrow: the owner is kept alive and its memory never written. Exports are read-only, which DLPack can say only
since version 1.0; a consumer that asks for an older capsule gets a copy of its own, and so does PyTorch, which ignores
the flag and would write into values and into constants of compiled functions.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np

from morpho.backends.registry import backend_of, canonical
from morpho.backends.registry import devices as all_devices
from morpho.base.dtypes import bfloat16
from morpho.base.errors import ArgumentError, CompileError, DeviceError, DTypeError, MorphoError, ValueFault, fail
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
    for neither a version nor a copy (`copy=False`) gets memory that it must not write, and is not told. PyTorch gets a
    copy."""
    if _is_for_pytorch():
        if copy is False:
            raise fail(ExportError, "__dlpack__", "PyTorch writes into memory that is marked read-only",
                       "let it copy: torch.from_dlpack(x)")
        copy = True
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


def _is_for_pytorch() -> bool:
    """Whether `torch.from_dlpack` is the caller, also through another object's `__dlpack__`."""
    if "torch" not in sys.modules:
        return False
    frame = sys._getframe(2)
    while frame.f_code.co_name == "__dlpack__" and frame.f_back is not None:
        frame = frame.f_back
    return bool(frame.f_globals.get("__name__") == "torch.utils.dlpack")


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
    x = _from_pytorch(x, copy) if is_pytorch(x) else x
    try:
        kind, number = x.__dlpack_device__()
    except MorphoError:
        raise
    except (BufferError, NotImplementedError, RuntimeError, ValueError) as error:
        raise _not_exported(x, error) from error
    if int(kind) == on_device.CUDA and f"cuda:{number}" in all_devices():
        return _onto_device(x, (int(kind), int(number)), device, copy)
    moved = int(kind) != CPU
    if moved and (device is None or copy is False):
        name = _DEVICES.get(int(kind), f"device {int(kind)}")
        raise fail(ImportRefused, "from_dlpack", f"the elements lie on {name}:{number}, not on the CPU",
                   "move them first, or pass device='cpu' to let the owner copy")
    try:
        capsule = _ask(x, moved, copy)
    except MorphoError:
        raise
    except (BufferError, NotImplementedError, RuntimeError, ValueError) as error:
        raise _not_exported(x, error) from error
    found = open_capsule(capsule)
    if found.device[0] != CPU:
        raise fail(DeviceError, "from_dlpack", f"the capsule lies on device {found.device}, not on the CPU")
    if found.dtype is None:
        raise fail(DTypeError, "from_dlpack", f"DLPack dtype ({found.described}) has no tensor dtype")
    if 0 in found.shape:  # others have no memory then, address 0 and any strides
        return Tensor.of_buffer(allocate(found.shape, found.dtype))
    if not found.address:
        raise _no_memory(type(x).__name__)
    tensor = Tensor.of_buffer(Buffer(found.owner, found.address, found.shape, found.strides, found.dtype, False))
    if found.address % found.dtype.itemsize:
        raise fail(ValueFault, "from_dlpack", f"the memory is not aligned to {found.dtype.itemsize} bytes",
                   "copy it with its own library first")
    return copied(tensor) if copy else tensor


def is_pytorch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, getattr(torch, "Tensor", ()))


def _from_pytorch(x: Any, copy: bool | None) -> Any:
    """A tensor of PyTorch whose memory holds its elements: without its gradient, and without the marks by which views
    of that memory are conjugated or negated, of which DLPack knows nothing."""
    fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", ())
    if x.is_meta or isinstance(x, fake):
        raise _no_memory("meta PyTorch tensor" if x.is_meta else "fake PyTorch tensor")
    x = x.detach()
    if str(x.layout) != "torch.strided" or x.is_nested or x.is_quantized:
        kind = "nested" if x.is_nested else "quantised" if x.is_quantized else str(x.layout).removeprefix("torch.")
        way = {"nested": "x.to_padded_tensor(0)", "quantised": "x.dequantize()"}.get(kind, "x.to_dense()")
        raise fail(ImportRefused, "from_dlpack", f"the PyTorch tensor is {kind}, and its memory is no plain array",
                   f"use {way}")
    if x.is_conj() or x.is_neg():
        if copy is False:
            raise fail(ImportRefused, "from_dlpack", "the PyTorch tensor is a conjugated or negated view, whose "
                       "elements are nowhere in memory, and copy=False", "use x.resolve_conj().resolve_neg()")
        x = x.resolve_conj().resolve_neg()
    return x


def _no_memory(kind: str) -> Exception:
    return fail(ImportRefused, "from_dlpack", f"the {kind} has no memory, only a shape and a dtype",
                "give a tensor with values")


def _not_exported(x: Any, error: Exception) -> Exception:
    """Error of a producer that does not give its memory, as a sentence of Morpho's."""
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    return fail(ImportRefused, "from_dlpack", f"the {type(x).__name__} does not give its memory ({reason})",
                "make a plain array of it with its own library first")


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


def jax_array(self: Tensor) -> Any:
    """JAX's array over the elements: what `jnp.asarray(tensor)` asks for."""
    from jax.dlpack import from_dlpack as taken

    return taken(self if self.device == "cpu" else self.to("cpu"))


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


def array_interface(self: Tensor) -> dict[str, Any]:
    """NumPy's older protocol, for `PIL.Image.fromarray`. The memory comes as an object, which holds it, in order."""
    if self.dtype is bfloat16 or self.device != "cpu":
        raise AttributeError(f"{self.dtype} on {self.device} has no array interface")
    try:
        found = self.numpy()
    except CompileError as error:  # `hasattr` of what is traced is False
        raise AttributeError(str(error)) from error
    ordered = np.ascontiguousarray(found).reshape(found.shape)
    # Without strides a consumer reads the tensor's own buffer as it lies.
    strides = None if found.flags.c_contiguous else ordered.strides
    return {"version": 3, "shape": ordered.shape, "typestr": ordered.dtype.str, "data": ordered.data.toreadonly(),
            "strides": strides}


def buffer(self: Tensor, flags: int, /) -> memoryview:
    """The elements as a read-only buffer: what `memoryview(tensor)` asks for (on Python 3.11 by `buffer_slot.py`)."""
    if flags & 1:  # PyBUF_WRITABLE
        raise fail(ExportError, "__buffer__", "a tensor's memory is read-only", "take tensor.numpy(copy=True)")
    if self.dtype is bfloat16:  # NumPy asks here first, and goes on to `__array__` then
        raise fail(ExportError, "__buffer__", "a buffer has no format for bfloat16", "take tensor.numpy(), or DLPack")
    return self.numpy().data
