"""Jobs of the fleet as the manager tells of them, with what programs say of theirs."""

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cwdp.shared.bus.records import packed_address
from manager.hosts.members import Members
from manager.jobs.steps import finish
from manager.jobs.watch import JobWatch
from manager.jobs.windows import SHORT
from manager.queue_pairs.traffic import Traffic
from manager.queue_pairs.verbs import VerbsQp
from manager.view import iteration_views
from tools.sim.jobs.world import EPOCH_NS, World, ends_of, job, named, play

NOW_NS = EPOCH_NS + SHORT.length_ns + 10**9
ENDS = ends_of([(f"h{i}", f"nic{j}") for i in range(1, 5) for j in range(2)])


@pytest.fixture(scope="module")
def world() -> World:
    """One job on two rails of four hosts, a ring on each, one after the other's rhythm."""
    rails = [[f"h{i}/nic{j}" for i in range(1, 5)] for j in range(2)]
    plans = [job(ENDS, "ring", rail, 300, jitter=0.03, seed=1 + j) for j, rail in enumerate(rails)]
    return play(plans, ENDS, 32)


def told_of(
    world: World, verbs: list[tuple[tuple[str, str], tuple[bytes, int], VerbsQp]], name: str = ""
) -> Any:
    traffic = SimpleNamespace(
        timeline_ns=lambda _now_s: NOW_NS,
        bursts=SimpleNamespace(now=lambda: world.rings),
        verbs=SimpleNamespace(each=lambda: verbs),
    )
    members = SimpleNamespace(nics_by_packed_address=world.owners)
    watch = JobWatch(cast(Traffic, traffic), cast(Members, members), lambda _now_ns: None)
    infer = watch.due(0.0)
    assert infer is not None
    watch.take(finish(infer))
    return iteration_views.jobs(watch.jobs, name)


def of_processes(world: World, job_name: str) -> Iterator[tuple[tuple[str, str], tuple[bytes, int], VerbsQp]]:
    """What the shim tells: one process a host, which has both rails; each end by its own and by the far QPN."""
    settings: dict[str, Any] = {
        "actuator": "tc",
        "program": "train",
        "cgroup": "",
        "by_table": False,
        "refused": False,
    }
    for flows in world.jobs:
        into = {src: qpn for src, _, qpn in flows}
        for src, dst, qpn in flows:
            addr = packed_address(str(ENDS[dst].address))
            own = next(number for far, here, number in flows if here == src)
            yield named(src), (addr, qpn), VerbsQp(lqpn=own, pid=int(src[1]), job=job_name, **settings)
            back = packed_address(str(ENDS[src].address))
            yield (
                named(dst),
                (back, 1 + qpn),
                VerbsQp(lqpn=into[src], pid=int(dst[1]), job=job_name, **settings),
            )


def test_rails_are_two_jobs_as_far_as_traffic_tells(world: World) -> None:
    answer = told_of(world, [])
    assert sorted(row["name"] for row in answer["jobs"]) == ["h1", "h1#2"]
    json.dumps(answer)
    assert answer["job_count"] == 2
    assert all(row["is_inferred"] and row["kinds"] == ["ring"] and row["nics"] == 4 for row in answer["jobs"])


def test_processes_make_one_of_them(world: World) -> None:
    (row,) = told_of(world, list(of_processes(world, "slurm 7")), "slurm 7")["jobs"]
    json.dumps(row)
    assert (row["is_inferred"], row["confidence"], row["nics"]) == (False, 1.0, 8)
    assert row["processes"] == [{"host": f"h{i}", "pid": i, "job": "slurm 7"} for i in range(1, 5)]
    assert [one["kind"] for one in row["communicators"]] == ["ring", "ring"]
    assert {one["nic"] for one in row["ranks"]} == set(ENDS)
    assert [one["name"] for one in told_of(world, list(of_processes(world, "")))["jobs"]] == ["h1"]


def test_processes_of_some_hosts_leave_it_inferred(world: World) -> None:
    known = [each for each in of_processes(world, "slurm 7") if each[2].pid != 4]
    (row,) = told_of(world, known, "slurm 7")["jobs"]
    assert {one["host"] for one in row["processes"]} == {"h1", "h2", "h3"}
    assert any(one["nic"].startswith("h4/") for one in row["ranks"])
    assert row["is_inferred"]


def test_where_nothing_is_told_there_is_none() -> None:
    traffic = SimpleNamespace(timeline_ns=lambda _now_s: None)
    watch = JobWatch(cast(Traffic, traffic), cast(Members, None), lambda _now_ns: None)
    assert watch.due(0.0) is None
    traffic.timeline_ns = lambda _now_s: NOW_NS
    traffic.bursts = SimpleNamespace(now=dict)
    assert watch.due(0.0) is None
    assert iteration_views.jobs(watch.jobs) == {"job_count": 0, "jobs": []}
    assert iteration_views.jobs(watch.jobs, "h1") is None
