"""Names of other libraries: an error that says what to use."""

from __future__ import annotations

import re

import pytest

import morpho as mo
from morpho.tensor.names import OTHERWISE, SAME, advice


@pytest.mark.parametrize("name", [*SAME, *OTHERWISE])
def test_a_foreign_name_leads_to_ours(name: str) -> None:
    assert not hasattr(mo, name), "Morpho has this name itself: take it off the list"
    with pytest.raises(AttributeError, match=rf"no attribute '{name}'\. Hint: use .+\.$"):
        getattr(mo, name)
    for path in re.findall(r"\bmo\.([a-z_0-9.]*[a-z_0-9])", advice(name)):
        found: object = mo
        for part in path.split("."):
            found = getattr(found, part)


def test_names_that_nobody_has() -> None:
    with pytest.raises(AttributeError, match=r"module 'morpho' has no attribute 'nonsense'$"):
        mo.nonsense  # noqa: B018
    assert getattr(mo, "concatenate", None) is None and advice("nonsense") == ""
