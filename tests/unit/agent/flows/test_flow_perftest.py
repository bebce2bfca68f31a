"""Flows by perftest, of which a script says what version 4.5 says."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from cwdp.agent.flows import perftest
from cwdp.agent.flows.perftest import NOT_INSTALLED, NOT_PINNED, Limits, Perftest
from cwdp.agent.flows.programs import ProgramError
from cwdp.agent.flows.protocol import ProgramFlow, ProgramOrder, ProgramTold
from cwdp.agent.verbs.orders import VerbsSource
from cwdp.shared.bus.messages import SteerQp

LOCAL, PEER, SPORT = "10.1.0.1", "10.2.0.1", 50_123
LIMITS = Limits(margin_s=1, pinned_s=0.1, connect_s=2.0, late_s=1.0)
SOURCES = [
    VerbsSource("nic0", "rxe0", 1, 0, "fe80::1"),
    VerbsSource("nic0", "rxe0", 1, 2, "::ffff:10.1.0.1"),
    VerbsSource("nic1", "rxe1", 1, 1, "::ffff:10.1.0.9"),
]
BEGINNING = """
---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : rxe0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 Mtu             : 1024[B]
 Link type       : Ethernet
 GID index       : 2
---------------------------------------------------------------------------------------
 local address: LID 0000 QPN 0x0011 PSN 0x1a2b3c RKey 0x000a1b VAddr 0x007f0000000000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:01:00:01
 remote address: LID 0000 QPN 0x0102a4 PSN 0x4d5e6f RKey 0x000c2d VAddr 0x007f0000000000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:02:00:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
"""
END = """ 65536      4800             0.00               1.26               0.002400
---------------------------------------------------------------------------------------
"""
SAYS = f"cat <<'EOF'\n{BEGINNING}EOF\nsleep 0.1\ncat <<'EOF'\n{END}EOF"
REFUSED = 'echo "Couldn\'t connect to 10.2.0.1:18607" >&2; exit 1'


class Steering:
    """Keeps what is steered, and what was."""

    def __init__(self) -> None:
        self.pinned: list[SteerQp] = []
        self.were: list[SteerQp] = []

    def pin(self, one: SteerQp) -> None:
        self.pinned.append(one)
        self.were.append(one)

    def unpin(self, one: SteerQp) -> None:
        self.pinned.remove(one)


class Setup:
    """A host with perftest, as a script that appends what it is called with to a file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.steering, self.takes = Steering(), True
        self._program, self._called = tmp_path / perftest.PROGRAM, tmp_path / "called"
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        monkeypatch.setattr(perftest, "sources", lambda _nics: SOURCES)
        monkeypatch.setattr(perftest, "_takes", lambda _steer, _within_s: self.takes)

    @property
    def calls(self) -> list[str]:
        return self._called.read_text().splitlines()

    def run(
        self,
        script: str,
        *flows: ProgramFlow,
        cap_bps: int = 0,
        lasts_s: float = 2.5,
        shim: Path | None = None,
    ) -> Sequence[ProgramTold]:
        self._program.write_text(f'#!/bin/sh\necho "$@" >> {self._called}\n{script}\n')
        self._program.chmod(0o755)
        order = ProgramOrder(
            number=1,
            begin_s=0.0,
            begin_at_ns=time.monotonic_ns(),
            lasts_s=lasts_s,
            cap_bps=cap_bps,
            flows=list(flows),
        )
        program = Perftest(["nic0"], self.steering, LIMITS, shim=shim)
        return asyncio.run(program.run(order))


@pytest.fixture
def setup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Setup:
    return Setup(monkeypatch, tmp_path)


def flow(number: int = 7, *, nic: str = "nic0", sends: bool = True, sport: int = SPORT) -> ProgramFlow:
    return ProgramFlow(id=number, nic=nic, local_addr=LOCAL, peer_addr=PEER, sends=sends, sport=sport)


def _below_shim(number: int, *, sends: bool = True) -> ProgramFlow:
    """Of a NIC without a dataplane."""
    return ProgramFlow(id=number, nic="nic1", local_addr="10.1.0.9", peer_addr=PEER, sends=sends, sport=SPORT)


def test_what_was_carried_between_the_margins(setup: Setup) -> None:
    [told] = setup.run(SAYS, flow())
    assert told == ProgramTold(id=7, carried_bytes=4800 * 65536, took_s=1)
    assert setup.calls == [
        "-F --report_gbits -drxe0 -i1 -x2 -p18607 -s65536 -u14 -t16 -D3 -f1 --tclass=104 --source_ip=10.1.0.1 10.2.0.1"
    ]


def test_the_queue_pair_is_steered_while_it_sends_only(setup: Setup) -> None:
    setup.run(SAYS, flow())
    assert setup.steering.were == [SteerQp(nic="nic0", dst_addr=PEER, qpn=0x102A4, sport=SPORT)]
    assert setup.steering.pinned == []


def test_without_a_dataplane_the_shim_has_it_take_its_port(setup: Setup, tmp_path: Path) -> None:
    shim, seen = tmp_path / "libshim.so", tmp_path / "seen"
    script = f'echo "$LD_PRELOAD $CWDP_VERBS $CWDP_VERBS_SPORT" > {seen}\n{SAYS}'
    [told] = setup.run(script, _below_shim(7), shim=shim)
    assert told == ProgramTold(id=7, carried_bytes=4800 * 65536, took_s=1)
    library, *others = seen.read_text().split()
    assert library.split(":")[0] == str(shim)
    assert others == ["off", str(SPORT)]
    assert setup.steering.were == []


def test_one_that_the_dataplane_does_not_move_is_ended(setup: Setup) -> None:
    setup.takes = False
    [told] = setup.run(f"cat <<'EOF'\n{BEGINNING}EOF\nsleep 1000", flow())
    assert told.trouble == "the dataplane of nic0 did not take its queue pair to port 50123"
    assert setup.steering.pinned == []


def test_a_client_tries_until_the_server_is_there(setup: Setup, tmp_path: Path) -> None:
    there = tmp_path / "there"
    [told] = setup.run(f"if [ ! -e {there} ]; then touch {there}; {REFUSED}; fi\n{SAYS}", flow())
    assert (told.trouble, told.carried_bytes > 0, len(setup.calls)) == ("", True, 2)


def test_a_server_that_never_comes(setup: Setup) -> None:
    [told] = setup.run(REFUSED, flow())
    assert told.trouble == "ib_write_bw failed: Couldn't connect to 10.2.0.1:18607"
    assert len(setup.calls) > 2


def test_one_that_fails_once_it_is_connected_is_not_tried_again(setup: Setup) -> None:
    script = f"cat <<'EOF'\n{BEGINNING}EOF\necho ' Completion with error at client' >&2; exit 1"
    [told] = setup.run(script, flow())
    assert told.trouble == "ib_write_bw failed: Completion with error at client"
    assert len(setup.calls) == 1
    assert setup.steering.pinned == []


def test_one_that_hangs(setup: Setup) -> None:
    [told] = setup.run(f"cat <<'EOF'\n{BEGINNING}EOF\nsleep 1000", flow())
    assert told.trouble == "ib_write_bw did not end within 4 s and was killed"
    assert setup.steering.pinned == []


def test_one_that_says_something_else(setup: Setup) -> None:
    [told] = setup.run(f"cat <<'EOF'\n{BEGINNING}EOF", flow())
    assert told.trouble == "ib_write_bw did not say what was carried"
    [told] = setup.run("yes", flow(8))
    assert told.trouble == "ib_write_bw said more than 1000 lines"


def test_a_server_serves_the_port_that_its_flows_number_says(setup: Setup) -> None:
    [told] = setup.run(SAYS, flow(perftest.PORTS[-1] - perftest.PORTS[0] + 3, sends=False))
    assert told.trouble == ""
    assert setup.calls[0].endswith("-p18602 -s65536 -u14 -t16 -D3 -f1 --tclass=104 --source_ip=10.1.0.1")
    assert setup.steering.were == []


def test_a_server_that_fails_is_told(setup: Setup) -> None:
    [told] = setup.run("echo 'Unable to find the Infiniband/RoCE device' >&2; exit 1", flow(sends=False))
    assert told.trouble == "ib_write_bw failed: Unable to find the Infiniband/RoCE device"


def test_a_server_that_nobody_comes_to_is_no_trouble_of_this_host(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perftest.Limits, "lasts_s", lambda *_: 0)
    [told] = setup.run("sleep 1000", flow(sends=False))
    assert told == ProgramTold(id=7)


def test_a_cap_is_kept_by_the_sender(setup: Setup) -> None:
    """Without a dataplane by perftest itself; with one a slice holds it, and it is seen whether that does."""
    ends = (_below_shim(7), _below_shim(8, sends=False))
    told, _ = setup.run(SAYS, *ends, cap_bps=2_500_000_000, shim=Path("/nowhere/libshim.so"))
    assert told.trouble == ""
    receives, sends = sorted(setup.calls, key=lambda call: "10.2.0.1" in call)
    assert "--rate_limit_type=SW --rate_units=g --rate_limit=2.5" in sends
    assert "--rate_limit" not in receives
    [told] = setup.run(SAYS, flow(), cap_bps=1_000_000_000)
    assert "--rate_limit" not in setup.calls[-1]
    assert told.trouble == "ib_write_bw did not keep to the cap of 1000000000 bit/s"


def test_a_flow_that_carried_nothing(setup: Setup) -> None:
    [told] = setup.run(SAYS.replace("4800", "0"), flow())
    assert told.trouble == "ib_write_bw carried no message of 65536 bytes within 1 s"


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (flow(nic="nic1"), NOT_PINNED),
        (flow(sport=4_000), "queue pairs have source ports from 49152 on"),
    ],
    ids=["no dataplane", "port"],
)
def test_a_path_that_cannot_be_chosen_is_told(setup: Setup, asked: ProgramFlow, why: str) -> None:
    assert setup.run(SAYS, asked) == [ProgramTold(id=7, trouble=why)]


def test_a_nic_without_rdma(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest, "sources", lambda _nics: SOURCES[:1])
    [told] = setup.run(SAYS, flow())
    assert told.trouble == "no RDMA device has a RoCE v2 GID of nic0's address 10.1.0.1"


def test_a_host_without_perftest(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perftest, "PROGRAM", "ib_write_bw_of_nobody")
    with pytest.raises(ProgramError, match="is not installed") as caught:
        setup.run(SAYS, flow())
    assert str(caught.value) == NOT_INSTALLED
