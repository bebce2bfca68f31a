"""Probes by UD queue pair over a fake InfiniBand: path by path, by LIDs alone. No device was tried."""

from pathlib import Path

import pytest
from lid_subnet import HOP_NS, Subnet
from ud_fakes import KEY

from cwdp.cli.local.rdma_probe import choose_paths, format_address, parse_address
from cwdp.errors import ConfigError
from cwdp.rdma import sysfs
from cwdp.rdma.gid import gid_bytes
from cwdp.rdma.ib.lid import lid_gid
from cwdp.rdma.ib.udlink import LidLink, open_link
from cwdp.rdma.udprobe import REPLY_TIMEOUT_NS, UdPath, UdProber, check_path
from cwdp.shared.bus.messages import UdAddress

LIDS = {"ib_0": (16, 2), "ib_1": (32, 2)}


@pytest.fixture
def subnet(monkeypatch: pytest.MonkeyPatch) -> Subnet:
    return Subnet(monkeypatch, LIDS)


def probers(subnet: Subnet) -> tuple[UdProber, UdProber]:
    a, b = (UdProber(subnet.link(device), {1: KEY}, 1, subnet.clock) for device in LIDS)
    return a, b


def test_each_path_there_and_back_is_probed_and_answered(subnet: Subnet) -> None:
    a, b = probers(subnet)
    paths = choose_paths(a.address, b.address, 8)
    assert [(path.sport, path.reply_sport) for path in paths] == [(32, 16), (33, 17), (34, 18), (35, 19)]
    a.send(paths)
    b.poll()
    samples = a.poll()
    assert [sample.path for sample in samples] == paths
    assert subnet.log == [(16, 32 + n, 0) for n in range(4)] + [(32, 16 + n, 0) for n in range(4)]
    assert (a.counters["answered"], b.counters["reflected"], b.counters["malformed"]) == (4, 4, 0)


def test_delays_are_those_of_the_path(subnet: Subnet) -> None:
    a, b = probers(subnet)
    a.send([UdPath(b.address, 33, 17)])
    b.poll()
    (sample,) = a.poll()
    assert sample.exchange is not None
    there_ns = sample.exchange.t2_ns - sample.exchange.t1_ns
    assert (there_ns, sample.rtt_ns) == (pytest.approx(HOP_NS, abs=100), pytest.approx(2 * HOP_NS, abs=200))


@pytest.mark.parametrize("dead", [{33}, {17}, {33, 34}])
def test_a_silent_path_is_lost_alone(subnet: Subnet, dead: set[int]) -> None:
    a, b = probers(subnet)
    subnet.dead = dead
    a.send(choose_paths(a.address, b.address, 4))
    b.poll()
    subnet.now_ns += REPLY_TIMEOUT_NS
    lost = {sample.path for sample in a.poll() if sample.exchange is None}
    assert {number % 16 for number in dead} == {path.sport - 32 for path in lost}


def test_an_address_says_all_lids_and_can_be_written_down(subnet: Subnet) -> None:
    address = subnet.link("ib_1").address
    assert (gid_bytes(address.gid), address.sports) == (lid_gid(32), (32, 33, 34, 35))
    assert parse_address(format_address(address)) == address


@pytest.mark.parametrize("lmc", [0, 3, 7])
def test_a_port_has_as_many_paths_as_its_lmc_allows_up_to_a_bound(subnet: Subnet, lmc: int) -> None:
    subnet.lids["ib_0"] = (128, lmc)
    assert len(subnet.link("ib_0").address.sports) == min(1 << lmc, 64)


@pytest.mark.parametrize(
    ("lid", "reply"), [(36, 16), (31, 16), (32, 20), (32, 15), (0, 16), (50_001, 50_002)]
)
def test_a_lid_of_somebody_else_is_refused(subnet: Subnet, lid: int, reply: int) -> None:
    a, b = probers(subnet)
    with pytest.raises(ConfigError, match="is not of the port"):
        a.send([UdPath(b.address, lid, reply)])
    assert subnet.log == []


def test_nothing_goes_between_infiniband_and_roce(subnet: Subnet) -> None:
    a, _ = probers(subnet)
    there = UdAddress("::ffff:10.0.0.1", 7)
    with pytest.raises(ConfigError, match="cannot reach"):
        a.send([UdPath(there, 50_001, 50_002)])
    with pytest.raises(ConfigError, match="cannot reach"):
        check_path(there, UdPath(a.address, 50_001, 50_002))


def test_nobody_is_had_to_answer_to_a_third_port(subnet: Subnet) -> None:
    subnet.lids["ib_2"] = (300, 0)
    a, b = probers(subnet)
    liar = UdAddress(a.address.gid, a.address.qpn, (16, 300))
    a.address = liar
    a.send([UdPath(b.address, 32, 300)])
    b.poll()
    assert (b.counters["unreflected"], b.counters["reflected"]) == (1, 0)


def test_a_probe_that_claims_to_be_anothers_is_not_answered(subnet: Subnet) -> None:
    """Source LIDs are signed."""
    subnet.lids["ib_2"] = (64, 0)
    other = UdProber(subnet.link("ib_2"), {1: KEY}, 1, subnet.clock)
    _, b = probers(subnet)
    other.send([UdPath(b.address, 32, 64)])
    subnet.lids["ib_2"] = (65, 0)
    other.send([UdPath(b.address, 32, 64)])
    b.poll()
    assert (b.counters["reflected"], b.counters["bad_mac"]) == (1, 1)


@pytest.mark.parametrize(
    ("pkeys", "index"),
    [
        ({0: 0xFFFF}, 0),
        ({0: 0x7FFF, 2: 0x8001}, 2),
        ({0: 0x8001, 5: 0xFFFF}, 5),
        ({1: 0x8002, 3: 0x8001}, 1),
    ],
)
def test_queue_pairs_are_of_a_partition_that_they_are_full_members_of(
    subnet: Subnet, pkeys: dict[int, int], index: int
) -> None:
    subnet.pkeys["ib_0"] = pkeys
    a, b = probers(subnet)
    a.send([UdPath(b.address, 32, 16)])
    assert subnet.log == [(16, 32, index)]


@pytest.mark.parametrize("pkeys", [{}, {0: 0x7FFF}])
def test_a_port_that_could_not_be_answered_is_refused(subnet: Subnet, pkeys: dict[int, int]) -> None:
    subnet.pkeys["ib_0"] = pkeys
    with pytest.raises(ConfigError, match="full member of no partition"):
        subnet.link("ib_0")


def test_a_port_without_a_lid_is_refused(subnet: Subnet) -> None:
    del subnet.lids["ib_0"]
    with pytest.raises(ConfigError, match="has no LID"):
        subnet.link("ib_0")


@pytest.mark.parametrize("now", [(48, 2), (16, 3), None])
def test_other_lids_are_another_address(subnet: Subnet, now: tuple[int, int] | None) -> None:
    link: LidLink = subnet.link("ib_0")
    link.check()
    if now is None:
        del subnet.lids["ib_0"]
    else:
        subnet.lids["ib_0"] = now
    with pytest.raises(ConfigError):
        link.check()


def test_a_port_is_opened_by_its_link_layer(subnet: Subnet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sysfs, "link_layer", lambda device, _: "InfiniBand" if device == "ib_0" else "Ethernet"
    )
    monkeypatch.setattr(sysfs, "gid", lambda *_: None)
    assert isinstance(open_link("ib_0", 1, 9, None, subnet.clock), LidLink)
    with pytest.raises(ConfigError, match="no RoCE v2 GID of index 9"):
        open_link("ib_1", 1, 9, None, subnet.clock)


def test_partitions_and_link_layers_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    port = tmp_path / "mlx5_0/ports/1"
    (port / "pkeys").mkdir(parents=True)
    (port / "link_layer").write_text("InfiniBand\n")
    for index, text in enumerate(("0xffff", "0x0000", "0x8000", "0x7ffe", "x")):
        (port / "pkeys" / str(index)).write_text(f"{text}\n")
    assert sysfs.pkeys("mlx5_0", 1, tmp_path) == {0: 0xFFFF, 3: 0x7FFE}
    assert sysfs.pkeys("mlx5_0", 2, tmp_path) == {}
    assert (sysfs.link_layer("mlx5_0", 1, tmp_path), sysfs.link_layer("mlx5_1", 1, tmp_path)) == (
        "InfiniBand",
        "",
    )
