"""9. Fourier transforms of complex128 numbers (and of float64 ones): round, odd and prime lengths, planes, batches.

    morpho bench core --only fourier

NumPy's and SciPy's transforms are pocketfft's; PyTorch's are MKL's where it was built with it.
"""

from __future__ import annotations

from benchmarks.harness.compare import headings, record, row
from benchmarks.harness.results import Table, Target, ThemeResult, geometric_mean
from benchmarks.harness.session import Session

TRANSFORMS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("fft", (1024,)), ("fft", (65536,)), ("fft", (1000,)), ("fft", (10007,)), ("fftn", (512, 512)),
    ("fft", (1000, 256)), ("rfft", (65536,)))
QUICK = TRANSFORMS[:2]
COMPARED = ("morpho", "numpy", "torch")


def run(session: Session) -> ThemeResult:
    """One row per transform and shape."""
    result = ThemeResult("fourier")
    peers = [peer for peer in COMPARED if peer in session.modules]
    table = Table("Fourier transforms of complex128 (rfft: float64), per call", headings("transform", peers))
    over_numpy: list[float] = []
    for name, shape in QUICK if session.quick else TRANSFORMS:
        label = f"{name} {' x '.join(map(str, shape))}"
        timings = session.measure(f"fourier {name}", shape, peers)
        ratios = record(result, label, timings)
        over_numpy += [ratios[0]] if ratios[0] else []
        table.rows.append(row(label, timings, peers, *ratios))
    result.tables.append(table)
    result.targets.append(Target("geometric mean over NumPy", geometric_mean(over_numpy), 2.0))
    result.targets.append(Target("worst over NumPy", min(over_numpy, default=0.0), 1.0))
    return result
