"""`cwdp rdma`: tables that fit a terminal, JSON, and what is said where something is missing."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cwdp.cli import main
from cwdp.cli.local import rdma as command
from cwdp.rdma import netlink, sysfs, verbs
from cwdp.rdma.netlink import QueuePair
from cwdp.rdma.sysfs import Counter, Device, Gid, Port
from cwdp.rdma.verbs import DeviceLimits, VerbsMissingError

DEVICES = [
    Device("mlx5_0", "CA", "22.31.1014", "0c42:a103:0001:0002"),
    Device("rxe0", "CA", None, "7822:19ff:fec0:1"),
]
QUEUE_PAIRS = [
    QueuePair("mlx5_0", 1, 1, None, "GSI", "RTS", 0, None, None, None, "ib_core"),
    QueuePair("mlx5_0", 1, 0xFFFFF, 0x2A, "RC", "RTS", 16777215, 700, "MIGRATED", 4711, None),
]


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "4711").mkdir()
    (tmp_path / "4711" / "comm").write_text("python3\n")
    monkeypatch.setattr(command, "PROC", tmp_path)
    return tmp_path


@pytest.fixture
def host(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with two devices."""
    monkeypatch.setattr(sysfs, "devices", lambda: DEVICES)
    monkeypatch.setattr(
        sysfs,
        "ports",
        lambda: [
            Port("mlx5_0", 1, "ACTIVE", "LinkUp", "Ethernet", 400_000_000_000, "enp175s0f0np0"),
            Port("rxe0", 1, "DOWN", "Disabled", "Ethernet", None, None),
        ],
    )
    monkeypatch.setattr(
        sysfs,
        "gids",
        lambda: [Gid("mlx5_0", 1, 3, "fd00:1234:5678:9abc:def0:1234:5678:9abc", "RoCE v2", "eth0")],
    )
    monkeypatch.setattr(
        sysfs, "counters", lambda: [Counter("mlx5_0", 1, "hw_counters", "out_of_sequence", 1234567)]
    )
    monkeypatch.setattr(netlink, "drivers", lambda: {"mlx5_0": "mlx5", "rxe0": "rxe"})
    monkeypatch.setattr(netlink, "queue_pairs", lambda: QUEUE_PAIRS)
    monkeypatch.setattr(verbs, "limits", lambda _, ports: DeviceLimits(262144, dict.fromkeys(ports, 4096)))


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["rdma", *words])


@pytest.mark.parametrize("noun", ["device", "port", "gid", "counter", "qp"])
@pytest.mark.usefixtures("host")
def test_tables_fit_80_columns_and_json_has_every_row(noun: str) -> None:
    table = run(noun)
    assert table.exit_code == 0, table.output
    assert max(map(len, table.stdout.rstrip().splitlines())) <= 80
    assert table.stderr == ""
    rows = next(iter(json.loads(run(noun, "--json").stdout).values()))
    assert len(rows) == len(table.stdout.splitlines()) - 1


@pytest.mark.usefixtures("host")
def test_owners_of_queue_pairs() -> None:
    table = run("qp").stdout
    assert "[ib_core]" in table
    assert "python3 4711" in table
    rows = json.loads(run("qp", "--json").stdout)["queue_pairs"]
    assert [(row["pid"], row["comm"], row["kernel_owner"]) for row in rows] == [
        (None, None, "ib_core"),
        (4711, "python3", None),
    ]


@pytest.mark.usefixtures("host")
def test_an_owner_that_is_gone(proc: Path) -> None:
    (proc / "4711" / "comm").unlink()
    assert json.loads(run("qp", "--json").stdout)["queue_pairs"][1]["comm"] is None
    assert "- 4711" in run("qp").stdout


@pytest.mark.usefixtures("host")
def test_devices_count_their_queue_pairs() -> None:
    rows = json.loads(run("device", "--json").stdout)["devices"]
    assert [(row["driver"], row["queue_pairs"], row["max_queue_pairs"]) for row in rows] == [
        ("mlx5", 2, 262144),
        ("rxe", 0, 262144),
    ]


@pytest.mark.usefixtures("host")
def test_one_device() -> None:
    assert json.loads(run("qp", "--dev", "rxe0", "--json").stdout) == {"queue_pairs": []}
    wrong = run("gid", "--dev", "nope")
    assert wrong.exit_code == 2
    assert "mlx5_0, rxe0" in wrong.stderr


@pytest.mark.usefixtures("host")
def test_without_pyverbs_the_rest_is_shown_and_the_package_named_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str, ports: list[int]) -> DeviceLimits:
        raise VerbsMissingError("pyverbs is missing", "install python3-pyverbs")

    monkeypatch.setattr(verbs, "limits", missing)
    found = run("port", "--json")
    assert found.exit_code == 0
    assert [row["mtu_bytes"] for row in json.loads(found.stdout)["ports"]] == [None, None]
    assert found.stderr.count("python3-pyverbs") == 1


@pytest.mark.parametrize("noun", ["device", "port", "gid", "counter", "qp"])
def test_a_host_without_rdma_says_so(noun: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysfs, "_device_folders", lambda _: [])
    found = run(noun, "--json")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "no RDMA device" in found.stderr
    assert "modprobe" in found.stderr
