"""Collectives: what their steps send, that no rank waits in vain, and the mathematics of their times."""

from collections import Counter
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cwdp.errors import ConfigError
from tools.lab.topology import LabSpec, Topology
from tools.roce.collective.plan import (
    Communicator,
    Plan,
    job_communicators,
    plan_collective,
    rank_ends,
)
from tools.roce.collective.rank import Stall
from tools.roce.collective.results import collective_result, spread
from tools.roce.collective.steps import COLLECTIVES, MICROBATCHES
from tools.roce.flows import Endpoint

MS_NS = 1_000_000

members = st.integers(2, 17)
collectives = st.sampled_from(list(COLLECTIVES))


def ends(count: int) -> dict[str, Endpoint]:
    return {f"h{host}/nic0": Endpoint(f"h{host}", ip_address("10.1.0.0") + host) for host in range(count)}


def plan_of(collective: str, count: int, **settings: Any) -> Plan:
    made = Communicator(
        name="all",
        collective=collective,
        ranks=tuple(ends(count)),
        buffer_bytes=1_000_000,
        compute_ns=100 * MS_NS,
    )
    return plan_collective(ends(count), [made], **settings)


def simulate(plan: Plan, iterations: int) -> Counter[int]:
    """Have every rank do its steps, each as soon as its inputs are there; return the messages posted to each flow.

    Fails where some rank never comes to its end.
    """
    posted: Counter[int] = Counter()
    used: Counter[int] = Counter()
    left = {rank.id: list(rank.steps) * iterations for rank in plan.ranks}
    moved = True
    while moved:
        moved = False
        for steps in left.values():
            while steps and all(posted[flow] > used[flow] for flow in steps[0].inputs):
                used.update(steps[0].inputs)
                posted.update(steps.pop(0).outputs)
                moved = True
    assert not any(left.values())
    assert used == posted
    return posted


@given(collectives, members)
def test_every_message_is_waited_for_and_no_rank_waits_in_vain(collective: str, count: int) -> None:
    posted = simulate(plan_of(collective, count), iterations=3)
    assert set(posted) == {flow.id for flow in plan_of(collective, count).flows}


@given(collectives, members)
def test_flows_begin_and_end_where_their_ranks_are(collective: str, count: int) -> None:
    plan = plan_of(collective, count)
    flows = {flow.id: flow for flow in plan.flows}
    for rank in plan.ranks:
        for step in rank.steps:
            assert {flows[flow].source.host for flow in step.outputs} <= {rank.host}
            assert {flows[flow].target.host for flow in step.inputs} <= {rank.host}
            assert len(set(step.inputs)) == len(step.inputs)


@given(collectives, members)
def test_an_iteration_computes_what_it_was_given(collective: str, count: int) -> None:
    for rank in plan_of(collective, count, jitter=0.1, stragglers={"h1/nic0": 0.5}).ranks:
        slowness = 1.5 if rank.name == "h1/nic0" else 1.0
        assert sum(step.compute_ns for step in rank.steps) == round(100 * MS_NS * slowness)
        assert sum(step.jitter_ns for step in rank.steps) == round(10 * MS_NS * slowness)


@given(members)
def test_a_ring_takes_2n_minus_2_rounds_of_an_nth_of_the_buffer(count: int) -> None:
    plan = plan_of("ring", count)
    assert len(plan.flows) == count
    assert {flow.message_bytes for flow in plan.flows} == {-(-1_000_000 // count)}
    assert set(simulate(plan, iterations=1).values()) == {2 * (count - 1)}
    for rank in plan.ranks:
        assert [len(step.inputs) for step in rank.steps] == [0] + [1] * (2 * count - 2)
        assert [len(step.outputs) for step in rank.steps] == [1] * (2 * count - 2) + [0]


@given(members)
def test_an_all_to_all_sends_at_once_and_ends_with_all_that_arrives(count: int) -> None:
    for rank in plan_of("all-to-all", count).ranks:
        first, last = rank.steps
        assert (len(first.inputs), len(first.outputs)) == (0, count - 1)
        assert (len(last.inputs), len(last.outputs)) == (count - 1, 0)


@given(members)
def test_a_pipeline_goes_forward_and_back(count: int) -> None:
    plan = plan_of("pipeline", count)
    assert len(plan.flows) == 2 * (count - 1)
    assert set(simulate(plan, iterations=1).values()) == {MICROBATCHES}
    assert plan.flows[0].message_bytes == 1_000_000 // MICROBATCHES


@given(members)
def test_a_tree_sends_the_buffer_once_up_and_once_down_each_edge(count: int) -> None:
    plan = plan_of("tree", count)
    assert len(plan.flows) == 2 * (count - 1)
    assert set(simulate(plan, iterations=1).values()) == {1}
    assert {flow.message_bytes for flow in plan.flows} == {1_000_000}
    reached, sends = {"h0"}, {(flow.source.host, flow.target.host) for flow in plan.flows}
    for _ in range(count):
        reached |= {target for source, target in sends if source in reached}
    assert len(reached) == count


@given(collectives, st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]))
def test_a_job_of_several_communicators_does_not_stop(collective: str, tensor: int, nics: int) -> None:
    topology = Topology(LabSpec(nics=nics))
    made = job_communicators(topology, collective, buffer_bytes=1000, compute_ns=100 * MS_NS, tensor=tensor)
    groups = 8 // tensor
    assert len(made) == nics * (1 if tensor == 1 else tensor + groups)
    plan = plan_collective(rank_ends(topology), made)
    assert len(plan.ranks) == 8 * nics
    assert all(sum(step.compute_ns for step in rank.steps) == 100 * MS_NS for rank in plan.ranks)
    simulate(plan, iterations=2)


def test_tensor_groups_are_neighbours_and_data_groups_have_one_of_each() -> None:
    made = job_communicators(Topology(LabSpec()), "tree", buffer_bytes=1, compute_ns=0, tensor=4)
    assert {one.name: (one.collective, one.ranks[:2]) for one in made} == {
        "tensor-nic0-1": ("ring", ("h1/nic0", "h2/nic0")),
        "tensor-nic0-2": ("ring", ("h5/nic0", "h6/nic0")),
        "data-nic0-1": ("tree", ("h1/nic0", "h5/nic0")),
        "data-nic0-2": ("tree", ("h2/nic0", "h6/nic0")),
        "data-nic0-3": ("tree", ("h3/nic0", "h7/nic0")),
        "data-nic0-4": ("tree", ("h4/nic0", "h8/nic0")),
    }


def test_a_seed_draws_the_same_plan_and_another_one_other_queue_pairs() -> None:
    assert plan_of("ring", 4, seed=5) == plan_of("ring", 4, seed=5)
    qpns = [{flow.qpn for flow in plan_of("ring", 4, seed=seed).flows} for seed in (5, 6)]
    assert not qpns[0] & qpns[1]
    assert len({rank.seed for rank in plan_of("ring", 4).ranks}) == 4


def test_the_lines_of_a_rank() -> None:
    rank = plan_of("ring", 2, iterations=7, jitter=0.05, stalls={"h0/nic0": Stall(50, 1000)}).ranks[0]
    assert rank.lines() == [
        f"rank id=0 iterations=7 seed={rank.seed} stall_ns=50 stall_every_ns=1000\n",
        "step compute_ns=100000000 jitter_ns=5000000\n",
        "post flow=0\n",
        "step compute_ns=0 jitter_ns=0\n",
        "await flow=1\n",
        "post flow=0\n",
        "step compute_ns=0 jitter_ns=0\n",
        "await flow=1\n",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"collective": "star"}, "no collective 'star'"),
        ({"ranks": ("h0/nic0",)}, "has the ranks h0/nic0"),
        ({"ranks": ("h0/nic0", "h1/nic0", "h0/nic0")}, "has the ranks h0/nic0, h1/nic0, h0/nic0"),
        ({"ranks": ("h0/nic0", "h9/nic0")}, "no rank 'h9/nic0'"),
        ({"buffer_bytes": 0}, "a buffer of 0 bytes"),
    ],
)
def test_a_communicator_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    fields: dict[str, Any] = {
        "name": "all",
        "collective": "ring",
        "ranks": ("h0/nic0", "h1/nic0"),
        "buffer_bytes": 1,
    }
    with pytest.raises(ConfigError, match=message):
        plan_collective(ends(4), [Communicator(**fields | changes)])


def test_ranks_of_one_host_and_names_used_twice_are_refused() -> None:
    one = Communicator(name="all", collective="ring", ranks=("h0/nic0", "h1/nic0"), buffer_bytes=1)
    with pytest.raises(ConfigError, match="two communicators have one name"):
        plan_collective(ends(4), [one, one])
    with pytest.raises(ConfigError, match="two ranks of one host"):
        plan_collective(dict.fromkeys(one.ranks, ends(1)["h0/nic0"]), [one])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jitter": 1.0}, "a jitter of 1.0"),
        ({"stragglers": {"h7/nic0": 0.2}}, "no rank 'h7/nic0'"),
        ({"stalls": {"h8/nic0": Stall(1, 2)}}, "no rank 'h8/nic0'"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of("ring", 4, **settings)


@pytest.mark.parametrize(("stall_ns", "every_ns"), [(0, 5), (5, 5)])
def test_a_stall_that_never_is_or_never_ends_is_refused(stall_ns: int, every_ns: int) -> None:
    with pytest.raises(ConfigError, match=f"a stall of {stall_ns} ns every {every_ns} ns"):
        Stall(stall_ns, every_ns)


@pytest.mark.parametrize("tensor", [3, 8])
def test_hosts_that_cannot_be_divided_are_refused(tensor: int) -> None:
    with pytest.raises(ConfigError, match=f"groups of {tensor}"):
        job_communicators(Topology(LabSpec()), "ring", buffer_bytes=1, compute_ns=0, tensor=tensor)


def test_the_times_of_a_run() -> None:
    """Of two ranks, the second 3 ms later; its third iteration did not come to an end."""
    plan = plan_of("ring", 2)

    def message(rank: int, iteration: int) -> dict[str, Any]:
        start_ns = 1000 * MS_NS * iteration + rank
        times = [[start_ns, start_ns + (100 + 3 * rank) * MS_NS], [0, 0], [0, start_ns + 200 * MS_NS]]
        end_ns = start_ns + (210 + 10 * iteration) * MS_NS
        return {"rank": rank, "iteration": iteration, "start_ns": start_ns, "end_ns": end_ns, "steps": times}

    messages = [message(1, 1), message(0, 0), message(1, 0), message(0, 1), message(0, 2)]
    (found,) = collective_result(plan, messages)["jobs"]
    assert [row["iteration"] for row in found["iterations"]] == [0, 1]
    assert found["iterations"][1] == {
        "iteration": 1,
        "start_ns": 1000 * MS_NS,
        "end_ns": 1220 * MS_NS + 1,
        "duration_ns": 220 * MS_NS + 1,
    }
    assert found["duration"]["max_ns"] == 220 * MS_NS + 1
    assert [row["duration"]["p50_ns"] for row in found["ranks"]] == [210 * MS_NS, 210 * MS_NS]
    (communicator,) = found["communicators"]
    assert (communicator["name"], communicator["message_bytes"]) == ("all", 500_000)
    assert communicator["duration"]["p50_ns"] == 100 * MS_NS + 1
    assert [row["lateness"]["max_ns"] for row in communicator["ranks"]] == [0, 3 * MS_NS + 1]


def test_a_run_without_a_complete_iteration_has_no_times() -> None:
    (found,) = collective_result(plan_of("tree", 4), [])["jobs"]
    assert found["iterations"] == []
    assert found["duration"] == spread([]) == {"count": 0, "p50_ns": None, "p99_ns": None, "max_ns": None}
    assert all(row["lateness"]["count"] == 0 for row in found["communicators"][0]["ranks"])


def test_ranks_that_no_communicator_joins_are_jobs_of_their_own() -> None:
    """Two rings and a third, which joins the first of them and comes last."""
    names = ["h0/nic0", "h1/nic0", "h2/nic0", "h3/nic0", "h4/nic0", "h5/nic0"]
    members = {"a": names[:2], "b": names[2:4], "c": [names[1], names[4]]}
    fields: dict[str, Any] = {"collective": "ring", "buffer_bytes": 1000, "compute_ns": 0}
    made = [Communicator(name=name, ranks=tuple(ranks), **fields) for name, ranks in members.items()]
    plan = plan_collective(ends(6), made)
    short = next(rank.id for rank in plan.ranks if rank.name == "h2/nic0")
    messages = [
        {"rank": rank.id, "iteration": i, "start_ns": 0, "end_ns": MS_NS, "steps": [[0, 0]] * len(rank.steps)}
        for rank in plan.ranks
        for i in range(1 if rank.id == short else 2)
    ]
    first, second = collective_result(plan, messages)["jobs"]
    assert [row["rank"] for row in first["ranks"]] == ["h0/nic0", "h1/nic0", "h4/nic0"]
    assert [row["name"] for row in first["communicators"]] == ["a", "c"]
    assert [row["rank"] for row in second["ranks"]] == ["h2/nic0", "h3/nic0"]
    assert (first["duration"]["count"], second["duration"]["count"]) == (2, 1)
