"""The peers of a run: started when first needed, restarted after a crash, missing ones remembered."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.harness.client import PeerError, PeerProcess
from benchmarks.harness.kept import Kept, key_of
from benchmarks.harness.rounds import Entry, Pace, Timing, measure

INSTALL = "pip install -e '.[bench]'"


class Session:
    """Holds one process per peer and measures cases on them."""

    def __init__(self, modules: dict[str, str], threads: int = 2, quick: bool = False, pace: Pace | None = None,
                 extra_environment: dict[str, str] | None = None, count: int = 0, kept: Kept | None = None) -> None:
        self.modules = modules
        self.threads = threads
        self.quick = quick
        self.count = count  # times that a theme does its thing again and again; 0: as many as it says
        self.pace = pace or Pace(rounds=5 if quick else 15)
        self.kept = kept or Kept()
        self.extra_environment = extra_environment
        self.processes: dict[str, PeerProcess] = {}
        self.missing: dict[str, str] = {}
        self.versions: dict[str, dict[str, str]] = {}

    def worker(self, name: str) -> PeerProcess | None:
        """The running process of a peer, None when the peer is missing or was not asked for."""
        if name not in self.modules or name in self.missing:
            return None
        process = self.processes.get(name)
        if process is not None and process.process.poll() is None:
            return process
        process = PeerProcess(name, self.modules[name], self.threads, extra_environment=self.extra_environment)
        try:
            reply = process.ask("load")
        except PeerError as error:
            reply = {"missing": str(error)}
        if "missing" in reply:
            self.missing[name] = reply["missing"]
            process.close()
            return None
        self.processes[name], self.versions[name] = process, reply["versions"]
        return process

    def measure(self, case: str, shape: tuple[int, ...], peers: list[str], rounds: int | None = None
                ) -> dict[str, Timing]:
        """Time a case on those peers that are here; timings by the peer's name."""
        return self.measure_mixed({peer: (peer, case) for peer in peers}, shape, rounds)

    def measure_mixed(self, labels: dict[str, tuple[str, str]], shape: tuple[int, ...], rounds: int | None = None,
                      shapes: dict[str, tuple[int, ...]] | None = None) -> dict[str, Timing]:
        """Time several (peer, case) pairs in the same alternating rounds; timings by label.

        ``shapes`` has those of cases that differ from ``shape``. A case that is kept from an earlier run is
        not measured again, and one for which no time is left has no timings.
        """
        key = key_of(labels, shape, shapes, self.threads, self.quick)
        known = self.kept.get(key)
        if known is not None:
            return known
        entries = [Entry(label, worker, case, (shapes or {}).get(case)) for label, (peer, case) in labels.items()
                   if (worker := self.worker(peer)) is not None]
        found = measure(entries, shape, replace(self.pace, rounds=min(rounds or self.pace.rounds, self.pace.rounds)))
        self.kept.add(key, found)
        return found

    def why_not(self, peer: str, case: str) -> str | None:
        """Why a peer that is here cannot do a case; None when it can, or is not here at all."""
        worker = self.worker(peer)
        return worker.ask("why_not", case=case)["reason"] if worker else None

    def missing_lines(self) -> list[str]:
        """One line per missing peer: why, and how to get it."""
        return [f"missing: {name} ({reason}); {INSTALL}" for name, reason in self.missing.items()]

    def waiting_cpu_shares(self) -> dict[str, float]:
        """The CPU each peer used while it waited, as a share of the waiting time."""
        return {name: process.waiting_cpu_share for name, process in self.processes.items()}

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            process.close()
        self.processes.clear()
