"""ResNet-18: a training step of 16 images of 64 x 64 beside PyTorch eager; and how soon a small net can read digits.

    morpho bench train --only resnet
"""

from __future__ import annotations

from benchmarks.harness.compare import record, seconds
from benchmarks.harness.probe import ProbeError, probe
from benchmarks.harness.report import duration, times
from benchmarks.harness.results import Table, Target, ThemeResult, ratio
from benchmarks.harness.session import Session
from benchmarks.train import resnet_cases as cases
from benchmarks.train.agreement import same_losses


def run(session: Session) -> ThemeResult:
    """The step, then the digits; one that fails leaves the other standing."""
    result = ThemeResult("resnet")
    name = "resnet18 step 16x64x64"
    timings = session.measure("resnet_step", cases.SIZE, ["morpho", "torch"], rounds=3 if session.quick else 9)
    record(result, name, timings)
    same_losses(result, name, timings, cases.ALLOWED)
    own, torch = seconds(timings, "morpho"), seconds(timings, "torch")
    result.tables.append(Table("ResNet-18, batch 16 at 64 x 64, SGD with momentum, f32: a whole training step",
                               ["case", "morpho", "torch", "ratio"],
                               [[name, duration(own), duration(torch), times(ratio(torch, own))]]))
    result.targets.append(Target("ResNet-18 step over PyTorch eager", ratio(torch, own), 1.0))
    try:
        digits(session, result)
    except ProbeError as error:
        result.errors.append(str(error))
    return result


def digits(session: Session, result: ThemeResult) -> None:
    """In a fresh process, compiling included."""
    answer = result.figures["digits"] = probe("digits", threads=session.threads)
    result.tables.append(Table("a small convolutional net learns to read digits of 8 x 8 pixels",
                               ["digits", "trained on", "tested on", "epochs", "steps", "seconds", "right"],
                               [[answer["source"], str(answer["trained"]), str(answer["tested"]), str(answer["epochs"]),
                                 str(answer["steps"]), f"{answer['seconds']:.1f}", f"{answer['accuracy']:.2%}"]]))
    result.targets += [Target("digits, right in the test", 100 * answer["accuracy"], 98.0, True, " %"),
                       Target("digits, seconds of training", answer["seconds"], 60.0, False, " s")]
