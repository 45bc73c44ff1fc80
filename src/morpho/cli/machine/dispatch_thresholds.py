"""`morpho doctor --measure`: where one way of computing products becomes faster than another, measured and kept."""

from __future__ import annotations

from morpho.base import settings
from morpho.base.target import current_isa
from morpho.base.units import format_bytes, format_seconds
from morpho.cost.dispatch_thresholds import DEFAULT, MOST, DispatchThresholds, defaults_for
from morpho.tensor.tools.measure_thresholds import Check, check_auto, measure_thresholds

MOST_SLOWER = 1.05  # what `auto` promises against the best of the kernels it chooses among


def show() -> None:
    """Measure, keep, and print what was found beside the defaults, and how `auto` does with it."""
    print("measuring products; this takes about half a minute and wants a machine that is otherwise idle")
    found = measure_thresholds()
    for name, here, default in rows(found, defaults_for(current_isa().vector_bits)):
        print(f"  {name:52} {here:>16}   (default {default})")
    print("auto against the best kernel of the same bits")
    for check in check_auto(found):
        print("  " + check_line(check))
    kept = settings.get().cache_path / "profile.json" if settings.get().cache else "nowhere: MORPHO_CACHE=0"
    print(f"kept: {kept}")


def rows(found: DispatchThresholds, default: DispatchThresholds = DEFAULT) -> list[tuple[str, str, str]]:
    """Name, value here, default.

    >>> rows(DEFAULT)[2]
    ('rows up to which k runs in one block', '32', '32')
    """
    here, there = _texts(found), _texts(default)
    return [(name, here[name], there[name]) for name in here]


def _texts(found: DispatchThresholds) -> dict[str, str]:
    plain, transposed = (", ".join("any size" if limit == MOST else format_bytes(limit) for limit in limits) or "none"
                      for limits in (found.unpacked_bytes, found.unpacked_transposed_bytes))
    return {
        "right operand read unpacked, for 1, 2, ... rows": plain,
        "transposed right operand, likewise": transposed,
        "rows up to which k runs in one block": str(found.single_k_block_rows),
        "multiply-adds from which threads share a product": str(found.parallel_macs),
        "fast: least size for BLAS": str(found.blas_size or "never"),
        "fast: least size for Strassen": str(found.strassen_size or "never"),
        "operations per second of contractions": f"{found.rates.flops_per_s:.3g}",
        "bytes per second of contractions": f"{found.rates.bytes_per_s:.3g}",
        "a further contraction": format_seconds(found.rates.overhead_s),
    }


def check_line(check: Check) -> str:
    """One product as a line.

    >>> check_line(Check((8, 8, 8), 1e-6, 1e-6, "kernel, packed"))
    '8 x 8 x 8             1 us   best         1 us (kernel, packed)  1.00x'
    """
    ratio = check.auto_s / check.best_s
    shape = " x ".join(str(size) for size in check.shape)
    late = "" if ratio <= MOST_SLOWER else "  slower than promised: measure again on a quiet machine"
    return (f"{shape:16} {format_seconds(check.auto_s):>9}   best {format_seconds(check.best_s):>12} ({check.best})"
            f"  {ratio:.2f}x{late}")
