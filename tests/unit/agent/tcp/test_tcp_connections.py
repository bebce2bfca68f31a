"""Which of the kernel's sockets are a service's, and what is told of them each time."""

from ipaddress import ip_address
from typing import Any

import numpy as np
import pytest

from cwdp.agent.tcp import connections as module
from cwdp.agent.tcp.connections import Connections, Named, Told
from cwdp.agent.tcp.diag import SOCKET, Sockets
from cwdp.agent.tcp.services import Service
from cwdp.shared.addresses import address_bytes
from cwdp.shared.connections import CLOSED, connection_keys, far_keys

NICS = {"nic0": ["10.0.0.1", "fd00::1"], "nic1": ["10.0.1.1"]}
SERVICES = [Service(name="a", ports=[(5201, 5210)]), Service(name="b"), Service(name="c", ports=[(80, 80)])]
NAMED = Named(SERVICES, [(), (77,), ()], [(), (), (900,)], refused_ports=(22, 4222), refused_cgroups=(66,))


def packed(text: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(address_bytes(ip_address(text)), np.uint8)


def sockets(*told: dict[str, Any]) -> Sockets:
    rows = np.zeros(len(told), SOCKET)
    for number, one in enumerate(told):
        given = {
            "local": "10.0.0.1",
            "remote": "10.0.9.9",
            "state": 1,
            "has_info": 1,
            "cookie": number + 1,
        } | one
        for end in ("local", "remote"):
            rows[number][f"{end}_addr"] = packed(given.pop(end))
        for name, value in given.items():
            rows[number][name] = value
    return rows


def take(made: Connections, told: Sockets, *, in_full: bool = False) -> Told:
    return made.take(told, NAMED, NICS, in_full=in_full)


def ports(told: Told) -> list[tuple[int, int]]:
    return sorted((int(row["local_port"]), int(row["state"])) for row in told.rows)


def test_a_connection_is_the_first_services_that_fits() -> None:
    told = take(
        Connections(),
        sockets(
            {"local_port": 5205, "remote_port": 1},
            {"local_port": 2, "remote_port": 5210, "cgroup": 77},
            {"local_port": 3, "remote_port": 5211, "cgroup": 77},
            {"local_port": 4, "remote_port": 9, "inode": 900},
            {"local_port": 5, "remote_port": 80},
            {"local_port": 6, "remote_port": 5211, "cgroup": 78, "inode": 901},
        ),
    )
    assert {int(row["local_port"]): int(row["service"]) for row in told.rows} == {
        5205: 0,
        2: 0,
        3: 1,
        4: 2,
        5: 2,
    }


@pytest.mark.parametrize(
    "never",
    [
        {"local_port": 22, "remote_port": 5201},
        {"local_port": 5201, "remote_port": 22},
        {"local_port": 4222, "remote_port": 9, "inode": 900},
        {"local_port": 9, "remote_port": 4222, "cgroup": 77},
        {"local_port": 5201, "remote_port": 9, "cgroup": 66},
    ],
    ids=str,
)
def test_ssh_and_the_bus_are_nobodys_whatever_names_them(never: dict[str, int]) -> None:
    made = Connections()
    for _ in range(3):
        assert not len(take(made, sockets(never), in_full=True).rows)
    assert made.counters["tcp_refused"] == 1


def test_connections_from_other_addresses_are_counted_once_and_not_told() -> None:
    made = Connections()
    for _ in range(3):
        assert not len(take(made, sockets({"local": "127.0.0.1", "local_port": 5201})).rows)
    assert made.counters["tcp_other_address"] == 1


def test_a_connection_is_told_by_the_nic_that_has_its_address() -> None:
    told = take(
        Connections(),
        sockets(
            {"local_port": 5201},
            {"local": "10.0.1.1", "local_port": 5202},
            {"local": "fd00::1", "remote": "fd00::9", "local_port": 5203},
        ),
    )
    assert dict(zip(told.rows["local_port"].tolist(), told.nic.tolist(), strict=True)) == {
        5201: 0,
        5202: 1,
        5203: 0,
    }


def test_what_has_not_changed_is_told_in_full_only() -> None:
    made, there = Connections(), sockets({"local_port": 5201, "bytes_sent": 5}, {"local_port": 5202})
    assert ports(take(made, there)) == [(5201, 1), (5202, 1)]
    assert ports(take(made, there)) == []
    there["bytes_sent"][0] = 6
    there["rtt_us"][1] = 400
    assert ports(take(made, there)) == [(5201, 1)]
    assert ports(take(made, there, in_full=True)) == [(5201, 1), (5202, 1)]
    assert made.count == 2


def test_what_is_gone_is_told_once_as_closed_with_what_it_last_had() -> None:
    made = Connections()
    take(made, sockets({"local_port": 5201, "bytes_acked": 70}, {"local_port": 5202}))
    told = take(made, sockets({"local_port": 5202}))
    assert ports(told) == [(5201, CLOSED)]
    assert (told.rows["bytes_acked"][0], told.nic[0], told.inodes[0]) == (70, 0, 0)
    assert ports(take(made, sockets({"local_port": 5202}))) == []
    assert made.counters["tcp_closed"] == 1
    assert ports(take(made, sockets({"local_port": 5202, "has_info": 0}))) == [(5202, CLOSED)]


def test_there_is_a_limit_and_the_least_busy_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LISTED", 3)
    made = Connections()
    told = take(
        made,
        sockets(
            *(
                {"local_port": 5201, "remote_port": n, "bytes_acked": n, "local": NICS[f"nic{n % 2}"][0]}
                for n in range(8)
            )
        ),
    )
    assert sorted(told.rows["remote_port"].tolist()) == [5, 6, 7]
    assert told.unlisted == {0: 3, 1: 2}
    assert made.counters["tcp_unlisted"] == 5


def test_of_many_that_are_gone_at_once_so_many_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LISTED", 5)
    monkeypatch.setattr(module, "MOST_CLOSED", 2)
    made = Connections()
    take(made, sockets(*({"local_port": 5201, "remote_port": n} for n in range(1, 5))))
    told = take(made, sockets(*({"local_port": 5201, "remote_port": n} for n in range(11, 16))))
    assert (told.rows["state"] == CLOSED).sum() == 2
    assert len(told.rows) == len(told.nic) == len(told.inodes) == 5
    assert (made.counters["tcp_closed"], made.counters["tcp_unlisted"]) == (4, 2)


def test_keys_of_both_ends_name_the_same_connection() -> None:
    here = take(Connections(), sockets({"local_port": 5201, "remote_port": 40_000}))
    there = Connections().take(
        sockets({"local": "10.0.9.9", "remote": "10.0.0.1", "local_port": 40_000, "remote_port": 5201}),
        NAMED,
        {"eth0": ["10.0.9.9"]},
        in_full=False,
    )
    assert far_keys(connection_keys(here.rows)) == connection_keys(there.rows)
    assert far_keys(far_keys(connection_keys(here.rows))) == connection_keys(here.rows)


def test_nothing_is_told_of_nothing() -> None:
    told = take(Connections(), sockets(), in_full=True)
    assert (len(told.rows), told.unlisted) == (0, {})
