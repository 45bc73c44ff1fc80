"""`mo.profile()`: every call is counted, every second has a category, and `explain()` shows what was measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.backends.driver.abi import LONG_WORK
from morpho.base.python.blas import routine_address
from morpho.observe.record.seconds import by_category, self_seconds
from morpho.observe.trace.model import OpRow, SpanRow, Trace
from morpho.runtime.trace import spans
from morpho.tensor import convert

HERE = Path(__file__).name


def test_calls_and_lines_of_operations() -> None:
    f = mo.compile(lambda x, w: mo.relu(x @ w))
    x, w = mo.ones((64, 64)), mo.ones((64, 64))
    f(x, w)
    with mo.profile("products") as p:
        for _ in range(20):
            f(x, w)
    (row,) = [row for row in p.trace.ops if row.name.startswith("matmul")]
    assert row.calls == 20 and row.kind == "kernel" and row.product
    assert HERE in row.line and row.program == "<lambda>"
    assert row.flops >= 20 * 2 * 64**3 and row.bytes >= 20 * 3 * 64 * 64 * 4
    assert row.busy_s > 0 and 0 < row.seconds <= p.trace.wall_s
    assert p.trace.counters["native_calls"] == 20 and p.trace.counters["recompiles"] == 0
    assert p.trace.name == "products"


def test_categories_add_up_to_the_wall_time() -> None:
    f = mo.compile(lambda x: mo.exp(x))
    with mo.profile() as p:
        f(mo.ones(1000))
        (mo.ones(10) + 1).numpy()
        float(mo.sum(mo.ones(5)))
    assert sum(p.trace.seconds.values()) == pytest.approx(p.trace.wall_s, rel=1e-6)
    assert {span.kind for span in p.trace.spans} >= {"trace", "compile", "realise"}
    assert p.trace.seconds["compile"] > 0 and p.trace.seconds["python"] > 0


def test_lazy_evaluation_is_seen() -> None:
    x = mo.ones((50, 50))
    with mo.profile() as p:
        for _ in range(3):
            (mo.sin(x) * 2).realise()
    rows = [row for row in p.trace.ops if row.program == "eager" and "sin" in row.name]
    assert sum(row.calls for row in rows) == 3 and all(HERE in row.line for row in rows)


def test_steps_of_loops_are_counted_by_turns() -> None:
    f = mo.compile(lambda x: mo.fori_loop(0, 7, lambda i, y: mo.tanh(y @ x), x))
    x = mo.ones((40, 40)) * 0.01
    f(x)
    with mo.profile() as p:
        f(x)
    assert [row.calls for row in p.trace.ops if row.name.startswith("matmul")] == [7]


def test_products_of_dynamic_rows_cost_what_they_are() -> None:
    """Their rows and columns are those of tiles, made for the largest size."""
    weight = mo.ones((64, 64)).realise()
    f = mo.compile(lambda x: mo.gelu(x @ weight) @ weight, dynamic={"x": {0: mo.Dim("n", 1, 4096)}})
    few = mo.ones((16, 64)).realise()
    f(few), f(few)
    with mo.profile() as p:
        for _ in range(3):
            f(few)
    products = [row for row in p.trace.ops if row.name.startswith("matmul")]
    assert len(products) == 2
    for row in products:
        assert 2 * 16 * 64 * 64 <= row.flops / row.calls < 3 * 16 * 64 * 64, row


@pytest.mark.skipif(not routine_address("dgesv"), reason="this NumPy's LAPACK cannot be called by address")
def test_factorisations_cost_what_they_are() -> None:
    """LAPACK's arithmetic is the step's; its threads are its own, so none of ours wait; Python may run meanwhile."""
    f = mo.compile(mo.linalg.solve)
    a, b = (mo.eye(100) * 2).realise(), mo.ones(100).realise()
    f(a, b)
    with mo.profile() as p:
        f(a, b)
    (row,) = [row for row in p.trace.ops if row.name == "solve"]
    assert 2 / 3 * 100**3 <= row.flops < 100**3 and row.threads == 1
    (made,) = f.specialisations.values()
    assert made.plan.executable.work > LONG_WORK


def test_dynamic_sizes_cost_what_they_are() -> None:
    f = mo.compile(lambda x: x * 2 + 1, dynamic={"x": {0: mo.Dim("n", 1, 4096)}})
    f(mo.ones(4096))
    with mo.profile() as p:
        f(mo.ones(1024))
    (row,) = [row for row in p.trace.ops if row.program == "<lambda>"]
    with mo.profile() as q:
        f(mo.ones(4096))
    (full,) = [row for row in q.trace.ops if row.program == "<lambda>"]
    assert row.bytes * 4 == pytest.approx(full.bytes)


def test_host_steps_and_collectives_have_kinds() -> None:
    f = mo.compile(lambda a: mo.real(mo.linalg.eigvals(a)) + 1)
    a = mo.zeros((0, 0))  # matrices without elements are NumPy's
    f(a)
    with mo.profile() as p:
        f(a)
    assert [(row.kind, row.calls) for row in p.trace.ops if "eig" in row.name] == [("host", 1)]
    assert p.trace.seconds["host"] > 0 and p.trace.counters["host_steps"] == 1


def test_explain_shows_measured_beside_predicted() -> None:
    f = mo.compile(lambda x: mo.softmax(x @ x, axis=-1))
    x = mo.ones((64, 64))
    f(x)
    assert "measured" not in f.explain()
    with mo.profile():
        f(x)
    text = f.explain()
    assert "at the limit" in text and "measured" in text and "share" in text


def test_one_profile_at_a_time() -> None:
    with mo.profile(), pytest.raises(mo.errors.ArgumentError, match="being recorded already"):
        mo.profile().__enter__()
    p = mo.profile()
    with pytest.raises(mo.errors.ArgumentError, match="not over yet"):
        _ = p.trace


def test_an_error_in_the_block_ends_the_profile() -> None:
    with pytest.raises(ZeroDivisionError), mo.profile() as p:
        1 / 0  # noqa: B018
    assert p.trace.wall_s > 0
    with mo.profile() as q:
        pass
    assert "Nothing" in q.report() or q.verdicts


def test_waiting_for_data_is_a_span() -> None:
    loader = mo.data.DataLoader(mo.data.TensorDataset(mo.arange(6)), batch_size=2)
    with mo.profile() as p:
        assert len(list(loader)) == 3
    assert sum(span.kind == "data" for span in p.trace.spans) == 3


@pytest.mark.parametrize("turned", [False, True])
def test_copies_of_large_arrays_are_spans(turned: bool) -> None:
    """Those of small ones are not told, and what is taken without a copy has none."""
    large, small = np.ones((256, 128), np.float32), np.ones(8, np.float32)
    large = large.T if turned else large
    with mo.profile("copies") as p:
        kept = mo.asarray(large), mo.asarray(small), mo.asarray(large[::2], copy=False)
    (told,) = [span for span in p.trace.spans if span.kind == "transfer"]
    assert len(kept) == 3 and told.detail["bytes"] == large.nbytes and __file__ in told.detail["line"]


def test_a_conversion_is_a_part_of_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer than moving the bytes, and would be "Python" by itself."""
    cast = convert.reference_cast

    def told(*arguments: Any) -> Any:
        with spans.span("cast", "cast"):
            return cast(*arguments)

    monkeypatch.setattr(convert, "reference_cast", told)
    with mo.profile() as p:
        assert mo.asarray(np.ones((256, 128)), dtype=mo.float32).dtype is mo.float32
    by_kind = {span.kind: span for span in p.trace.spans}
    copy, inner = by_kind["transfer"], by_kind["cast"]
    assert copy.detail["converts"] and copy.start_s <= inner.start_s
    assert inner.start_s + inner.seconds <= copy.start_s + copy.seconds


def test_devices_have_events(delayed_device: str) -> None:
    """Queued runs and copies of a device that computes late, on one timeline with the rest."""
    x = mo.ones((4, 4)).to(delayed_device)
    with mo.profile() as p:
        (x * 2 + 1).numpy()
    on_device = [span for span in p.trace.spans if span.detail.get("on_device")]
    assert {span.detail["device"] for span in on_device} == {delayed_device}  # a run for each operation
    assert on_device[0].seconds > 0
    names = {span.name for span in p.trace.spans if span.kind == "transfer"}
    assert f"from {delayed_device}" in names


@pytest.fixture
def delayed_device() -> str:
    from tests.backends import delayed

    delayed.install()
    return "delayed:0"


def test_memory_at_the_peak_has_lines() -> None:
    with mo.profile() as p:
        x = mo.ones((1024, 1024)).realise()
        y = (x + 1).realise()
    assert p.trace.peak_bytes >= 2 * x.nbytes
    held = {line: nbytes for line, nbytes, _ in p.trace.holders}
    assert any(HERE in line for line in held)
    assert len(p.trace.memory) >= 2 and p.trace.memory[0].rss_bytes >= 0 and y.is_realised


# -- spans and seconds -------------------------------------------------------------------------------------------------
def test_spans_off_are_nothing() -> None:
    assert spans.sink is None
    with spans.span("data", "x") as told:
        told["bytes"] = 3
        told |= {"a": 1}
    with spans.span("data", "y") as again:
        assert dict(again) == {}


def test_spans_are_kept_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "MOST_SPANS", 2)
    with spans.recording() as found:
        for _ in range(5):
            with spans.span("data", "x"):
                pass
    assert len(found) == 2 and found.dropped == 3


def test_a_span_has_its_own_time_without_those_inside() -> None:
    rows = [SpanRow("trace", "f", 1, 0.0, 1.0), SpanRow("compile", "", 1, 0.2, 0.5), SpanRow("data", "", 1, 2.0, 0.5)]
    assert self_seconds(rows) == pytest.approx([0.5, 0.5, 0.5])


def test_programs_inside_a_span_are_not_counted_twice() -> None:
    ops = [OpRow("exp", seconds=0.3)]
    found = by_category(1.0, 0.4, ops, [SpanRow("data", "make", 1, 0.0, 0.6)], np.array([[0.1, 0.4]]))
    assert found["kernels"] == pytest.approx(0.3) and found["launch"] == pytest.approx(0.1)
    assert found["data"] == pytest.approx(0.2) and found["python"] == pytest.approx(0.4)
    assert sum(found.values()) == pytest.approx(1.0)


def test_a_trace_survives_its_file(tmp_path: Path) -> None:
    with mo.profile("kept") as p:
        mo.compile(lambda x: x + 1)(mo.ones(10))
        time.sleep(0)
    path = p.save(tmp_path / "trace.json")
    assert Trace.load(path).as_json() == Trace.of(p.trace.as_json()).as_json()


@pytest.mark.parametrize(("text", "complaint"), [
    ("{", "is no trace"), ("[]", "no trace of version"), ('{"version": 99}', "no trace of version"),
    ('{"version": 1, "colour": 1}', "no field 'colour'"), ('{"version": 1, "ops": [3]}', "not a record"),
])
def test_a_file_that_is_no_trace_is_told(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(mo.errors.ArgumentError, match=complaint):
        Trace.load(tmp_path / "bad.json")
