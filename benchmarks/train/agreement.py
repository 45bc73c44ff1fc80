"""What several peers answered to one case must be the same; and whether a slow one can afford the full size."""

from __future__ import annotations

import math

from benchmarks.harness.results import ThemeResult
from benchmarks.harness.rounds import Timing
from benchmarks.harness.session import Session

PATIENCE_S = 20.0  # a call that would take longer is not worth waiting for


def same_losses(result: ThemeResult, name: str, timings: dict[str, Timing], allowed: float) -> None:
    """An error where the losses of the first two steps differ from Morpho's by more than a share."""
    own = timings["morpho"].answer if "morpho" in timings else None
    for peer, timing in timings.items():
        if not own or not timing.answer:
            continue
        if not all(math.isclose(a, b, rel_tol=allowed) for a, b in zip(own, timing.answer, strict=True)):
            result.errors.append(f"{name}: the losses {timing.answer} of {peer} are not Morpho's {own}")


def too_long(result: ThemeResult, name: str, timings: dict[str, Timing], peer: str, times_larger: float) -> bool:
    """Whether a peer's time at a small size says that the full one would take too long; a note says so."""
    timing = timings.get(peer)
    if timing is None or timing.seconds is None:
        return False
    expected = timing.seconds * times_larger
    if expected > PATIENCE_S:
        result.notes.append(f"{name}: a call of {peer} would take about {expected:.0f} s at the full size, where it is "
                            f"left out; the ratio is that of the small size")
    return expected > PATIENCE_S


def why_missing(session: Session, peer: str) -> str | None:
    """Why a peer has no figure: it is not installed, or does not work here."""
    if peer not in session.modules:
        return "not asked for"
    return session.missing.get(peer)
