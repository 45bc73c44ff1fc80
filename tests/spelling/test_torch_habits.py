"""What tutorials for PyTorch write beyond names of functions, each line with PyTorch's own result."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

import morpho as mo
from morpho import nn
from morpho.base.errors import ArgumentError, DTypeError
from morpho.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence, unpad_sequence
from morpho.tensor import eager

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch`")


def test_data_is_the_tensor_without_its_gradient() -> None:
    w = nn.Parameter([[1.0, 2.0], [3.0, 4.0]])
    w.data[0].zero_()
    w.data[1][1] = 9
    w.data.mul_(2)
    w.data += 1
    assert w.tolist() == [[1.0, 1.0], [7.0, 19.0]] and isinstance(w, nn.Parameter)
    x = mo.ones(3).requires_grad_()
    x.data[1] = 5
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 10.0, 2.0] and not x.data.requires_grad
    x.data = mo.zeros(3)
    assert x.tolist() == [0.0, 0.0, 0.0] and x.requires_grad


PARTS = """
x[1][2] = 5 | x[1][2] += 5 | x[0][1:][0] = 3 | x[..., 1][0] = 4 | x[1:][0][[0, 2]] = 7 | x[0][x[0] > 2] = -1
x.T[2][1] = 6 | x.reshape(-1)[::5] = 9 | x.swapaxes(0, 1)[2] = 8 | x[None][0][1][0] *= 3 | x[-1][-1] = x[0][1] + 1
"""
PARTS_OF_TORCH = """
x[0].add_(1) | x[0].mul_(2).add_(1) | x[1, 2].fill_(4) | x.view(-1)[::7].zero_() | x.diagonal()[1:] = 7
x.t()[0].clamp_(min=2) | x[:1].copy_(x[1:2]) | x.mul_(2).sub_(1)[0] = 9 | x[2].masked_fill_(x[2] > 9, 0.0)
"""


@pytest.mark.parametrize("native", [False, True])
def test_an_assignment_to_a_part_without_a_name_reaches_its_base(native: bool) -> None:
    if native:
        for load in eager.load_driver:
            load()
    lines = [(line, np) for line in PARTS.replace("\n", "|").split("|")]
    lines += [(line, torch) for line in PARTS_OF_TORCH.replace("\n", "|").split("|")]
    for line, peer in lines:
        for lazy in (False, True):
            one, other = peer.arange(12.0).reshape(3, 4), mo.arange(12.0).reshape(3, 4)
            _ = None if lazy else other.realise()
            for x in (one, other):
                exec(line.strip(), {"x": x})
            assert np.array_equal(np.asarray(one), other.numpy()), line


ASSIGNED = """
np.add(b, b, out=x[0]) | np.exp(b, out=x[1]) | np.cumsum(b, out=x[2]) | np.sum(x, axis=0, out=x[1]) | x[0].sort()
np.fill_diagonal(x[:, 1:], 9) | np.copyto(x[1], b) | np.put(x[0], [1], 7) | np.putmask(x[2], x[2] > 9, 0)
np.add.at(x[0], [1, 1], 5) | np.clip(x[0], 1, 3, out=x[0]) | np.add(b, 1, x[2]) | np.matmul(x, b, out=x[:, 0])
"""


def test_out_and_functions_that_assign_reach_the_base_of_a_part_without_a_name() -> None:
    for line in ASSIGNED.replace("\n", "|").split("|"):
        one, other = np.arange(12.0, dtype=np.float32).reshape(3, 4), mo.arange(12.0).reshape(3, 4)
        for x, library in ((one, np), (other, mo)):
            exec(line.strip(), {"x": x, "np": library, "b": library.ones(4, dtype=library.float32)})
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-6, err_msg=line)
    weight = nn.Linear(3, 2).weight
    with mo.no_grad():
        nn.init.zeros_(weight[0])
    assert weight[0].tolist() == [0, 0, 0] and weight[1].any()


def test_extremes_by_place_that_are_unpacked_are_pytorchs_pair() -> None:
    values = np.arange(12.0).reshape(3, 4) % 5
    results = []
    for library in (torch, mo):
        x = library.tensor(values)
        _, indices = library.max(x, 1)
        low, where = x.min(0)
        ordered, order = library.sort(x, 1)
        _, middle = x.median(1)
        _, kept = x.max(1, True)
        results.append([indices, low, where, ordered, order, middle, kept, x.max(1).indices, library.min(x, 0).values])
    for one, other in zip(*results, strict=True):
        assert np.array_equal(one.numpy(), other.numpy())
    x = mo.asarray(values)
    first, second, third = x.max(1)  # NumPy's
    assert [float(first), float(second), float(third)] == [3, 4, 4] and x.max(1)[2] == 4
    one, other = x[:2].max(axis=1)
    assert (float(one), float(other)) == (3, 4)
    for call in (lambda y: y.max(1), lambda y: mo.max(y, 1)):
        assert call(x).shape == (3,)
    with pytest.raises(ArgumentError, match=r"axis=1\) for NumPy's meaning.*dim=1\)"):
        one, other = x[:2].max(1)
    with pytest.raises(ArgumentError, match=r"mo.min\(x, axis=1\)"):
        one, other = mo.min(x[:2], 1)


def test_what_is_assigned_to_a_value_that_nothing_holds_is_not_lost_in_silence() -> None:
    x = mo.zeros((2, 3))

    def part() -> mo.Tensor:
        row = x[1]
        row[0] = 1
        return row

    for source in (lambda: x + 1, lambda: list(x)[0], lambda: next(iter(x)), part):
        with pytest.raises(ArgumentError, match="would be lost"):
            source()[0] = 5
        with pytest.raises(ArgumentError, match=r"\[add_\].*would be lost"):
            source().add_(1)
    row = x[0]
    row[1] = 5
    row.add_(1)
    fresh = mo.empty(3).fill_(7)
    assert row.tolist() == [1.0, 6.0, 1.0] and x.sum() == 0 and fresh.tolist() == [7.0] * 3


def test_parts_of_parts_remember_a_bounded_number_of_bases() -> None:
    x = mo.zeros((4, 2))
    for _ in range(100):
        x = x[0:]
    base, depth = x._base, 0
    while base is not None:
        base, depth = base[1], depth + 1
    assert depth <= 10
    model = mo.nn.Linear(2, 2)
    with mo.no_grad():
        model.weight[0][1] = 5
        model.weight[1].fill_(2)
    assert model.weight[0, 1] == 5 and model.weight[1].tolist() == [2.0, 2.0]


def test_flat_is_read_and_assigned_to() -> None:
    one, other = np.arange(6.0).reshape(2, 3), mo.arange(6.0).reshape(2, 3)
    for x in (one, other):
        x.flat[::2] = 9
        x.flat[[1, 3]] = [7, 8]
    assert np.array_equal(one, other.numpy()) and other.flat[1] == 7 and len(other.flat) == 6
    other.flat = [1, 2]
    assert [float(number) for number in other.flat] == [1, 2] * 3


def test_leaves_of_constants_are_not_one_leaf() -> None:
    with mo.device("reference"):
        z, x = mo.zeros(()).requires_grad_(), mo.asarray([1.0, 2.0]).requires_grad_()
        (x + 0).sum().backward()
        assert z.grad is None and x.grad.tolist() == [1.0, 1.0]


def test_gradients_of_gradients() -> None:
    x, y = mo.asarray(2.0).requires_grad_(), mo.asarray(3.0).requires_grad_()
    first, other = mo.autograd.grad(x ** 3 * y, [x, y], create_graph=True)
    assert (first.item(), other.item()) == (36.0, 8.0)
    assert mo.autograd.grad(first, x, retain_graph=True)[0].item() == 36.0 and x.grad is None
    assert mo.autograd.grad(x * 2, [x, y], allow_unused=True)[1] is None
    with pytest.raises(ArgumentError, match="do not depend on input 1"):
        mo.autograd.grad(x * 2, [x, y])
    with pytest.raises(ArgumentError, match="input 0 wants no gradient"):
        mo.autograd.grad(x * 2, mo.ones(()))


class Scaled(mo.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, other):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * scale, other + x

    @staticmethod
    def backward(ctx, first, second):
        (x,) = ctx.saved_tensors
        assert ctx.needs_input_grad == (True, False, False)
        return first * ctx.scale * 100 + second * x, None, None


class Short(mo.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.inputs = inputs

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient


def test_functions_with_a_backward_of_their_own() -> None:
    x = mo.asarray([1.0, 2.0]).requires_grad_()
    first, second = Scaled.apply(x, 3, mo.ones(2))
    (first.sum() + second.sum()).backward()
    assert x.grad.tolist() == [301.0, 302.0] and first.tolist() == [3.0, 6.0]
    with pytest.raises(ArgumentError, match="backward returned 2 gradients for 1 argument"):
        Short.apply(x).sum().backward()


@pytest.mark.parametrize("rule", [mo.optim.SGD, mo.optim.Adam, mo.optim.LBFGS])
def test_optimisers_train_plain_tensors(rule: type) -> None:
    x = mo.asarray([3.0, -2.0]).requires_grad_()
    optimizer = rule([x], lr=0.1)

    def closure() -> mo.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = (x * x).sum()
        loss.backward()
        return loss

    start = closure().item()
    optimizer.step(closure)
    with mo.no_grad():
        x.clamp_(-1.0, 1.0)
    assert x.requires_grad and x.abs().max() <= 1 and closure().item() < start
    optimizer.step(closure)
    with pytest.raises(ArgumentError, match=r"requires_grad_\(\)"):
        rule([mo.ones(2)], lr=0.1)


def test_constructors_in_pytorchs_words() -> None:
    assert nn.ReLU(True)(mo.asarray([-1.0])).item() == 0 and nn.LeakyReLU(0.2, inplace=True).negative_slope == 0.2
    assert nn.Linear(2, 3, device="cpu").weight.device == "cpu" and nn.MSELoss(size_average=False).reduction == "sum"
    assert nn.MaxPool2d(2, ceil_mode=False).kernel_size == 2
    assert nn.Conv2d(1, 2, 3, padding=1, padding_mode="zeros").padding == 1
    model = nn.Sequential(OrderedDict([("first", nn.Linear(2, 3)), ("act", nn.ReLU())]))
    model.add_module("last", nn.Linear(3, 1))
    assert [name for name, _ in model.named_children()] == ["first", "act", "last"] and len(model) == 3
    assert model.last is model[-1] and model(mo.ones((4, 2))).shape == (4, 1)
    numbers = mo.data.TensorDataset(mo.arange(6))
    loader = mo.data.DataLoader(numbers, 2, True, pin_memory=True, persistent_workers=True,
                                generator=mo.Generator().manual_seed(1))
    assert sorted(number for x, in loader for number in x.tolist()) == [0, 1, 2, 3, 4, 5]
    parts = mo.data.random_split(numbers, [4, 2], generator=mo.Generator().manual_seed(0))
    assert [len(part) for part in parts] == [4, 2]
    assert mo.optim.Adam(model.parameters(), lr=0.1, foreach=True, fused=False).param_groups[0]["lr"] == 0.1
    for call in (lambda: nn.Linear(2, 3, turned=1), lambda: nn.Conv2d(1, 2, 3, padding_mode="reflect"),
                 lambda: mo.data.DataLoader(numbers, worker_init_fn=print)):
        with pytest.raises(ArgumentError, match="got an unexpected keyword argument"):
            call()
    with mo.autocast(device_type="cpu", dtype=mo.bfloat16):
        assert (mo.ones((2, 2)) @ mo.ones((2, 2))).dtype is mo.bfloat16
    assert mo.amp.GradScaler("cpu", enabled=False).get_scale() == 1.0


def test_packed_sequences() -> None:
    lines = [mo.asarray([[1.0], [2.0]]), mo.asarray([[3.0], [4.0], [5.0]]), mo.asarray([[6.0]])]
    batch = pad_sequence(lines, batch_first=True, padding_value=-1.0)
    packed = pack_padded_sequence(batch, mo.asarray([2, 3, 1]), batch_first=True, enforce_sorted=False)
    assert packed.data.ravel().tolist() == [3.0, 1.0, 6.0, 4.0, 2.0, 5.0] and packed.batch_sizes.tolist() == [3, 2, 1]
    padded, lengths = pad_packed_sequence(packed, batch_first=True, padding_value=-1.0)
    assert padded.tolist() == batch.tolist() and lengths.tolist() == [2, 3, 1]
    assert [one.tolist() for one in unpad_sequence(padded, lengths, True)] == [one.tolist() for one in lines]
    rnn = nn.GRU(1, 4, batch_first=True, bidirectional=True)
    outputs, last = rnn(packed)
    wanted, end = rnn(batch, lengths=lengths)
    np.testing.assert_allclose(pad_packed_sequence(outputs, True)[0].numpy(), wanted.numpy(), rtol=1e-6)
    np.testing.assert_allclose(last.numpy(), end.numpy(), rtol=1e-6)
    with pytest.raises(ArgumentError, match="enforce_sorted=False"):
        pack_padded_sequence(batch, [2, 3, 1], batch_first=True)


def test_mixtures_and_sparse_matrices() -> None:
    D = mo.distributions
    mixture = D.MixtureSameFamily(D.Categorical(mo.asarray([0.25, 0.75])), D.Normal(mo.asarray([0.0, 4.0]), 1.0))
    assert mixture.mean.item() == 3.0 and mixture.variance.item() == 4.0
    draws = mixture.sample((4000,), key=mo.random.key(0)).numpy()
    assert abs(draws.mean() - 3.0) < 0.15 and abs(draws.var() - 4.0) < 0.3
    np.testing.assert_allclose(mixture.log_prob(4.0).item(), np.log(0.75 * 0.39894228 + 0.25 * 0.00013383), rtol=1e-5)
    matrix = mo.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], [1.0, 2.0, 4.0], (2, 2))
    assert mo.sparse.mm(matrix, mo.eye(2)).tolist() == [[0.0, 1.0], [6.0, 0.0]]


def test_modules_are_imported_as_pytorchs_are() -> None:
    space: dict[str, object] = {}
    exec("from morpho.nn.parameter import Parameter\nfrom morpho.distributions.normal import Normal\n"
         "from morpho.autograd import Function, Variable, grad\nfrom morpho.amp import autocast\n"
         "import morpho.fft, morpho.linalg, morpho.nn.init\nfrom morpho.utils.checkpoint import checkpoint", space)
    assert space["Normal"] is mo.distributions.Normal and space["Parameter"] is nn.Parameter


def test_every_difference_is_checked_against_numpy() -> None:
    from morpho.spelling.differences import DIFFERENCES, is_numpys

    x = np.asarray([[3.0, 1.0], [2.0, 5.0]], np.float32)
    assert all(DIFFERENCES.values()) and is_numpys("std", [x], {"dim": 1}, mo.std(x, axis=1))
    assert not is_numpys("std", [x], {"dim": 1}, mo.std(x, axis=1, correction=1))
    assert not is_numpys("nothing_of_this_name", [x], {}, x)
    assert is_numpys("transpose_copy", [x], {}, mo.transpose(mo.asarray(x)))


def test_factors_are_solved_with() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 4, 4)), rng.normal(size=(2, 4, 3))
    factors = mo.linalg.lu_factor(a)
    assert factors.pivots.min() >= 1 and factors.pivots.dtype is mo.int32
    for matrix, options in ((a, {}), (a.swapaxes(-1, -2), {"adjoint": True})):
        np.testing.assert_allclose(matrix @ mo.linalg.lu_solve(*factors, b, **options).numpy(), b, atol=1e-9)
    turned = mo.linalg.lu_solve(*factors, b.swapaxes(-1, -2), left=False).numpy()
    np.testing.assert_allclose(turned @ a, b.swapaxes(-1, -2), atol=1e-9)
    assert mo.linalg.vander(mo.asarray([2.0, 3.0]), N=3).tolist() == [[1.0, 2.0, 4.0], [1.0, 3.0, 9.0]]
    np.testing.assert_allclose(mo.linalg.lstsq(a[0], b[0], driver="gelsd")[0].numpy(), np.linalg.solve(a[0], b[0]))
    with pytest.raises(ArgumentError, match="driver='fast'"):
        mo.linalg.lstsq(a[0], b[0], driver="fast")


def test_masked_reductions() -> None:
    x, mask = mo.asarray([[1.0, 2.0, 8.0], [3.0, 4.0, 5.0]]), mo.asarray([[True, True, False], [False, True, True]])
    m = mo.masked
    assert m.sum(x, 1, mask=mask).tolist() == [3.0, 9.0] and m.mean(x, mask=mask).item() == 3.0
    assert m.amax(x, dim=0, mask=mask).tolist() == [1.0, 4.0, 5.0] and m.argmin(x, 1, mask=mask).tolist() == [0, 1]
    assert m.var(x, 1, unbiased=True, mask=mask).tolist() == [0.5, 0.5] and m.median(x, 1, mask=mask).tolist() == [1, 4]
    assert m.softmax(x, 1, mask=mask)[0, 2].item() == 0 and m.cumsum(x, 1, mask=mask).tolist()[1] == [0.0, 4.0, 9.0]


def test_small_words_of_training_programs() -> None:
    mo.backends.cudnn.deterministic, mo.backends.cudnn.benchmark = True, False
    assert not mo.backends.mps.is_available() and not mo.backends.cudnn.benchmark
    with pytest.raises(AttributeError, match=r"morpho\.backends"):
        _ = mo.backends.no_such_library
    model = nn.Linear(2, 2)
    assert repr(model.load_state_dict(model.state_dict())) == "<All keys matched successfully>"
    missing, unexpected = model.load_state_dict({"weight": mo.ones((2, 2)), "scale": mo.ones(1)}, strict=False)
    assert missing == ["bias"] and unexpected == ["scale"]
    before = model.weight.tolist()
    mo.optim.SGD(model.parameters(), lr=1.0).step()  # nothing has a gradient: nothing changes
    assert model.weight.tolist() == before


def test_leaves_and_what_computed_the_others() -> None:
    x = mo.ones(3).requires_grad_()
    y = x * 2
    assert x.is_leaf and x.grad_fn is None and not y.is_leaf and y.grad_fn is not None
    assert repr(y.grad_fn).endswith("Backward0>") and model_leaf() and y.detach().is_leaf
    y.retain_grad()
    y.sum().backward()
    assert y.grad.tolist() == [1.0, 1.0, 1.0]


def model_leaf() -> bool:
    weight = nn.Linear(2, 2).weight
    return bool(weight.is_leaf and weight.grad_fn is None)


def test_an_element_by_its_place_and_texts_drawn() -> None:
    x = mo.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert x.item(1) == 2.0 and x.item((1, 0)) == 3.0 and x.item(1, 1) == 4.0
    generator = mo.random.default_rng(0)
    assert str(generator.choice(["a", "b"])) in "ab" and generator.choice(["a", "b"], size=(2, 3)).shape == (2, 3)
    assert sorted(generator.choice(["a", "b", "c"], size=3, replace=False).tolist()) == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["mul_", "add_", "div_", "clamp_", "pow_"])
def test_methods_in_place_do_not_drop_fractions(name: str) -> None:
    """PyTorch and NumPy refuse a result that the tensor's dtype does not hold; so does Morpho."""
    x = mo.asarray([1, -3, 4])
    with pytest.raises(DTypeError, match=r"float.* does not fit a tensor of dtype int64"):
        getattr(x, name)(0.5)
    with pytest.raises(DTypeError, match="int64 does not fit a tensor of dtype bool"):
        truths = mo.asarray([True, False, True])
        truths.add_(x)
    assert x.tolist() == [1, -3, 4]
    x.mul_(2).eq_(2)
    assert x.tolist() == [1, 0, 0]


def test_integers_clipped_by_fractions_are_inside_of_the_bounds() -> None:
    x = np.asarray([-3, 0, 2])
    for bounds in ((0.5, None), (None, 0.5), (0.5, 1.5), (0, 1)):
        found = mo.clip(mo.asarray(x), *bounds)
        assert found.tolist() == np.clip(x, *bounds).tolist()
        assert found.dtype.is_float == isinstance(bounds[0] if bounds[1] is None else bounds[1], float)
