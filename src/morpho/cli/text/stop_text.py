"""Text up to a stop text, as it is made: what may be the beginning of one waits until the next piece decides."""

from __future__ import annotations

from collections.abc import Sequence

from morpho.base.errors import ArgumentError, fail


class StopText:
    """Lets text through until one of `stops` is complete; that one, and what follows it, is not shown.

    >>> stop = StopText(["END"])
    >>> stop.push("so it E"), stop.push("ven"), stop.push(" E"), stop.push("ND."), stop.found
    ('so it ', 'Even', ' ', '', True)
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise fail(ArgumentError, "run", "an empty text cannot be stopped at", "leave out --stop")
        self.stops, self.found, self._held = tuple(stops), False, ""

    def push(self, text: str) -> str:
        """Add text and return the part that can be shown."""
        self._held += text
        places = [place for stop in self.stops if (place := self._held.find(stop)) >= 0]
        self.found = self.found or bool(places)
        if places:
            shown, self._held = self._held[:min(places)], ""
            return shown
        kept = self._beginning()
        shown, self._held = self._held[:len(self._held) - kept], self._held[len(self._held) - kept:]
        return shown

    def finish(self) -> str:
        """Return text that was held back and is no stop string."""
        rest, self._held = self._held, ""
        return rest

    def _beginning(self) -> int:
        """How long the end of the text is that a stop text begins with."""
        longest = max(map(len, self.stops), default=0)
        return next((length for length in range(min(longest - 1, len(self._held)), 0, -1)
                     if any(stop.startswith(self._held[-length:]) for stop in self.stops)), 0)
