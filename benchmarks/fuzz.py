"""Random programs for as long as you like: `python benchmarks/fuzz.py --seconds 600 --seed 1`.

Each seed is one program, taken through the passes, the reference, every level, the instruction sets of this machine,
one and two threads, lazily and compiled, static and dynamic. A failure is minimised and printed as Python lines.
`--kind statements` runs programs that write in place, eagerly, compiled, in loops and over rows, against NumPy;
`--kind calls` calls such functions with states again and again, with arguments that alias each other or a state.
`--kind computed` runs programs whose indices, masks and bounds are results of other operations, at levels 0 to 3,
lazily and compiled, against single steps of the reference; `--device` chooses where (`emulated` is the emulated GPU).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "ops"), str(ROOT / "tests" / "fuzz")]


def main() -> int:
    """Run seeds until the time is over; the number of failures is the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", choices=("graphs", "statements", "calls", "computed"), default="graphs")
    parser.add_argument("--device", default="cpu", help="of --kind computed: cpu, cuda:0, emulated")
    parser.add_argument("--stop", action="store_true", help="stop at the first failure")
    arguments = parser.parse_args()
    import computed
    from checks import Mismatch, check_threads, large_n, run_seed
    from programs import random_program
    from repeated_calls import run_calls
    from statements import run_statements

    from morpho.base.machine import available_isas, machine

    isas = available_isas(machine())
    if arguments.device == "emulated":
        from morpho.backends.cuda.emulator.install import install

        arguments.device = install()
    ends, seed, failures = time.monotonic() + arguments.seconds, arguments.seed, 0
    while time.monotonic() < ends:
        try:
            if arguments.kind == "computed":
                computed.check([computed.random_program(seed * 10 + k) for k in range(10)], (3, 2, 3, 1, 0)[seed % 5],
                               arguments.device)
            elif arguments.kind != "graphs":
                (run_calls if arguments.kind == "calls" else run_statements)(seed)
            else:
                run_seed(seed, isas)
            if arguments.kind == "graphs" and seed % 10 == 0:
                program = random_program(seed, rowwise=seed % 3 == 0, native=True)
                check_threads(program, large_n(program))
        except (Mismatch, AssertionError) as error:
            failures += 1
            print(f"--- {error}\n", flush=True)
        except Exception as error:
            failures += 1
            print(f"--- seed {seed}: {type(error).__name__}: {error}\n", flush=True)
        seed += 1
        if failures and arguments.stop:
            break
    count = (seed - arguments.seed) * (10 if arguments.kind == "computed" else 1)
    print(f"{count} programs from seed {arguments.seed}, {failures} failures")
    return min(failures, 100)


if __name__ == "__main__":
    sys.exit(main())
