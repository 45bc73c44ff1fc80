"""ptxas, where a wheel or a toolkit has it: assembles PTX without a GPU, for tests and for its report on registers."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path


@cache
def find() -> str | None:
    """Where ptxas is: in the wheel `nvidia-cuda-nvcc`, or on the path."""
    found = importlib.util.find_spec("nvidia")
    for root in (found.submodule_search_locations or ()) if found is not None else ():
        for path in sorted(Path(root).glob("*/bin/ptxas")):
            return str(path)
    return shutil.which("ptxas")


def check(texts: list[str], architecture: str = "sm_90a") -> str:
    """Assemble PTX; what ptxas says of registers, stack and shared memory. An error says what it does not take."""
    program = find()
    if program is None:
        raise FileNotFoundError("ptxas: install nvidia-cuda-nvcc")
    said = []
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, text in enumerate(texts):
            path = Path(folder) / f"{number}.ptx"
            path.write_text(text)
            paths.append(path)
        for path in paths:
            done = subprocess.run([program, f"-arch={architecture}", "-v", str(path), "-o", str(path) + ".cubin"],
                                  capture_output=True, text=True, check=False)
            if done.returncode:
                raise ValueError(f"ptxas: {done.stderr.strip()[:2000]}")
            said.append(done.stderr)
    return "\n".join(said)
