"""Unequal machines on this one: a network namespace for each node of a cluster, links with the bandwidths of its file.

    with Emulator(plan.Cluster.load("office.toml")) as machines:
        Pipeline(folder, plan, hosts=machines.hosts, threads=1)

Nodes are joined by a bridge; what leaves a node is held to its slowest link's bandwidth by `tc tbf` (latency, which tbf
cannot give, is the transport's shim's). A node has a core, or the share of one that its speed is of the fastest node's,
where the kernel lets us make control groups (`why_no_shares`). Ranks are started by an agent that enters both. All of
it is deleted afterwards. `Emulator.refusal()` says why a kernel does not allow it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import core_shares

from morpho.cluster.launch.mpiexec import Hosts
from morpho.plan import Cluster

NETWORK = "10.213.77"
BURST_BYTES = 32 << 10
AGENT = """#!/bin/sh
# called as ssh is: options, a host, a command
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
for group in {groups}; do case $group in *n${{host##*.}}) echo $$ > $group/cgroup.procs;; esac; done
exec ip netns exec {prefix}${{host##*.}} sh -c "$*"
"""


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


class Emulator:
    """Namespaces, made and deleted; `hosts` is what a launcher needs."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.prefix = cluster, f"mo{os.getpid() % 10000}n"
        self.bridge = f"mo{os.getpid() % 10000}b"
        self._folder = Path(tempfile.mkdtemp(prefix="morpho-emulator-"))
        self.groups: list[Path] = []  # of control, one for each node
        self.why_no_shares = ""

    @staticmethod
    def refusal() -> str:
        """Why there can be no namespaces here; empty where there can."""
        if os.geteuid() != 0:
            return "network namespaces need root"
        if not shutil.which("ip") or not shutil.which("tc"):
            return "there is no ip or no tc (iproute2)"
        probe = f"mo{os.getpid() % 10000}p"
        try:
            _run("ip", "netns", "add", probe)
            _run("ip", "link", "add", f"{probe}l", "type", "veth", "peer", "name", f"{probe}r")
            _run("tc", "qdisc", "add", "dev", f"{probe}l", "root", "tbf", "rate", "1mbit", "burst", "32kbit", "limit",
                 "30000")
        except subprocess.CalledProcessError as error:
            return f"the kernel refuses: {error.stderr.strip().splitlines()[-1:] or error}"
        finally:
            subprocess.run(["ip", "link", "del", f"{probe}l"], capture_output=True, check=False)
            subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
        return ""

    @property
    def hosts(self) -> Hosts:
        """Where ranks go, a node each in the order of the cluster."""
        slots = tuple((f"{NETWORK}.{number}", 1) for number in range(1, len(self.cluster.nodes) + 1))
        return Hosts(slots, str(self._folder / "agent"), (f"{NETWORK}.0/24",))

    def __enter__(self) -> Emulator:
        agent = self._folder / "agent"
        self._share_cores()
        agent.write_text(AGENT.replace("{prefix}", self.prefix).replace("{groups}", " ".join(map(str, self.groups)))
                         .replace("{{", "{").replace("}}", "}"))
        agent.chmod(0o755)
        try:
            _run("ip", "link", "add", self.bridge, "type", "bridge")
            _run("ip", "addr", "add", f"{NETWORK}.254/24", "dev", self.bridge)
            _run("ip", "link", "set", self.bridge, "up")
            for number in range(1, len(self.cluster.nodes) + 1):
                self._node(number)
        except BaseException:
            self.close()
            raise
        return self

    def _share_cores(self) -> None:
        speeds = [max(node.flops_per_s.values()) for node in self.cluster.nodes]
        try:
            for number, speed in enumerate(speeds, 1):
                self.groups.append(core_shares.make(f"{self.prefix}{number}", speed / max(speeds)))
        except OSError as error:
            self.why_no_shares = f"no share of a core: {error}"

    def shares(self, processes: list[int]) -> list[float]:
        """Of a core, those of processes, each of which is in a group."""
        return [core_shares.share(next(each for each in self.groups if core_shares.holds(each, process)))
                for process in processes]

    def _node(self, number: int) -> None:
        name, out = f"{self.prefix}{number}", f"{self.prefix}{number}v"
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", out, "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", out, "master", self.bridge, "up")
        inside = ("ip", "netns", "exec", name)
        _run(*inside, "ip", "addr", "add", f"{NETWORK}.{number}/24", "dev", "eth0")
        _run(*inside, "ip", "link", "set", "eth0", "up")
        _run(*inside, "ip", "link", "set", "lo", "up")
        rates = [rate for other, rate in enumerate(self.cluster.bandwidth_bytes_per_s[number - 1])
                 if other != number - 1 and rate > 0]
        if rates:
            _run(*inside, "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", f"{int(min(rates) * 8)}bit",
                 "burst", str(BURST_BYTES), "limit", str(64 * BURST_BYTES))

    def close(self) -> None:
        """Delete everything."""
        for number in range(1, len(self.cluster.nodes) + 1):
            subprocess.run(["ip", "netns", "del", f"{self.prefix}{number}"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)
        for group in self.groups:
            self._remove(group)
        shutil.rmtree(self._folder, ignore_errors=True)

    @staticmethod
    def _remove(group: Path) -> None:
        """A group, once its last process is gone."""
        for _ in range(200):
            try:
                return group.rmdir()
            except FileNotFoundError:
                return None
            except OSError:
                time.sleep(0.05)
        raise AssertionError(f"{group} has processes that do not end")

    def __exit__(self, *exception: object) -> None:
        self.close()
