"""Devices as users name them: which there are, which one is the default, and moving tensors between them."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from morpho.backends.auto.manager import DeviceState, best_of, states
from morpho.backends.registry import HOST, backend_of, canonical, default_device, holder, memory_of
from morpho.backends.registry import devices as all_devices
from morpho.base import settings
from morpho.runtime.memory.buffer import Buffer, allocate, view_memory
from morpho.runtime.memory.device_memory import moved
from morpho.tensor.autodiff.grad_mode import tracing
from morpho.tensor.core import Tensor, evaluate

Made = TypeVar("Made", bound=Callable[..., Any])


def devices() -> list[str]:
    """The devices there are, by name; the CPU is the first.

    >>> import morpho as mo
    >>> mo.devices()[0]
    'cpu'
    """
    return all_devices()


def device_states() -> list[DeviceState]:
    """Every device with memory of its own, now: how much of it is free, and how many runs are queued.

    >>> import morpho as mo
    >>> all(state.free_bytes <= state.total_bytes for state in mo.device_states())
    True
    """
    return states(all_devices(), backend_of)


def choose_device(nbytes: int = 0, kind: str = "cuda") -> str:
    """The device of a kind that takes new work of so many bytes: one with room for it, and of those the one with the
    least queued, then with most free memory. An error says how much each has.

    >>> import morpho as mo
    >>> mo.choose_device(kind="cpu")
    'cpu'
    """
    if kind == HOST:
        return HOST
    names = [name for name in all_devices() if name.partition(":")[0] == kind]
    return best_of(states(names, backend_of), nbytes).device


def synchronize(device: str = "") -> None:
    """Wait until a device has done what was queued on it, and raise the first error there; without a name, all of them.

    Values that nobody has looked at are not computed by this: `mo.realise(x)`.

    >>> import morpho as mo
    >>> mo.synchronize()
    """
    for name in [canonical(device, "synchronize")] if device else all_devices():
        backend_of(name).synchronize()


def pin(array: Any, device: str = "cuda") -> np.ndarray:
    """A copy of an array in pinned memory, which a GPU reads at the full speed of its bus: `mo.asarray(pinned,
    device="cuda")` and `x.to("cuda")` of it take no detour. Where a device has none, it is a plain copy.

    >>> import morpho as mo
    >>> mo.pin([1.0, 2.0], device="cpu")
    array([1., 2.])
    """
    given = np.ascontiguousarray(array)
    room = getattr(backend_of(canonical(device, "pin")), "host_room", None)
    if room is None or not given.nbytes:
        return given.copy()
    made: np.ndarray = room(given.nbytes)[:given.nbytes].view(given.dtype).reshape(given.shape)
    made[...] = given
    return made


class Device(str):
    """The name of a device, which is also a block in which tensors are made there; see `device`."""

    @property
    def type(self) -> str:
        """The kind: `cpu`, `cuda`."""
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """The number behind the kind, if there is one."""
        number = self.partition(":")[2]
        return int(number) if number else None

    def __repr__(self) -> str:
        return f"device({str(self)!r})"

    def __call__(self, function: Any) -> Any:
        return settings.Within(device=str(self))(function)

    def __enter__(self) -> settings.Settings:
        block = settings.settings(device=str(self))
        _blocks.set((*_blocks.get(), block))
        return block.__enter__()

    def __exit__(self, *exception: Any) -> None:
        *rest, block = _blocks.get()
        _blocks.set(tuple(rest))
        block.__exit__(*exception)


_blocks: ContextVar[tuple[settings.SettingsBlock, ...]] = ContextVar("morpho_devices", default=())


def device(name: str, index: int | None = None) -> Device:
    """A device, for `x.to(device)` and `device=`; and a block, or a decorated function, in which tensors are made on
    it, and programs run there.

    Tensors that lie elsewhere already stay there; an operation on tensors of two devices is an error. Devices that
    compute in the CPU's memory, such as `reference`, take its tensors as they are.

    >>> import morpho as mo
    >>> with mo.device("reference"):
    ...     y = mo.exp(mo.zeros(2)).numpy()
    >>> y
    array([1., 1.], dtype=float32)
    >>> mo.device("cpu"), mo.ones(2).to(mo.device("cpu")).device
    (device('cpu'), 'cpu')
    """
    return Device(canonical(name if index is None else f"{name}:{index}", "device"))


def placed(tensor: Tensor, wanted: Any, operation: str) -> Tensor:
    """A tensor that was just made, on the device that is asked for, or on that of the settings. Inside a function that
    is being compiled it goes with the function's arguments."""
    usual = memory_of(default_device())
    memory = usual if wanted is None else holder(wanted, operation)
    here = tensor.device if tensor.is_realised else tensor.program().device
    return tensor if memory == usual == HOST and here in ("", HOST) else on(tensor, memory)


def on(tensor: Tensor, memory: str) -> Tensor:
    """The tensor in other memory, or itself where it lies there. What lies nowhere yet, a formula such as
    `mo.zeros(3)`, is computed there."""
    if not tensor.is_realised:
        program = tensor.program()  # before the block, which computes what was recorded outside of it
        if not program.device:
            if tracing.current is not None:
                return tensor  # it goes with the function's arguments
            with settings.settings(device=memory):
                return Tensor.of_buffer(evaluate.realise([program])[0])
    return tensor if memory == tensor.device else Tensor.of_buffer(elsewhere(tensor.elements(), memory))


def creates(function: Made) -> Made:
    """A function that makes tensors, with `device=`: its result is put there, or on the device of the settings."""
    @wraps(function)
    def make(*args: Any, device: Any = None, **options: Any) -> Any:
        if device is None and settings.get().device == HOST:
            return function(*args, **options)
        return placed(function(*args, **options), device, function.__name__)

    return make  # type: ignore[return-value]


def elsewhere(buffer: Buffer, memory: str) -> Buffer:
    """A copy of elements in other memory."""
    if memory != HOST:
        return moved(buffer, memory)
    array, made = buffer.numpy(), allocate(buffer.shape, buffer.dtype)
    if array.size:
        view_memory(made.storage, made.address, made.shape, made.strides, made.dtype)[...] = array
    return made
