"""Public options of `mo.profile`, `mo.tune`, `mo.monitor` and `mo.cache`: what they do not take is one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo
from morpho.observe.monitor import Sampler
from morpho.observe.trace.model import Trace

NO_TIMES = ["x", None, True, float("nan"), float("inf"), -1, 0, 1j, [1], b"1", np.ones(2), object(), 10**400]
NO_FLAGS = ["x", None, 1, float("nan"), [1], np.ones(2)]
NO_TEXTS = [3, None, b"x", True, ["x"], "\ud800"]
NO_PATHS = [3, None, b"x.json", "", "a\0.json", ["a.json"], True]


def tune(**options: Any) -> Any:
    return mo.tune(lambda x: x + 1, mo.ones(3), **options)


OPTIONS: dict[str, tuple[Callable[[Any], Any], list[Any]]] = {
    "budget_s": (lambda odd: tune(budget_s=odd), NO_TIMES),
    "anew": (lambda odd: tune(budget_s=0.01, anew=odd), NO_FLAGS),
    "function": (lambda odd: mo.tune(odd), [3, None, "x"]),
    "memory": (lambda odd: mo.profile(memory=odd), NO_FLAGS),
    "name": (lambda odd: mo.profile(odd), NO_TEXTS),
    "path": (lambda odd: Trace().save(odd), NO_PATHS),
    "path of a trace": (Trace.load, NO_PATHS),
    "every_s": (lambda odd: mo.monitor.sample(every_s=odd), [*NO_TIMES, 1e300]),
    "every_s of a sampler": (lambda odd: Sampler(every_s=odd), [*NO_TIMES, 1e300]),
    "registry": (mo.monitor.prometheus, [3, "x"]),
    "provider": (mo.monitor.opentelemetry, [3, "x"]),
    "name of a metric": (lambda odd: mo.monitor.snapshot(odd), NO_TEXTS),
    "disk": (lambda odd: mo.cache(disk=odd), [one for one in NO_PATHS if one is not None]),
    "name of a cache": (lambda odd: mo.cache(name=odd), NO_TEXTS),
    "key": (lambda odd: mo.cache(key=odd), [3, "x"]),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_what_an_option_does_not_take_is_one_sentence_that_names_it(name: str) -> None:
    if name in ("registry", "provider"):
        pytest.importorskip({"registry": "prometheus_client", "provider": "opentelemetry"}[name])
    call, odd = OPTIONS[name]
    for value in odd:
        with pytest.raises(mo.errors.MorphoError, match=name.partition(" ")[0]) as told:
            call(value)
        assert "\n" not in str(told.value) and len(str(told.value)) < 400


def test_numbers_and_paths_of_other_libraries_are_taken(tmp_path: Path) -> None:
    assert Sampler(every_s=np.float32(2.5)).every_s == 2.5  # type: ignore[arg-type]
    assert tune(budget_s=np.float64(0.01), anew=np.bool_(True)).seconds > 0
    assert Trace().save(tmp_path / "a.json").exists() and mo.cache(disk=tmp_path / "kept").stats()["disk"] is not None
