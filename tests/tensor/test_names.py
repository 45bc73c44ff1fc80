"""Names of other libraries: an error that says what to use."""

from __future__ import annotations

import copy
import re
import sys

import numpy as np
import pytest

import morpho as mo
from morpho.tensor.tools.foreign_names import OTHERWISE, PLACES, SAME, advice


def check_names(text: str) -> None:
    """Every `mo.name` that a hint speaks of is there."""
    for path in re.findall(r"\bmo\.([A-Za-z_0-9.]*[A-Za-z_0-9])", text):
        found: object = mo
        for part in path.split("."):
            found = getattr(found, part)


@pytest.mark.parametrize("name", [*SAME, *OTHERWISE])
def test_a_foreign_name_leads_to_ours(name: str) -> None:
    assert not hasattr(mo, name), "Morpho has this name itself: take it off the list"
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Hint: use .+\.$"):
        getattr(mo, name)
    check_names(advice(name))


@pytest.mark.parametrize("place", PLACES)
def test_names_of_parts_tensors_and_modules(place: str) -> None:
    owner = {"Tensor": [mo.ones(2)], "Module": [mo.nn.Identity()],
             "Optimizer": [mo.optim.SGD([mo.nn.Parameter([1.0])])]}.get(place, [mo])[0]
    owner = getattr(mo, place) if owner is mo else owner
    for name in PLACES[place]:
        assert not hasattr(owner, name), f"{place} has {name} itself: take it off the list"
        with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Hint: use .+[^.]\.$"):
            getattr(owner, name)
        check_names(advice(name, place))


def test_slips_of_the_pen() -> None:
    with pytest.raises(AttributeError, match=r"^Linear has no attribute 'wieght'\. Hint: there is 'weight'"):
        mo.nn.Linear(1, 1).wieght  # noqa: B018
    with pytest.raises(AttributeError, match=r"^Parameter has no attribute 'shap'"):
        mo.nn.Parameter([1.0]).shap  # noqa: B018


def test_introspection_is_what_it_was() -> None:
    x = mo.ones((2, 3))
    compiled = mo.compile(lambda a: a + 1)
    compiled(x)
    for tensor in (x, x.realise(), compiled(x), mo.nn.Parameter([1.0]), mo.nn.Buffer([1.0])):
        for name in ("nonsense", "_private", "__cuda_array_interface__"):
            assert not hasattr(tensor, name)
        assert {"view", "exp", "add_", "shape"} <= {*dir(tensor)} and copy.deepcopy(tensor).shape == tensor.shape
    assert np.asarray(compiled(x)).sum() == 12 and mo.Tensor.__getattr__.__doc__
    imported = "morpho.optim.lr_scheduler" in sys.modules  # by another test: Python then binds it in mo.optim
    assert ("lr_scheduler" in dir(mo.optim)) == imported and {"concatenate", "masked_fill", "sum"} <= {*dir(mo)}
    with pytest.raises(AttributeError) as caught:
        x.shap  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("shap", x)  # from which Python guesses "shape"
    with pytest.raises(AttributeError, match=r"module 'morpho.nn' has no attribute 'nonsense'$"):
        mo.nn.nonsense  # noqa: B018


def test_errors_have_a_place_of_their_own() -> None:
    with pytest.raises(AttributeError, match=r"use mo\.errors\.MorphoError"):
        mo.MorphoError  # noqa: B018
    assert issubclass(mo.errors.ShapeError, mo.errors.MorphoError)


def test_names_that_nobody_has() -> None:
    with pytest.raises(AttributeError, match=r"module 'morpho' has no attribute 'nonsense'$"):
        mo.nonsense  # noqa: B018
    assert advice("nonsense") == ""
