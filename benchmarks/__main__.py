"""``python -m benchmarks [core|kernels|...]``: the harness behind ``morpho bench``, without its command line."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.harness.run import SUITES, Options, run


def parse(arguments: list[str]) -> Options:
    """Turn command-line words into options."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suite", nargs="?", default="core", choices=SUITES, help="which benchmarks (core)")
    parser.add_argument("--only", default="", help="themes by number or name: 1,3 or gelu,fusion")
    parser.add_argument("--peers", default="", help="compare with these only: numpy,torch,torch_compile,jax,...")
    parser.add_argument("--json", type=Path, default=None, help="write every figure to this file")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, a subset of sizes")
    parser.add_argument("--threads", type=int, default=2, help="threads for every peer (2)")
    parser.add_argument("--gate", action="store_true", help="fail when a ratio regressed by more than 20 %%")
    parser.add_argument("--save-baseline", action="store_true", help="write the ratios to baseline.json")
    parser.add_argument("--baseline", type=Path, default=None, help="another baseline file")
    return Options(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(run(parse(sys.argv[1:])))
