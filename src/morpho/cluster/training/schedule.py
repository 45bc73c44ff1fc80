"""The order of micro-batches on a stage of pipeline parallel training: one forward, one backward (1F1B).

A stage runs as many forward passes ahead as there are stages behind it, then a backward after every forward, and in the
end the backwards that are left: it keeps the activations of at most that many micro-batches, however many there are.
"""

from __future__ import annotations

from typing import NamedTuple

from morpho.base.errors import ArgumentError, fail


class Turn(NamedTuple):
    """One thing a stage does: a forward or a backward pass of a micro-batch."""

    forward: bool
    batch: int


def one_forward_one_backward(stage: int, stages: int, batches: int) -> list[Turn]:
    """The turns of a stage.

    >>> " ".join(f"{'FB'[not turn.forward]}{turn.batch}" for turn in one_forward_one_backward(0, 2, 3))
    'F0 F1 B0 F2 B1 B2'
    >>> " ".join(f"{'FB'[not turn.forward]}{turn.batch}" for turn in one_forward_one_backward(1, 2, 3))
    'F0 B0 F1 B1 F2 B2'
    """
    if not 0 <= stage < stages or batches < 1:
        raise fail(ArgumentError, "pipeline", f"stage {stage} of {stages} with {batches} micro-batches is not possible")
    ahead = min(stages - stage - 1, batches)
    turns = [Turn(True, batch) for batch in range(ahead)]
    for batch in range(ahead, batches):
        turns += [Turn(True, batch), Turn(False, batch - ahead)]
    return turns + [Turn(False, batch) for batch in range(batches - ahead, batches)]


def most_kept(turns: list[Turn]) -> int:
    """Micro-batches whose activations are kept at once, at most.

    >>> most_kept(one_forward_one_backward(0, 4, 100))
    4
    """
    kept = most = 0
    for turn in turns:
        kept += 1 if turn.forward else -1
        most = max(most, kept)
    return most
