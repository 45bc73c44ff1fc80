"""Properties that are computed once and kept, without a lock."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from morpho.base.python.lazy import cached_property


@dataclass(frozen=True)
class Square:
    side: int

    @cached_property
    def area(self) -> list[int]:
        """Side times side."""
        return [self.side ** 2]


def test_it_is_computed_once_per_object() -> None:
    one, other = Square(3), Square(4)
    assert one.area == [9] and one.area is one.area and other.area == [16]
    assert Square.area.__doc__ == "Side times side."


def test_another_thread_does_not_wait() -> None:
    """One that hangs in the property of an object must not hold up another object's."""
    go_on = threading.Event()

    class Slow:
        waits = True

        @cached_property
        def value(self) -> int:
            if self.waits:
                assert go_on.wait(60)
            return 1

    slow, quick = Slow(), Slow()
    quick.waits = False
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    found = quick.value
    go_on.set()
    thread.join()
    assert found == 1 and slow.value == 1
