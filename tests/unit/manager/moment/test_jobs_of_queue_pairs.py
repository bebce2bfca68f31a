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


def test_jobs_are_those_that_programs_tell_of() -> None:
    src = ["h1", "h2", "h1", "h3", "h4", "h9", "h5"]
    dst = ["h2", "h1", "h3", "h4", "h3", "h8", "h6"]
    told = ["slurm:7", "", "slurm:10", "slurm:10", "", "", "slurm:7"]
    found = find_jobs(src, dst, told)
    assert list(found.of_flow) == ["slurm:7", "slurm:7", "slurm:10", "slurm:10", "slurm:10", "h8", "slurm:7"]
    assert found.hosts == {
        "h8": ["h8", "h9"], "slurm:7": ["h1", "h2", "h5", "h6"], "slurm:10": ["h1", "h3", "h4"],
    }  # fmt: skip
    assert list(found.hosts) == ["h8", "slurm:7", "slurm:10"]
    assert found.told == {"slurm:7", "slurm:10"}


def test_what_nobody_tells_of_is_not_made_of_two_jobs_that_its_hosts_have() -> None:
    found = find_jobs(["a", "a", "b"], ["b", "b", "a"], ["ray:1", "ray:2", ""])
    assert list(found.of_flow) == ["ray:1", "ray:2", "a"]
    assert found.told == {"ray:1", "ray:2"}


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
