"""Named numbers go into LLVM text as numbers."""

from __future__ import annotations

from morpho.runtime.tables import PoolField, StateField


def test_names_are_written_as_numbers() -> None:
    """Before Python 3.11 `str()` of an IntEnum is its name."""
    assert [str(PoolField(1)), f"{PoolField(1)}", "%s" % StateField.VERSION] == ["1", "1", "1"]
