"""Functions with states and captured tensors, called again and again, against NumPy."""

from __future__ import annotations

from repeated_calls import CALLS, Caller, random_function, run_calls


def test_repeated_calls(session_seed: int) -> None:
    """`python benchmarks/fuzz.py --kind calls` runs as many as you like."""
    for number in range(3):
        run_calls(session_seed % 100_000 + number)


def test_calls_are_native_and_of_every_kind() -> None:
    """What is looked at is what it is for: the native entry, and results in the memory of arguments."""
    native = targets = 0
    for seed in range(3):
        caller = Caller(random_function(seed))
        for number in range(2 * CALLS):
            caller.call(number)
        native, targets = native + caller.function.native_calls, targets + caller.targets
    assert native > CALLS and targets > 0
