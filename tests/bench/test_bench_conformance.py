"""`morpho bench conformance`: what counts as the same, and the examples of NumPy's own docstrings."""

from __future__ import annotations

import numpy as np
import pytest

import morpho as mo
from benchmarks.conformance import numpy_examples, opinfo


@pytest.mark.parametrize(("wanted", "outcome"), [
    (np.array([1.0, 2.0], np.float32), "equal"), (np.array([1.0, 2.0]), "other dtype"),
    (np.array([[1.0, 2.0]], np.float32), "other shape"), (np.array([1.0, 2.5], np.float32), "other values"),
    ((np.ones(1), np.ones(1)), "other structure")])
def test_a_difference_is_named(wanted: object, outcome: str) -> None:
    assert opinfo.difference(mo.asarray([1.0, 2.0]), wanted)[0] == outcome


def test_names_are_looked_up_as_pytorch_spells_them() -> None:
    assert opinfo.namesake("linalg.cholesky") is mo.linalg.cholesky
    assert opinfo.namesake("nn.functional.gelu") is not None
    assert opinfo.namesake("no_such_function") is None


@pytest.mark.parametrize("name", ["cumprod", "searchsorted", "convolve"])
def test_examples_of_numpys_docstrings_agree(name: str) -> None:
    tally = opinfo.Tally()
    numpy_examples.run_example(tally, name, getattr(np, name))
    assert tally.outcomes["equal"] > 0 and "other values" not in tally.outcomes, tally.notes


def test_a_refusal_is_counted_with_what_was_said() -> None:
    def refused() -> None:
        """
        >>> np.add(1, "text") if np.__name__ == "morpho" else 3
        3
        """

    tally = opinfo.Tally()
    numpy_examples.run_example(tally, "refused", refused)
    assert tally.outcomes == {"refused": 1} and "text" in tally.notes["refused"]["refused"]
