"""`cwdp rdma probe`: addresses as one word, paths that both ends have, and what is told of each."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from ud_fakes import KEY, A, B, Clock, Link, Network

from cwdp.cli import main
from cwdp.cli.local import rdma_probe
from cwdp.cli.local.rdma_probe import choose_paths, format_address, parse_address
from cwdp.errors import ConfigError
from cwdp.rdma.udprobe import Received, UdProber
from cwdp.shared.bus.messages import UdAddress

ANY = UdAddress(A, 0x11)
SOME = UdAddress(B, 0x22, (50_001, 50_007, 50_003))


@pytest.mark.parametrize("address", [ANY, SOME])
def test_an_address_is_one_word(address: UdAddress) -> None:
    assert parse_address(format_address(address)) == UdAddress(
        parse_address(format_address(address)).gid, address.qpn, address.sports
    )
    assert format_address(SOME) == "fd00:2::1/34/50001,50007,50003"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "::1",
        "::1/",
        "::1/x",
        "10.0.0.1/5",
        "::1/0",
        "::1/16777216",
        "fd00::1/5/80",
        "::10/5/49152",
        "::10/5/0",
        "::1/5/50000,",
        "::1/5/6/7",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="is no address of a mirror") as caught:
        parse_address(text)
    assert caught.value.hint


def test_paths_are_those_that_both_ends_have() -> None:
    assert [path.reply_sport for path in choose_paths(ANY, SOME, 8)] == list(SOME.sports)
    many = choose_paths(ANY, UdAddress(B, 1), 64)
    assert len({path.sport for path in many}) == 64
    assert all(path.sport == path.reply_sport for path in many)
    assert [path.sport for path in choose_paths(SOME, ANY, 2)] == [50_001, 50_007]


class _RealTime(Clock):
    """What the command's own prober goes by."""

    def __call__(self) -> int:
        return time.monotonic_ns()


class _Answered(Link):
    """The link of A; B looks whenever A does."""

    def __init__(self, network: Network, mirror: UdProber) -> None:
        super().__init__(network, ANY)
        self._mirror = mirror

    def poll(self) -> list[Received]:
        self._mirror.poll()
        return super().poll()


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """What the command's link is on; B answers."""
    made = Network()
    made.clock = _RealTime()
    mirror = UdProber(Link(made, SOME), {1: KEY}, 1, made.clock)
    link = _Answered(made, mirror)
    monkeypatch.setattr(rdma_probe, "open_link", lambda *_: link)
    monkeypatch.setattr(rdma_probe, "INTERVAL_S", 0.01)
    yield made
    assert link.closed
    mirror.close()


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.toml"
    path.touch(mode=0o600)
    path.write_text(f'send = 1\n[[key]]\nid = 1\nsecret = "{KEY.hex()}"\n')
    return path


def _probe(keys: Path, *words: str) -> Result:
    where = ("--dev", "rxe0", "--gid-index", "1", "--keys", str(keys))
    return CliRunner().invoke(main, ["rdma", "probe", format_address(SOME), *where, *words])


@pytest.mark.usefixtures("network")
def test_answers_are_counted_by_path(keys: Path) -> None:
    result = _probe(keys, "--count", "3", "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["paths"]
    assert [row["reply_sport"] for row in rows] == list(SOME.sports)
    for row in rows:
        assert (row["sent"], row["lost"]) == (3, 0)
        assert 0 < row["rtt_min_ns"] <= row["rtt_p50_ns"] <= row["rtt_max_ns"]


@pytest.mark.usefixtures("network")
def test_the_table(keys: Path) -> None:
    result = _probe(keys, "--count", "1", "--paths", "1")
    assert result.exit_code == 0, result.output
    head, row = result.stdout.splitlines()
    assert head.split() == ["port", "back", "sent", "lost", "min", "p50", "max"]
    assert row.split()[1:4] == ["50001", "1", "0"]


def test_what_is_not_answered_is_lost(network: Network, keys: Path) -> None:
    network.lose = True
    result = _probe(keys, "--count", "2", "--paths", "1", "--json")
    (row,) = json.loads(result.stdout)["paths"]
    assert (row["sent"], row["lost"], row["rtt_min_ns"]) == (2, 2, None)
