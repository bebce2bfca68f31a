"""Which cause is named of a job that is slow."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from manager.causes.rules import explain
from manager.fabric.routes import DirectedLink
from manager.jobs.flows import Flow
from manager.jobs.inference import Job
from manager.jobs.pauses import Pauses
from manager.jobs.stragglers import Lateness
from tests.unit.manager.causes.cases import NICS, case, finding, job, links, ring

RING = ring()
OTHER = ring(("h2/nic0", "h3/nic0", "h1/nic0", "h4/nic0"))
LATE = (Lateness("h3/nic0", 60_000_000, True), Lateness("h1/nic0", 1_000_000, False))


def test_of_a_job_that_goes_as_it_does_nothing_is_said() -> None:
    assert explain(case(job(), links())) is None
    assert explain(case(job(), links(), None)) is None
    assert explain(case(job(took_ms=515), links())) is None


def test_a_rank_that_computes_longer() -> None:
    found = explain(case(job(took_ms=560, late=LATE), links()))
    assert found is not None
    assert (found.kind, found.subject, found.rank) == ("compute", "h3/nic0", "h3/nic0")
    assert found.costs_ns == 60_000_000


def test_of_two_ranks_that_are_late_the_later_one_costs_what_is_not_the_others_anyway() -> None:
    late = (*LATE[:1], Lateness("h1/nic0", 40_000_000, True))
    found = explain(case(job(took_ms=560, late=late), links()))
    assert found is not None
    assert (found.kind, found.rank, found.costs_ns) == ("compute", "h3/nic0", 20_000_000)
    assert found.evidence[-1] == "without it the others would wait 40.0 ms for another rank"


def test_a_rank_is_not_late_by_itself_where_its_packets_are_lost() -> None:
    resent = {flow: 200 for flow in RING if flow.src == "h3/nic0"}
    found = explain(case(job(took_ms=560, late=LATE, resent=resent), links()))
    assert found is not None
    assert found.kind == "link"
    assert found.rank in {"h3/nic0", "h4/nic0"}


def test_a_rank_that_stands_still_now_and_then() -> None:
    found = explain(case(job(pauses=Pauses("h2/nic0", 50_000_000, 5, 50)), links()))
    assert found is not None
    assert (found.kind, found.rank, found.costs_ns) == ("host", "h2/nic0", 5_000_000)


TAKEN = {"h1": 0.05, "h2": 0.07, "h3": 0.6, "h4": 0.04, "h9": 0.99}


@pytest.mark.parametrize(
    "slow",
    [
        job(took_ms=700),
        job(late=LATE),
        job(took_ms=700, late=LATE),
        job(pauses=Pauses("h3/nic0", 50_000_000, 5, 50)),
    ],
)
def test_a_host_whose_processor_is_taken(slow: Job) -> None:
    found = explain(case(slow, links(), waits=TAKEN))
    assert found is not None
    assert (found.kind, found.subject, found.rank) == ("host", "h3/nic0", "h3/nic0")
    assert found.evidence[0] == "its programs waited for a processor in 60% of the last seconds"


def test_a_host_whose_processor_is_taken_where_those_of_all_have_much_to_do() -> None:
    busy = {"h1": 0.35, "h2": 0.37, "h3": 0.58, "h4": 0.38}
    found = explain(case(job(late=LATE), links(), waits=busy))
    assert found is not None
    assert (found.kind, found.rank) == ("host", "h3/nic0")


@pytest.mark.parametrize(
    "waits",
    [
        {},
        {"h1": 0.3, "h2": 0.4, "h3": 0.58, "h4": 0.35},
        {"h3": 0.9},
        {"h1": 0.02, "h2": 0.03, "h3": 0.15, "h4": 0.02},
        {"h1": 0.6, "h2": 0.7, "h3": 0.8, "h4": 0.5},
        {"h1": 0.6, "h2": 0.05, "h3": 0.04, "h4": 0.05},
    ],
)
def test_a_rank_that_is_late_where_processors_are_not_taken_or_those_of_all_or_of_another(
    waits: dict[str, float],
) -> None:
    found = explain(case(job(late=LATE), links(), waits=waits))
    assert found is not None
    assert (found.kind, found.rank) == ("compute", "h3/nic0")


def test_of_a_job_that_goes_as_it_does_a_busy_host_is_nothing() -> None:
    assert explain(case(job(), links(), waits=TAKEN)) is None


@pytest.mark.parametrize("took_ms", [500, 700])
def test_a_link_that_loses_packets_of_the_job(took_ms: float) -> None:
    resent = {flow: 100 for flow in RING if flow.src == "h2/nic0"}
    known = links(findings=[finding("lossy", "l1", "s1")])
    found = explain(case(job(took_ms=took_ms, resent=resent), known))
    assert found is not None
    assert (found.kind, found.subject) == ("link", "l1 - s1")


def test_a_lossy_link_is_no_cause_for_a_job_that_loses_nothing_or_does_not_cross_it() -> None:
    assert explain(case(job(), links(findings=[finding("lossy", "l1", "s1")]))) is None
    far = finding("lossy", "l7", "s1")
    found = explain(case(job(took_ms=700), links(findings=[far])))
    assert found is not None
    assert found.kind == "unknown"


def test_a_link_that_flapped_within_the_hour_explains_nothing_now_but_does_while_it_is_gone() -> None:
    """A job whose packets are sent again for another reason was told of such a link for as long as it was called so."""
    resent = {flow: 100 for flow in RING if flow.src == "h2/nic0"}
    one, flapped = job(resent=resent), finding("flapping", "l1", "s1")
    assert explain(case(one, links(findings=[flapped]))) is None
    found = explain(case(one, links(findings=[flapped, finding("silent", "l1", "s1")])))
    assert found is not None
    assert (found.kind, found.subject) == ("link", "l1 - s1")
    assert found.evidence[0].startswith("silent")


def test_a_silent_link_that_the_job_went_over_though_it_has_left_it() -> None:
    one = job()
    one.lately.lasted_ns[3] += 90_000_000
    found = explain(case(one, links(findings=[finding("silent", "l1", "s1")])))
    assert found is not None
    assert (found.kind, found.subject, found.costs_ns) == ("link", "l1 - s1", 90_000_000)


def test_a_nic_is_named_where_a_finding_is_about_one() -> None:
    known = links(findings=[finding("slow", "h3/nic0", "l2", "nic")])
    found = explain(case(job(took_ms=700), known))
    assert found is not None
    assert (found.kind, found.rank) == ("nic", "h3/nic0")


def test_a_slow_receiver_is_its_host() -> None:
    known = links(findings=[finding("slow_receiver", "l2", "h3/nic0", "nic")])
    found = explain(case(job(took_ms=700), known))
    assert found is not None
    assert (found.kind, found.rank) == ("host", "h3/nic0")


def test_a_nic_whose_queue_is_not_like_the_others() -> None:
    known = links(queue_us={("h3/nic0", "l2"): 9000.0, ("l2", "h3/nic0"): 20_000.0})
    found = explain(case(job(took_ms=800), known))
    assert found is not None
    assert (found.kind, found.subject, found.costs_ns) == ("nic", "h3/nic0", 300_000_000)
    assert explain(case(job(), known)) is None


def test_a_queue_is_not_why_where_packets_wait_much_longer_elsewhere() -> None:
    """As where a job that begins gets in the way, and is not known yet."""
    between = {("l1", "s1"): 17_000.0, ("s1", "l1"): 13_000.0, ("s1", "l2"): 12_000.0, ("l2", "s1"): 9_000.0}
    found = explain(case(job(took_ms=700), links(queue_us=between | {("l2", "h3/nic0"): 2_900.0})))
    assert found is not None
    assert found.kind == "unknown"


def test_packets_that_a_full_queue_drops_do_not_make_another_link_lossy() -> None:
    known = links(queue_us={("l2", "h3/nic0"): 20_000.0})
    resent = {flow: 100 for flow in RING if flow.dst == "h3/nic0"}
    found = explain(case(job(took_ms=800, resent=resent), known))
    assert found is not None
    assert (found.kind, found.subject) == ("nic", "h3/nic0")


def test_losses_without_a_finding_name_the_link_that_only_they_share() -> None:
    resent = {flow: 100 for flow in RING if flow.src == "h2/nic0"}
    found = explain(case(job(took_ms=700, resent=resent), links()))
    assert found is not None
    assert (found.kind, found.subject) == ("link", "h2/nic0 > l1")
    assert found.confidence == pytest.approx(1 / 4)


def test_a_receiver_that_is_not_ready_is_its_host_and_what_it_refuses_is_not_lost() -> None:
    flow = RING[1]
    slow = job(took_ms=700, resent={flow: 500})
    found = explain(case(slow, links(), not_ready={(flow.dst, flow.src): 60}))
    assert found is not None
    assert (found.kind, found.rank, found.costs_ns) == ("host", flow.dst, 200_000_000)
    assert found.evidence[0].startswith("it sent 60 RNR NAKs")


def test_a_rank_that_is_late_is_not_ready_either_and_is_late_by_itself() -> None:
    """Others are refused while it computes."""
    resent = {flow: 500 for flow in RING if flow.dst == LATE[0].nic}
    refused = {(flow.dst, flow.src): 60 for flow in resent}
    found = explain(case(job(took_ms=560, resent=resent, late=LATE), links(), not_ready=refused))
    assert found is not None
    assert (found.kind, found.rank) == ("compute", LATE[0].nic)


def test_few_rnr_naks_explain_nothing() -> None:
    flow = RING[1]
    resent = {flow: 500}
    found = explain(case(job(took_ms=700, resent=resent), links(), not_ready={(flow.dst, flow.src): 20}))
    assert found is not None
    assert found.kind == "link"
    assert explain(case(job(), links(), not_ready={(flow.dst, flow.src): 9_000})) is None


def test_a_link_between_switches_that_only_several_hosts_packets_are_lost_at_is_to_be_avoided() -> None:
    """Not where one host is an end of all: it could say so of itself."""
    crossing = [Flow("h1/nic0", "h3/nic0", 1), Flow("h2/nic0", "h4/nic0", 2)]
    within = [Flow(a, b, 3) for a, b in (("h1/nic0", "h2/nic0"), ("h3/nic0", "h4/nic0"))]
    back = [Flow("h4/nic0", "h1/nic0", 4), Flow("h2/nic0", "h1/nic0", 5), Flow("h3/nic0", "h4/nic0", 6)]
    flows = [*crossing, *within, *back]
    known = links(flows)
    above = known.names.index(DirectedLink("s1", "l2"))
    of = {flow: numbers - {above} for flow, numbers in known.of.items()}
    known = replace(known, of=of)
    found = explain(case(job(flows, took_ms=700, resent=dict.fromkeys(crossing, 100)), known))
    assert found is not None
    assert (found.kind, found.subject) == ("link", "l1 > s1")
    assert found.to_avoid == (DirectedLink("l1", "s1"),)
    alone = [Flow("h1/nic0", "h3/nic0", 1), Flow("h1/nic0", "h4/nic0", 2)]
    flows = [*alone, *within, *back]
    of = {
        flow: links(flows).of[flow] - {links(flows).names.index(DirectedLink("s1", "l2"))} for flow in flows
    }
    known = replace(links(flows), of=of)
    found = explain(case(job(flows, took_ms=700, resent=dict.fromkeys(alone, 100)), known))
    assert found is not None
    assert (found.kind, found.to_avoid) == ("link", ())


def test_another_job_on_the_same_link_is_contention() -> None:
    known = links((*RING, *OTHER), queue_us={("l1", "s1"): 3000.0})
    found = explain(case(job(took_ms=700), known, other=job(OTHER)))
    assert found is not None
    assert (found.kind, found.subject) == ("contention", "l1 > s1")
    assert any("other" in each for each in found.evidence)


def test_many_senders_of_several_jobs_at_one_nic_are_an_incast() -> None:
    mine = [Flow(src, "h4/nic0", 7) for src in ("h1/nic0", "h2/nic0", "h3/nic0")]
    known = links((*mine, *RING), queue_us={("l2", "h4/nic0"): 9000.0})
    found = explain(case(job(mine, took_ms=900), known, other=job(RING)))
    assert found is not None
    assert (found.kind, found.rank) == ("incast", "h4/nic0")


def test_what_no_rule_explains_is_said_to_be_unknown() -> None:
    found = explain(case(job(took_ms=700), links()))
    assert found is not None
    assert (found.kind, found.subject, found.confidence) == ("unknown", "me", 0.0)


def test_links_of_which_nothing_is_known_explain_nothing() -> None:
    known = links(queue_us={("l1", "s1"): np.nan, ("h3/nic0", "l2"): np.nan})
    found = explain(case(job(took_ms=700), known))
    assert found is not None
    assert found.kind == "unknown"


def test_a_dead_link_beside_those_that_the_job_uses_is_why_it_has_less_room() -> None:
    known = links(findings=[finding("dead", "l1", "s2")])
    assert explain(case(job(), known)) is None
    found = explain(case(job(took_ms=700), known))
    assert found is not None
    assert (found.kind, found.subject, found.costs_ns) == ("link", "l1 - s2", 200_000_000)
    far = explain(case(job(took_ms=700), links(findings=[finding("dead", "l8", "s9")])))
    assert far is not None
    assert far.kind == "unknown"


def test_queue_pairs_of_the_job_itself_that_share_a_link() -> None:
    flows = (Flow("h1/nic0", "h3/nic0", 1), Flow("h2/nic0", "h4/nic0", 2))
    known = links(flows, queue_us={("l1", "s1"): 9000.0})
    found = explain(case(job(flows, took_ms=900), known))
    assert found is not None
    assert (found.kind, found.subject) == ("contention", "l1 > s1")


@pytest.mark.parametrize("kind", ["lossy", "silent"])
def test_a_queue_beside_a_link_that_nothing_is_sent_over_is_that_links_doing(kind: str) -> None:
    flows = (Flow("h1/nic0", "h3/nic0", 1), Flow("h2/nic0", "h4/nic0", 2))
    known = links(flows, queue_us={("l1", "s1"): 9000.0}, findings=[finding(kind, "l1", "s2")])
    found = explain(case(job(flows, took_ms=900), known))
    assert found is not None
    assert (found.kind, found.subject) == ("link", "l1 - s2")


def test_where_packets_wait_for_longer_at_a_link_that_another_job_shares_a_nic_that_stands_out_is_not_it() -> (
    None
):
    rival = job(ring(NICS[::-1]), took_ms=400)
    queued = {("l1", "s1"): 20_000.0, ("s1", "l2"): 18_000.0, ("l2", "s1"): 19_000.0, ("s1", "l1"): 19_000.0}
    known = links([*RING, *rival.flows], queue_us=queued | {("h3/nic0", "l2"): 3_000.0})
    found = explain(case(job(took_ms=700), known, other=rival))
    assert found is not None
    assert (found.kind, found.subject) == ("contention", "l1 > s1")
    slow = links([*RING, *rival.flows], queue_us={("h3/nic0", "l2"): 30_000.0})
    found = explain(case(job(took_ms=700), slow))
    assert found is not None
    assert (found.kind, found.subject) == ("nic", "h3/nic0")


def test_a_job_that_is_over_is_nobodys_rival() -> None:
    rival = job(ring(NICS[::-1]), took_ms=400, silent_ns=15 * 10**9)
    known = links([*RING, *rival.flows], queue_us={("l1", "s1"): 20_000.0})
    found = explain(case(job(took_ms=700), known, other=rival))
    assert found is not None
    assert not any("shared" in each for each in found.evidence)


def test_a_flow_whose_path_is_not_known_crosses_the_links_at_its_nics_and_no_other_is_said_of_it() -> None:
    """As of what ranks tell alone: of hardware that sends past the host's network stack."""
    slow = job(took_ms=700)
    nothing: dict[str, Any] = {"of": {}, "lately": {}}
    at_nic = replace(links(queue_us={("h2/nic0", "l1"): 20_000.0}), **nothing)
    found = explain(case(slow, at_nic))
    assert found is not None
    assert (found.kind, found.rank) == ("nic", "h2/nic0")
    between = replace(links(queue_us={("l1", "s1"): 20_000.0}), **nothing)
    found = explain(case(slow, between))
    assert found is not None
    assert found.kind == "unknown"
    gone = replace(links(findings=[finding("silent", "h2/nic0", "l1")]), **nothing)
    found = explain(case(job(), gone))
    assert found is not None
    assert found.kind in ("nic", "link")


def test_queue_pairs_of_no_known_job_share_a_link_as_a_job_does_where_they_send_enough() -> None:
    """A second job is known after some iterations only."""
    slow = job(took_ms=700)
    known = links(queue_us={("l1", "s1"): 20_000.0})
    shared = list(known.names).index(DirectedLink("l1", "s1"))
    found = explain(case(slow, replace(known, strays={shared: {"h10": 3_000, "h9": 4_000}})))
    assert found is not None
    assert (found.kind, found.subject, found.between) == ("contention", "l1 > s1", ("me",))
    assert "shared with queue pairs of h9, h10, of no known job" in found.evidence
    few = explain(case(slow, replace(known, strays={shared: {"h9": 40}})))
    assert few is not None
    assert few.kind == "link"
