"""Programs that nobody compiled: recorded, computed by one compiled function at a look, with the bits of `compile`."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.ir.node import live_nodes
from morpho.tensor import at_once, recorded_programs, recording, steps, stepwise
from morpho.tensor.steps import Step, counts

ALONE = 2  # references to memory that one name holds, as `sys.getrefcount` counts


@pytest.fixture(autouse=True)
def afresh() -> None:
    """What other tests have recorded in this thread is computed before, and what they had compiled is forgotten: a
    count of programs is that of the test alone."""
    recording.flush()
    steps._forget()
    for known in (recording._sites, recorded_programs._forms, at_once._programs, stepwise._known):
        known.clear()


def is_recorded(x: Any) -> bool:
    return type(x._node) is Step


def chain(x: Any) -> Any:
    for turn in range(10):
        x = mo.tanh(x * 0.9 + 0.1 * turn) - x / 3
    return x


def layers(x: Any) -> Any:
    y = mo.layer_norm(mo.gelu(x @ x.T + 1.0)) * 0.5
    return mo.softmax(mo.concat([y, mo.zeros((8, 2))], axis=1)[:, 1:], axis=-1).sum(axis=0, keepdims=True)


def pieces(x: Any) -> Any:
    one, other = mo.split(x, 2, axis=0)
    mask = one > other
    return mo.where(mask, one, -other).astype(mo.float64).reshape(-1)[2:10].mean() + mo.max(x, axis=0)[3] ** 2


def drawn(x: Any) -> Any:
    key, own = mo.random.split(mo.random.key(3))
    return x + mo.random.normal(own, x.shape) + mo.random.uniform(key, (8,))


@pytest.mark.parametrize("program", [chain, layers, pieces, drawn])
def test_bits_are_those_of_compile_and_of_each_operation_by_itself(program: Any, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((8, 8), np.float32))
    first = program(x)
    assert is_recorded(first)
    results = [first.numpy().tobytes()]
    program(x).numpy()  # numbers that change from line to line become inputs
    plans = counts.plans
    results += [program(x).numpy().tobytes() for _ in range(2)]
    assert counts.plans == plans
    with mo.settings(record=False):
        results.append(program(x).numpy().tobytes())
    for level in (0, 3):
        with mo.settings(level=level):
            results.append(mo.compile(program)(x).numpy().tobytes())
    assert len(set(results)) == 1


def test_values_that_nobody_looks_at_neither_grow_nor_compile() -> None:
    x = start = mo.asarray(np.linspace(-1, 1, 16, dtype=np.float32))
    key = mo.random.key(0)

    def turns(number: int) -> None:
        nonlocal x, key
        for turn in range(number):
            x = mo.tanh(x * 0.999 + 0.001 * turn)
            key, _ = mo.random.split(key)

    turns(600)
    plans, nodes, cuts, steps = counts.plans, live_nodes(), counts.cuts, counts.steps
    turns(3000)
    assert counts.plans - plans <= 2 and counts.cuts > cuts
    assert live_nodes() - nodes < 2000 and counts.steps - steps < 2000
    with mo.settings(record=False):
        y = start
        for turn in [*range(600), *range(3000)]:
            y = mo.tanh(y * 0.999 + 0.001 * turn).realise()
    assert x.numpy().tobytes() == y.numpy().tobytes()


def test_numbers_are_no_new_programs() -> None:
    x = mo.asarray([1.0, 2.0])
    for n in range(12):
        assert (x * (0.5 + n) + n).tolist() == [0.5 + 2 * n, 1.0 + 3 * n]
    plans = counts.plans
    for n in range(12, 30):
        assert (x * (0.5 + n) + n).tolist() == [0.5 + 2 * n, 1.0 + 3 * n]
    assert counts.plans == plans


@pytest.mark.parametrize("value", [0.0, -0.0, float("inf"), float("nan"), 1e300, 5, -3, True])
@pytest.mark.parametrize("dtype", [mo.float32, mo.float64, mo.int32, mo.bfloat16, mo.uint8])
def test_each_number_is_that_of_the_usual_way(value: Any, dtype: Any) -> None:
    x = mo.asarray([1, 0, 3]).astype(dtype)

    def result(number: Any, **chosen: Any) -> Any:
        try:
            with mo.settings(**chosen) if chosen else mo.enable_grad():
                made = x * number + x
                return made.dtype, made.numpy().tobytes()
        except TypeError as error:
            return type(error)

    result(0.25), result(0.75), result(7), result(8)  # from here on they are inputs
    assert result(value) == result(value) == result(value, record=False)


def test_what_is_assigned_later_changes_nothing() -> None:
    x = mo.asarray(np.ones(4, np.float32))
    waiting = x + 1
    x[0] = 50.0
    assert waiting.tolist() == [2.0] * 4 and x.tolist() == [50.0, 1.0, 1.0, 1.0]
    state = mo.State(mo.ones(3))
    step = mo.compile(lambda: setattr(state, "value", state.value + 1.0))
    seen = state.value * 2.0
    step()
    assert seen.tolist() == [2.0] * 3 and state.value.tolist() == [2.0] * 3


def test_results_may_be_written_where_only_a_recording_held_them() -> None:
    add = mo.compile(lambda a: a + 1)
    x = mo.ones(3).realise()
    x * 2.0  # nobody looks
    add(mo.ones(3), out=x)
    assert x.tolist() == [2.0] * 3


def test_views_of_realised_tensors_are_views() -> None:
    x = (mo.asarray(np.arange(24.0).reshape(2, 3, 4)) + 0).realise()
    for _ in range(2):
        array = x.numpy()
        for part, wanted in ((x[1, :, 2:], array[1, :, 2:]), (x.reshape(6, 4).T, array.reshape(6, 4).T),
                             (mo.permute_dims(x, (2, 0, 1)), array.transpose(2, 0, 1)),
                             (x[:, ::2, None], array[:, ::2, None])):
            assert part.is_realised and part._storage is x._storage
            np.testing.assert_array_equal(part.numpy(), wanted)
    with pytest.raises(IndexError, match="out of range"):
        x[0, 7]


def test_errors_name_the_line_that_wrote_the_operation() -> None:
    with pytest.raises(ValueError, match="test_recording"):
        mo.ones(3) + mo.ones(4)
    table, place = mo.asarray([1.0, 2.0, 3.0]), mo.asarray([5])
    good, bad = table * 2.0, mo.take(table, place)
    for _ in range(2):  # the second time the recording is known
        good, bad = table * 2.0, mo.take(table, place) + 0.5
        with pytest.raises(IndexError, match="test_recording"):
            bad.numpy()
        assert good.tolist() == [2.0, 4.0, 6.0]


def test_another_thread_may_look() -> None:
    x = mo.asarray([1.0, 2.0])
    y = mo.exp(x) * 2.0
    z = y + x
    seen: list[Any] = []
    worker = threading.Thread(target=lambda: seen.extend([z.tolist(), (y * 1.0).tolist()]))
    worker.start()
    worker.join()
    assert seen == [z.tolist(), y.tolist()]


def test_a_recording_ends_before_it_holds_much_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_HELD", 3 << 20)
    total, cuts = mo.asarray(0.0), counts.cuts
    for number in range(12):
        total = total + mo.asarray(np.full(1 << 18, number, np.float32)).sum()
        assert len(local_inputs()) < 8
    assert counts.cuts > cuts and total.item() == 66 * (1 << 18)


def local_inputs() -> list[Any]:
    return recording.local.recording.inputs  # type: ignore[no-any-return]


def trained(steps: int, seed: int) -> Any:
    """The losses and weights of a training loop as it is written first."""
    rng = np.random.default_rng(seed)
    x, y = (mo.asarray(rng.standard_normal((8, 4), np.float32)) for _ in range(2))
    model = mo.nn.Sequential(mo.nn.Linear(4, 6), mo.nn.GELU(), mo.nn.Linear(6, 4))
    for parameter in model.parameters():
        parameter.assign(rng.standard_normal(parameter.shape, np.float32))
    optimiser = mo.optim.AdamW(model.parameters(), lr=0.01)
    losses, total = [], 0.0
    for _ in range(steps):
        optimiser.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimiser.step()
        total = total + loss
        losses.append(loss.item())
    return losses, total.item(), [parameter.numpy().tobytes() for parameter in model.parameters()]


def test_a_training_step_is_one_program(seed: int) -> None:
    trained(4, seed)
    plans, runs = counts.plans, counts.runs
    results = trained(4, seed)
    assert counts.plans - plans <= 1  # beside the steps the first values of a model
    assert counts.runs - runs <= 4 * 2 + 6
    with mo.settings(record=False):
        assert trained(4, seed) == results


def test_gradients_of_values_that_were_looked_at() -> None:
    def gradients(look: bool) -> list[Any]:
        weight = mo.nn.Parameter([1.0, 2.0])
        for _ in range(2):  # gradients add up
            hidden = mo.exp(weight * 0.5)
            if look:
                hidden.numpy()
            loss = (hidden * weight).sum()
            if look:
                assert loss.item() > 0
            loss.backward()
        with pytest.raises(TypeError):
            loss.backward()
        with mo.no_grad():
            assert not (weight * 2.0).requires_grad
        assert (weight * 2.0).requires_grad and not (weight * 2.0).detach().requires_grad
        return weight.grad.tolist()  # type: ignore[no-any-return]

    assert gradients(True) == gradients(False)
    np.testing.assert_allclose(gradients(False), 2 * np.exp([0.5, 1.0]) * (1 + np.array([0.5, 1.0])), rtol=1e-5)


def test_blocks_of_settings_are_recorded(rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((8, 8), np.float32))
    wanted = chain(x).numpy().tobytes()
    outside = x * 2.0
    with mo.settings(level=1):
        inside = chain(x)
        assert is_recorded(inside) and chain(x).numpy().tobytes() == wanted
        later = x * 3.0
        with mo.settings(threads=1):
            deeper = later + 1.0
            assert is_recorded(deeper)
        plans = counts.plans
        for _ in range(3):
            assert chain(x).numpy().tobytes() == wanted
        assert counts.plans == plans
        with mo.settings(autocast="bfloat16"):
            assert not is_recorded(x * 0.5)
        last = x * 5.0
    after = x + 1.0
    array = x.numpy()
    for value, expected in ((inside, wanted), (outside, (array * 2).tobytes()), (later, (array * 3).tobytes()),
                            (deeper, (array * 3 + 1).tobytes()), (last, (array * 5).tobytes()),
                            (after, (array + 1).tobytes())):
        assert value.numpy().tobytes() == expected


def test_ten_thousand_steps_that_nobody_looks_at() -> None:
    """Memory and programs of a loop stay as they are, whatever it carries along."""
    weight = mo.nn.Parameter(np.linspace(-1, 1, 8, dtype=np.float32))
    optimiser = mo.optim.SGD([weight], lr=1e-3, momentum=0.9)
    mean, scale = mo.zeros(8), mo.asarray(0.99)

    def steps(number: int) -> None:
        nonlocal mean
        for _ in range(number):
            mean = mean * scale + 0.01

    def trained(number: int) -> None:
        for _ in range(number):
            optimiser.zero_grad()
            (weight * weight).sum().backward()
            optimiser.step()
            with mo.no_grad():
                weight.assign(weight - 1e-4 * mean)

    trained(5), steps(300)
    plans, nodes, positions = counts.plans, live_nodes(), counts.steps
    steps(10_000), trained(50)
    assert counts.plans - plans <= 3 and live_nodes() - nodes < 500 and counts.steps - positions < 1000
    assert bool(mo.all(mo.isfinite(mean)))


@pytest.mark.parametrize("name, function", [
    ("embedding", lambda x: mo.embedding(x, mo.asarray([1, 0, 3]))), ("sort", lambda x: mo.sort(x, axis=0)),
    ("topk", lambda x: mo.topk(x, 3)[0]), ("svd", lambda x: mo.linalg.svd(x).S), ("inv", lambda x: mo.linalg.inv(x)),
    ("qr", lambda x: mo.linalg.qr(x).R), ("fft", lambda x: mo.fft.rfft(x)),
    ("take", lambda x: mo.take(x, [2, 1], axis=1)),
    ("linear", lambda x: mo.nn.linear(x, x)), ("quantile", lambda x: mo.quantile(x, 0.3, axis=0)),
    ("loss", lambda x: mo.nn.cross_entropy(x, mo.asarray(np.arange(8)))), ("mse", lambda x: mo.nn.mse_loss(x, x * 2)),
    ("cumsum", lambda x: mo.cumulative_sum(x, axis=0)), ("cdist", lambda x: mo.cdist(x, x + 1.0))])
def test_functions_are_recorded_with_the_same_bits(name: str, function: Any, rng: np.random.Generator) -> None:
    x = mo.asarray(rng.standard_normal((8, 8), np.float32))
    result = function(x * 1.5)
    assert is_recorded(result)
    with mo.settings(record=False):
        assert function(x * 1.5).numpy().tobytes() == result.numpy().tobytes()


@pytest.mark.parametrize("rule, options", [
    ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}), ("AdamW", {}), ("Adam", {"maximize": True}),
    ("RMSprop", {}), ("Lion", {}), ("Adagrad", {})])
def test_an_update_is_one_operation_with_the_bits_of_its_parts(rule: str, options: Any, seed: int) -> None:
    def weights() -> list[bytes]:
        rng = np.random.default_rng(seed)
        parameters = [mo.nn.Parameter(rng.standard_normal(shape, np.float32)) for shape in ((3, 4), (4,))]
        groups = [{"params": parameters[:1], "lr": 0.1}, {"params": parameters[1:]}]
        optimiser = getattr(mo.optim, rule)(groups, **options)
        for turn in range(4):
            optimiser.zero_grad()
            ((parameters[0] + parameters[1]) ** 2).sum().backward()
            if turn == 2:
                parameters[1].grad = None  # it sits this step out
                optimiser.param_groups[0]["lr"] = 0.05
            optimiser.step()
        return [one.numpy().tobytes() for one in parameters]

    results = weights()
    steps = counts.steps
    assert weights() == results and counts.steps == steps  # another model alike has the same program
    with mo.settings(record=False):
        assert weights() == results


def test_a_value_that_a_traced_body_looks_at_is_computed() -> None:
    """The index is known and checked while the body of the loop is traced."""
    places, values = mo.asarray([1, 0, 3]), mo.asarray([2.0, 3.0, 4.0])
    looped = mo.fori_loop(0, 2, lambda i, x: x.at[places + 1].add(values), mo.zeros(5))
    assert looped.tolist() == [0.0, 6.0, 4.0, 0.0, 8.0]


def grown(x: Any) -> Any:
    """Attributes that follow from a size: of a constant, a slice, a shape."""
    rows = x.shape[0]
    mask = mo.tril(mo.ones((rows, rows))) == 0
    weights = mo.softmax(mo.where(mask, float("-inf"), x @ x.T), -1)
    flat = mo.concat([weights @ x, x[1:rows] * 2.0], axis=0).reshape((2 * rows - 1) * 4)
    return flat[: 2 * rows].reshape(rows, 2) + mo.arange(rows)[:, None]


def spread(x: Any) -> Any:
    """Sizes as numbers beside tensors."""
    return ((x - x.mean(0)) ** 2).sum(0) / x.shape[0] + mo.sort(x, axis=0)[-1] * x.shape[0]


def transformed(x: Any) -> Any:
    """Algorithms, and so bits, that go by sizes."""
    rows = x.shape[0]
    return mo.linalg.solve(x @ x.T + 9.0 * mo.eye(rows), mo.abs(mo.fft.fft(x, axis=0)))


@pytest.mark.parametrize("program", [grown, spread, pieces, transformed])
def test_new_sizes_are_no_new_programs(
        program: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_programs, "MOST_TIMES", 0)  # no programs of single operations
    inputs = [mo.asarray(rng.standard_normal((rows, 4), np.float32)) for rows in (4, 6, 8, 10, 12, 14, 16, 1, 18)]
    results = [program(x).numpy() for x in inputs[:4]]
    symbolic, plans = counts.symbolic, counts.plans
    results += [program(x).numpy() for x in inputs[4:7]]
    if program not in (pieces, transformed):  # which halves a size: no symbol
        assert counts.plans == plans and symbolic >= 1
        results += [program(x).numpy() for x in inputs[7:]]
        assert counts.plans <= plans + 1  # one row is a program of its own: it stands beside any number of them
    with mo.settings(record=False):
        for x, result in zip(inputs, results, strict=False):
            alone = program(x).numpy()
            assert alone.shape == result.shape and alone.tobytes() == result.tobytes()


def test_training_steps_of_many_batch_sizes(seed: int) -> None:
    def trained(sizes: Any) -> Any:
        rng = np.random.default_rng(seed)
        weight = mo.nn.Parameter(rng.standard_normal((4, 3), np.float32))
        optimiser = mo.optim.SGD([weight], lr=0.1)
        losses = []
        for size in sizes:
            x = mo.asarray(rng.standard_normal((size, 4), np.float32))
            optimiser.zero_grad()
            loss = (mo.tanh(x @ weight) ** 2).mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return losses, weight.numpy().tobytes()

    sizes = (8, 8, 5, 5, 7, 7, 9, 11, 3)
    first = trained(sizes)
    plans = counts.plans
    assert trained(sizes) == first and counts.plans == plans
    trained((13, 17, 19))
    assert counts.plans == plans
    with mo.settings(record=False):
        assert trained(sizes) == first


def test_a_program_that_symbols_do_not_fit_is_compiled_for_each_size() -> None:
    """It is longer with each size."""
    for rows in (4, 6, 8, 10, 12):
        x = mo.asarray(np.arange(rows * 2, dtype=np.float32).reshape(rows, 2))
        total = sum((x[place] * (place + 1.0) for place in range(rows)), mo.zeros(2)) + mo.ones(2)
        wanted = sum((x.numpy()[place] * (place + 1.0) for place in range(rows)), np.zeros(2)) + 1
        np.testing.assert_allclose(total.numpy(), wanted, rtol=1e-6)


def test_a_size_that_follows_from_another_may_come_twice() -> None:
    """Once as a line over a symbol, and once more: it has no truth value."""
    for rows in (4, 6, 8, 11):
        x, y, z = (mo.ones((count, 2)) for count in (rows, rows - 2, rows - 2))
        assert (x.sum() + (y * 2.0 + z).sum()).item() == 2 * rows + 6 * (rows - 2)


def scalars(values: Any) -> tuple[list[float], list[bytes]]:
    """A look after each operation: of kinds of operands, of attributes, of numbers that change and special ones."""
    seen, bits = [], []
    total = values[0] * 1.0
    for turn in range(60):
        for value in values:
            total = total + value * 0.5 if value > 0.0 else total - value
            seen.append(float(total))
            x = mo.abs(value) + turn
            seen.append((2.0 * x).item())
            whole: list[float] = [0, 1, 2, -3, 2**20]
            for number in whole if value.dtype is mo.int32 else [*whole, 0.0, -0.0, 1.0, float("inf")]:
                bits.append((value * number).numpy().tobytes())
        row = mo.asarray([1.0, float(turn)]) - 0.5
        seen += [float(row.sum(axis=0)), float(row.sum(axis=0, keepdims=True)), float(mo.max(row)), float(row @ row)]
    return seen, bits


def test_values_that_are_looked_at_one_by_one_are_computed_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = [mo.asarray(np.float32(value)) for value in rng.standard_normal(6)]
    values += [mo.asarray(np.float64(0.3)), mo.asarray(np.float32(-0.0)), mo.asarray(np.int32(7))]
    scalars(values)
    before, plans = counts.at_once, counts.plans
    results = scalars(values)
    assert counts.at_once > before and counts.plans - plans <= 8  # of some 3,000 operations, by which way `if` goes
    with mo.settings(record=False):
        assert str(scalars(values)) == str(results)


def test_computing_at_once_ends_with_the_looks() -> None:
    x = mo.asarray(0.5)
    for _ in range(100):
        float(x * 3.0)
    for _ in range(200):
        y = x * 3.0
        x = y - 1.0
    assert is_recorded(y * 3.0)
    with pytest.raises(IndexError, match="test_recording"):
        for _ in range(100):
            mo.take(mo.asarray([1.0, 2.0]), mo.asarray(5)).item()


def test_cells_that_run_once_share_the_programs_of_their_operations(rng: np.random.Generator) -> None:
    """Operations in an order that never was run one by one, whatever their sizes; what runs often is compiled."""
    x = mo.asarray(rng.standard_normal((40, 3), np.float32))
    functions = (mo.sin, mo.tanh, mo.abs)

    def cell(order: Any, rows: int) -> Any:
        y = x[:rows]
        for one in order:
            y = functions[one](y) * (0.5 + one)
        return (y - y.mean(0)).numpy().tobytes()

    for rows in range(5, 9):
        for one in range(3):
            cell([one], rows), cell([one, (one + 1) % 3], rows)
    pieces = counts.pieces
    orders = [(0, 2, 1), (2, 1, 0), (1, 0, 2), (1, 1), (2, 0, 0, 1)]
    results = {order: cell(order, 20 + number) for number, order in enumerate(orders)}
    assert counts.pieces > pieces
    plans = counts.plans
    assert {order: cell(order, 20 + number) for number, order in enumerate(orders)} == results
    assert counts.plans == plans
    with mo.settings(record=False):
        assert {order: cell(order, 20 + number) for number, order in enumerate(orders)} == results
    for _ in range(12):
        assert cell((0, 2, 1), 20) == results[0, 2, 1]
    pieces = counts.pieces
    assert cell((0, 2, 1), 20) == results[0, 2, 1] and counts.pieces == pieces
    table = mo.asarray([1.0, 2.0])
    for _ in range(12):
        with pytest.raises(IndexError, match="test_recording"):
            (mo.take(mo.abs(table), mo.asarray([7])) * 2.0).numpy()


def test_values_looked_at_keep_their_gradients_and_dropped_ones_their_memory_not(rng: np.random.Generator) -> None:
    """However they are computed: at once, operation by operation, or by a program of the whole."""
    weight = mo.nn.Parameter(rng.standard_normal((2, 4)))
    plain = mo.asarray(rng.standard_normal((2, 4)))
    for turn in range(40):
        for _ in range(30):
            float(plain.sum())
        y = (weight * plain).reshape(2, 2, 2).sum(1) * (turn + 1.0)
        y.numpy()
        assert y.requires_grad and not (plain * 2.0).requires_grad
        weight.grad = None
        (y * y).sum().backward()
        summed = (weight.numpy() * plain.numpy()).reshape(2, 2, 2).sum(1)
        wanted = 2 * (turn + 1.0) ** 2 * np.repeat(summed[:, None], 2, 1).reshape(2, 4) * plain.numpy()
        np.testing.assert_allclose(weight.grad.numpy(), wanted, rtol=1e-12)
    large = mo.ones(1000).realise()
    for _ in range(40):
        float((large * 2.0)[0])
    total = mo.compile(lambda x, y: x + y)
    for rows in range(2, 6):  # new sizes: a program of pieces
        result = mo.ones((rows, 3)) * 3.0
        later = result.sum(0) + 1.0
        result.numpy()
        total(result, result + 0.0, out=result)  # an error where somebody holds its memory
        memory = result._storage
        assert float(later[0]) == 3.0 * rows + 1.0
        del result
        assert sys.getrefcount(memory) == ALONE


def test_grad_of_a_function_that_nobody_compiled_is_recorded(rng: np.random.Generator) -> None:
    """A training loop of `mo.value_and_grad` is one program; what needs nodes, and what is an error, is as before."""
    start = {"w": rng.standard_normal((4, 3)), "b": rng.standard_normal(3)}
    x = mo.asarray(rng.standard_normal((5, 4)))

    def loss(weights: Any, x: Any) -> Any:
        hidden = mo.tanh(x @ weights["w"] + weights["b"])
        return (hidden ** 2).mean(), hidden

    def train(turns: int) -> tuple[list[float], list[bytes]]:
        weights, losses = {name: mo.asarray(value) for name, value in start.items()}, []
        for _ in range(turns):
            (value, hidden), gradients = mo.value_and_grad(loss, has_aux=True)(weights, x)
            weights = {name: weights[name] - 0.1 * gradients[name] for name in weights}
            losses += [value, hidden[0, 0]]
        return [float(value) for value in losses], [value.numpy().tobytes() for value in weights.values()]

    with mo.settings(record=False):
        wanted = train(6)
    train(3)
    plans, nodes = counts.plans, live_nodes()
    assert train(6) == wanted and counts.plans == plans and live_nodes() - nodes < 50
    held = mo.asarray([1.0, 2.0])
    np.testing.assert_array_equal(mo.grad(lambda x: (x * held).sum())(held).numpy(), [1.0, 2.0])
    np.testing.assert_array_equal(mo.grad(mo.grad(lambda x: x**3))(mo.asarray(2.0)).numpy(), 12.0)
    np.testing.assert_array_equal(mo.grad(lambda x: (held * 3.0).sum())(held).numpy(), [0.0, 0.0])
    weight = mo.nn.Parameter([3.0, 4.0])
    (mo.grad(lambda x: (x * x * weight).sum())(held) ** 2).sum().backward()
    np.testing.assert_array_equal(weight.grad.numpy(), [24.0, 128.0])

    def peeks(x: Any) -> Any:
        total = (x * x).sum()
        return total * 2.0 if float(total) > 1.0 else total

    np.testing.assert_array_equal(mo.grad(peeks)(held).numpy(), [4.0, 8.0])
    np.testing.assert_array_equal(mo.grad(lambda x: (mo.stop_gradient(x) * x).sum())(held).numpy(), [1.0, 2.0])
    assert not mo.value_and_grad(peeks)(held)[0].requires_grad
    with pytest.raises(ValueError, match="NumPy"):
        mo.grad(lambda x: mo.asarray(np.sin(x.numpy())).sum() + x.sum())(held)
