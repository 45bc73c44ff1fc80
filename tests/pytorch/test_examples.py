"""The examples in the docstrings of `morpho.torch` and of the two functions of `mo` are true."""

from __future__ import annotations

import doctest
import importlib
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: the extra `torch`")

import numpy as np  # noqa: E402

import morpho as mo  # noqa: E402
import morpho.torch  # noqa: E402

MODULES = ["", ".backend", ".export", ".function", ".lowering", ".report", ".tensors", ".aten.table", ".aten.promotion"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    """Each module has some, and they run."""
    module = importlib.import_module(f"morpho.torch{name}")
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = doctest.testmod(module, extraglobs={"mo": mo, "np": np, "morpho": morpho}, optionflags=doctest.ELLIPSIS)
    assert found.attempted and not found.failed


def test_the_functions_of_mo() -> None:
    """They are found late: `import morpho` and `from morpho import *` load no PyTorch."""
    assert mo.from_torch.__name__ == "from_torch" and mo.to_torch.__name__ == "to_torch"
    assert not {"from_torch", "to_torch"} & set(mo.__all__)
