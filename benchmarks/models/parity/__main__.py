"""See the package. Exits 1 where a case differs."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.parity import ours, theirs
from benchmarks.models.parity.cases import CASES, ENCODERS, Case
from benchmarks.models.parity.decoders import decoders
from benchmarks.models.parity.inputs import config_of, inputs, write_folder

TOLERANCE = 2e-5  # of the largest value
HERE = Path(__file__).parent
EXPECTED = HERE.parents[2] / "tests" / "models" / "families.json"
KEPT = 12  # values of a result that the tests compare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--store", action="store_true", help="write log.json and the tests' expectations")
    options = parser.parse_args()
    log: dict[str, Any] = {}
    stored: dict[str, Any] = {}
    for case in CASES.values():
        if case.name.startswith(options.only):
            log[case.name], stored[case.name] = _compared(case)
            found = log[case.name]
            print(f"{'ok  ' if found['passed'] else 'FAIL'} {case.name:58} {found['error']:.1e} "
                  f"cached {found.get('cached', 0):.1e} {found.get('note', '')}", flush=True)
    wrong = [name for name, found in log.items() if not found["passed"]]
    print(f"{len(log) - len(wrong)} of {len(log)} cases agree to {TOLERANCE:g}")
    if options.store and not wrong:
        _store(log, stored)
    return bool(wrong)


def _store(log: dict[str, Any], stored: dict[str, Any]) -> None:
    """Put what was compared beside what the files have of other cases."""
    import torch
    import transformers

    about = {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0],
             "tolerance": TOLERANCE, "date": time.strftime("%Y-%m-%d")}
    firsts: dict[str, str] = {}  # the tests have one case of each of these families
    for case in decoders():
        firsts.setdefault(case.family, case.name)
    for case in CASES.values():
        if case.family in ENCODERS:
            firsts.setdefault(case.family, case.name)
    left_out = {case.name for case in CASES.values() if case.family in firsts} - {*firsts.values()}
    old = json.loads((HERE / "log.json").read_text())["cases"] | log
    values = json.loads(EXPECTED.read_text()) | stored
    (HERE / "log.json").write_text(json.dumps({"about": about, "cases": {
        name: old[name] for name in CASES if name in old}}, indent=1) + "\n")
    EXPECTED.write_text(json.dumps({name: values[name] for name in CASES if name in values and name not in left_out},
                                   separators=(",", ":")))


def _compared(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    wanted = theirs.reference(case)
    given = inputs(case.name, case.kind, config_of(wanted["files"]))
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), wanted["files"], wanted["shapes"])
        try:
            found = ours.computed(Path(folder), case.kind, given)
            cached = ours.cached_error(Path(folder), given) if case.kind == "decoder" else None
        except Exception as error:  # the next cases are compared all the same
            return {"passed": False, "error": 1.0, "note": f"{type(error).__name__}: {error}"[:300]}, {}
    error, note = 0.0, ""
    for name, result in wanted["results"].items():
        if name == "tokens":
            note += "" if result.tolist() == found[name].tolist() else f"tokens {found[name]} are not {result}"
        elif result.shape != found[name].shape:
            note += f"{name} is {found[name].shape}, not {result.shape}"
        else:
            error = max(error, float(np.abs(found[name] - result).max() / max(1.0, np.abs(result).max())))
    log: dict[str, Any] = {"passed": not note and error < TOLERANCE and (cached or 0) < TOLERANCE, "error": error}
    log |= {} if cached is None else {"cached": cached}
    log |= {"note": note} if note else {}
    return log, {"kind": case.kind, "files": wanted["files"], "shapes": wanted["shapes"],
                 "results": {name: _sample(name, value) for name, value in wanted["results"].items()}}


def _sample(name: str, value: Any) -> list[float]:
    """Some values of a result, spread over it; tokens whole."""
    flat = np.asarray(value).reshape(-1)
    return flat.tolist() if name == "tokens" else [round(float(each), 6) for each in flat[picks(flat.size)]]


def picks(size: int) -> Any:
    return np.unique(np.linspace(0, size - 1, KEPT).astype(int))


if __name__ == "__main__":
    sys.exit(main())
