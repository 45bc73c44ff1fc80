"""Prompt lookup: guesses of the next tokens, from where the last few of them occurred before.

Guesses are checked by computing all of them at once, and a token is what is chosen from its logits, whether it was
guessed or not: the text does not depend on them, only the number of steps it takes.
"""

from __future__ import annotations

LONGEST, SHORTEST = 4, 2  # tokens that must have occurred before


class PromptLookup:
    """Remembers where every few tokens of a growing text occurred last.

    >>> from morpho.serve.engine.lookup import PromptLookup
    >>> PromptLookup().guess([1, 2, 3, 4, 5, 1, 2, 3], 2)
    [4, 5]
    """

    def __init__(self) -> None:
        self._after: dict[tuple[int, ...], int] = {}  # tokens -> the position after their last but one place
        self._known = 0

    def guess(self, tokens: list[int], most: int) -> list[int]:
        """At most so many tokens that followed when the text's last tokens occurred before."""
        for end in range(max(self._known, SHORTEST), len(tokens)):  # all that end before the last token
            for size in range(SHORTEST, LONGEST + 1):
                if end >= size:
                    self._after[tuple(tokens[end - size:end])] = end
        self._known = max(self._known, len(tokens))
        for size in range(LONGEST, SHORTEST - 1, -1):
            place = self._after.get(tuple(tokens[-size:])) if len(tokens) > size else None
            if place is not None:
                return tokens[place:place + most]
        return []
