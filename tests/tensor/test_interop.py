"""Exchange with NumPy and others: borrowing, DLPack both ways, `__array__`, buffers; ownership and read-only flags."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import io
import sys
import time
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from callers import together

import morpho as mo
from morpho.tensor import convert
from morpho.tensor.functions.indexing import index
from morpho.tensor.interop import buffer_slot, capsule, interop

DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128"]
needs_versions = pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="NumPy exports no DLPack 1.0")


def arrays(dtype: str) -> list[np.ndarray]:
    x = (np.arange(24) % 7).reshape(4, 6).astype(dtype)
    return [x, x[::-1, ::2], x.T, x[1, 1, ...], x[:0], np.broadcast_to(x[0], (3, 6))]


def test_asarray_has_the_value_of_its_line() -> None:
    u, seen, summed = np.ones(3, np.float32), [], []
    total = mo.zeros(3)
    for _ in range(3):
        u *= 2
        seen.append(mo.asarray(u).sum())
        summed.append(total + u)  # an operand becomes a tensor likewise
    assert [s.item() for s in seen] == [6, 12, 24] and [s[0].item() for s in summed] == [2, 4, 8]
    for made in (mo.asarray(u[::2]), mo.asarray(memoryview(u)), mo.asarray(u, dtype=mo.float64), mo.asarray(u[::-1].T)):
        before = made.tolist()
        u += 1
        assert made.tolist() == before and not made.numpy().flags.writeable
    changed = bytearray(b"abc")
    kept = mo.asarray(changed)
    changed[0] = 0
    assert kept.tolist() == [97, 98, 99]


def fixed_arrays() -> list[np.ndarray]:
    """Arrays that nobody can write."""
    owned = np.arange(6.0)
    owned.flags.writeable = False
    tensor = mo.arange(6).realise()
    return [owned, owned[::2], owned.reshape(2, 3).T, np.frombuffer(b"abcdefgh", np.int16),
            np.asarray(memoryview(b"xyz")), tensor.numpy(), np.broadcast_to(owned, (2, 6))]


def test_what_nobody_can_write_is_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(bytes(range(64)))
    mapped = np.memmap(path, np.uint8, mode="r")
    for x in [*fixed_arrays(), mapped, mapped[8:16]]:
        assert mo.asarray(x).numpy().ctypes.data == x.ctypes.data, x
    for x in (np.memmap(path, np.uint8, mode="r+"), np.memmap(path, np.uint8, mode="c")):
        assert mo.asarray(x).numpy().ctypes.data != x.ctypes.data


def test_a_view_that_is_read_only_may_still_change() -> None:
    base = np.arange(4.0)
    for view in (base[:], np.broadcast_to(base, (2, 4)), np.asarray(memoryview(base).toreadonly())):
        view.flags.writeable = False
        t = mo.asarray(view)
        before = t.tolist()
        base += 1
        assert t.tolist() == before


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="references of names are not counted there")
def test_an_array_made_for_the_call_is_taken() -> None:
    """What a name, a list, a view or another argument holds is not."""
    pool = mo.pool.stats()["live_bytes"]
    adopted = mo.asarray(np.arange(1 << 20, dtype=np.float32) * 2)
    assert mo.pool.stats()["live_bytes"] == pool and adopted[3].item() == 6
    x = np.arange(4.0)
    views = [x[:]]
    holders = [mo.asarray(x), mo.asarray(views[0]), mo.asarray(*[x]), mo.asarray((lambda: x)()), *map(mo.asarray, [x]),
               mo.asarray(y := x), [mo.asarray(z) for z in (x,)][0]]
    assert y is x
    x += 1
    assert all(made.tolist() == [0, 1, 2, 3] for made in holders)

    def kept_by_its_maker() -> Iterator[np.ndarray]:
        made = np.zeros(2)
        yield made
        made += 5

    maker = kept_by_its_maker()
    t = mo.asarray(next(maker))
    list(maker)
    assert t.tolist() == [0, 0]


def test_arguments_of_compiled_functions_are_not_copied() -> None:
    x = np.ones(1 << 18, np.float32)
    f = mo.compile(lambda x, pair: x.sum() + pair[0].sum())
    f(x, (x,))
    before = mo.pool.stats()["live_bytes"]
    x += 1
    result = f(x, (x,))
    assert mo.pool.stats()["live_bytes"] - before < 1 << 16 and result.item() == 4 * (1 << 18)
    taken = convert.borrowed(x)  # what such a call makes of it
    assert taken.numpy().ctypes.data == x.ctypes.data
    same = mo.compile(lambda x: x)
    result = same(x)
    x += 1
    assert result[0].item() == 2


def test_assigning_wider_floats_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    index._say_rounded.cache_clear()
    x = mo.zeros(3)
    for _ in range(2):
        x[1:] = np.array([0.1, 0.2])
    assert sum("float64 values are rounded to the float32" in record.message for record in caplog.records) == 1


def test_asarray_borrows_when_asked() -> None:
    """No byte is copied, the owner lives as long as the tensor, and it is never written."""
    x = np.arange(6.0)
    t = mo.asarray(x, copy=False)
    assert t.numpy().ctypes.data == x.ctypes.data and not t.numpy().flags.writeable
    watch = weakref.ref(x)
    x[0] = 42.0
    assert t[0].item() == 42.0, "borrowed memory is read when the graph runs"
    del x
    gc.collect()
    assert watch() is not None and t.tolist()[0] == 42.0
    del t
    gc.collect()
    assert watch() is None


def test_asarray_copies_when_asked() -> None:
    """copy=True owns; copy=False refuses what needs a copy."""
    x = np.arange(6.0)
    t = mo.asarray(x, copy=True)
    x[0] = 9.0
    assert t.tolist()[0] == 0.0
    assert mo.asarray(x, copy=False).numpy().ctypes.data == x.ctypes.data
    for wrong in ([1, 2], 1.0, x.astype(">f8")):
        with pytest.raises(ValueError, match=r"\[asarray\]"):
            mo.asarray(wrong, copy=False)
    with pytest.raises(ValueError, match=r"\[asarray\].*float64.*float32"):
        mo.asarray(x, dtype=mo.float32, copy=False)
    assert mo.asarray(x.astype(">f8")).tolist() == x.tolist()
    assert mo.asarray(t) is t and mo.asarray(t, copy=True) is not t


def test_asarray_of_python_values() -> None:
    """Numbers and nested sequences take the default dtypes; buffers are borrowed."""
    assert [mo.asarray(v).dtype for v in (True, 1, 1.0, 1j)] == [mo.bool, mo.int64, mo.float32, mo.complex64]
    assert mo.asarray([[1, 2], [3, 4]]).shape == (2, 2) and mo.asarray([]).dtype is mo.float32
    wide = mo.asarray(np.arange(2.0))
    assert mo.asarray([wide, [3.0, 4.0]]).tolist() == [[0, 1], [3, 4]] and mo.asarray([[wide]]).dtype is mo.float64
    assert mo.asarray(bytearray(b"abc")).dtype is mo.uint8 and mo.asarray(memoryview(b"abc")).tolist() == [97, 98, 99]
    with pytest.raises(TypeError, match=r"\[asarray\]"):
        mo.asarray([[1, 2], [3]])
    with pytest.raises(TypeError, match=r"\[asarray\]"):
        mo.asarray("text")


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_from_numpy(dtype: str) -> None:
    """Every dtype and layout arrives without a copy."""
    for x in arrays(dtype):
        if not x.flags.writeable and np.lib.NumpyVersion(np.__version__) < "2.1.0":
            continue
        t = mo.from_dlpack(x)
        assert t.dtype is getattr(mo, dtype) and t.shape == x.shape
        np.testing.assert_array_equal(t.numpy(), x)
        if x.size:
            assert t.numpy().ctypes.data == x.ctypes.data
        assert not np.shares_memory(mo.from_dlpack(x, copy=True).numpy(), x)


@needs_versions
@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_to_numpy(dtype: str) -> None:
    """Every dtype and layout leaves without a copy, read-only."""
    for x in arrays(dtype):
        t = mo.asarray(x, copy=False)
        back = np.from_dlpack(t)
        np.testing.assert_array_equal(back, x)
        assert not back.flags.writeable
        if x.size:
            assert back.ctypes.data == x.ctypes.data and back.strides == x.strides
        owned = np.from_dlpack(t, copy=True)
        assert not np.shares_memory(owned, x)
    lazy = mo.asarray(np.arange(3.0)) + 1
    assert np.from_dlpack(lazy).tolist() == [1, 2, 3]


def flags_of(made: Any) -> int:
    """The flags word of a versioned capsule."""
    place = capsule._pointer(made, b"dltensor_versioned")
    return int(capsule._ManagedVersioned.from_address(place).flags)


def name_of(made: Any) -> bytes:
    function = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
    return function(made)


def test_capsules_say_what_they_are() -> None:
    """Versioned ones are flagged read-only or copied; older consumers get a copy, as they could not be told,
    unless they ask for none."""
    t = mo.asarray(np.arange(6.0))
    assert t.__dlpack_device__() == (1, 0)
    assert flags_of(t.__dlpack__(max_version=(1, 0))) == capsule.READ_ONLY
    assert flags_of(t.__dlpack__(max_version=(1, 0), copy=True)) == capsule.IS_COPIED
    plain = t.__dlpack__()
    assert name_of(plain) == b"dltensor"
    found = capsule.open_capsule(plain)
    assert name_of(plain) == b"used_dltensor" and found.address != t.numpy().ctypes.data
    lent = t.__dlpack__(copy=False)  # asked for: the consumer is not told that it must not write
    assert name_of(lent) == b"dltensor" and capsule.open_capsule(lent).address == t.numpy().ctypes.data
    with pytest.raises(BufferError, match=r"\(2, 0\)"):
        t.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="stream"):
        t.__dlpack__(stream=1)


def test_exports_own_their_memory() -> None:
    """A consumer's array outlives the tensor; nothing is left behind when all are gone, consumed or not."""
    gc.collect()
    before = capsule.live_exports()
    t = (mo.asarray(np.arange(1000.0)) + 1).realise()
    taken = mo.from_dlpack(Opaque(t))
    unused = t.__dlpack__(max_version=(1, 0))
    assert capsule.live_exports() == before + 2
    del t
    gc.collect()
    for _ in range(3):
        mo.zeros(1000).realise()  # would reuse the memory, had it been given back
    assert taken.tolist() == (np.arange(1000.0) + 1).tolist()
    doubled = taken * 2
    del taken, unused
    gc.collect()
    assert capsule.live_exports() == before + 1, "the program still reads it"
    assert doubled.tolist()[-1] == 2000
    gc.collect()
    assert capsule.live_exports() == before, "a realised result has dropped its program"


class Opaque:
    """A tensor of some other library, on some device."""

    def __init__(self, inner: mo.Tensor, device: tuple[int, int] = (1, 0)) -> None:
        self.inner, self.device = inner, device
        self.asked: dict[str, Any] = {}

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **options: Any) -> Any:
        self.asked = options
        return self.inner.__dlpack__(**options)


class Old(Opaque):
    """One from before DLPack 1.0: no keywords."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self.inner.__dlpack__()


def test_producers_of_any_age() -> None:
    """`asarray` and `from_dlpack` ask for the newest capsule, and take the oldest."""
    inner = mo.asarray(np.arange(4, dtype=np.int16))
    new = Opaque(inner)
    assert mo.asarray(new).tolist() == [0, 1, 2, 3] and new.asked == {"max_version": (1, 1)}
    assert mo.from_dlpack(Old(inner)).tolist() == [0, 1, 2, 3]
    assert mo.from_dlpack(inner) is inner
    for kind in (TypeError, AttributeError):
        with pytest.raises(kind, match=r"\[from_dlpack\]"):
            mo.from_dlpack([1, 2])


def test_other_devices_are_refused() -> None:
    """Unless the owner may copy."""
    if "cuda:0" in mo.devices():
        pytest.skip("this machine has such a device")
    gpu = Opaque(mo.asarray([1.0]), (2, 0))
    with pytest.raises(RuntimeError, match=r"\[from_dlpack\].*cuda"):
        mo.from_dlpack(gpu)
    assert mo.from_dlpack(gpu, device="cpu").tolist() == [1.0] and gpu.asked["dl_device"] == (1, 0)
    for use in (lambda: mo.from_dlpack(gpu, device="cuda"), lambda: mo.zeros(3, device="cuda"),
                lambda: mo.asarray([1.0]).to_device("cuda"),
                lambda: mo.astype(mo.asarray([1.0]), "int8", device="tpu")):
        with pytest.raises(RuntimeError, match="cpu"):
            use()
    x = mo.asarray([1.0])
    assert x.to_device("cpu") is x and x.to_device(x.device) is x


def test_bfloat16_travels() -> None:
    """As DLPack's own code, and as the dtype named bfloat16 of an extension."""
    x = mo.asarray([1.5, -2.0, 3.0], dtype=mo.bfloat16)
    made = x.__dlpack__(max_version=(1, 0))
    inner = capsule._ManagedVersioned.from_address(capsule._pointer(made, b"dltensor_versioned")).tensor
    assert (inner.dtype.code, inner.dtype.bits, inner.dtype.lanes) == (4, 16, 1)
    back = mo.from_dlpack(Opaque(x))
    assert back.dtype is mo.bfloat16 and back.tolist() == [1.5, -2.0, 3.0]
    assert np.asarray(x).dtype == np.float32 and np.asarray(x).tolist() == [1.5, -2.0, 3.0]
    with pytest.raises(ValueError, match="bfloat16"):
        x.__array__(copy=False)


def test_ml_dtypes() -> None:
    """Its bfloat16 is ours, both ways, without a copy."""
    extension = pytest.importorskip("ml_dtypes")
    a = np.array([1.5, -2.0], extension.bfloat16)
    x = mo.asarray(a, copy=False)
    assert x.dtype is mo.bfloat16 and (x + 1).tolist() == [2.5, -1.0]
    assert np.asarray(x, dtype=extension.bfloat16).ctypes.data == a.ctypes.data


def test_array_protocol() -> None:
    """A read-only view; converted and copied where asked."""
    x = np.arange(4.0)
    t = mo.asarray(x, copy=False)
    assert np.asarray(t).ctypes.data == x.ctypes.data and not np.asarray(t).flags.writeable
    assert np.array(t).flags.writeable and np.asarray(t, dtype=np.int32).tolist() == [0, 1, 2, 3]
    assert t.__array__(copy=True).flags.writeable and t.numpy(copy=True).flags.writeable
    with pytest.raises(ValueError, match="float64"):
        t.__array__(np.dtype(np.int8), copy=False)
    assert isinstance(x + t, mo.Tensor) and isinstance(np.float64(2) * t, mo.Tensor), "the tensor's operators win"
    assert (x * t).tolist() == [0, 1, 4, 9] and isinstance(np.sin(t), np.ndarray)


def test_buffer_protocol() -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    t = mo.asarray(array, copy=False)
    view = memoryview(t)
    assert view.readonly and view.tolist() == array.tolist() and (view.format, view.shape) == ("i", (3, 4))
    assert np.asarray(view).ctypes.data == array.ctypes.data, "no copy"
    assert memoryview(t[:, ::-2]).tolist() == array[:, ::-2].tolist()
    assert bytes(t) == array.tobytes() and hashlib.sha256(t).digest() == hashlib.sha256(array.tobytes()).digest()
    assert bytes(mo.asarray(array) + 1) == (array + 1).tobytes(), "what is lazy is computed"
    assert memoryview(mo.ones((2, 0))).shape == (2, 0) and memoryview(mo.asarray(1.5)).tolist() == 1.5
    assert memoryview(mo.nn.Parameter(mo.ones(3))).tolist() == [1, 1, 1], "of derived classes too"
    with pytest.raises(BufferError, match="no format for bfloat16"):
        interop.buffer(mo.asarray([1.5], dtype=mo.bfloat16), 0)


def test_a_buffer_holds_the_memory_and_is_let_go() -> None:
    t = mo.ones(1000) * 3
    t.numpy()
    tensor, storage = weakref.ref(t), t._storage
    view, held = memoryview(t), sys.getrefcount(storage)
    del t
    gc.collect()
    assert view.tolist() == [3.0] * 1000
    view.release()
    gc.collect()
    assert tensor() is None and sys.getrefcount(storage) < held
    t = mo.ones(10).realise()
    before = sys.getrefcount(t), sys.getrefcount(t._storage)
    for _ in range(1000):
        bytes(t), memoryview(t)
    assert (sys.getrefcount(t), sys.getrefcount(t._storage)) == before


def test_buffers_that_are_refused_say_why() -> None:
    t = mo.ones(4)
    memoryview(t)  # before Python 3.12 the reason of a first request in a process is lost
    with pytest.raises((BufferError, TypeError), match=r"read-only|read-write"):
        io.BytesIO(b"0123456789abcdef").readinto(t)
    with pytest.raises(BufferError, match="no format for bfloat16"):
        memoryview(mo.asarray([1.5], dtype=mo.bfloat16))
    with pytest.raises(IndexError, match="out of range"):
        bytes(mo.ones(3)[mo.asarray([5])])
    with pytest.raises(mo.errors.CompileError, match="asks for a value of its arguments"):
        mo.compile(lambda x: x if bytes(x) else -x)(t)
    assert t.tolist() == [1, 1, 1, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.asarray(mo.asarray([1.5], dtype=mo.bfloat16)).tolist() == [1.5]
        assert np.frombuffer(t, np.float32).tolist() == [1, 1, 1, 1]


def test_an_interrupt_while_a_buffer_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: mo.Tensor, flags: int) -> memoryview:
        raise KeyboardInterrupt

    memoryview(mo.ones(2))
    monkeypatch.setattr(mo.Tensor, "__buffer__", interrupted)
    for use in (bytearray, bytes, memoryview):
        with pytest.raises(KeyboardInterrupt):
            use(mo.ones(2))


@pytest.mark.skipif(not buffer_slot.is_needed(), reason="Python serves buffers by itself")
def test_the_first_request_and_one_without_llvm() -> None:
    """A class of its own, as `Tensor` was when it was made."""
    class Own:
        def __buffer__(self, flags: int) -> memoryview:
            if flags & 1:
                raise BufferError("read-only")
            return memoryview(b"abc")

    class Derived(Own):
        pass

    slot = buffer_slot.Slot(Own)
    assert bytes(memoryview(Own())) == b"abc" and bytes(memoryview(Derived())) == b"abc"
    assert slot.table[0]
    with pytest.raises((BufferError, TypeError), match=r"read-only|read-write"):
        io.BytesIO(b"123").readinto(Derived())
    view = (ctypes.c_byte * 128)()
    assert buffer_slot._get_buffer(Own(), ctypes.addressof(view), 0) == 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.c_void_p(ctypes.addressof(view)))


@pytest.mark.skipif(not buffer_slot.is_needed(), reason="Python serves buffers by itself")
def test_a_plain_request_after_a_lost_refusal_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a first refused request is lost; the next may be PyTorch's, which reads float32."""
    class Own:
        def __buffer__(self, flags: int) -> memoryview:
            if flags & 1:
                raise BufferError("read-only")
            return memoryview(b"abc")

    monkeypatch.delitem(sys.modules, "torch", raising=False)
    slot = buffer_slot.Slot(Own)
    assert not slot.table[0]
    monkeypatch.setitem(sys.modules, "torch", sys)
    with pytest.raises((BufferError, TypeError, SystemError)):
        io.BytesIO(b"123").readinto(Own())
    with pytest.raises(BufferError, match=r"torch\.asarray"):
        hashlib.sha256(Own())
    assert hashlib.sha256(Own()).digest() == hashlib.sha256(b"abc").digest()
    assert buffer_slot.Slot(Own).table[0], "prepared at once where PyTorch is loaded"


def test_torch_asarray_is_an_error_and_never_other_numbers() -> None:
    """It takes any buffer for float32 numbers; readers of bytes go on working."""
    torch = pytest.importorskip("torch")
    for array in (np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1, 2], [3, 4]]), np.ones((2, 2), np.float32)):
        x = mo.asarray(array)
        memoryview(x)
        for read in (torch.asarray, lambda x: torch.frombuffer(x, dtype=torch.float32)):
            with pytest.raises(RuntimeError, match="could not retrieve buffer"):
                read(x)
        for read in (torch.as_tensor, torch.from_dlpack, torch.tensor, lambda x: torch.asarray(x.numpy(copy=True))):
            assert read(x).tolist() == array.tolist()
        assert np.frombuffer(x, array.dtype).tolist() == array.ravel().tolist()
        assert hashlib.sha256(x).digest() == hashlib.sha256(array.tobytes()).digest()


def test_pytorch_writes_into_a_copy() -> None:
    """It ignores that memory is read-only: values, weights and constants of compiled functions stay as they are."""
    torch = pytest.importorskip("torch")
    x, layer = mo.asarray([1.0, 2.0, 3.0]), mo.nn.Linear(2, 1)
    add = mo.compile(lambda a: a + x)
    weight = layer.weight.numpy(copy=True)
    add(mo.ones(3))
    for take in (torch.from_dlpack, torch.as_tensor, torch.tensor, lambda x: torch.from_dlpack(Opaque(x)),
                 lambda x: torch.from_dlpack(x.__dlpack__()), lambda x: torch.from_dlpack(x, copy=True),
                 lambda x: torch.from_dlpack(x, device="cpu")):
        taken = take(x)
        assert taken.tolist() == [1, 2, 3]
        taken.fill_(50)
        take(layer.weight).zero_()
        assert x.tolist() == [1, 2, 3] and add(mo.ones(3)).tolist() == [2, 3, 4]
        np.testing.assert_array_equal(layer.weight.numpy(), weight)
    assert torch.from_dlpack(mo.ones((2, 3), dtype=mo.bfloat16).T).dtype is torch.bfloat16
    with pytest.raises(BufferError, match="PyTorch writes into memory"):
        torch.from_dlpack(x, copy=False)


def test_array_interface() -> None:
    """NumPy's older protocol, which Pillow reads: it holds the memory."""
    class Only:
        def __init__(self, tensor: mo.Tensor) -> None:
            self.__array_interface__ = tensor.__array_interface__

    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    x = mo.asarray(array)
    for tensor, expected in ((x, array), (x[:, ::2], array[:, ::2]), (x + 1, array + 1),
                             (mo.ones((2, 0)), np.ones((2, 0))), (mo.asarray(1.5), np.float32(1.5))):
        read = np.asarray(Only(tensor))
        np.testing.assert_array_equal(read, expected)
        assert read.dtype == tensor.dtype and not read.flags.writeable
    view, x[0] = np.asarray(Only(x)), 9
    np.testing.assert_array_equal(view, array)
    assert not hasattr(mo.ones(2, dtype=mo.bfloat16), "__array_interface__")
    assert mo.compile(lambda x: x * 2 if not hasattr(x, "__array_interface__") else x)(mo.ones(2)).tolist() == [2, 2]


def test_images_of_pillow() -> None:
    image = pytest.importorskip("PIL.Image")
    array = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    x = mo.asarray(array)
    for tensor, expected in ((x, array), (x[:, ::-1], array[:, ::-1]), (x[..., 0], array[..., 0]),
                             (x[..., 1].T, array[..., 1].T)):
        picture = image.fromarray(tensor)
        np.testing.assert_array_equal(np.asarray(picture), expected)
        assert mo.asarray(picture).tolist() == tensor.tolist()
    assert np.asarray(image.fromarray(mo.ones((2, 3)))).tolist() == [[1, 1, 1]] * 2


def test_arrays_of_jax() -> None:
    jax = pytest.importorskip("jax")
    for dtype in ("bool", "int32", "uint8", "float16", "bfloat16", "float32", "complex64"):
        x = mo.asarray(np.arange(6).reshape(2, 3) % 2).astype(getattr(mo, dtype))
        for tensor in (x, x.T, x[:, ::-1], x[0, 0], x[:0]):
            taken = jax.numpy.asarray(tensor)
            assert str(taken.dtype) == dtype and taken.tolist() == tensor.tolist()
            assert mo.asarray(taken).dtype is tensor.dtype
    assert (jax.numpy.ones(2) + mo.ones(2)).tolist() == [2, 2]


def test_conversions_to_python() -> None:
    """Numbers come from 0-dimensional tensors only."""
    assert (int(mo.asarray(3)), float(mo.asarray(2.5)), bool(mo.asarray(1))) == (3, 2.5, True)
    assert complex(mo.asarray(1j)) == 1j
    assert [10, 20][mo.asarray(1)] == 20
    for use in (int, float, bool, lambda t: [1, 2][t]):
        with pytest.raises(TypeError):
            use(mo.asarray([1.0, 2.0]))


def test_exports_of_many_threads_are_all_there() -> None:
    """Capsules that are refused, taken and held side by side: what is held is never given up."""
    refused, wanted = mo.ones(8, dtype=mo.bfloat16).realise(), mo.ones(8).realise()
    lost: list[int] = []
    stop = time.monotonic() + 2

    def work(number: int) -> None:
        while time.monotonic() < stop:
            with contextlib.suppress(BufferError, RuntimeError, ValueError, TypeError):
                np.from_dlpack(refused)
            held = wanted.__dlpack__()
            np.from_dlpack(wanted)
            if capsule._pointer(held, b"dltensor") not in capsule._exports:
                lost.append(number)
            del held

    before = capsule.live_exports()
    together(work, threads=4, switch_s=1e-5)
    assert not lost and capsule.live_exports() == before


def test_a_refused_capsule_leaves_an_error_and_no_memory() -> None:
    """NumPy has no bfloat16: its own error arrives, and what was offered is given back."""
    before, big = capsule.live_exports(), [mo.ones(50_000, dtype=mo.bfloat16).realise() for _ in range(3)]
    for tensor in big:
        with pytest.raises((BufferError, RuntimeError, ValueError, TypeError)):
            np.from_dlpack(tensor)
        assert capsule.live_exports() == before, "given back when the consumer drops the capsule"
    assert capsule.live_exports() == before
    offered = big[0].__dlpack__()
    assert capsule.live_exports() == before + 1, "still offered"
    del offered
    assert capsule.live_exports() == before


def test_a_consumers_error_arrives_while_its_array_dies() -> None:
    """NumPy's array over the tensor goes while NumPy's own error is on its way: the error is what the user sees."""
    tensor, before = mo.ones(3).realise(), capsule.live_exports()
    for _ in range(3):
        with pytest.raises(ValueError, match="read-only"):
            np.from_dlpack(tensor)[0] = 6
        assert capsule.live_exports() == before


def test_memory_given_back_by_a_thread_that_python_does_not_know() -> None:
    """A deleter may be called without the interpreter's lock."""
    before = capsule.live_exports()
    made = mo.ones(3).__dlpack__()
    place = capsule._pointer(made, b"dltensor")
    capsule._rename(made, b"used_dltensor")
    deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(capsule._Managed.from_address(place).deleter)  # frees the lock
    assert capsule.live_exports() == before + 1
    deleter(place)
    assert capsule.live_exports() == before


def test_a_capsule_is_taken_once() -> None:
    class Kept:
        def __init__(self, capsule: Any) -> None:
            self.capsule = capsule

        def __dlpack__(self, **options: Any) -> Any:
            return self.capsule

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    for version in ((1, 0), None):
        kept = Kept(mo.ones(2).__dlpack__(max_version=version))
        assert mo.from_dlpack(kept).tolist() == [1.0, 1.0]
        with pytest.raises(ValueError, match=r"^\[from_dlpack\] the capsule was used already\. At .*test_interop"):
            mo.from_dlpack(kept)
    with pytest.raises(ValueError, match=r"^\[from_dlpack\] __dlpack__ gave int, not"):
        mo.from_dlpack(Kept(3))
