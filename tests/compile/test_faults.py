"""Faults come back as errors at the user's line, and what has no fault is defined."""

from __future__ import annotations

import ctypes
import inspect
import sys
import threading

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver.abi import ContextField
from morpho.base.errors import IndexFault

TABLE = np.arange(10, dtype=np.float32)
WRONG = [10, -11, 1 << 40, -(1 << 40), np.iinfo(np.int64).min]


@pytest.mark.parametrize("wrong", WRONG)
def test_lazily(wrong: int) -> None:
    table, index = mo.asarray(TABLE), mo.asarray(np.array([0, wrong, 3]))
    found = table[index] + 1
    for _ in range(2):
        with pytest.raises(IndexFault, match=rf"\[index\] index {wrong} is out of range.*test_faults.py:\d+") as caught:
            found.numpy()
        assert isinstance(caught.value, IndexError)
    assert (table[mo.asarray([0, 9, -10])] + 1).tolist() == [1, 10, 1]


def test_the_line_is_that_of_the_index() -> None:
    index = mo.asarray(np.array([12]))
    built = mo.asarray(TABLE)[index]  # this line
    line = int(test_the_line_is_that_of_the_index.__code__.co_firstlineno) + 2
    with pytest.raises(IndexFault, match=rf"test_faults.py:{line}\b"):
        (built * 2).sum().item()


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("native", [False, True])
def test_compiled(wrong: int, native: bool) -> None:
    @mo.compile
    def f(table: mo.Tensor, index: mo.Tensor) -> mo.Tensor:
        return table[index] * 2

    table, good, bad = mo.asarray(TABLE), mo.asarray(np.array([1, -1])), mo.asarray(np.array([1, wrong]))
    target = mo.empty(2) if native else None
    f(table, good, out=target)
    line = f.__wrapped__.__code__.co_firstlineno + 2
    for count in range(1, 4):
        with pytest.raises(IndexFault, match=rf"out of range.*test_faults.py:{line}\b"):
            f(table, bad, out=target)
        assert f(table, good, out=target).tolist() == [2, 18]
        if native:
            assert f.native_calls == 2 * count

def test_a_fault_that_cannot_be_told_holds_nothing() -> None:
    """Without memory for its number, the specialisation is let go all the same."""
    f = mo.compile(lambda table, index: table[index] * 2)
    table, good, bad = mo.asarray(TABLE), mo.asarray(np.array([1, 2])), mo.asarray(np.array([1, 10]))
    target = mo.empty(2)
    assert f(table, good, out=target).tolist() == f(table, good, out=target).tolist() == [2, 4]
    made: list[int] = []

    @ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_longlong)
    def number(value: int) -> int | None:
        made.append(value)
        return None

    words, before = f.served[0].words, sys.getrefcount(f.current)
    true_number = words[ContextField.NUMBER]
    words[ContextField.NUMBER] = ctypes.cast(number, ctypes.c_void_p).value or 0
    with pytest.raises(SystemError, match="returned NULL without setting an exception"):
        f(table, bad, out=target)
    words[ContextField.NUMBER] = true_number
    after = sys.getrefcount(f.current)
    assert len(made) == 1 and after == before and not f.is_busy
    for _ in range(3):
        with pytest.raises(IndexFault):
            f(table, bad, out=target)
    after = sys.getrefcount(f.current)
    assert after == before


@pytest.mark.parametrize("operation", ["take", "set", "pairs", "rows"])
def test_every_kind_of_indexing(operation: str) -> None:
    matrix = mo.asarray(np.arange(12, dtype=np.float32).reshape(3, 4))
    bad, good = mo.asarray(np.array([0, 4])), mo.asarray(np.array([0, 3]))

    def run(index: mo.Tensor) -> np.ndarray:
        if operation == "take":
            return mo.take(matrix, index, axis=1).numpy()
        if operation == "pairs":
            return matrix[mo.asarray([0, 1]), index].numpy()
        if operation == "rows":
            return matrix.T[index].numpy()
        copy = mo.asarray(matrix, copy=True)
        copy[:, index] = 0.0
        return copy.numpy()

    with pytest.raises(IndexFault):
        run(bad)
    assert np.isfinite(run(good)).all()


def test_a_large_fault_shared_among_threads() -> None:
    f = mo.compile(lambda table, index: mo.exp(table[index]))
    index = np.zeros(3_000_000, np.int64)
    table = mo.asarray(TABLE)
    for position in (0, 1_234_567, len(index) - 1):
        index[position] = 99
        with pytest.raises(IndexFault):
            f(table, mo.asarray(index))
        index[position] = 0
    assert f(table, mo.asarray(index)).sum().item() == len(index)


def test_faults_in_several_threads_and_specialisations() -> None:
    f = mo.compile(lambda table, index: table[index] + 1)
    table = mo.asarray(TABLE)
    wrong: list[str] = []

    def work(size: int) -> None:
        bad, good = np.zeros(size, np.int64), np.zeros(size, np.int64)
        bad[-1] = 10
        target = mo.empty(size)
        for _ in range(30):
            try:
                f(table, mo.asarray(bad), out=target)
                wrong.append("no fault")
            except IndexFault as error:
                if "test_faults.py" not in str(error):
                    wrong.append(str(error))
            if f(table, mo.asarray(good), out=target).numpy().max() != 1:
                wrong.append("wrong value")

    threads = [threading.Thread(target=work, args=(size,)) for size in (3, 500_000, 3, 400_000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_fault_leaves_an_input_that_is_the_target_alone() -> None:
    f = mo.compile(lambda x, index: x[index] + x)
    x = mo.asarray(TABLE, copy=True)
    f(x, mo.asarray(np.arange(10)), out=x)
    assert x.tolist() == [2 * n for n in range(10)]
    with pytest.raises(IndexFault):
        f(x, mo.asarray(np.arange(1, 11)), out=x)
    assert x.tolist() == [2 * n for n in range(10)]


SIZES = [3, 600_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_fault_leaves_the_target_alone(size: int, dynamic: bool) -> None:
    """Natively: good calls with out= are served by the entry, and a fault in the last element costs nothing."""
    sizes = {"dynamic": {"index": {0: mo.Dim("n", 1, 1_000_000)}}} if dynamic else {}
    f = mo.compile(lambda table, index: table[index] * 2, **sizes)
    table, index = mo.asarray(TABLE), np.full(size, 3)
    target = mo.full((size,), 5.0).realise()
    address = target.buffer().address
    f(table, mo.asarray(index), out=target)
    assert target.numpy(copy=True).min() == target.numpy(copy=True).max() == 6
    index[-1] = 10
    bad, native = mo.asarray(index), f.native_calls
    for _ in range(3):
        with pytest.raises(IndexFault):
            f(table, bad, out=target)
        assert target.numpy(copy=True).min() == target.numpy(copy=True).max() == 6
    f(table, mo.asarray(np.full(size, 4)), out=target)
    assert target.numpy(copy=True).min() == target.numpy(copy=True).max() == 8
    assert f.native_calls == native + 4 and target.buffer().address == address


def test_a_fault_leaves_every_target_alone() -> None:
    """Several outputs: one before the fault, one that may fault, one after it; through the entry and through Python."""
    f = mo.compile(lambda table, index: (mo.cumulative_sum(table), table[index] + 1, (table[index] * 2).sum()))
    table, good, bad = mo.asarray(TABLE), mo.asarray(np.array([1, 2])), mo.asarray(np.array([1, 99]))
    targets = (mo.full((10,), -1.0).realise(), mo.full((2,), -1.0).realise(), mo.full((), -1.0).realise())
    for form in (targets, list(targets)):  # a list is not what the function returns: an error too
        with pytest.raises((IndexFault, TypeError)):
            f(table, bad, out=form)
    with pytest.raises(IndexFault):
        f(table, bad, out=targets)
    assert all((t.numpy(copy=True) == -1).all() for t in targets)
    for number in range(2):
        assert f(table, good, out=targets) == targets
        assert targets[0].tolist() == np.cumsum(TABLE).tolist() and targets[1].tolist() == [2, 3]
        assert targets[2].item() == 6 and f.native_calls >= number


def test_an_error_that_is_kept_does_not_hold_the_target() -> None:
    f = mo.compile(lambda table, index: (mo.real(mo.linalg.eigvals(mo.diag(table))), table[index] + 1))  # on the host
    table, good, bad = mo.asarray(TABLE), mo.asarray(np.array([1, 2])), mo.asarray(np.array([1, 99]))
    targets = (mo.empty(10), mo.empty(2))
    with pytest.raises(IndexFault) as kept:
        f(table, bad, out=targets)
    f(table, good, out=targets)
    assert targets[1].tolist() == [2, 3] and kept.value.__traceback__ is not None


def test_a_fault_leaves_states_alone() -> None:
    seen, last = mo.State(mo.zeros(())), mo.State(mo.zeros(2))

    @mo.compile
    def f(table: mo.Tensor, index: mo.Tensor) -> mo.Tensor:
        seen.value = seen.value + 1
        last.value = table[index]
        return last.value * 2

    table, bad = mo.asarray(TABLE), mo.asarray(np.array([1, 99]))
    f(table, mo.asarray(np.array([1, 2])))
    target = mo.full((2,), 5.0).realise()
    with pytest.raises(IndexFault):
        f(table, bad, out=target)
    assert seen.value.item() == 1 and last.value.tolist() == [1, 2] and target.tolist() == [5, 5]
    assert seen.version == last.version == 1


def test_a_target_that_is_the_index_is_written_natively() -> None:
    """Staged outputs are never written while inputs are read."""
    f = mo.compile(lambda table, index: table[index])
    table, index = mo.asarray(np.array([2, 0, 1])), mo.asarray(np.array([0, 1, 2]), copy=True)
    for expected in ([2, 0, 1], [1, 2, 0], [0, 1, 2]):
        assert f(table, index, out=index).tolist() == expected
    assert f.native_calls == 2


def test_a_status_is_that_of_the_call() -> None:
    """Threads whose calls fault in different programs get the line of their own."""
    def choose(table: mo.Tensor, index: mo.Tensor, extra: mo.Tensor | None = None) -> mo.Tensor:
        if extra is None:
            return table[index]
        return mo.cumulative_sum(table[index] * extra)

    f = mo.compile(choose)
    first = choose.__code__.co_firstlineno
    table, wrong = mo.asarray(TABLE), []

    def work(number: int) -> None:
        bad, target = mo.asarray(np.array([0, 77] * (number + 50))), mo.empty(2 * number + 100)
        arguments = (table, bad) if number % 2 else (table, bad, mo.ones(2 * number + 100))
        line = first + (2 if number % 2 else 3)
        for _ in range(60):
            try:
                f(*arguments, out=target)
                wrong.append("no fault")
            except Exception as error:
                if not isinstance(error, IndexFault) or f"test_faults.py:{line}." not in str(error):
                    wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("compiled", [False, True])
def test_integer_arithmetic_is_defined(kind: type, compiled: bool) -> None:
    info = np.iinfo(kind)
    least, most, bits = info.min, info.max, info.bits
    x = np.array([least, most, 7, 0, 1] * 13, kind)

    def everything(x: mo.Tensor, zero: mo.Tensor, minus: mo.Tensor, wide: mo.Tensor) -> tuple[mo.Tensor, ...]:
        return x // zero, x % zero, x // minus, x % minus, x << wide, x >> wide, x + x, x * x, -x

    function = mo.compile(everything) if compiled else everything
    signed = least < 0
    minus = np.full_like(x, -1 if signed else most)
    found = [t.numpy() for t in function(*map(mo.asarray, (x, np.zeros_like(x), minus, np.full_like(x, bits))))]
    assert not found[0].any() and not found[1].any()
    with np.errstate(all="ignore"):
        expected = -x if signed else x // minus
        np.testing.assert_array_equal(found[2], expected)  # the least value divided by -1 is itself
        np.testing.assert_array_equal(found[3], np.zeros_like(x) if signed else x % minus)
        assert not found[4].any()
        np.testing.assert_array_equal(found[5], np.where(x < 0, -1, 0).astype(kind) if signed else np.zeros_like(x))
        for i, want in ((6, x + x), (7, x * x), (8, -x)):
            np.testing.assert_array_equal(found[i], want)


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("source", [np.float32, np.float64])
@pytest.mark.parametrize("compiled", [False, True])
def test_floats_become_integers_by_saturating(kind: type, source: type, compiled: bool) -> None:
    info = np.iinfo(kind)
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 1.9, -1.9, 0.0, -0.0, 127.0], source)
    dtype = mo.asarray(np.zeros(1, kind)).dtype
    convert = (lambda x: x.astype(dtype))
    found = (mo.compile(convert) if compiled else convert)(mo.asarray(x)).numpy()
    low = info.min
    expected = [0, info.max, low, info.max, low, 1, -1 if low else 0, 0, 0, 127]
    np.testing.assert_array_equal(found, np.array(expected, kind))


def test_equal_programs_are_told_by_their_own_lines() -> None:
    """Their nodes are one object: of those who wrote them, the one that asked for values is named."""
    x, wrong, right = mo.ones((3, 4)).realise(), mo.asarray(np.array([0, 9])), mo.asarray(np.array([0, 1]))
    functions, lines = [], []
    functions.append(mo.compile(lambda a, i: a[i] * 2))
    lines.append(inspect.currentframe().f_lineno - 1)  # type: ignore[union-attr]
    functions.append(mo.compile(lambda a, i: a[i] + 1))
    lines.append(inspect.currentframe().f_lineno - 1)  # type: ignore[union-attr]
    for _ in range(2):  # through Python, then by the native entry
        for f in functions:
            f(x, right)
        for f, line in zip(functions, lines, strict=True):
            with pytest.raises(IndexError, match=rf"test_faults\.py:{line}\b"):
                f(x, wrong)
    unused = mo.take(x, wrong, axis=0)
    with pytest.raises(IndexError, match=rf"test_faults\.py:{inspect.currentframe().f_lineno + 1}\b"):  # type: ignore[union-attr]
        mo.take(x, wrong, axis=0).numpy()
    del unused
