"""No public call falls to a serial kernel, or to the host, without being named here."""

from __future__ import annotations

import sys

import pytest

from benchmarks.gpu.census import KINDS, MATRICES, census, every_call, main
from morpho.backends.cuda.blocks.matrices import NAMES

SMALL = {name: "few" for name in (
    "scan", "convolve", "sort rows gradient",
    *(f"{name} 512x32" for name in MATRICES if name not in NAMES))}
LARGE = {f"{name} {size}": "host" for name in MATRICES for size in ("64x128", "1024")}
EAGER = {name: "eager" for name in ("nonzero", "unique", "boolean index")}  # their sizes are data
KNOWN = {**SMALL, **LARGE, **EAGER, **{name: "rows" for name in (  # `topk` ends in a sort of its few
    "cumulative_trapezoid middle", "histogram", "searchsorted", "interp", "conv2d depthwise", "max_pool2d",
    "max_pool2d gradient", "avg_pool2d",
    "topk line", "topk rows", "topk first", "topk middle")}}


def test_what_a_gpu_runs_for_every_call() -> None:
    results = {name: (kind, found) for name, kind, found in census(every_call())}
    worse = {name: f"{kind}: {', '.join(map(str, found))}" for name, (kind, found) in results.items()
             if KINDS.index(kind) > KINDS.index(KNOWN.get(name, "grid"))}
    better = {name: kind for name, known in KNOWN.items() if (kind := results[name][0]) != known and name not in worse}
    assert not worse
    assert not better, "take these from the list"


def test_the_command_prints_the_worst_first(monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["census", "cumprod", "svd 1024"])
    main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("host  svd 1024") and lines[-1] == "6 grid, 0 rows, 0 few, 1 host, 0 eager"
