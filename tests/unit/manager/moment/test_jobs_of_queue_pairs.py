"""Hosts that queue pairs connect make a job, whatever their names are."""

from hypothesis import given
from hypothesis import strategies as st

from manager.moment.jobs import find_jobs

NAMES = st.text(min_size=1, max_size=8)


def test_no_queue_pairs_make_no_jobs() -> None:
    assert find_jobs([], []).hosts == {}


def test_two_rings_are_two_jobs_named_after_their_first_hosts() -> None:
    found = find_jobs(["h10", "h2", "h9", "h3"], ["h2", "h10", "h3", "h9"])
    assert found.hosts == {"h2": ["h2", "h10"], "h3": ["h3", "h9"]}
    assert found.by_host["h10"] == "h2"
    assert found.of_flow == ["h2", "h2", "h3", "h3"]
    assert found.flows_of("h3") == [2, 3]


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=30))
def test_who_is_connected_shares_a_job_and_nobody_else_does(flows: list[tuple[str, str]]) -> None:
    found = find_jobs([src for src, _ in flows], [dst for _, dst in flows])
    groups = {host: {host} for flow in flows for host in flow}
    for src, dst in flows:
        joined = groups[src] | groups[dst]
        for host in joined:
            groups[host] = joined
    assert {frozenset(hosts) for hosts in found.hosts.values()} == {
        frozenset(group) for group in groups.values()
    }
    assert list(found.of_flow) == [found.by_host[src] for src, _ in flows]
    assert all(name in hosts for name, hosts in found.hosts.items())
