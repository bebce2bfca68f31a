"""Programs with the verbs shim and an agent, not steered by any dataplane: queue pairs take the paths that were chosen for them."""

from typing import Any

import pytest

from tools.rdma.guest import SHIM_AGENTS
from tools.rdma.scenarios.shim_agents import PROGRAMS

Report = dict[str, Any]


@pytest.fixture(params=[transfer.program for transfer in PROGRAMS])
def program(request: pytest.FixtureRequest, report: Report) -> Report:
    found = report[SHIM_AGENTS]
    assert "error" not in found, found["error"]
    one: Report = found[request.param]
    assert "error" not in one, one["error"]
    return one


def test_programs_end_well(program: Report) -> None:
    assert (program["server_status"], program["client_status"]) == (0, 0), program["client_output"]
    assert program["counts"]["icrc_wrong"] == 0


def test_a_queue_pair_takes_the_spine_that_was_chosen_before_it_was_made(program: Report) -> None:
    spines, sent = program["counts"]["spines"], program["counts"]["devices"]["sent_pkts"]
    assert spines[program["spine"]] >= sent > 0
    assert sum(spines.values()) - spines[program["spine"]] <= sent // 20


def test_the_agents_know_which_port_each_end_has_by_their_table(program: Report) -> None:
    for host, sport in program["sports"].items():
        assert [(qp["sport"], qp["by_table"]) for qp in program["queue_pairs"][host]] == [(sport, True)]
