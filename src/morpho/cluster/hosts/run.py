"""A pipeline over other machines: the hosts file, the cluster file, the plan for both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from morpho.base.errors import ArgumentError, fail
from morpho.cluster.frontend.local import card_of
from morpho.cluster.frontend.pipeline import Pipeline
from morpho.cluster.hosts.file import HostFile, read_hosts
from morpho.cluster.hosts.reaching import check_reachable, is_here, is_reachable
from morpho.cluster.launch.secret import check_file
from morpho.plan import Cluster, Plan, solve

RESTARTS = 3  # of all workers, after a machine was lost


def host_pipeline(place: Path, hosts_path: Path, plan: Plan | None = None, show: Callable[[Plan], None] | None = None,
                  **more: Any) -> Pipeline:
    """A worker on every host. All that can be wrong with the files is said, and the plan shown, before anything
    starts."""
    hosts = read_hosts(hosts_path)
    plan = plan or host_plan(place, hosts)
    check_plan(plan, hosts)
    check_secret(hosts)
    if show is not None:
        show(plan)
    check_reachable([(host.name, host.address) for host in hosts.hosts], hosts.agent)
    return Pipeline(place, plan, hosts=hosts.launch(), secret=hosts.secret,
                    models={host.name: host.model for host in hosts.hosts if host.model}, ship=hosts.ship,
                    reachable=lambda name: is_reachable(next(host.address for host in hosts.hosts if host.name == name),
                                                        hosts.agent), **{"restarts": RESTARTS, **more})


def host_plan(place: Path, hosts: HostFile) -> Plan:
    """The best plan for the cluster file that belongs to the hosts."""
    if not hosts.cluster.exists():
        raise fail(ArgumentError, "hosts", f"{hosts.cluster} is not there, and a plan needs the figures of the nodes",
                   f"measure them: morpho cluster measure --hosts {hosts.path}")
    return solve(card_of(place), Cluster.load(hosts.cluster))


def check_plan(plan: Plan, hosts: HostFile) -> None:
    """A plan for other machines is not run on these."""
    planned, there = [node.name for node in plan.cluster.nodes], [host.name for host in hosts.hosts]
    if planned != there:
        raise fail(ArgumentError, "hosts", f"the plan is for {', '.join(planned)}, and {hosts.path} has "
                                           f"{', '.join(there)}", "name the same nodes in the same order")


def check_secret(hosts: HostFile) -> None:
    """Workers on other machines show that they know a secret before a weight or a token moves: there must be one."""
    if hosts.secret is None and not all(is_here(host.address) for host in hosts.hosts):
        raise fail(ArgumentError, "hosts", f"{hosts.path} names no secret, which workers on other machines must show",
                   'add secret = "FILE", a file of random letters that every host has and only you can read')
    if hosts.secret is not None:
        check_file(hosts.secret)
