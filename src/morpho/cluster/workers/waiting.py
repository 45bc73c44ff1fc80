"""The queue of a stage: tokens of running texts, of which several go through in one call, and pieces of prompts.

They take turns, so that a long prompt holds up the texts that run by one piece at a time.

>>> waiting = Waiting()
>>> for number, position, count in ((1, 0, 128), (1, 128, 1), (2, 40, 1), (3, 9, 1)):
...     waiting.put(Piece(number, np.zeros((1, count), np.int64), position, True))
>>> [[(piece.number, piece.position) for piece in waiting.take(most=4)] for _ in range(3)], bool(waiting)
([[(2, 40), (3, 9)], [(1, 0)], [(1, 128)]], False)
"""

from __future__ import annotations

from collections import Counter, deque
from typing import NamedTuple

import numpy as np

from morpho.cluster.transport.frame import Kind


class Piece(NamedTuple):
    """Tokens of a request, (1, n), or what the stages before made of them, (1, n, width)."""

    number: int
    x: np.ndarray
    position: int
    final: bool
    kind: Kind = Kind.ACTIVATION


class Waiting:
    """The work of a stage, in the order in which it came; pieces of one request never overtake each other."""

    def __init__(self) -> None:
        self.tokens: deque[Piece] = deque()
        self.pieces: deque[Piece] = deque()
        self._reading: Counter[int] = Counter()  # pieces of each request that wait
        self._prompts_turn = False

    def __bool__(self) -> bool:
        return bool(self.tokens or self.pieces)

    def put(self, piece: Piece) -> None:
        """More work."""
        single = piece.x.shape[1] == 1 and piece.position > 0 and piece.kind == Kind.ACTIVATION
        if single and not self._reading[piece.number]:
            self.tokens.append(piece)
        else:
            self.pieces.append(piece)
            self._reading[piece.number] += 1

    def take(self, most: int) -> list[Piece]:
        """Take the next work: tokens of different requests up to a limit, or a piece of a prompt."""
        if self.tokens and not (self.pieces and self._prompts_turn):
            self._prompts_turn = True
            return [self.tokens.popleft() for _ in range(min(most, len(self.tokens)))]
        self._prompts_turn = False
        piece = self.pieces.popleft()
        self._reading[piece.number] -= 1
        if not self._reading[piece.number]:
            del self._reading[piece.number]
        return [piece]
