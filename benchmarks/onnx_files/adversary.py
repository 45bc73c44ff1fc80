"""Random small ONNX models: Morpho against ONNX's reference and ONNX Runtime; where those agree, Morpho must too.

    python -m benchmarks.onnx_files.adversary --rounds 2000 --seed 1
    python -m benchmarks.onnx_files.adversary --family slices --only 37   # one case again, with its model
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

from benchmarks.onnx_files import adversary_layers
from benchmarks.onnx_files.adversary_cases import FAMILIES, Case

assert adversary_layers  # enters its families
TOLERANCE = {np.dtype(np.float16): 1e-2, np.dtype(np.float64): 1e-6}
SLOW_S = 20.0


def agree(ours: Any, theirs: Any, looseness: float = 1.0) -> bool:
    """Equal dtypes, shapes and values, within the dtype's tolerance."""
    if len(ours) != len(theirs):
        return False
    for a, b in zip(ours, theirs, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        near = TOLERANCE.get(a.dtype, 1e-4) * looseness
        if not (np.allclose(a, b, near, near, equal_nan=True) if a.dtype.kind == "f" else np.array_equal(a, b)):
            return False
    return True


def attempt(call: Any) -> tuple[list[Any] | None, str]:
    """The arrays of a call, or what it raised."""
    try:
        return [np.asarray(value) for value in call()], ""
    except Exception as error:
        return None, f"{type(error).__name__}: {str(error)[:300]}"


def by_runtime(data: bytes, feed: dict[str, Any]) -> Any:
    """Outputs of ONNX Runtime, without its graph optimiser, which has faults of its own."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feed)


def by_morpho(network: Any, feed: dict[str, Any]) -> list[Any]:
    """Outputs of Morpho."""
    import morpho as mo

    return [np.asarray(mo.onnx.to_numpy(value)) for value in network.run(feed).values()]


def judge(case: Case, named: bool, dynamic: bool) -> tuple[str, str]:
    """`same` as one of the two; `refused` by Morpho alone, with one of them (`by two`), `by all`; `accepted` by Morpho
    alone; `odd`: other than the one answer or the two different ones; or a fault: `wrong`, `raised`, `slow`."""
    import morpho as mo
    from morpho.base.errors import MorphoError

    data = case.model(named or bool(case.later))
    story = ""
    try:
        network: Any = mo.onnx.loads(data, dynamic=dynamic)
    except MorphoError as error:
        network, story = None, str(error)
    verdict = "same"
    for feed in (case.feed, *case.later):
        if verdict in ("same", "refused by all"):
            verdict, story = judge_call(data, feed, network)
    return verdict, story


def judge_call(data: bytes, feed: dict[str, Any], network: Any) -> tuple[str, str]:
    """The verdict about one call of a loaded model."""
    from morpho.base.errors import MorphoError

    reference, no_reference = attempt(lambda: ReferenceEvaluator(onnx.load_from_string(data)).run(None, feed))
    runtime, no_runtime = attempt(lambda: by_runtime(data, feed))
    start = time.perf_counter()
    try:
        ours, refusal = None, "not loaded"
        if network is not None:
            ours = by_morpho(network, feed)
    except MorphoError as error:
        ours, refusal = None, str(error)
    except Exception as error:
        return "raised", f"{type(error).__name__}: {error}"
    if time.perf_counter() - start > SLOW_S:
        return "slow", f"{time.perf_counter() - start:.1f} s"
    expected = [answer for answer in (reference, runtime) if answer is not None]
    if not expected:
        return ("refused by all", refusal) if ours is None else ("accepted", f"{no_reference} / {no_runtime}")
    both = len(expected) == 2
    if ours is None:
        return ("refused" if both else "refused by two"), refusal
    if any(agree(ours, answer, 10) for answer in expected):
        return "same", ""
    story = " / ".join(str(answer) for answer in expected) + f" but Morpho {ours}"
    return ("wrong" if both and agree(*expected, 10) else "odd"), " ".join(story.split())


def hunted(seed: int, rounds: int, families: list[str], only: int | None) -> tuple[Counter[str], list[str]]:
    """Counts of verdicts by family, and a line for every fault."""
    counts: Counter[str] = Counter()
    told = []
    for turn in range(rounds) if only is None else (only,):
        name = families[turn % len(families)]
        rng = np.random.default_rng([seed, turn])
        case = FAMILIES[name](rng)
        named = bool(rng.random() < 0.5)
        verdict, story = judge(case, named, named and bool(rng.random() < 0.4))
        counts[f"{verdict}"] += 1
        counts[f"{verdict} in {name}"] += verdict != "same"
        text = " ".join(str(case.nodes).split())[:700]
        fed = {k: (v.dtype.name, v.shape) for k, v in case.feed.items()}
        weights = {k: np.asarray(v).tolist() for k, v in case.weights.items() if np.size(v) < 9}
        if verdict not in ("same", "refused by all", "accepted") or only is not None:
            told.append(f"{verdict} {turn} {name} opset {case.opset} {text} {fed} "
                        f"{weights}: {story}"[:1600])
            print(told[-1], flush=True)
            if only is not None:
                print(case.feed, case.weights)
    return +counts, told


def main() -> int:
    """Hunt, and say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", choices=sorted(FAMILIES), action="append")
    parser.add_argument("--only", type=int, help="the number of one round")
    arguments = parser.parse_args()
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        counts, _ = hunted(arguments.seed, arguments.rounds, arguments.family or sorted(FAMILIES), arguments.only)
    print(dict(sorted(counts.items())))
    return int(sum(counts[kind] for kind in ("wrong", "raised", "slow")) > 0)


if __name__ == "__main__":
    sys.exit(main())
