"""Links and addresses from synthetic netlink messages; counters of a NIC that is not there."""

import errno
import socket

import pytest
from agent_fakes import Message, address, link
from hypothesis import given
from hypothesis import strategies as st

from cwdp.agent import nic as agent_nic
from cwdp.agent.config import AgentConfig
from cwdp.agent.links import LinkTable
from cwdp.agent.nic import HostNic
from cwdp.agent.probing import prober
from cwdp.dataplane.abi import XdpMode
from cwdp.dataplane.loading import loader
from cwdp.dataplane.pinned.tree import TreePath
from cwdp.errors import DataplaneError, InterfaceError
from cwdp.shared.identity.probe_keys import Key, KeyFile

KEYS = KeyFile(send=1, key=[Key(id=1, secret="ab" * 16)])
TENTATIVE = 0x40
DAD_FAILED = 0x08
LINK_SCOPE = 253


class Table(LinkTable):
    """A table that keeps what it was told."""

    def __init__(self) -> None:
        self.changed: list[str] = []
        super().__init__(self.changed.append)

    def told(self, *messages: Message) -> list[str]:
        """Take messages in; the names that changed."""
        self.changed.clear()
        for message in messages:
            self.take(message)
        return list(self.changed)

    def addresses(self, ifname: str) -> tuple[str | None, str | None]:
        found = self.get(ifname)
        assert found is not None
        return found.address(socket.AF_INET), found.address(socket.AF_INET6)


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_link_and_its_carrier(table: Table) -> None:
    assert not table.carrier("nic0")
    assert table.told(link("nic0")) == ["nic0"]
    assert table.carrier("nic0")
    assert table.told(link("nic0")) == []
    assert table.told(link("nic0", up=False), link("nic0"), link("nic0", up=False)) == ["nic0"] * 3
    assert not table.carrier("nic0")


def test_up_without_carrier_and_carrier_without_up_are_no_carrier(table: Table) -> None:
    for flags in (0, 0x1, 0x10000):
        table.take(Message(link("nic0"), flags=flags))
        assert not table.carrier("nic0")


def test_addresses_come_and_go_in_order(table: Table) -> None:
    table.take(link("nic0"))
    assert table.told(address("10.0.0.1"), address("10.0.0.2"), address("fd00::1")) == ["nic0"] * 3
    assert table.addresses("nic0") == ("10.0.0.1", "fd00::1")
    assert table.told(address("10.0.0.1")) == []
    assert table.told(address("10.0.0.1", new=False)) == ["nic0"]
    assert table.addresses("nic0") == ("10.0.0.2", "fd00::1")
    assert table.told(address("10.9.9.9", new=False)) == []
    assert table.told(link("nic0", up=False)) == ["nic0"]
    assert table.addresses("nic0") == ("10.0.0.2", "fd00::1")


@pytest.mark.parametrize("flags", [TENTATIVE, DAD_FAILED, TENTATIVE | DAD_FAILED])
def test_an_address_under_examination_is_not_used(table: Table, flags: int) -> None:
    table.take(link("nic0"))
    assert table.told(address("fd00::1", flags=flags)) == []
    assert table.told(address("fd00::1")) == ["nic0"]
    assert table.told(address("fd00::1", flags=flags)) == ["nic0"]
    assert table.addresses("nic0") == (None, None)


def test_link_local_addresses_and_unknown_links_are_passed_over(table: Table) -> None:
    table.take(link("nic0"))
    assert table.told(address("fe80::1", scope=LINK_SCOPE), address("10.0.0.1", index=77)) == []
    assert table.addresses("nic0") == (None, None)


def test_an_old_kernel_gives_address_flags_in_the_header_only(table: Table) -> None:
    table.take(link("nic0"))
    message = address("fd00::1", flags=TENTATIVE)
    message["attrs"] = [("IFA_ADDRESS", "fd00::1")]
    assert table.told(message) == []


def test_a_link_that_is_removed(table: Table) -> None:
    table.told(link("nic0"), address("10.0.0.1"))
    assert table.told(link("nic0", event="RTM_DELLINK")) == ["nic0"]
    assert table.get("nic0") is None
    assert table.told(link("nic0", event="RTM_DELLINK")) == []


def test_a_link_that_comes_back_is_another_one(table: Table) -> None:
    table.told(link("nic0"), address("10.0.0.1"), link("nic0", event="RTM_DELLINK"), link("nic0", 9))
    assert table.addresses("nic0") == (None, None)
    table.take(address("10.0.0.5", index=9))
    assert table.addresses("nic0") == ("10.0.0.5", None)


def test_a_renamed_link_leaves_its_old_name_and_keeps_its_addresses(table: Table) -> None:
    table.told(link("eth0"), address("10.0.0.1"))
    assert table.told(link("nic0")) == ["eth0", "nic0"]
    assert table.get("eth0") is None
    assert not table.carrier("eth0")
    assert table.addresses("nic0") == ("10.0.0.1", None)
    table.told(address("10.0.0.2"), link("nic0", up=False))
    assert table.get("eth0") is None
    assert not table.carrier("nic0")


def test_two_links_swap_their_names(table: Table) -> None:
    table.told(link("a", 1), link("b", 2), address("10.0.0.1", 1), address("10.0.0.2", 2))
    table.told(link("tmp", 1), link("a", 2), link("b", 1))
    assert (table.addresses("a")[0], table.addresses("b")[0]) == ("10.0.0.2", "10.0.0.1")
    assert table.get("tmp") is None


def test_a_bridge_that_lets_a_port_go_does_not_remove_the_link(table: Table) -> None:
    table.take(link("nic0"))
    assert table.told(link("nic0", event="RTM_DELLINK", family=socket.AF_BRIDGE)) == []
    assert table.told(link("nic0", up=False, family=socket.AF_BRIDGE)) == []
    assert table.carrier("nic0")


def test_a_new_mac_is_a_change_and_no_mac_is_none(table: Table) -> None:
    table.take(link("nic0"))
    assert table.told(link("nic0", mac="02:00:00:00:00:09")) == ["nic0"]
    assert table.told(Message(link("tun0", 5), attrs=[("IFLA_IFNAME", "tun0")])) == ["tun0"]
    found = table.get("tun0")
    assert found is not None
    assert found.mac == ""


def test_messages_of_other_kinds_are_passed_over(table: Table) -> None:
    assert table.told(Message(event="RTM_NEWROUTE", attrs=[])) == []


def test_reading_everything_anew_tells_nothing_of_what_is_unchanged(table: Table) -> None:
    """As after an overflow of the socket. The kernel may list addresses in another order than they came in."""
    now = [link("a", 1), link("b", 2), address("10.0.0.1", 1), address("10.0.0.2", 1), address("fd00::2", 2)]
    table.told(*now)
    table.changed.clear()
    table.renew([*now[:2], *reversed(now[2:])])
    assert table.changed == []
    assert table.addresses("a") == ("10.0.0.1", None)
    assert table.addresses("b") == (None, "fd00::2")


def test_reading_everything_anew_tells_the_difference(table: Table) -> None:
    table.told(*(link(name, index) for index, name in enumerate("abcdef", 1)))
    table.told(*(address(f"10.0.0.{index}", index) for index in range(1, 7)))
    table.changed.clear()
    table.renew(
        [
            link("a", 1),
            link("b", 2, up=False),
            link("d", 4, mac="02:00:00:00:00:77"),
            link("g", 5),
            link("f", 9),
            *(address(f"10.0.0.{index}", index) for index in (2, 4, 5)),
        ]
    )
    assert sorted(table.changed) == ["a", "b", "c", "d", "e", "f", "g"]
    assert table.addresses("a") == (None, None)
    assert not table.carrier("b")
    assert table.get("c") is None
    assert table.get("e") is None
    assert table.addresses("g") == ("10.0.0.5", None)
    assert table.addresses("f") == (None, None)


def test_nothing_is_told_before_everything_is_read() -> None:
    """Whoever is told sees the interfaces as they are, not half read."""
    seen = []
    table = LinkTable(lambda name: seen.append((name, table.carrier(name), table.get(name))))
    table.renew([link("a", 1), address("10.0.0.1", 1)])
    ((name, carrier, found),) = seen
    assert (name, carrier) == ("a", True)
    assert found is not None
    assert found.addresses == ["10.0.0.1"]


names = st.sampled_from(["a", "b", "c"])
events = st.one_of(
    st.builds(link, names, st.integers(1, 3), up=st.booleans()),
    st.builds(link, names, st.integers(1, 3), event=st.just("RTM_DELLINK")),
    st.builds(address, st.sampled_from(["10.0.0.1", "fd00::1"]), st.integers(1, 3), new=st.booleans()),
)


@given(st.lists(events, max_size=40))
def test_no_order_of_messages_breaks_the_table(messages: list[Message]) -> None:
    table = Table()
    table.told(*messages)
    found = [known for name in "abc" if (known := table.get(name))]
    assert len({known.index for known in found}) == len(found)
    assert all(len(set(known.addresses)) == len(known.addresses) for known in found)


@given(st.lists(events, max_size=20), st.lists(events, max_size=20))
def test_what_is_read_anew_is_what_is_there(before: list[Message], now: list[Message]) -> None:
    """Whatever was known: afterwards the table is that of the messages, and exactly the difference was told."""
    table, fresh = Table(), Table()
    table.told(*before)
    old = {name: (table.carrier(name), table.get(name)) for name in "abc"}
    table.changed.clear()
    table.renew(now)
    fresh.told(*now)
    for name in "abc":
        found, expected = table.get(name), fresh.get(name)
        assert (found is None) == (expected is None)
        if found and expected:
            assert sorted(found.addresses) == sorted(expected.addresses)
            assert (found.index, found.mac, found.carrier) == (expected.index, expected.mac, expected.carrier)
        assert (name in table.changed) == ((table.carrier(name), table.get(name)) != old[name])
    assert len(set(table.changed)) == len(table.changed)


def test_every_counter_of_a_nic_is_there_from_the_start(table: Table) -> None:
    nic = HostNic(AgentConfig(host="h", nics=["nic0"]), "nic0", loader.Settings(), table)
    expected = {
        f"agent.nic0.{name}": 0 for name in (*prober.COUNTERS, *agent_nic.COUNTERS, *agent_nic.BURST_COUNTERS)
    }
    assert nic.totals() == expected


def test_an_interface_that_is_not_there_is_awaited_and_named_once(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def load(ifname: str, _settings: loader.Settings) -> loader.Loaded:
        raise InterfaceError(f"there is no interface {ifname}", "interfaces here: lo")

    monkeypatch.setattr(loader, "load", load)
    nic = HostNic(AgentConfig(host="h", nics=["nci0"]), "nci0", loader.Settings(), table)
    assert not nic.ensure(KEYS)
    assert not nic.ensure(KEYS)
    (record,) = caplog.records
    assert "there is no interface nci0 (interfaces here: lo)" in record.getMessage()


def test_a_dataplane_that_goes_while_it_is_opened_is_tried_again(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[TreePath] = []

    def open_maps(where: TreePath) -> None:
        attempts.append(where)
        raise OSError(errno.ENOENT, "No such file or directory")

    found = loader.Loaded(TreePath(1, "nic0"), XdpMode.NATIVE, "tag")
    monkeypatch.setattr(loader, "load", lambda _ifname, _settings: found)
    monkeypatch.setattr("cwdp.agent.nic.Maps", open_maps)
    nic = HostNic(AgentConfig(host="h", nics=["nic0"]), "nic0", loader.Settings(), table)
    for _ in range(2):
        with pytest.raises(DataplaneError, match="cannot open the maps of nic0"):
            nic.ensure(KEYS)
    assert len(attempts) == 2
    assert nic.describe().mode == "absent"


def test_the_speed_of_a_link_is_asked_for_when_it_comes_up(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = [100 * 10**9, 400 * 10**9]
    asked: list[str] = []

    def wire_bps(ifname: str) -> int:
        asked.append(ifname)
        return speeds[len(asked) - 1]

    monkeypatch.setattr("cwdp.agent.nic.wire_bps", wire_bps)
    nic = HostNic(AgentConfig(host="h", nics=["nic0"]), "nic0", loader.Settings(), table)
    assert nic.describe().speed_bps is None
    for speed_bps in speeds:
        table.told(link("nic0"), address("10.0.0.1"))
        assert [nic.describe().speed_bps for _ in range(3)] == [speed_bps] * 3
        table.told(link("nic0", up=False))
        assert nic.describe().speed_bps is None
    assert asked == ["nic0"] * 2


def test_a_nic_that_is_not_there_is_described_as_absent(table: Table) -> None:
    nic = HostNic(AgentConfig(host="h", nics=["nic0"]), "nic0", loader.Settings(), table)
    told = nic.describe()
    assert (told.mode, told.carrier, told.mac, told.ipv4) == ("absent", False, "", None)
    table.told(link("nic0"), address("10.0.0.1"))
    told = nic.describe()
    assert (told.carrier, told.mac, told.ipv4, told.ipv6) == (True, "02:00:00:00:00:01", "10.0.0.1", None)
    nic.send(0)
    assert nic.drain(0) is None
    nic.probe([], 1)
    nic.close()
