"""Habits from other libraries: keywords, imports, dropped blocks, pickles. Each is an error that says what to do."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.errors import ArgumentError
from morpho.base.settings import current
from morpho.tensor.tools.foreign_calls import KEYWORDS, LEAVE_OUT, PLACES, hinted

x = mo.ones((3, 4))


@pytest.mark.parametrize(("call", "said"), [
    (lambda: mo.compile(abs, fullgraph=True), r"\[compile\].*write whole="),
    (lambda: mo.argsort(x, descend=True), r"\[argsort\].*write descending="),
    (lambda: mo.relu(x, nonsense=1), r"relu\(\) got an unexpected keyword argument 'nonsense'.* takes \(x, /\)\.$"),
    (lambda: mo.concat(x, x), r"write concat\(\[a, b\]\)"),
    (lambda: mo.exp(x, 1, 2), r"\[exp\] exp\(\) takes 1 positional argument but 3 were given\. At .*test_calls.py:"),
    (lambda: mo.no_grad(x), r"no_grad\(\) takes 0 positional arguments but 1 was given\. .*Hint: it takes \(\)\.$"),
    (lambda: mo.grad(abs, argnum=0), r"write argnums="),
    (lambda: mo.models.load("a", device="cuda"), "leave 'device' out"),
    (lambda: mo.nn.Linear(inputs=2, outputs=3), r"\[Linear\].*write in_features=\.\.\., out_features=\.\.\.;"),
    (lambda: mo.nn.Linear(2, 4)(input=x), r"\[Linear\] .*unexpected keyword argument 'input'.*write x="),
    (lambda: mo.nn.Softmax(axis=1), r"\[Softmax\].*write dim="),
    (lambda: mo.nn.mse_loss(prediction=x, target=x), r"unexpected keyword argument 'prediction'.*\(input, targ"),
    (lambda: mo.data.DataLoader([1], workers=2, pin_memory=True), r"write num_workers=\.\.\.; leave 'pin_memory' out"),
    (lambda: mo.Tensor([1.0, 2.0]), r"\[Tensor\].*use mo\.asarray\(values\)"),
    (lambda: mo.Tensor(2, 3), r"\[Tensor\].*mo\.zeros\(shape\)"),
])
def test_a_refused_call_names_what_to_write(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(mo.errors.ArgumentError, match=said) as caught:
        call()
    assert isinstance(caught.value, TypeError) and (caught.value.__suppress_context__ or not caught.value.__context__)


def test_functions_are_what_they_were() -> None:
    assert str(inspect.signature(mo.softmax)).startswith("(x: 'Any', /, axis: 'Any' = -1)")
    assert mo.matmul is mo.linalg.matmul and mo.nn.checkpoint is mo.checkpoint
    assert mo.sum.__name__ == "sum" and "Traceback" not in (mo.sum.__doc__ or "")
    assert x.sum(axis=0, dtype=None).shape == (4,) and x.var(ddof=1).shape == () and np.sum(x).item() == 12
    assert x.reshape(shape=(4, 3)).shape == (4, 3)


@pytest.mark.parametrize("module", [mo, mo.nn, mo.optim, mo.models, mo.linalg, mo.fft, mo.random], ids=str)
def test_functions_can_be_sent_to_other_processes(module: Any) -> None:
    functions = [function for name in module.__all__ if inspect.isfunction(function := getattr(module, name))]
    assert functions or module is mo.optim
    for function in functions:
        assert pickle.loads(pickle.dumps(function)) is function


def test_errors_inside_a_function_stay_as_they_are() -> None:
    """A TypeError from below is not taken for a refused call, and keeps its cause."""

    def inner(a: Any) -> None:
        try:
            len(a)
        except TypeError as error:
            raise TypeError("mine") from error

    def refused_inside(a: Any) -> None:
        inner(a, 2)  # type: ignore[call-arg]

    with pytest.raises(TypeError, match=r"^mine$") as caught:
        hinted(inner)(3)
    assert caught.value.__cause__ is not None and not isinstance(caught.value, mo.errors.ArgumentError)
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were given") as caught:
        hinted(refused_inside)(3)
    assert not isinstance(caught.value, mo.errors.ArgumentError)

    class Net(mo.nn.Module):
        def forward(self, a: Any) -> Any:
            return len(3)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len") as caught:
        Net()(x)
    assert not isinstance(caught.value, mo.errors.ArgumentError)


def test_functions_that_take_anything() -> None:
    def inner(a: Any, *rest: Any, **named: Any) -> None:
        raise AssertionError("it is not called")

    for call in (lambda: mo.checkpoint(extra=1), lambda: mo.nn.checkpoint(dim=1)):
        with pytest.raises(mo.errors.ArgumentError, match=r"\[checkpoint\] missing a required argument: 'function'"):
            call()
    with pytest.raises(mo.errors.ArgumentError, match=r"\[inner\] multiple values for argument 'a'"):
        hinted(inner)(1, 2, a=3)


def everything_that_is_called() -> list[Any]:
    spaces = (mo, mo.nn, mo.optim, mo.linalg, mo.random, mo.data)
    return [found for space in spaces for name in space.__all__ if callable(found := getattr(space, name))]


def test_the_tables_speak_of_keywords_there_are() -> None:
    taken = {name for found in everything_that_is_called() if not isinstance(found, type(mo))
             for name in inspect.signature(found).parameters}
    for foreign, owns in KEYWORDS.items():
        assert set(owns) <= taken, foreign
    assert not set(KEYWORDS) & set(LEAVE_OUT) and not set(PLACES) & set(LEAVE_OUT)
    for text in LEAVE_OUT.values():
        for path in re.findall(r"\bmo\.([a-z]+)", text):
            assert hasattr(mo, path)


@pytest.mark.parametrize(("line", "said"), [
    ("from morpho import tree_map", r"Hint: use mo\.tree\.map"),
])
def test_an_import_of_what_others_have(line: str, said: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=said):
        exec(line, {})


def test_other_imports_are_answered_by_python() -> None:
    for line in ("import morpho.nonsense", "from morpho import nonsense", "import morphology.nn.functional"):
        with pytest.raises(ImportError) as caught:
            exec(line, {})
        assert "Hint" not in str(caught.value)
    kinds = [finder.__name__ if isinstance(finder, type) else type(finder).__name__ for finder in sys.meta_path]
    assert kinds.index("MissingModules") > kinds.index("PathFinder"), "it is asked after all that may know"


def test_settings_that_were_dropped_say_so() -> None:
    with pytest.warns(RuntimeWarning, match="changes nothing by itself. Hint: write `with mo.settings") as seen:
        mo.settings(threads=1)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with mo.settings(level=0) as chosen:
            assert chosen.level == 0
        decorated = mo.settings(level=1)(lambda: None)  # that is never called
        del decorated
    block = mo.settings(level=0)
    with block, pytest.raises(mo.errors.ArgumentError, match="entered twice"):
        block.__enter__()


def test_a_decorated_function_has_its_settings_in_every_call() -> None:
    from morpho.base import settings

    @mo.settings(level=1)
    def level(again: bool) -> list[int]:
        return [settings.get().level, *(level(False) if again else [])]

    assert level(True) == [1, 1] and level(False) == [1] and settings.blocks() == 0


def test_settings_around_a_function_and_as_a_block() -> None:
    one = mo.settings(threads=1)

    @one
    def threads() -> int:
        return current.get().threads

    assert threads() == 1
    with one:
        assert threads() == 1
    with pytest.raises(ArgumentError, match="entered twice"), one:
        pass


def test_dtypes_equal_their_names() -> None:
    assert x.dtype == "float32" and x.dtype != "float64" and x.dtype == np.float32 and np.dtype("float32") == x.dtype
    assert all([mo.float64, mo.int64, mo.bool][i] == kind for i, kind in enumerate((float, int, bool)))
    assert mo.bfloat16 == "bfloat16" and mo.bfloat16 != np.uint16 and mo.uint16 == np.uint16
    assert x.dtype != "nonsense" and x.dtype is not None and x.dtype != 3 and x.dtype in ("float16", "float32")
    assert len({mo.float32, mo.float64, x.dtype}) == 2 and mo.float32 not in {"float32": 1}
    assert x.dtype != np.dtype([("a", "f4")])


@pytest.mark.parametrize("loss", [mo.cross_entropy, lambda *two: mo.nn.CrossEntropyLoss()(*two)])
def test_classes_that_are_floats(loss: Callable[..., Any]) -> None:
    with pytest.raises(mo.errors.ShapeError, match=r"class numbers are integers: targets\.astype\('int64'\)"):
        loss(x, mo.zeros(3))
    with pytest.raises(mo.errors.ShapeError, match=r"probabilities have the shape of the logits"):
        loss(x, mo.zeros((3, 5)))
    with pytest.raises(mo.errors.ShapeError, match=r"class numbers are integers: targets\.astype\('int64'\)"):
        mo.nn.nll_loss(x, mo.zeros(3))


def test_optimisers_by_other_names() -> None:
    opt = mo.optim.Adam([mo.nn.Parameter([1.0])])
    with pytest.raises(AttributeError, match=r"^Adam has no attribute 'groups'\. Hint: use opt\.param_groups"):
        opt.groups  # noqa: B018
    with pytest.raises(AttributeError, match=r"'nonsense'$"):
        opt.nonsense  # noqa: B018
    opt.param_groups[0]["lr"] = 0.1  # what the hint says
    assert opt.param_groups[0]["params"] == list(opt.parameters()) and not hasattr(opt, "state")
    with pytest.raises(AttributeError, match=r"'pinvh'\. Hint: use mo\.linalg\.pinv"):
        mo.linalg.pinvh  # noqa: B018


def test_pickle_says_how_to_save() -> None:
    model = mo.nn.Linear(2, 3)
    compiled = mo.compile(lambda a: a + 1)
    for thing, said in ((model, "mo.weights.save"), (model.weight, "mo.weights.save"),
                        (mo.optim.Adam(model.parameters()), "save"), (mo.State(x), "save its value"),
                        (compiled, "compile it again")):
        with pytest.raises(mo.errors.ArgumentError, match=rf"\[pickle\] .* is not pickled.*{re.escape(said)}"):
            pickle.dumps(thing)
    assert pickle.loads(pickle.dumps(mo.float32)) is mo.float32


def test_a_copied_optimiser_trains_the_copied_parameters() -> None:
    model = mo.nn.Linear(1, 1, bias=False)
    opt = mo.optim.Adam(model.parameters(), lr=0.1)
    twin, again = copy.deepcopy((model, opt))
    before = model.weight.item()
    for net, rule in ((twin, again), (model, opt)):
        net(mo.ones((1, 1))).sum().backward()
        rule.step()
        assert (model.weight.item() == before) == (net is twin)
    assert model.weight.item() == twin.weight.item() != before
    assert next(iter(again.parameters())) is twin.weight and again.state_dict()["count"] == 1


def test_copies_are_values() -> None:
    for thing in (x + 1, x.realise(), mo.nn.Parameter([1.0, 2.0]), mo.nn.Buffer([1, 2])):
        for made in (copy.copy(thing), copy.deepcopy(thing)):
            assert type(made) is type(thing) and made.tolist() == thing.tolist() and made is not thing
    assert copy.deepcopy(mo.bfloat16) is copy.copy(mo.bfloat16) is mo.bfloat16  # there is one object for each dtype
    state = mo.State(mo.ones(2))
    for other in (copy.copy(state), copy.deepcopy(state)):
        other.value = mo.zeros(2)
        assert state.value.tolist() == [1.0, 1.0] and other.value.tolist() == [0.0, 0.0]
