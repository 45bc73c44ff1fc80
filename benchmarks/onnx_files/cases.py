"""ONNX's own test cases, through Morpho and through ONNX Runtime in the same run.

    python -m benchmarks.onnx_files.cases                 # all kinds; writes docs/data/onnx_cases.json
    python -m benchmarks.onnx_files.cases --kind node --only Conv --show

A case is a model with inputs and the outputs that the reference implementation gave. It passes where all outputs have
the expected type, shape and values within the tolerance that the case states.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import os
import pkgutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

LOG = Path(__file__).resolve().parents[2] / "docs" / "data" / "onnx_cases.json"
KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")


class Case:
    """A test case: bytes of a model, and sets of inputs and expected outputs as NumPy arrays (lists for sequences)."""

    def __init__(self, case: Any, kind: str) -> None:
        self.name, self.kind, self.rtol, self.atol = case.name, kind, case.rtol, case.atol
        self.case = case

    def model(self) -> bytes:
        if self.case.model is not None:
            return bytes(self.case.model.SerializeToString())
        return (Path(self.case.model_dir) / "model.onnx").read_bytes()

    def sets(self) -> Iterator[tuple[list[Any], list[Any]]]:
        if self.case.data_sets is not None:
            for inputs, outputs in self.case.data_sets:
                yield [plain(value) for value in inputs], [plain(value) for value in outputs]
            return
        import onnx

        model = onnx.load_from_string(self.model())
        for folder in sorted(Path(self.case.model_dir).glob("test_data_set_*")):
            yield tuple([read(path, info) for path, info in zip(sorted(  # type: ignore[misc]
                folder.glob(f"{side}_*.pb"), key=lambda path: int(path.stem.split("_")[-1])), declared)]
                for side, declared in (("input", model.graph.input), ("output", model.graph.output)))


def plain(value: Any) -> Any:
    """A value of a data set as an array, a list, or None."""
    import onnx
    from onnx import numpy_helper

    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.SequenceProto):
        return [plain(item) for item in numpy_helper.to_list(value)]
    if isinstance(value, onnx.OptionalProto):
        return plain(numpy_helper.to_optional(value))
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if value is None else np.asarray(value)


def read(path: Path, info: Any) -> Any:
    """A value of a file of test data."""
    import onnx

    kind = info.type.WhichOneof("value")
    message = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(kind, onnx.TensorProto)()
    message.ParseFromString(path.read_bytes())
    return plain(message)


def cases(kind: str) -> list[Case]:
    """All cases of a kind that need no network."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = load_model_tests(kind=kind)
    return [Case(case, kind) for case in sorted(found, key=lambda case: case.name)
            if case.model is not None or case.model_dir]


def modules() -> list[str]:
    """The modules of the "node" kind, an operator each; none of them is imported."""
    from onnx.backend.test.case import node

    return [module.name for module in pkgutil.iter_modules(node.__path__)
            if not module.ispkg and not module.name.startswith("_")]


@functools.cache
def of_module(name: str) -> list[Case]:
    """The cases of one of `modules`. Its import makes them, so that it must be the first in this process."""
    from onnx.backend.test.case import node

    before = len(node._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{node.__name__}.{name}")
    return [Case(case, "node") for case in node._NodeTestCases[before:]]


def differing(got: Any, expected: Any, rtol: float, atol: float) -> str:
    """What is wrong with a result; empty where nothing is."""
    if expected is None:
        return "" if got is None else f"{type(got).__name__} instead of nothing"
    if isinstance(expected, list):
        if not isinstance(got, list) or len(got) != len(expected):
            return f"a sequence of {len(got) if isinstance(got, list) else '?'} instead of {len(expected)}"
        return next(filter(None, (differing(a, b, rtol, atol) for a, b in zip(got, expected))), "")
    got, expected = np.asarray(got), np.asarray(expected)
    if got.shape != expected.shape:
        return f"shape {got.shape} instead of {expected.shape}"
    if expected.dtype.kind in "OUST":
        same = [str(a) for a in got.reshape(-1)] == [str(b) for b in expected.reshape(-1)]
        return "" if same else f"{got.tolist()} instead of {expected.tolist()}"[:200]
    if got.dtype != expected.dtype:
        return f"dtype {got.dtype} instead of {expected.dtype}"
    if got.dtype.name == "bfloat16":
        rtol = max(rtol, 2 ** -6)  # as ONNX's own runner: two steps of bfloat16
    if got.dtype.kind in "Vf" or got.dtype.kind not in "biuc":
        got, expected = got.astype(np.float64), expected.astype(np.float64)
    close = np.isclose(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    place = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"{(~close).sum()} of {close.size} differ, at {place}: {got[place]} instead of {expected[place]}"


def through_morpho(model: bytes) -> Callable[[list[Any]], list[Any]]:
    """The model as a function of a list of inputs."""
    import morpho as mo

    network = mo.onnx.loads(model)
    return lambda inputs: [mo.onnx.to_numpy(value) for value in network.run(
        {name: value for name, value in zip(network.input_names, inputs)}).values()]


def through_runtime(model: bytes) -> Callable[[list[Any]], list[Any]]:
    """The same by ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: list(session.run(None, {value.name: given for value, given in
                                                  zip(session.get_inputs(), inputs)}))


def outcome(case: Case, through: Callable[[bytes], Callable[[list[Any]], list[Any]]]) -> str:
    """Why a case fails; empty where it passes."""
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            run = through(case.model())
            for inputs, outputs in case.sets():
                results = run(inputs)
                if len(results) != len(outputs):
                    return f"{len(results)} outputs instead of {len(outputs)}"
                for got, expected in zip(results, outputs):
                    if told := differing(got, expected, case.rtol, case.atol):
                        return told
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def main() -> int:
    """Run the cases, print the counts and keep the log."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--no-runtime", action="store_true", help="Morpho alone")
    parser.add_argument("--show", action="store_true", help="print why each case fails")
    parser.add_argument("--write", action="store_true", help=f"keep the log in {LOG.name}")
    arguments = parser.parse_args()
    engines = {"morpho": through_morpho} | ({} if arguments.no_runtime else {"onnxruntime": through_runtime})
    log: dict[str, Any] = {"versions": versions(), "kinds": {}}
    for kind in arguments.kind or KINDS:
        found = [case for case in cases(kind) if arguments.only in case.name]
        entry: dict[str, Any] = {"cases": len(found)}
        for name, through in engines.items():
            start, failed = time.perf_counter(), {}
            for case in found:
                if told := outcome(case, through):
                    failed[case.name] = told
                    if arguments.show and name == "morpho":
                        print(f"  {case.name}: {told}", flush=True)
            entry[name] = {"passed": len(found) - len(failed), "failed": failed if name == "morpho" else sorted(failed)}
            print(f"{kind}: {name} passes {len(found) - len(failed)} of {len(found)} "
                  f"({time.perf_counter() - start:.0f} s)", flush=True)
        log["kinds"][kind] = entry
    if arguments.write:
        LOG.write_text(json.dumps(log, indent=1) + "\n", encoding="utf-8")
    return 0


def versions() -> dict[str, str]:
    """Of what is compared."""
    from importlib.metadata import version

    return {name: version(name) for name in ("onnx", "onnxruntime", "numpy")}


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
