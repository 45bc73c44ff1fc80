"""The values that tests/tensor/test_jax_values.py compares with, from JAX on this machine's CPU:

    pip install "jax[cpu]"
    python -m benchmarks.jax_values     # writes tests/tensor/jax_values.json
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "tensor"


def programs() -> dict[str, Any]:
    """The table of the test."""
    spec = importlib.util.spec_from_file_location("test_jax_values", FOLDER / "test_jax_values.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.PROGRAMS)


def main() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    found = {}
    for name, program in programs().items():
        value = np.asarray(program(jax.numpy, jax))
        found[name] = {"real": np.real(value).tolist()}
        if np.iscomplexobj(value):
            found[name]["imag"] = np.imag(value).tolist()
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in found.items()]
    (FOLDER / "jax_values.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{len(found)} programs of JAX {jax.__version__}")


if __name__ == "__main__":
    main()
