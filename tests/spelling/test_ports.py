"""Programs written for NumPy and PyTorch run with the import as their only changed line, and agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import morpho as mo

PORTS = Path(__file__).parents[2] / "benchmarks" / "ports"
LINES = {"import numpy as np": "import morpho as np", "import torch\n": "import morpho as torch\n",
         "import torch.nn as nn": "import morpho.nn as nn",
         "import torch.nn.functional as F": "import morpho.nn.functional as F", "from torch": "from morpho"}


def run(text: str) -> Any:
    space: dict[str, Any] = {"__name__": "port"}
    exec(compile(text, "port.py", "exec"), space)
    return space["result"]


def ported(text: str) -> str:
    for line, other in LINES.items():
        text = text.replace(line, other)
    return text


def same(result: Any, wanted: Any) -> None:
    if isinstance(wanted, list | tuple) and not all(isinstance(one, int | float) for one in wanted):
        assert len(result) == len(wanted)
        for one, other in zip(result, wanted, strict=True):
            same(one, other)
        return
    result, wanted = np.asarray(result), np.asarray(wanted)
    assert result.shape == wanted.shape
    np.testing.assert_allclose(result.astype(float), wanted.astype(float), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("path", sorted((PORTS / "numpy_programs").glob("*.py")), ids=lambda path: path.stem)
def test_a_numpy_program(path: Path) -> None:
    text = path.read_text()
    with mo.device("reference"):
        same(run(ported(text)), run(text))


@pytest.mark.parametrize("path", sorted((PORTS / "torch_programs").glob("*.py")), ids=lambda path: path.stem)
def test_a_pytorch_program(path: Path) -> None:
    pytest.importorskip("torch")
    text = path.read_text()
    with mo.device("reference"):
        same(run(ported(text)), run(text))
