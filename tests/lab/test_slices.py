"""Slices on hosts of a lab, below the lab's own token bucket: who goes where, how fast at most, and nothing lost."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import lab_name

from cwdp.cli import main
from cwdp.dataplane import abi
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned import tree
from cwdp.dataplane.pinned.maps import Maps
from cwdp.errors import ConfigError, DataplaneError, ForeignQdiscError
from cwdp.shared.slices import Match, Slice, SliceSet
from cwdp.slices import qdiscs
from cwdp.slices.enforcer import Usage
from cwdp.slices.slicing import Deletion, Listed, Slicing
from tools.lab import Lab, LabSpec, lifecycle, netns_enter
from tools.lab.network import netns
from tools.roce.flows import Endpoint, Flow
from tools.roce.generator import Generator

pytestmark = pytest.mark.lab

NIC = "nic0"
LINK_BPS = 100_000_000
MBYTE = 1_000_000
WINDOW_PACKETS = 64
PATIENT_NS = 10**10
"""A timeout so long that a queue pair which is held to a low rate does not send again."""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Two hosts on one leaf; h1 has the dataplane."""
    name = lab_name("sl")
    lifecycle.up(LabSpec(name=name, leaves=1, spines=1, hosts_per_leaf=2))
    try:
        opened = Lab.open(name)
        with netns_enter(opened.netns("h1")):
            loader.load(NIC)
        yield opened
        with netns_enter(opened.netns("h1")):
            loader.unload(NIC)
    finally:
        lifecycle.down(name)


@pytest.fixture
def slicing(lab: Lab) -> Iterator[Slicing]:
    """The slices of h1, none at first and none at the end; the test is inside its namespace."""
    with (
        netns.open_netlink(lab.netns("h1")) as ip,
        netns_enter(lab.netns("h1")),
        Maps(tree.here(NIC)) as maps,
    ):
        opened = Slicing(maps, ip, NIC)
        yield opened
        opened.delete()


def one(number: int = 1, **settings: Any) -> Slice:
    """A slice of the queue pair of that number."""
    return Slice(name=f"slice-{number}", match=(Match(qpn=number),), **({"guaranteed": "10mbit"} | settings))


def of(*slices: Slice, link_rate: str | None = None) -> SliceSet:
    return SliceSet(slice=slices, link_rate=link_rate)


def flow(lab: Lab, number: int, **settings: Any) -> Flow:
    """A queue pair from h1 to h2, the number its QPN at both ends."""
    source, target = (Endpoint(name, lab.host(name).nics[0].ipv4) for name in ("h1", "h2"))
    return Flow(
        id=number,
        source=source,
        target=target,
        qpn=number,
        remote_qpn=number,
        sport=50_000 + number,
        ack_sport=50_000 + number,
        timeout_ns=PATIENT_NS,
        **settings,
    )


@contextmanager
def sending(lab: Lab, *flows: Flow) -> Iterator[Generator]:
    with Generator(flows, lab.popen, lab.run_dir) as generator:
        generator.start()
        yield generator


def assert_nothing_lost(result: dict[str, Any]) -> None:
    for row in result["flows"]:
        assert row["delivered_bytes"] > 0
        assert (row["retransmitted_packets"], row["naks_sent"], row["failed"]) == (0, 0, False)


def by_name(listed: list[Listed]) -> dict[str, Listed]:
    return {entry.name: entry for entry in listed}


def root_kinds(slicing: Slicing, lab: Lab) -> list[str]:
    with netns.open_netlink(lab.netns("h1")) as ip:
        index = ip.link_lookup(ifname=NIC)[0]
        shaping = (q for q in ip.get_qdiscs(index=index) if q.get_attr("TCA_KIND") != "clsact")
        return [q.get_attr("TCA_KIND") for q in shaping]


def test_the_links_rate_is_the_token_buckets(slicing: Slicing) -> None:
    slicing.apply(of(one()))
    assert slicing.link_bps == LINK_BPS
    with pytest.raises(ConfigError, match="token bucket"):
        slicing.apply(of(one(), link_rate="1gbit"))


def test_guarantees_beyond_the_link_are_refused_with_their_sum(slicing: Slicing) -> None:
    with pytest.raises(ConfigError, match="60mbit \\+ 50mbit = 110mbit, and the link has 100mbit"):
        slicing.apply(of(one(1, guaranteed="60mbit"), one(2, guaranteed="50mbit")))
    assert slicing.listed() == []


def test_what_is_applied_is_listed(slicing: Slicing) -> None:
    matches = (
        Match(dst="10.1.0.0/16"),
        Match(dst="fd00::7", qpn=5),
        Match(dscp=46),
        Match(job="train-7"),
    )
    wanted = Slice(
        name="all", guaranteed="10mbit", ceiling="50mbit", priority=2, qp_rate="5mbit", match=matches
    )
    slicing.apply(of(wanted, one(9)))
    first, second, rest = slicing.listed()
    assert (first.name, first.guaranteed_bps, first.ceiling_bps) == ("all", 10 * MBYTE, 50 * MBYTE)
    assert (first.priority, first.qp_bps, first.matches) == (2, 5 * MBYTE, matches)
    assert (second.name, second.ceiling_bps) == ("slice-9", LINK_BPS)
    assert (rest.number, rest.name, rest.matches) == (0, "", ())


def test_packets_go_where_their_queue_pair_belongs(lab: Lab, slicing: Slicing) -> None:
    slicing.apply(of(one(1), one(2, guaranteed="20mbit", qp_rate="15mbit")))
    with sending(lab, *(flow(lab, n, total_bytes=MBYTE) for n in (1, 2, 3))) as generator:
        result = generator.result(30)
    assert_nothing_lost(result)
    sent = {entry.name: entry.usage for entry in slicing.listed()}
    for usage in sent.values():
        assert 1.01 * MBYTE < usage.sent_bytes < 1.1 * MBYTE
        assert (usage.backlog_bytes, usage.dropped_packets) == (0, 0)
    assert {entry.name: entry.queue_pairs for entry in slicing.listed()} == {
        "slice-1": 1,
        "slice-2": 1,
        "": 1,
    }


@pytest.mark.parametrize("field", ["ceiling", "qp_rate"])
def test_no_slice_exceeds_its_rate(lab: Lab, slicing: Slicing, field: str) -> None:
    """However slow this machine is: so many bytes take so long at least."""
    rate_bps, total_bytes = 20 * MBYTE, 2 * MBYTE
    slicing.apply(of(one(1, **{field: "20mbit"})))
    with sending(lab, flow(lab, 1, total_bytes=total_bytes)) as generator:
        row = generator.result(30)["flows"][0]
    assert_nothing_lost({"flows": [row]})
    assert row["goodput_bps"] < 1.02 * rate_bps


def test_a_guarantee_holds_against_a_flood(lab: Lab, slicing: Slicing) -> None:
    """What the flood leaves is measured at the receiver; a slow machine slows both."""
    slicing.apply(of(one(1, guaranteed="60mbit"), one(2, guaranteed="20mbit")))
    flows = (flow(lab, 1), flow(lab, 2), flow(lab, 3))
    with sending(lab, *flows) as generator:
        time.sleep(2)
        rows = {row["id"]: row for row in generator.stop()["flows"]}
    delivered = {number: row["delivered_bytes"] for number, row in rows.items()}
    assert delivered[1] > 2 * delivered[2] > 0
    assert delivered[3] > 0


def test_changes_while_packets_flow_lose_nothing(lab: Lab, slicing: Slicing) -> None:
    """Rates, order, priorities, queue pairs' own rates, slices that come and go, and the end of all.

    The kernel cannot be told to remove a queue only if it is empty: what comes in between looking and removing is lost
    where the process stands still just then, so one of three tries has to lose nothing, and none more than a window.
    """
    for _ in range(3):
        rows = change_while_sending(lab, slicing)["flows"]
        assert all(row["retransmitted_packets"] <= WINDOW_PACKETS for row in rows)
        if not any(row["retransmitted_packets"] for row in rows):
            break
    for row in rows:
        assert_nothing_lost({"flows": [row]})


def change_while_sending(lab: Lab, slicing: Slicing) -> dict[str, Any]:
    """Two queue pairs send while their slices change, three times over."""
    wishes = [
        of(one(1)),
        of(one(1, ceiling="30mbit"), one(2)),
        of(one(2, priority=0), one(1, ceiling="60mbit", priority=3)),
        of(one(1, qp_rate="25mbit"), one(2, qp_rate="35mbit")),
        of(one(2)),
        of(one(3), one(2), one(1)),
    ]
    with sending(lab, flow(lab, 1, rate_bps=20 * MBYTE), flow(lab, 2, rate_bps=20 * MBYTE)) as generator:
        for _ in range(3):
            for wish in wishes:
                slicing.apply(wish)
                time.sleep(0.05)
            assert slicing.delete() in (Deletion.DONE, Deletion.QDISC_STAYS)
        generator.finish()
        return generator.result(30)


def test_the_end_of_slices_on_a_full_link_loses_nothing(lab: Lab, slicing: Slicing) -> None:
    """Nor is a packet overtaken. The link has a queue all the time, so the qdisc may stay until it has none."""
    slicing.apply(of(one(1)))
    with sending(lab, flow(lab, 1), flow(lab, 2)) as generator:
        time.sleep(0.3)
        deletion = slicing.delete()
        assert slicing.listed() == []
        generator.finish()
        result = generator.result(30)
    assert_nothing_lost(result)
    assert slicing.delete() is (Deletion.DONE if deletion is Deletion.QDISC_STAYS else Deletion.NOTHING)


def test_a_change_on_a_full_link_loses_nothing(lab: Lab, slicing: Slicing) -> None:
    """A queue pair that comes into a slice is overtaken by itself at most: every gap was filled later."""
    slicing.apply(of(one(1)))
    with sending(lab, flow(lab, 1), flow(lab, 2)) as generator:
        for number in (2, 1, 2):
            time.sleep(0.2)
            slicing.apply(of(one(number)))
        generator.finish()
        rows = generator.result(30)["flows"]
    assert [row["gaps"] - row["gaps_overtaken"] for row in rows] == [0, 0]
    assert sum(entry.usage.dropped_packets for entry in slicing.listed()) == 0


def test_what_is_not_changed_keeps_its_class_and_its_count(lab: Lab, slicing: Slicing) -> None:
    slicing.apply(of(one(1), one(2)))
    with sending(lab, flow(lab, 2, total_bytes=MBYTE)) as generator:
        generator.result(30)
    before = by_name(slicing.listed())["slice-2"]
    slicing.apply(of(one(5), one(2, guaranteed="30mbit"), one(6)))
    after = by_name(slicing.listed())["slice-2"]
    assert (after.number, after.usage) == (before.number, before.usage)
    assert by_name(slicing.listed())["slice-5"].usage == Usage()


def test_after_delete_all_is_as_before(lab: Lab, slicing: Slicing) -> None:
    before = root_kinds(slicing, lab)
    slicing.apply(of(one(1), one(2, qp_rate="5mbit")))
    assert slicing.enforcer in (abi.Enforcer.HTB, abi.Enforcer.EDT)
    assert slicing.delete() is Deletion.DONE
    assert slicing.delete() is Deletion.NOTHING
    assert (slicing.enforcer, slicing.listed()) == (abi.Enforcer.NONE, [])
    assert set(root_kinds(slicing, lab)) - {"bfifo"} == set(before) - {"bfifo"} == {"tbf"}
    with sending(lab, flow(lab, 1, total_bytes=MBYTE)) as generator:
        assert_nothing_lost(generator.result(30))


def test_none_wanted_is_none_there(slicing: Slicing) -> None:
    slicing.apply(of(one(1)))
    slicing.apply(of())
    assert (slicing.enforcer, slicing.listed()) == (abi.Enforcer.NONE, [])


def test_the_agent_does_not_overrule_what_was_applied_by_hand(slicing: Slicing) -> None:
    slicing.apply(of(one(1)))
    with pytest.raises(ConfigError, match="by hand"):
        slicing.apply(of(one(2)), managed=True)
    slicing.delete()
    slicing.apply(of(one(2)), managed=True)
    assert slicing.managed
    slicing.apply(of(one(1)))
    assert not slicing.managed


def test_a_change_cut_short_is_put_right_by_the_next(
    slicing: Slicing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if killed after the classes were made and before the dataplane was told."""
    slicing.apply(of(one(1)))
    monkeypatch.setattr(slicing, "_publish", _die)
    with pytest.raises(InterruptedError):
        slicing.apply(of(one(1), one(2, qp_rate="5mbit"), one(3)))
    monkeypatch.undo()
    slicing.apply(of(one(2), one(4)))
    assert [entry.name for entry in slicing.listed()] == ["slice-2", "slice-4", ""]


def _die(*_: object, **__: object) -> None:
    raise InterruptedError


def test_somebody_elses_qdisc_stays(lab: Lab) -> None:
    """On h2, which this test alone shapes otherwise."""
    with netns.open_netlink(lab.netns("h2")) as ip, netns_enter(lab.netns("h2")):
        index = ip.link_lookup(ifname=NIC)[0]
        ip.tc("replace", "htb", index=index, parent=0x10001, handle=0x20000, default=0)
        with pytest.raises(ForeignQdiscError, match="htb inside tbf"):
            qdiscs.find_place(ip, index, NIC)
        ip.tc("replace", "bfifo", index=index, parent=0x10001, handle=0, limit=256 * 1024)
        assert qdiscs.find_place(ip, index, NIC).ours is None


def test_the_commands(lab: Lab, slicing: Slicing, tmp_path: Any) -> None:
    path = tmp_path / "slices.toml"
    path.write_text('[[slice]]\nname = "one"\nguaranteed = "10mbit"\nmatch = [{ qpn = 1 }]\n')
    cli = CliRunner()
    applied = cli.invoke(main, ["slice", "apply", str(path), "--dev", NIC])
    held_by = slicing.enforcer.name.lower()
    assert (applied.exit_code, applied.output) == (0, f"{NIC}: 1 slice of 100mbit, held by {held_by}\n")
    assert "one" in cli.invoke(main, ["slice", "list"]).output
    assert cli.invoke(main, ["slice", "delete", "--dev", NIC]).output == f"{NIC}: no slices any more\n"
    assert cli.invoke(main, ["slice", "delete", "--dev", NIC]).output == f"{NIC}: there are no slices\n"
    missing = cli.invoke(main, ["slice", "apply", str(path), "--dev", "nic9"])
    assert missing.exit_code == DataplaneError.exit_status
    refused = cli.invoke(main, ["slice", "apply", str(path), "--dev", NIC, "--link-rate", "5mbit"])
    assert refused.exit_code == ConfigError.exit_status
    assert "10mbit = 10mbit, and the link has 5mbit" in refused.output
