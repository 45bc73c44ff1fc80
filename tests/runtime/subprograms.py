"""Small programs run in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

HEAD = "import os, sys, threading, time\nimport numpy as np\nimport morpho as mo\n"


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment with some variables set, or removed where None."""
    result = dict(os.environ)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def start(program: str, **changes: str | None) -> subprocess.Popen[str]:
    """A Python process running the program after the imports above."""
    return subprocess.Popen([sys.executable, "-c", HEAD + textwrap.dedent(program)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, env=environment(**changes), start_new_session=True)


def run(program: str, timeout_s: float = 60, **changes: str | None) -> tuple[str, str]:
    """What a program that ends well prints to its two outputs."""
    process = start(program, **changes)
    try:
        printed, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its children too: they hold the pipes
        printed, said = process.communicate()
        raise AssertionError(f"the program hangs\n{printed}\n{said}") from None
    assert process.returncode == 0, f"ended with {process.returncode}\n{printed}\n{said}"
    return printed.strip(), said.strip()
