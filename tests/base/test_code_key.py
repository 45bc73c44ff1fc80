"""`Settings.code_key()`: another value of any setting is another key, or the same bits from the same code."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.base.settings import NOT_IN_CODE, Settings

OTHER: dict[str, Any] = {
    "device": "reference", "level": 1, "isa": "scalar", "threads": 1, "cache": False, "cache_dir": "elsewhere",
    "cache_bytes": 1 << 28, "pool_bytes": 1 << 30, "passes_off": "fuse", "autocast": "bfloat16", "nans": "results",
    "fast": True, "tf32": True, "co_schedule": False, "log": "error", "tune": "off", "fallback": True,
    "collective_timeout": 7, "compare_collectives": False, "alone": True,
    "record": False}


def test_every_setting_is_tried() -> None:
    assert {field.name for field in fields(Settings)} == OTHER.keys()


@pytest.mark.parametrize("name", sorted(OTHER))
def test_another_value_is_another_key_or_the_same_bits(name: str, tmp_path: Path) -> None:
    value = str(tmp_path) if name == "cache_dir" else OTHER[name]
    assert value != getattr(Settings(), name)
    assert (replace(Settings(), **{name: value}).code_key() != Settings().code_key()) == (name not in NOT_IN_CODE)
    x = mo.asarray(np.linspace(-2, 2, 35 * 36, dtype=np.float32).reshape(35, 36))
    compiled = mo.compile(lambda x: mo.softmax(x @ x.T, axis=-1).sum(axis=0))
    before = compiled(x).numpy(copy=True)
    with mo.settings(**{name: value}):
        after = compiled(x).numpy(copy=True)
        again = mo.softmax(x @ x.T, axis=-1).sum(axis=0).numpy()
    assert compiled.stats["specialisations"] == (1 if name in NOT_IN_CODE else 2)
    if name in ("device", "autocast"):  # NumPy's own order of additions, and another dtype
        assert np.allclose(after, before, rtol=0.05)
    else:
        assert np.array_equal(after, before) and np.array_equal(again, before)
