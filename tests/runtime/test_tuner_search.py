"""The tuner's decisions under a simulated clock: noise, drift, bursts, shifts. Nothing here is timed."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable

import pytest

from morpho.runtime.tuner.search import ERROR, MARGIN, Found, Search
from morpho.runtime.tuner.sequential import Bet, Duel, Ration, Watch


class Machine:
    """Ways with true costs, seen through noise; `now_s` is the simulated time."""

    def __init__(self, seed: int, costs: dict[int, float], noise: float = 0.05, drift: float = 0.0,
                 bursts: float = 0.0) -> None:
        self.random, self.costs = random.Random(f"machine {seed}"), costs
        self.noise, self.drift, self.bursts = noise, drift, bursts
        self.now_s, self.speed, self.samples = 0.0, 1.0, 0

    def time(self, way: int) -> float:
        self.speed *= math.exp(self.random.gauss(0.0, self.drift))
        seconds = self.costs[way] * self.speed * math.exp(self.random.gauss(0.0, self.noise))
        if self.random.random() < self.bursts:  # another process, for a while
            seconds *= self.random.uniform(1.0, 10.0)
        self.now_s += seconds
        self.samples += 1
        return seconds

    def search(self, seed: int, is_over: Callable[[], bool] = lambda: False) -> Found[int]:
        return Search(0, lambda way: [other for other in self.costs if other != way], self.time, is_over,
                      seed=seed).run()


def drawn_costs(seed: int, spread: float, ways: int = 10) -> dict[int, float]:
    generator = random.Random(f"costs {seed}")
    return {0: 1.0, **{way: math.exp(generator.gauss(0.0, spread)) for way in range(1, ways)}}


NOISE = [dict(noise=0.01), dict(noise=0.05, drift=0.002), dict(noise=0.10, bursts=0.1), dict(noise=0.3, drift=0.01)]


@pytest.mark.parametrize("kind", range(len(NOISE)))
def test_it_never_ends_slower_and_is_near_the_best(kind: int) -> None:
    """A thousand searches in all: none ends with a way slower than the default, and over the sampled spaces the ways
    they end with are within 5 % of exhaustive search."""
    losses, slower = [], 0
    for seed in range(250):
        costs = drawn_costs(1000 * kind + seed, 0.15)
        found = Machine(seed, costs, **NOISE[kind]).search(seed)
        slower += costs[found.way] > 1.0
        losses.append(costs[found.way] / min(costs.values()))
        assert found.way == 0 or found.gain > 1.0 + MARGIN
    assert slower == 0
    if NOISE[kind]["noise"] <= 0.1:  # beyond, it rather stays with the default
        assert statistics.geometric_mean(losses) <= 1.05


def test_equal_ways_are_not_switched_to() -> None:
    """All ways alike, or a little better than the default but by less than the margin."""
    for gain in (1.0, 0.97, 1.05):
        costs = {0: 1.0, **dict.fromkeys(range(1, 10), gain)}
        switched = sum(Machine(seed, costs, noise=0.15, bursts=0.05).search(seed).way != 0 for seed in range(300))
        assert switched <= 300 * ERROR


def test_a_clear_winner_is_found_with_few_samples() -> None:
    costs = {0: 1.0, 1: 0.7, 2: 1.3, 3: 1.01, 4: 2.0, 5: 0.99}
    machines = [Machine(seed, costs, noise=0.03) for seed in range(50)]
    assert all(machine.search(seed).way == 1 for seed, machine in enumerate(machines))
    assert statistics.median(machine.samples for machine in machines) < 250


def test_steps_lead_to_a_combination() -> None:
    """Two knobs that gain 12 % each are both turned: neighbours of the new holder challenge it."""
    def neighbours(way: int) -> list[int]:
        return [way ^ 1, way ^ 2]

    costs = {0: 1.0, 1: 0.88, 2: 0.88, 3: 0.77}
    machine = Machine(7, costs, noise=0.02)
    found = Search(0, neighbours, machine.time, seed=7).run()
    assert found.way == 3 and len(found.steps) == 2


def test_a_way_that_only_looks_fast_while_it_is_chosen_is_not_kept() -> None:
    """An adversary makes a challenger fast until it has won its duel: the last pairs are new ones, and it loses."""
    for seed in range(50):
        machine = Machine(seed, {0: 1.0, 1: 0.5}, noise=0.02)

        def neighbours(way: int, machine: Machine = machine) -> list[int]:
            if way == 1:
                machine.costs[1] = 1.2  # it is the holder now
            return [1 - way]

        assert Search(0, neighbours, machine.time, seed=seed).run().way == 0


def test_the_time_box_is_kept() -> None:
    for seed in range(100):
        machine = Machine(seed, drawn_costs(seed, 0.2), noise=0.1)
        box_s = 5.0 + seed % 40
        machine.search(seed, lambda machine=machine, box_s=box_s: machine.now_s >= box_s)
        assert machine.now_s <= box_s + 4 * sum(machine.costs.values())  # the round that was on its way


def test_clocks_that_stand_still_or_go_back_say_nothing() -> None:
    duel, watch = Duel(0.1, 0.01), Watch()
    for pair in ((0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, math.inf)):
        duel.feed(*pair)
        watch.feed(*pair)
    assert duel.pairs == watch.pairs == 0 and duel.gain == 1.0


def test_a_bet_is_wrong_no_more_often_than_it_says() -> None:
    """Fair coins, looked at after every toss, 400 tosses each."""
    generator = random.Random(11)
    wrong = 0
    for _ in range(2000):
        bet = Bet(0.05)
        for _ in range(400):
            bet.see(generator.random() < 0.5)
        wrong += bet.is_sure
    assert wrong <= 2000 * 0.05


def test_a_choice_that_became_slower_is_rolled_back() -> None:
    """It was 20 % faster for 500 pairs, then takes 1.3 times as long: it goes within 150 pairs."""
    late = []
    for seed in range(200):
        machine, watch = Machine(seed, {0: 1.0, 1: 0.8}, noise=0.05), Watch()
        for pair in range(1000):
            if pair == 500:
                assert not watch.rolls_back
                machine.costs[1] = 1.3
            watch.feed(machine.time(0), machine.time(1))
            if watch.rolls_back:
                late.append(pair - 500)
                break
    assert len(late) == 200 and max(late) <= 150


def test_a_choice_that_is_as_good_as_ever_stays() -> None:
    gone = 0
    for seed in range(200):
        machine, watch = Machine(seed, {0: 1.0, 1: 1.0}, noise=0.1, drift=0.005, bursts=0.05), Watch()
        for _ in range(500):
            watch.feed(machine.time(0), machine.time(1))
        gone += watch.rolls_back
    assert gone <= 200 * 0.02


def test_exploring_takes_no_more_than_its_share() -> None:
    """Work of drawn length, some ten times what it was thought to take: at the end of every wait the share is kept."""
    generator = random.Random(5)
    ration, now_s = Ration(0.01, started_s=3.0), 3.0
    for _ in range(2000):
        thought_s = generator.uniform(0.0, 0.1)
        now_s += ration.waits_s(now_s, thought_s)
        assert ration.may_spend(now_s + 1e-9, thought_s)
        took_s = thought_s * generator.choice([0.1, 1.0, 1.0, 10.0])
        assert ration.spent_s + thought_s <= 0.01 * (now_s - 3.0) + 1e-9
        now_s += took_s
        ration.spend(took_s)
    now_s += ration.waits_s(now_s, 0.0)
    assert ration.spent_s <= 0.01 * (now_s - 3.0) + 1e-9
