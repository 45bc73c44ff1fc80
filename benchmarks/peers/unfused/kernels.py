"""Morpho with every operation a kernel of its own: what fusing is worth. A process of its own, since settings stay."""

from __future__ import annotations

from contextlib import ExitStack

import morpho as mo
from benchmarks.peers.morpho import kernels as morpho_peer

CASES_MODULE = morpho_peer.CASES_MODULE
prepare, to_numpy, why_not = morpho_peer.prepare, morpho_peer.to_numpy, morpho_peer.why_not
FOR_LIFE = ExitStack()


def load(threads: int) -> dict[str, str]:
    """Switch the passes off for the life of the process."""
    FOR_LIFE.enter_context(mo.settings(passes_off="epilogue,fuse"))
    return morpho_peer.load(threads)
