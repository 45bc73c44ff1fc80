"""Schedulers of tasks for the tests of this floor."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from morpho.tensor.tools.tasks import Scheduler


@pytest.fixture(params=[1, 2, 4])
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    with Scheduler(request.param) as made:
        yield made


@pytest.fixture
def two() -> Iterator[Scheduler]:
    with Scheduler(2) as made:
        yield made


@pytest.fixture
def one() -> Iterator[Scheduler]:
    with Scheduler(1) as made:
        yield made
